"""The context of a process, its reserved files, and commits of parts of it."""

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.actions.action_api import Action, Based, Request, Undoing
from amoro_core.documents.formatting import many
from amoro_core.errors import CannotUndo, CatalogNotFound, CommitConflict, InvalidArgument, TableBusy, TableRefused
from amoro_core.formats.ports import OpenTable, Rewritable
from amoro_core.formats.tables import Tables
from amoro_core.model.clustering import ClusteredGroup
from amoro_core.model.commits import (
    PROCESS_ID,
    Evidence,
    RefAt,
    SnapshotAdded,
    SnapshotsRemoved,
    SortOrderAdded,
    StatisticsNamed,
    StatisticsRemoved,
)
from amoro_core.model.maintenance import NOTHING_TAKEN, ReservedFiles
from amoro_core.model.optimizing_config import OptimizingConfig, effective_properties, parse_config
from amoro_core.model.paths import normalise
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import (
    FILES,
    LAYOUT,
    Change,
    CommitAttempt,
    CommitOutcome,
    OptimizingProcess,
    ProcessContext,
    ProcessStatus,
    TaskResult,
    TaskStatus,
)
from amoro_core.model.tables import SnapshotFacts, TableRuntime
from amoro_core.model.task_payload import Work
from amoro_core.state import processes as process_machine
from amoro_core.state import tasks as task_machine
from amoro_core.state.backoff import Outcome
from amoro_core.store import actions, pending_deletions, processes, queue_stats, table_stats, tables, tasks
from amoro_core.store.database import Connection
from amoro_core.transactions.advance_process import (
    Effects,
    advance_process,
    cancel_open_tasks,
    end_process,
    move_process,
    partial_end,
    release_table,
    settled_groups,
)
from amoro_core.transactions.journal import advance_task


def read_context(db: Connection, process_id: str) -> ProcessContext:
    """The process with its table, the results of its finished tasks and its attempts. Raises ProcessNotFound."""
    process = processes.get(db, process_id)
    listed = tasks.list_for_process(db, process_id)
    results, open_work = [], []
    dropped = frozenset(table_stats.list_dropped_groups(db, process_id))
    for task in listed:
        stored = tasks.read_output(db, task.task_id)
        given = tasks.read_input(db, task.task_id)
        if task.status is not TaskStatus.SUCCESS or stored is None:
            open_work.append(Work(task.kind, given))
        else:
            results.append(TaskResult(task.task_id.number, task.kind, given, stored[1]))
    attempts = tuple(processes.list_commits(db, process_id))
    runtime = tables.get(db, process.table_id)
    return ProcessContext(process, runtime, tuple(results), attempts, len(listed), tuple(open_work), dropped=dropped)


def open_planned(tables_of: Tables, case: ProcessContext) -> OpenTable:
    """The planned table, reloaded. Raises TableNotFound, CommitConflict when its name belongs to another table."""
    identifier = case.runtime.identifier
    table = tables_of.open(identifier)
    if table.facts.uuid != case.process.table_uuid:
        raise CommitConflict(
            f"{identifier} is another table: UUID {table.facts.uuid}, planned on {case.process.table_uuid}",
            hint="It was dropped and created again, or renamed; what has the name now is optimized on its own.",
        )
    return table


def attempt_of(case: ProcessContext, change: Change, now: datetime) -> CommitAttempt:
    """The next attempt of the case: the change, with the receipt that it gets if it lands."""
    return CommitAttempt(
        process_id=case.process.process_id,
        number=len(case.attempts) + 1,
        evidence=change.evidence,
        payload=change.payload,
        groups=change.groups,
        files=change.files,
        metadata_files=change.metadata_files,
        outcome=CommitOutcome.SENT,
        created_at=now,
        receipt=change.receipt,
        part=1 + sum(attempt.outcome is CommitOutcome.DONE for attempt in case.attempts),
    )


def refuse_second(case: ProcessContext, snapshots: Iterable[SnapshotFacts]) -> None:
    """Raise CommitConflict where a snapshot of the process is in the table that the state database does not know."""
    process_id = case.process.process_id
    ids = {attempt.snapshot_id for attempt in case.attempts if attempt.outcome is CommitOutcome.DONE}
    for snapshot_facts in snapshots:
        if snapshot_facts.summary.get(PROCESS_ID) == process_id and snapshot_facts.snapshot_id not in ids:
            raise CommitConflict(
                f"snapshot {snapshot_facts.snapshot_id} of process {process_id} is in the table already",
                hint="The state database is an older copy than the table, which stays as it is.",
            )


_ALL = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Pins:
    """Snapshots, by id with the reason, and files that must stay."""

    reasons: Mapping[int, str]
    paths: frozenset[str]


def pins(db: Connection, table_id: int, find_action: Callable[[str], Action], own: str = "") -> Pins:
    """Snapshots and files that active processes of the table need, also with an unknown commit; without `own`.

    Snapshots: on which it was planned, and all of its attempts. Files: what its tasks read and have written, what its
    attempts add with their manifests, and what it is about to remove itself. Raises TableNotFound.
    """
    runtime = tables.get(db, table_id)
    reasons: dict[int, str] = {}
    paths: set[str] = set()
    for process in processes.list_active_of(db, table_id, runtime.uuid):
        if process.process_id == own:
            continue
        case, action = read_context(db, process.process_id), find_action(process.action)
        words = f"process {process.process_id} ({process.type})"
        reasons[process.snapshot_id] = words
        paths.update(action.inputs(case))
        paths.update(action.outputs(case, frozenset(result.number for result in case.results)))
        paths.update(processes.list_clearing(db, process.process_id, _ALL))
        for attempt in case.attempts:
            reasons.update(dict.fromkeys(_snapshots_of(attempt.evidence), words))
            paths.update((*attempt.files, *attempt.metadata_files))
    return Pins(reasons, frozenset(paths))


def base_metadata_files(db: Connection, table_id: int, find_action: Callable[[str], Action]) -> frozenset[str]:
    """The earlier states of the table that processes need which have not ended or can be undone: metadata files."""
    waiting = {batch.process_id for batch in pending_deletions.list_facts(db, table_id)}
    active = {process.process_id for process in processes.list_active_of(db, table_id)}
    cases = [read_context(db, process_id) for process_id in sorted(waiting | active)]
    actions = ((case, find_action(case.process.type)) for case in cases)
    return frozenset(action.base(case) for case, action in actions if isinstance(action, Based))


def reserved_files(
    db: Connection,
    table_id: int,
    table_uuid: str,
    find_action: Callable[[str], Action],
    now: datetime,
    reserved: ReservedFiles = NOTHING_TAKEN,
    own: str = "",
) -> ReservedFiles:
    """The files of every plan of the table, under any of its names, that replaces files; not those of `own`. And the
    blockers of some of its partitions, whose files `with_blocked` adds.

    `find_action` finds one by its own name. `reserved` is what was read before: the files of a plan never change, so
    these are not read again.
    """
    paths, process_ids = dict(reserved.paths), set(reserved.processes)
    for process in processes.list_active_of(db, table_id, table_uuid):
        if process.lane not in (FILES, LAYOUT) or process.process_id in (*process_ids, own):
            continue
        process_ids.add(process.process_id)
        words = f"process {process.process_id} ({process.type}, {process.status})"
        action = find_action(process.action)
        paths.update(dict.fromkeys(map(normalise, action.inputs(read_context(db, process.process_id))), words))
    blockers = tuple(blocker for blocker in actions.list_blockers(db, now, table_id) if blocker.condition)
    return ReservedFiles(paths, frozenset(process_ids), blockers)


def with_blocked(reserved: ReservedFiles, table: Rewritable) -> ReservedFiles:
    """The same with the live files in the partitions that are blocked, also in those that may be."""
    if not reserved.blockers or (scan := table.scan()) is None:
        return reserved
    paths = dict(reserved.paths)
    for blocker in reserved.blockers:
        holds, words = holder(table, blocker.condition), f"a writer (blocker {blocker.blocker_id}: {blocker.condition})"
        for file in (item.data for item in scan.files):
            if holds(PartitionKey(file.spec_id, file.partition)):
                paths.setdefault(normalise(file.path), words)
    return replace(reserved, paths=paths)


def holder(table: Rewritable, condition: str) -> Callable[[PartitionKey], bool]:
    """Whether a blocker's condition may hold in a partition; in every one if it tells nothing about the table as it is
    by now."""
    try:
        return table.chooses(condition, widely=True)
    except InvalidArgument:
        return lambda key: True


def require_unreserved(
    db: Connection,
    process: OptimizingProcess,
    data_files: Collection[str],
    earlier: ReservedFiles,
    find_action: Callable[[str], Action],
    now: datetime,
) -> None:
    """Raise TableBusy where a plan that is not in `earlier` has one of the files that the process is to replace, or
    some partitions were blocked since."""
    since = reserved_files(db, process.table_id, process.table_uuid, find_action, now, earlier, process.process_id)
    blocker_ids = [blocker.blocker_id for blocker in earlier.blockers]
    if data_files and (new := [blocker for blocker in since.blockers if blocker.blocker_id not in blocker_ids]):
        raise TableBusy(
            f"while this was planned the table was {new[0].words}", hint="Try again: that is left out then."
        )
    both = [path for path in data_files if normalise(path) in since.paths]
    if both:
        raise TableBusy(
            f"another plan now has {many(len(both), 'file')} of this one: {both[0]} is in that of "
            f"{since.paths[normalise(both[0])]}",
            hint="Try again: they are left out then.",
        )


def _snapshots_of(evidence: Evidence) -> tuple[int, ...]:
    match evidence:
        case SnapshotAdded(snapshot_id, parent_id):
            return snapshot_id, parent_id
        case SnapshotsRemoved(snapshot_ids):
            return snapshot_ids
        case RefAt(_, snapshot_id) | StatisticsNamed(snapshot_id) | StatisticsRemoved(snapshot_id):
            return (snapshot_id,)
        case SortOrderAdded():
            return ()


def undo_request(
    db: Connection, process_id: str, actions: Iterable[Undoing]
) -> tuple[ProcessContext, Undoing, Request]:
    """The process, the action that undoes it, and the request for it. Raises ProcessNotFound, CannotUndo."""
    case = read_context(db, process_id)
    process = case.process
    undoing = next((action for action in actions if process.type in action.undoes), None)
    if undoing is None:
        raise CannotUndo(f"process {process_id} can't be undone: {process.type} has no undo")
    if process.is_active:
        raise CannotUndo(
            f"process {process_id} ({process.type}, {process.status}) has not ended",
            hint=f"Cancel it: amoro process cancel {process_id}",
        )
    request = Request(
        undoing.name,
        undone=replace(case, undone_by=processes.find_undo(db, process)),
        restorable=pending_deletions.restorable(db, process_id),
        condemned_by_others=pending_deletions.paths_of_others(db, process.table_id, process_id),
    )
    return case, undoing, request


_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 2.0


def config_of(tables: Tables, runtime: TableRuntime) -> OptimizingConfig:
    """The table's configuration as last loaded; Amoro's defaults while it is malformed or its catalog unknown."""
    try:
        defaults = tables.catalog(runtime.identifier.catalog).defaults_for(runtime.identifier)
        return parse_config(effective_properties(defaults, runtime.properties))
    except (TableRefused, CatalogNotFound):
        return OptimizingConfig()


def retry_commit(
    limit: timedelta,
    attempt: Callable[[], bool],
    *,
    now: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Repeat the attempt until it is true; jitter keeps losing writers out of lockstep. Raises CommitConflict."""
    started, tries, longest = now(), 1, 0.0
    while not attempt():
        spent = now() - started
        if spent >= limit.total_seconds():
            raise CommitConflict(f"other writers were faster {many(tries, 'time')} in {spent:.0f} s")
        wait(random.uniform(longest / 2, longest))  # noqa: S311 - jitter, no secret
        longest = min(max(2 * longest, _FIRST_WAIT_S), _LONGEST_WAIT_S)
        tries += 1


def keep_landed(
    db: Connection,
    attempt: CommitAttempt,
    partitions: Iterable[PartitionKey],
    groups: Iterable[ClusteredGroup],
    dropped: Mapping[int, str],
    effects: Effects,
    now: datetime,
) -> None:
    """After a commit of some groups the process goes on with the others, or ends where none is left.

    `partitions`: whose last times move; `groups` of files that are known from now on; `dropped`: groups that were ready
    and that the commit lacks.
    """
    processes.save_commit_outcome(db, attempt.process_id, attempt.number, CommitOutcome.DONE)
    table_stats.add_dropped_groups(db, attempt.process_id, dropped)
    process = move_process(db, attempt.process_id, process_machine.CommittedSome(), now)
    table_stats.add_cluster_groups(db, process.table_id, process.table_uuid, groups, now)
    tables.record_partitions(db, process.table_id, partitions, process.type, process.created_at)
    advance_process(db, attempt.process_id, effects, now)


def drop_groups(db: Connection, process_id: str, lost: Mapping[int, str], effects: Effects, now: datetime) -> None:
    """Give up tasks of a process, with the reasons: the process goes on with the others, or ends."""
    table_stats.add_dropped_groups(db, process_id, lost)
    for task in tasks.list_for_process(db, process_id):
        if task.task_id.number in lost and task.status in (TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED):
            advance_task(db, task, task_machine.Cancel(lost[task.task_id.number]), now)
    advance_process(db, process_id, effects, now)


def give_up(
    db: Connection, process: OptimizingProcess, lost: Mapping[int, str], effects: Effects, now: datetime, code: str = ""
) -> None:
    """Give up tasks of a running process, with the reasons; the process, where no other is left."""
    numbers = {task.task_id.number for task in tasks.list_for_process(db, process.process_id)}
    if numbers - settled_groups(db, process).numbers - lost.keys():
        drop_groups(db, process.process_id, lost, effects, now)
        return
    close(db, process, Ending(next(iter(lost.values()), ""), code), now)
    effects.left_over.append((process.process_id, tables.get(db, process.table_id).identifier.catalog))


def keep_dropped(db: Connection, process_id: str, dropped: Mapping[int, str], effects: Effects, now: datetime) -> None:
    """None of the groups that were ready can be committed; the process goes on with the others, or ends."""
    table_stats.add_dropped_groups(db, process_id, dropped)
    move_process(db, process_id, process_machine.GroupsDropped(), now)
    advance_process(db, process_id, effects, now)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a process is ended; `code` is that of the corresponding error, "" if it was requested."""

    reason: str
    code: str = ""


def unwanted(db: Connection, table_id: int) -> tuple[OptimizingProcess, Ending] | None:
    """A running process of the table that has become pointless, and why. A committing one continues."""
    runtime = tables.get(db, table_id)
    for active in processes.list_active_of(db, table_id):
        if active.status is not ProcessStatus.RUNNING:
            continue
        if runtime.uuid not in ("", active.table_uuid):
            reason = f"{runtime.identifier} is another table: UUID {runtime.uuid}, planned on {active.table_uuid}"
            return active, Ending(reason, CommitConflict.code)
        if active.is_optimizing and (runtime.veto or runtime.enabled_override is False):
            return active, Ending("optimizing was switched off")
    return None


def close(db: Connection, process: OptimizingProcess, ending: Ending, now: datetime) -> None:
    """End the process, noting its progress: its tasks are cancelled, and its table is free."""
    counts = queue_stats.count_by_status(db, process.process_id)
    done, total = counts[TaskStatus.SUCCESS], sum(counts.values())
    reason = f"{ending.reason}; {done} of {many(total, 'task')} done" if total else ending.reason
    event = partial_end(db, process, ending.code, reason) or process_machine.ProcessClosed(reason, ending.code)
    end_process(db, process, event, now)
    cancel_open_tasks(db, process.process_id, ending.reason, now)
    release_table(db, process, f"{process.type} was ended: {reason}", now, Outcome.ENDED)
    if not process.is_optimizing:
        # The next one starts no sooner than if this one had ended normally.
        record = actions.get(db, process.table_id, process.action)
        actions.save(db, replace(record, last_at=now))


def close_unconfirmed(db: Connection, after: timedelta, now: datetime) -> list[str]:
    """Close processes that were not confirmed within this time; their ids."""
    ending = Ending(f"nobody confirmed it within {many(after.days, 'day')}")
    waiting = [process for process in processes.list_active(db) if process.status == ProcessStatus.HELD]
    old = [process for process in waiting if process.created_at <= now - after]
    for optimizing_process in old:
        close(db, optimizing_process, ending, now)
    return [process.process_id for process in old]
