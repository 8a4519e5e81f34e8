"""Optimizing tasks in `task_runtime`, their inputs and outputs in `task_payload`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from amoro_core.errors import TaskNotFound
from amoro_core.model.processes import OptimizerThread, OptimizingTask, TaskId, TaskStatus
from amoro_core.store.connection import Connection, Row
from amoro_core.store.rows import (
    from_ms,
    from_ms_or_none,
    insert_into,
    to_json,
    to_ms,
    to_ms_or_none,
    tuple_from_json,
    update_of,
)

_COLUMNS = (
    "process_id",
    "task_number",
    "table_id",
    "group_name",
    "status",
    "attempt",
    "optimizer_id",
    "thread_id",
    "failed_runs",
    "lost_attempts",
    "lost_optimizers_json",
    "scheduled_at_ms",
    "acked_at_ms",
    "finished_at_ms",
    "failure_code",
    "failure",
    "cost_bytes",
    "partition_path",
    "input_files",
    "input_bytes",
    "work_kind",
    "input_rows",
    "ended_optimizer_id",
    "ended_thread_id",
    "stage",
)
_INSERT = insert_into("task_runtime", _COLUMNS)
_INSERT_INPUT = insert_into("task_payload", ("process_id", "task_number", "input"))
_UPDATE = update_of("task_runtime", _COLUMNS, ("process_id", "task_number"))
_IN_ORDER = "ORDER BY process_id, task_number"
_OF_TASK = "WHERE process_id = :process_id AND task_number = :task_number"


def add_many(db: Connection, planned: Sequence[tuple[OptimizingTask, bytes]]) -> None:
    """Keep new tasks with their inputs."""
    db.execute_many(_INSERT, (_to_row(task) for task, _ in planned))
    db.execute_many(_INSERT_INPUT, ({**_key(task.task_id), "input": payload} for task, payload in planned))


def get(db: Connection, task_id: TaskId) -> OptimizingTask:
    """Raises TaskNotFound."""
    row = db.select_one(f"SELECT * FROM task_runtime {_OF_TASK}", _key(task_id))
    if row is None:
        raise _missing(task_id)
    return _from_row(row)


def save(db: Connection, task: OptimizingTask) -> OptimizingTask:
    """Raises TaskNotFound."""
    if not db.execute(_UPDATE, _to_row(task)):
        raise _missing(task.task_id)
    return task


def move_open(db: Connection, process_id: str, group: str) -> int:
    """Give what is not done of a process to another group; how many tasks."""
    return db.execute(
        "UPDATE task_runtime SET group_name = :group WHERE process_id = :process AND group_name <> :group "
        "AND status NOT IN ('success', 'canceled')",
        {"group": group, "process": process_id},
    )


def list_for_process(db: Connection, process_id: str) -> list[OptimizingTask]:
    """All tasks of a process, by number."""
    rows = db.select(
        "SELECT * FROM task_runtime WHERE process_id = :process_id ORDER BY task_number", {"process_id": process_id}
    )
    return [_from_row(row) for row in rows]


def list_page(
    db: Connection, process_id: str, status: TaskStatus | None, after: int, limit: int
) -> list[OptimizingTask]:
    """At most so many tasks of a process, by number, above `after`; in the status where it is given."""
    rows = db.select(
        "SELECT * FROM task_runtime WHERE process_id = :process_id AND task_number > :after "
        "AND (:status IS NULL OR status = :status) ORDER BY task_number LIMIT :most",
        {"process_id": process_id, "after": after, "status": status.value if status else None, "most": limit},
    )
    return [_from_row(row) for row in rows]


def list_held_of(db: Connection, process_ids: Iterable[str]) -> list[OptimizingTask]:
    """Scheduled and acked tasks of these processes, by process and number."""
    rows = db.select(
        "SELECT * FROM task_runtime WHERE optimizer_id IS NOT NULL "
        f"AND process_id IN (SELECT value FROM json_each(:processes)) {_IN_ORDER}",
        {"processes": to_json(sorted(process_ids))},
    )
    return [_from_row(row) for row in rows]


def largest_waiting(db: Connection, process_id: str, kind: str) -> tuple[int, int] | None:
    """The number and the input bytes of the largest planned task of that kind of work; None: none is planned."""
    row = db.select_one(
        "SELECT task_number, input_bytes FROM task_runtime WHERE process_id = :process AND status = 'planned' "
        "AND work_kind = :kind ORDER BY input_bytes DESC, task_number LIMIT 1",
        {"process": process_id, "kind": kind},
    )
    return None if row is None else (row["task_number"], row["input_bytes"])


def list_held(db: Connection, optimizer_id: str | None = None) -> list[OptimizingTask]:
    """Scheduled and acked tasks, of one optimizer where it is given; by process and number."""
    if optimizer_id is None:
        rows = db.select(f"SELECT * FROM task_runtime WHERE optimizer_id IS NOT NULL {_IN_ORDER}")
    else:
        rows = db.select(
            f"SELECT * FROM task_runtime WHERE optimizer_id = :optimizer_id {_IN_ORDER}", {"optimizer_id": optimizer_id}
        )
    return [_from_row(row) for row in rows]


def count_held(db: Connection) -> dict[str, int]:
    """How many tasks optimizers hold, by group."""
    rows = db.select(
        "SELECT group_name, count(*) AS tasks FROM task_runtime WHERE optimizer_id IS NOT NULL GROUP BY group_name"
    )
    return {row["group_name"]: int(row["tasks"]) for row in rows}


def list_ended_since(db: Connection, since: datetime) -> list[OptimizingTask]:
    """Tasks that ended after that moment, however they ended; by process and number."""
    rows = db.select(
        f"SELECT * FROM task_runtime WHERE finished_at_ms > :since_ms {_IN_ORDER}", {"since_ms": to_ms(since)}
    )
    return [_from_row(row) for row in rows]


@dataclass(frozen=True, slots=True)
class TaskHold:
    """The time for which a task of a table held a thread of a group; `until` None: it still does."""

    group: str
    table_id: int
    since: datetime
    until: datetime | None


def list_holds(db: Connection, since: datetime) -> list[TaskHold]:
    """Of tasks that hold a thread or have ended after that moment; no whole tasks, since they may be many."""
    columns = "SELECT group_name, table_id, scheduled_at_ms, finished_at_ms FROM task_runtime"
    rows = db.select(
        f"{columns} WHERE finished_at_ms > :since_ms AND scheduled_at_ms IS NOT NULL "
        f"UNION ALL {columns} WHERE optimizer_id IS NOT NULL",
        {"since_ms": to_ms(since)},
    )
    return [
        TaskHold(
            row["group_name"], row["table_id"], from_ms(row["scheduled_at_ms"]), from_ms_or_none(row["finished_at_ms"])
        )
        for row in rows
    ]


def read_input(db: Connection, task_id: TaskId) -> bytes:
    """The input as it was planned. Raises TaskNotFound."""
    return bytes(_payload(db, task_id, "input")["input"])


def save_input(db: Connection, task_id: TaskId, payload: bytes) -> None:
    """Put another input in the place of the planned one, for attempts that are yet to come. Raises TaskNotFound."""
    if not db.execute(f"UPDATE task_payload SET input = :input {_OF_TASK}", {**_key(task_id), "input": payload}):
        raise _missing(task_id)


def last_attempt(db: Connection, process_id: str) -> int:
    """The highest number of an attempt of any of the process's tasks; 0 where there was none."""
    row = db.select_one(
        "SELECT coalesce(max(attempt), 0) AS attempt FROM task_runtime WHERE process_id = :process_id",
        {"process_id": process_id},
    )
    return 0 if row is None else int(row["attempt"])


def remove_all(db: Connection, process_id: str) -> None:
    """Forget the process's tasks with their inputs and outputs."""
    of_process = {"process_id": process_id}
    db.execute("DELETE FROM task_payload WHERE process_id = :process_id", of_process)
    db.execute("DELETE FROM task_runtime WHERE process_id = :process_id", of_process)


def save_output(db: Connection, task_id: TaskId, attempt: int, payload: bytes) -> None:
    """Keep what an attempt made; it replaces what an earlier one made. Raises TaskNotFound."""
    changed = db.execute(
        f"UPDATE task_payload SET output = :output, output_attempt = :attempt {_OF_TASK}",
        {**_key(task_id), "output": payload, "attempt": attempt},
    )
    if not changed:
        raise _missing(task_id)


def read_output(db: Connection, task_id: TaskId) -> tuple[int, bytes] | None:
    """The attempt and what it made; None before any has succeeded. Raises TaskNotFound."""
    row = _payload(db, task_id, "output_attempt, output")
    return None if row["output"] is None else (row["output_attempt"], row["output"])


def _payload(db: Connection, task_id: TaskId, columns: str) -> Row:
    row = db.select_one(f"SELECT {columns} FROM task_payload {_OF_TASK}", _key(task_id))
    if row is None:
        raise _missing(task_id)
    return row


def _missing(task_id: TaskId) -> TaskNotFound:
    return TaskNotFound(f"task {task_id} is not known")


def _key(task_id: TaskId) -> Row:
    return {"process_id": task_id.process_id, "task_number": task_id.number}


def _to_row(task: OptimizingTask) -> Row:
    return {
        **_key(task.task_id),
        "table_id": task.table_id,
        "group_name": task.group,
        "status": task.status.value,
        "attempt": task.attempt,
        "optimizer_id": task.thread.optimizer_id if task.thread else None,
        "thread_id": task.thread.thread_id if task.thread else None,
        "failed_runs": task.failed_runs,
        "lost_attempts": task.lost_attempts,
        "lost_optimizers_json": to_json(task.lost_optimizers),
        "scheduled_at_ms": to_ms_or_none(task.scheduled_at),
        "acked_at_ms": to_ms_or_none(task.acked_at),
        "finished_at_ms": to_ms_or_none(task.finished_at),
        "failure_code": task.failure_code,
        "failure": task.failure,
        "cost_bytes": task.cost,
        "partition_path": task.partition,
        "input_files": task.input_files,
        "input_bytes": task.input_bytes,
        "work_kind": task.kind,
        "input_rows": task.input_rows,
        "ended_optimizer_id": task.ended_on.optimizer_id if task.ended_on else None,
        "ended_thread_id": task.ended_on.thread_id if task.ended_on else None,
        "stage": task.stage,
    }


def _from_row(row: Row) -> OptimizingTask:
    holder, last = row["optimizer_id"], row["ended_optimizer_id"]
    return OptimizingTask(
        task_id=TaskId(row["process_id"], row["task_number"]),
        table_id=row["table_id"],
        group=row["group_name"],
        status=TaskStatus(row["status"]),
        attempt=row["attempt"],
        thread=None if holder is None else OptimizerThread(holder, row["thread_id"]),
        failed_runs=row["failed_runs"],
        lost_attempts=row["lost_attempts"],
        lost_optimizers=tuple_from_json(row["lost_optimizers_json"]),
        scheduled_at=from_ms_or_none(row["scheduled_at_ms"]),
        acked_at=from_ms_or_none(row["acked_at_ms"]),
        finished_at=from_ms_or_none(row["finished_at_ms"]),
        failure_code=row["failure_code"],
        failure=row["failure"],
        cost=row["cost_bytes"],
        partition=row["partition_path"],
        input_files=row["input_files"],
        input_bytes=row["input_bytes"],
        kind=row["work_kind"],
        input_rows=row["input_rows"],
        ended_on=None if last is None else OptimizerThread(last, row["ended_thread_id"]),
        stage=row["stage"],
    )
