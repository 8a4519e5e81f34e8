"""Attempts of tasks that have ended, in `task_attempt`; those that run are read from `task_runtime`."""

from collections.abc import Iterable

from amoro_core.model.history_events import MOST_ATTEMPTS, AttemptOutcome, TaskAttempt
from amoro_core.model.processes import Attempt, OptimizerThread, TaskId
from amoro_core.store.column_codecs import from_ms, from_ms_or_none, insert_into, to_ms, to_ms_or_none
from amoro_core.store.connection import Connection, Row

_COLUMNS = (
    "process_id",
    "task_number",
    "attempt",
    "optimizer_id",
    "thread_id",
    "outcome",
    "scheduled_at_ms",
    "acked_at_ms",
    "finished_at_ms",
    "failure_code",
    "failure",
    "input_rows",
    "input_bytes",
)
_NAMES = ", ".join(_COLUMNS)
_INSERT = insert_into("task_attempt", _COLUMNS)
_TRIM = (
    "DELETE FROM task_attempt WHERE process_id = :process_id AND task_number = :task_number "
    f"AND attempt <= :attempt - {MOST_ATTEMPTS}"
)
#: Those that ended and those that run, of one process; of none twice, since the two differ in their numbers.
_ALL = (
    f"SELECT {_NAMES} FROM task_attempt WHERE process_id = :process_id "
    "UNION ALL SELECT process_id, task_number, attempt, optimizer_id, thread_id, 'running', scheduled_at_ms, "
    "acked_at_ms, NULL, '', '', input_rows, input_bytes FROM task_runtime "
    "WHERE process_id = :process_id AND optimizer_id IS NOT NULL"
)


def add(db: Connection, ended: Iterable[TaskAttempt]) -> None:
    """Keep attempts that have ended; of each task the latest hundred stay."""
    rows = list(map(_to_row, ended))
    db.execute_many(_INSERT, rows)
    db.execute_many(_TRIM, (row for row in rows if row["attempt"] > MOST_ATTEMPTS))


def list_page(
    db: Connection, process_id: str, task_number: int | None, after: tuple[int, int], limit: int
) -> list[TaskAttempt]:
    """At most so many attempts of a process by task and number, above the pair `after`; of one task if it is given."""
    rows = db.select(
        f"SELECT * FROM ({_ALL}) WHERE (task_number, attempt) > (:task_after, :attempt_after) "
        "AND (:task IS NULL OR task_number = :task) ORDER BY task_number, attempt LIMIT :most",
        {
            "process_id": process_id,
            "task": task_number,
            "task_after": after[0],
            "attempt_after": after[1],
            "most": limit,
        },
    )
    return [_from_row(row) for row in rows]


def count(db: Connection, process_id: str, task_number: int | None = None) -> int:
    """How many attempts of a process are known, of one task where it is given; running ones, too."""
    row = db.select_one(
        "SELECT (SELECT count(*) FROM task_attempt WHERE process_id = :process_id "
        "AND (:task IS NULL OR task_number = :task)) + (SELECT count(*) FROM task_runtime "
        "WHERE process_id = :process_id AND optimizer_id IS NOT NULL AND (:task IS NULL OR task_number = :task)) "
        "AS attempts",
        {"process_id": process_id, "task": task_number},
    )
    return 0 if row is None else int(row["attempts"])


def _to_row(ended: TaskAttempt) -> Row:
    task, thread = ended.attempt.task_id, ended.thread
    if ended.finished_at is None:
        raise ValueError(f"attempt {ended.attempt} has not ended")
    return {
        "process_id": task.process_id,
        "task_number": task.number,
        "attempt": ended.attempt.number,
        "optimizer_id": thread.optimizer_id,
        "thread_id": thread.thread_id,
        "outcome": ended.outcome.value,
        "scheduled_at_ms": to_ms(ended.scheduled_at),
        "acked_at_ms": to_ms_or_none(ended.acked_at),
        "finished_at_ms": to_ms(ended.finished_at),
        "failure_code": ended.failure_code,
        "failure": ended.failure,
        "input_rows": ended.input_rows,
        "input_bytes": ended.input_bytes,
    }


def _from_row(row: Row) -> TaskAttempt:
    return TaskAttempt(
        Attempt(TaskId(row["process_id"], row["task_number"]), row["attempt"]),
        OptimizerThread(row["optimizer_id"], row["thread_id"]),
        AttemptOutcome(row["outcome"]),
        from_ms(row["scheduled_at_ms"]),
        from_ms_or_none(row["acked_at_ms"]),
        from_ms_or_none(row["finished_at_ms"]),
        row["failure_code"],
        row["failure"],
        row["input_rows"],
        row["input_bytes"],
    )
