"""A process with all that was stored of it, and the attempt that is written down before it is sent."""

from datetime import datetime

from amoro_core.errors import CommitConflict
from amoro_core.formats.port import OpenTable
from amoro_core.formats.tables import Tables
from amoro_core.model.actions import Case, Change, TaskResult
from amoro_core.model.processes import CommitAttempt, CommitOutcome, TaskStatus
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
    """The planned table as it is now. Raises TableNotFound, CommitConflict when its name is another table's."""
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
    )
