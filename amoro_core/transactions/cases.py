"""Reading a process with everything stored about it, and making the attempt that is stored before it is sent."""

from collections.abc import Iterable
from datetime import datetime

from amoro_core.errors import CommitConflict
from amoro_core.formats.port import OpenTable
from amoro_core.formats.tables import Tables
from amoro_core.model.actions import Case, Change, TaskResult
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.processes import CommitAttempt, CommitOutcome, TaskStatus
from amoro_core.model.tables import SnapshotFacts
from amoro_core.model.work import Work
from amoro_core.store import commits, processes, tables, tasks
from amoro_core.store.database import Connection


def read_case(db: Connection, process_id: str) -> Case:
    """The process with its table, the results of its finished tasks and its attempts. Raises ProcessNotFound."""
    process = processes.get(db, process_id)
    listed = tasks.list_for_process(db, process_id)
    results, open_work = [], []
    for task in listed:
        stored = tasks.read_output(db, task.task_id)
        given = tasks.read_input(db, task.task_id)
        if task.status is not TaskStatus.SUCCESS or stored is None:
            open_work.append(Work(task.kind, given))
        else:
            results.append(TaskResult(task.task_id.number, task.kind, given, stored[1]))
    attempts = tuple(commits.list_for_process(db, process_id))
    return Case(process, tables.get(db, process.table_id), tuple(results), attempts, len(listed), tuple(open_work))


def open_planned(tables_of: Tables, case: Case) -> OpenTable:
    """The planned table, reloaded. Raises TableNotFound, CommitConflict when its name belongs to another table."""
    identifier = case.runtime.identifier
    table = tables_of.open(identifier)
    if table.facts.uuid != case.process.table_uuid:
        raise CommitConflict(
            f"{identifier} is another table: UUID {table.facts.uuid}, planned on {case.process.table_uuid}",
            hint="It was dropped and created again, or renamed; what has the name now is optimized on its own.",
        )
    return table


def attempt_of(case: Case, change: Change, now: datetime) -> CommitAttempt:
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


def refuse_second(case: Case, snapshots: Iterable[SnapshotFacts]) -> None:
    """Raise CommitConflict where a snapshot of the process is in the table that the state database does not know."""
    process_id = case.process.process_id
    known = {one.snapshot_id for one in case.attempts if one.outcome is CommitOutcome.DONE}
    for one in snapshots:
        if one.summary.get(PROCESS_ID) == process_id and one.snapshot_id not in known:
            raise CommitConflict(
                f"snapshot {one.snapshot_id} of process {process_id} is in the table already",
                hint="The state database is an older copy than the table, which stays as it is.",
            )
