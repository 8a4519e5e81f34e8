"""What scheduling needs of tasks that are not done, read in bulk from `task_runtime`: no whole tasks."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from amoro_core.model.processes import Attempt, OptimizingTask, TaskId, TaskStatus
from amoro_core.records import record
from amoro_core.store.connection import Connection, Row
from amoro_core.store.rows import from_ms, from_ms_or_none, to_json, to_ms

_OPEN = "status IN ('planned', 'scheduled', 'acked', 'failed')"
_COLUMNS = (
    "process_id, task_number, table_id, group_name, status, attempt, optimizer_id, thread_id, scheduled_at_ms, "
    "work_kind, stage, input_bytes"
)
_QUIET = (
    "SELECT DISTINCT process_id FROM json_each(:asked) AS one CROSS JOIN table_process AS owner "
    "ON owner.process_id = json_extract(one.value, '$[0]') WHERE max_commits > 0 OR NOT ("
    "EXISTS (SELECT 1 FROM task_runtime WHERE process_id = owner.process_id AND optimizer_id IS NOT NULL) OR "
    "EXISTS (SELECT 1 FROM task_runtime WHERE group_name = json_extract(one.value, '$[1]') "
    "AND process_id = owner.process_id AND status = 'planned'))"
)


class OpenTask(NamedTuple):
    """A task that waits, is held, or has failed and is to be planned again."""

    task_id: TaskId
    table_id: int
    group: str
    status: TaskStatus
    attempt: int
    optimizer_id: str  # "" while nobody holds it
    thread_id: int
    scheduled_at: datetime | None
    kind: str
    stage: int
    input_bytes: int

    @property
    def is_planned(self) -> bool:
        """Whether it waits for a thread."""
        return self.status is TaskStatus.PLANNED

    @property
    def place(self) -> tuple[str, int, str]:
        """Where it waits: its group, its stage and its kind of work."""
        return self.group, self.stage, self.kind

    @property
    def present(self) -> Attempt:
        """Its present attempt."""
        return Attempt(self.task_id, self.attempt)


@record
class OpenProcess:
    """A process whose planned tasks are scheduled."""

    process_id: str
    table_id: int
    created_at_ms: int


def list_processes(db: Connection, process_ids: Iterable[str] | None = None) -> list[OpenProcess]:
    """The running and committing processes, of these where they are given; oldest first."""
    rows = db.select(
        "SELECT process_id, table_id, created_at_ms FROM table_process WHERE finished_at_ms IS NULL "
        "AND status IN ('running', 'committing') "
        "AND (:asked IS NULL OR process_id IN (SELECT value FROM json_each(:asked))) "
        "ORDER BY created_at_ms, process_id",
        {"asked": None if process_ids is None else to_json(sorted(process_ids))},
    )
    return [OpenProcess(row["process_id"], row["table_id"], row["created_at_ms"]) for row in rows]


def list_open(db: Connection) -> list[OpenTask]:
    """The open tasks of processes that have not ended, by process and number."""
    rows = db.select(
        f"SELECT {_COLUMNS} FROM task_runtime WHERE process_id IN (SELECT process_id FROM table_process "
        f"WHERE finished_at_ms IS NULL) AND {_OPEN} UNION "
        f"SELECT {_COLUMNS} FROM task_runtime WHERE optimizer_id IS NOT NULL ORDER BY process_id, task_number"
    )
    return [_from_row(row) for row in rows]


def list_of(db: Connection, keys: Iterable[tuple[str, int]]) -> list[OpenTask]:
    """Those of these tasks, by process and number, that are open; in no order."""
    # The keys first, so that each task is found by its own.
    rows = db.select(
        f"SELECT {_COLUMNS} FROM json_each(:asked) AS one CROSS JOIN task_runtime "
        "ON process_id = json_extract(one.value, '$[0]') AND task_number = json_extract(one.value, '$[1]') "
        f"WHERE {_OPEN}",
        {"asked": to_json(list(keys))},
    )
    return [_from_row(row) for row in rows]


def open_task(task: OptimizingTask) -> OpenTask | None:
    """What scheduling needs of the task; None: it has ended."""
    if task.status in (TaskStatus.SUCCESS, TaskStatus.CANCELED):
        return None
    return OpenTask(
        task.task_id,
        task.table_id,
        task.group,
        task.status,
        task.attempt,
        task.thread.optimizer_id if task.thread else "",
        task.thread.thread_id if task.thread else 0,
        task.scheduled_at,
        task.kind,
        task.stage,
        task.input_bytes,
    )


def list_quiet(db: Connection, asked: Iterable[tuple[str, str]]) -> list[str]:
    """Of these processes those without a task that is held, or planned for the group that is named with each.

    Those that commit group by group are among them, whatever they have. The cost does not grow with their tasks.
    """
    return [row["process_id"] for row in db.select(_QUIET, {"asked": to_json(list(asked))})]


@record
class EndedTask:
    """The last attempt of a task that has ended."""

    attempt: Attempt
    table_id: int
    scheduled_at: datetime | None  # None: it was never scheduled
    finished_at: datetime


def list_ended_since(db: Connection, group: str, since: datetime) -> list[EndedTask]:
    """The group's tasks that ended after that moment, however they ended, in the order of their ends.

    The cost does not grow with those that ended before.
    """
    rows = db.select(  # another order would have SQLite read all tasks in it
        "SELECT process_id, task_number, attempt, table_id, scheduled_at_ms, finished_at_ms FROM task_runtime "
        "WHERE finished_at_ms > :since_ms AND group_name = :group ORDER BY finished_at_ms",
        {"since_ms": to_ms(since), "group": group},
    )
    return [
        EndedTask(
            Attempt(TaskId(row["process_id"], row["task_number"]), row["attempt"]),
            row["table_id"],
            from_ms_or_none(row["scheduled_at_ms"]),
            from_ms(row["finished_at_ms"]),
        )
        for row in rows
    ]


def count_threads(db: Connection, group: str) -> int:
    """The threads of the group's optimizers."""
    row = db.select_one(
        "SELECT coalesce(sum(threads), 0) AS threads FROM optimizer WHERE group_name = :group", {"group": group}
    )
    return int(row["threads"]) if row else 0


def input_sizes(db: Connection, task_ids: Iterable[TaskId]) -> dict[TaskId, int]:
    """The bytes of the tasks' inputs; one that has none is left out."""
    rows = db.select(
        "SELECT process_id, task_number, length(input) AS size FROM json_each(:asked) AS one CROSS JOIN task_payload "
        "ON process_id = json_extract(one.value, '$[0]') AND task_number = json_extract(one.value, '$[1]')",
        {"asked": to_json([(one.process_id, one.number) for one in task_ids])},
    )
    return {TaskId(row["process_id"], row["task_number"]): int(row["size"]) for row in rows}


def _from_row(row: Row) -> OpenTask:
    return OpenTask(
        TaskId(row["process_id"], row["task_number"]),
        row["table_id"],
        row["group_name"],
        TaskStatus(row["status"]),
        row["attempt"],
        row["optimizer_id"] or "",
        row["thread_id"] or 0,
        from_ms_or_none(row["scheduled_at_ms"]),
        row["work_kind"],
        row["stage"],
        row["input_bytes"],
    )
