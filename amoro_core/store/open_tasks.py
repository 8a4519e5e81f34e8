"""What scheduling needs of tasks that are not done, read in bulk from `task_runtime`: no whole tasks."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from amoro_core.model.processes import Attempt, TaskId, TaskStatus
from amoro_core.store.connection import Connection, Row
from amoro_core.store.rows import from_ms_or_none, to_json

_OPEN = "status IN ('planned', 'scheduled', 'acked', 'failed')"
_COLUMNS = (
    "process_id, task_number, table_id, group_name, status, attempt, optimizer_id, thread_id, scheduled_at_ms, "
    "work_kind, stage, input_bytes"
)


@dataclass(frozen=True, slots=True)
class OpenTask:
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


@dataclass(frozen=True, slots=True)
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


def list_of(db: Connection, process_id: str, numbers: Iterable[int]) -> list[OpenTask]:
    """Those of these tasks of a process that are open, by number."""
    rows = db.select(
        f"SELECT {_COLUMNS} FROM task_runtime WHERE process_id = :process AND task_number IN "
        f"(SELECT value FROM json_each(:numbers)) AND {_OPEN} ORDER BY task_number",
        {"process": process_id, "numbers": to_json(sorted(numbers))},
    )
    return [_from_row(row) for row in rows]


def is_of_kind(db: Connection, task_id: TaskId, kind: str) -> bool:
    """Whether there is such a task with that kind of work."""
    row = db.select_one(
        "SELECT work_kind FROM task_runtime WHERE process_id = :process AND task_number = :number",
        {"process": task_id.process_id, "number": task_id.number},
    )
    return row is not None and row["work_kind"] == kind


def is_any_open(db: Connection, process_id: str, group: str) -> bool:
    """Whether a task of the process is held, or planned for the group; the cost does not grow with its tasks."""
    row = db.select_one(
        "SELECT EXISTS (SELECT 1 FROM task_runtime WHERE process_id = :process AND optimizer_id IS NOT NULL) "
        "OR EXISTS (SELECT 1 FROM task_runtime WHERE group_name = :group AND process_id = :process "
        "AND status = 'planned') AS found",
        {"process": process_id, "group": group},
    )
    return bool(row and row["found"])


def count_threads(db: Connection, group: str) -> int:
    """The threads of the group's optimizers."""
    row = db.select_one(
        "SELECT coalesce(sum(threads), 0) AS threads FROM optimizer WHERE group_name = :group", {"group": group}
    )
    return int(row["threads"]) if row else 0


def input_size(db: Connection, task_id: TaskId) -> int:
    """The bytes of the task's input; 0 where it has none."""
    row = db.select_one(
        "SELECT length(input) AS size FROM task_payload WHERE process_id = :process AND task_number = :number",
        {"process": task_id.process_id, "number": task_id.number},
    )
    return int(row["size"]) if row else 0


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
