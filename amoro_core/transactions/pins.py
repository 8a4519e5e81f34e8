"""Snapshots and files that active processes of a table need, and that others must not remove."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from amoro_core.actions.contract import Action, Based
from amoro_core.errors import TableBusy
from amoro_core.model.commits import (
    Evidence,
    RefAt,
    SnapshotAdded,
    SnapshotsGone,
    SortOrderAdded,
    StatisticsGone,
    StatisticsNamed,
)
from amoro_core.model.lanes import FILES, LAYOUT
from amoro_core.model.maintenance import NOTHING_TAKEN, Taken
from amoro_core.model.paths import normalise
from amoro_core.model.processes import OptimizingProcess
from amoro_core.records import record
from amoro_core.store import condemned, processes, tables
from amoro_core.store.database import Connection
from amoro_core.transactions.cases import read_case

_ALL = 2**31 - 1


@record
class Pins:
    """Snapshots and files that must stay."""

    snapshot_ids: frozenset[int]
    paths: frozenset[str]
    reasons: Mapping[int, str] = field(default_factory=dict, compare=False)  # of each snapshot


def pins(db: Connection, table_id: int, find_action: Callable[[str], Action], own: str = "") -> Pins:
    """What every active process of the table pins, under any of its names, also with an unknown commit; except `own`.

    Snapshots: on which it was planned, and all of its attempts. Files: what its tasks read and have written, what its
    attempts add with their manifests, and what it is about to remove itself. Raises TableNotFound.
    """
    runtime = tables.get(db, table_id)
    reasons: dict[int, str] = {}
    paths: set[str] = set()
    for process in processes.list_active_of(db, table_id, runtime.uuid):
        if process.process_id == own:
            continue
        case, action = read_case(db, process.process_id), find_action(process.action)
        words = f"process {process.process_id} ({process.type})"
        reasons[process.snapshot_id] = words
        paths.update(action.inputs(case))
        paths.update(action.outputs(case, frozenset(result.number for result in case.results)))
        paths.update(processes.list_clearing(db, process.process_id, _ALL))
        for attempt in case.attempts:
            reasons.update(dict.fromkeys(_named(attempt.evidence), words))
            paths.update((*attempt.files, *attempt.metadata_files))
    return Pins(frozenset(reasons), frozenset(paths), reasons)


def bases(db: Connection, table_id: int, find_action: Callable[[str], Action]) -> frozenset[str]:
    """The earlier states of the table that processes need which have not ended or can be undone: metadata files."""
    waiting = {one.process_id for one in condemned.list_facts(db, table_id)}
    active = {one.process_id for one in processes.list_active_of(db, table_id)}
    cases = [read_case(db, process_id) for process_id in sorted(waiting | active)]
    actions = ((case, find_action(case.process.type)) for case in cases)
    return frozenset(action.base(case) for case, action in actions if isinstance(action, Based))


def taken(
    db: Connection,
    table_id: int,
    table_uuid: str,
    find_action: Callable[[str], Action],
    known: Taken = NOTHING_TAKEN,
    own: str = "",
) -> Taken:
    """The files of every plan of the table, under any of its names, that replaces files; not those of `own`.

    `find_action` finds one by its own name. `known` is what was read before: the files of a plan never change, so
    these are not read again.
    """
    paths, found = dict(known.paths), set(known.processes)
    for process in processes.list_active_of(db, table_id, table_uuid):
        if process.lane not in (FILES, LAYOUT) or process.process_id in (*found, own):
            continue
        found.add(process.process_id)
        words = f"process {process.process_id} ({process.type}, {process.status})"
        action = find_action(process.action)
        paths.update(dict.fromkeys(map(normalise, action.inputs(read_case(db, process.process_id))), words))
    return Taken(paths, frozenset(found))


def require_untaken(
    db: Connection,
    process: OptimizingProcess,
    data_files: Iterable[str],
    known: Taken,
    find_action: Callable[[str], Action],
) -> None:
    """Raise TableBusy where another plan has one of the files that the process is to replace.

    `known` is what was left out when it was planned, so that only plans stored since then are read.
    """
    since = taken(db, process.table_id, process.table_uuid, find_action, known, process.process_id)
    both = [(path, words) for path in data_files if (words := since.paths.get(normalise(path))) is not None]
    if both:
        path, words = both[0]
        raise TableBusy(
            f"{len(both)} files of the plan are in another one by now: {path} is in that of {words}",
            hint="Try again: they are left out then.",
        )


def _named(evidence: Evidence) -> tuple[int, ...]:
    match evidence:
        case SnapshotAdded(snapshot_id, parent_id):
            return snapshot_id, parent_id
        case SnapshotsGone(snapshot_ids):
            return snapshot_ids
        case RefAt(_, snapshot_id):
            return (snapshot_id,)
        case SortOrderAdded():
            return ()
        case StatisticsNamed(snapshot_id) | StatisticsGone(snapshot_id):
            return (snapshot_id,)
