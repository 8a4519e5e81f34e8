"""What the active processes of a table need: nobody else may remove it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from amoro_core.actions.contract import Action
from amoro_core.model.commits import Evidence, RefAt, SnapshotAdded, SnapshotsGone, StatisticsGone, StatisticsNamed
from amoro_core.store import processes, tables
from amoro_core.store.database import Connection
from amoro_core.transactions.cases import read_case

_ALL = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Pins:
    """Snapshots and files that must stay."""

    snapshot_ids: frozenset[int]
    paths: frozenset[str]
    reasons: Mapping[int, str] = field(default_factory=dict, compare=False)  # of each snapshot


def pins(db: Connection, table_id: int, find_action: Callable[[str], Action], own: str = "") -> Pins:
    """What every active process of the table pins, under any of its names, one whose commit is unknown too; not `own`.

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


def _named(evidence: Evidence) -> tuple[int, ...]:
    match evidence:
        case SnapshotAdded(snapshot_id, parent_id):
            return snapshot_id, parent_id
        case SnapshotsGone(snapshot_ids):
            return snapshot_ids
        case RefAt(_, snapshot_id):
            return (snapshot_id,)
        case StatisticsNamed(snapshot_id) | StatisticsGone(snapshot_id):
            return (snapshot_id,)
