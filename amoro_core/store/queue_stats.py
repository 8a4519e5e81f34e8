"""What scheduling needs of tasks that are not done, read in bulk from `task_runtime`: no whole tasks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from amoro_core.model.processes import Attempt, OptimizingTask, TaskId, TaskStatus
from amoro_core.store.column_codecs import from_ms, from_ms_or_none, to_json, to_ms
from amoro_core.store.connection import Connection, Row

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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class WaitingTasks:
    """The tasks of a process that wait for threads of a group."""

    process_id: str
    table_id: int
    group: str
    type: str
    tasks: int
    created_at: datetime
    quota: float  # of its table


def list_waiting(db: Connection, group: str = "") -> list[WaitingTasks]:
    """The active processes with planned tasks for one group or all, by group, the oldest first."""
    rows = db.select(
        "SELECT task_sum.group_name AS group_name, process_id, table_process.table_id AS table_id, process_type, "
        "table_process.created_at_ms AS created_at_ms, quota, sum(tasks) AS tasks "
        "FROM table_process JOIN task_sum USING (process_id) "
        "JOIN table_runtime ON table_runtime.table_id = table_process.table_id "
        "WHERE table_process.finished_at_ms IS NULL AND table_process.status IN ('running', 'committing') "
        "AND task_sum.status = 'planned' AND tasks > 0 AND :group IN ('', task_sum.group_name) "
        "GROUP BY task_sum.group_name, process_id ORDER BY task_sum.group_name, created_at_ms, process_id",
        {"group": group},
    )
    return [
        WaitingTasks(
            row["process_id"],
            row["table_id"],
            row["group_name"],
            row["process_type"],
            int(row["tasks"]),
            from_ms(row["created_at_ms"]),
            row["quota"],
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class WaitingFigures:
    """How much there is of what."""

    statuses: Mapping[tuple[str, str], int]  # tables, by status and the word of a refusal
    enabled_tables: int
    oldest_pending: datetime | None  # since when the table waits that has waited longest
    optimizers: int
    threads: int
    processes: Mapping[str, int]  # active ones, by status
    waiting_tasks: int
    running_tasks: int
    ended: Mapping[str, int]  # processes that ended since then, by status
    rewritten_bytes: int  # that these have read
    removed_files: int  # files before less files after


def waiting_figures(db: Connection, since: datetime) -> WaitingFigures:
    """The figures of now, and of the processes that ended since then."""
    tables = db.select("SELECT status, count(*) AS tables FROM table_listing WHERE status <> 'refused' GROUP BY status")
    refused = db.select(
        "SELECT status, refusal, count(*) AS tables FROM table_listing WHERE status = 'refused' "
        "GROUP BY status, refusal"
    )
    (pending,) = db.select("SELECT min(status_since_ms) AS since FROM table_runtime WHERE status = 'pending'")
    (known,) = db.select("SELECT count(*) AS optimizers, coalesce(sum(threads), 0) AS threads FROM optimizer")
    (enabled,) = db.select("SELECT count(*) AS tables FROM table_listing WHERE enabled = 1")
    active = db.select(
        "SELECT status, count(*) AS processes FROM table_process WHERE finished_at_ms IS NULL GROUP BY status"
    )
    (waiting,) = db.select(
        "SELECT coalesce(sum(tasks), 0) AS tasks FROM task_sum WHERE status = 'planned' AND process_id IN (SELECT "
        "process_id FROM table_process WHERE finished_at_ms IS NULL AND status IN ('running', 'committing'))"
    )
    (held,) = db.select("SELECT count(*) AS tasks FROM task_runtime WHERE optimizer_id IS NOT NULL")
    ended = db.select(
        "SELECT status, count(*) AS processes, "
        "coalesce(sum(receipt_json ->> '$.bytes_before'), 0) AS bytes, "
        "coalesce(sum((receipt_json ->> '$.data_files_before') + (receipt_json ->> '$.delete_files_before') "
        "- (receipt_json ->> '$.data_files_after') - (receipt_json ->> '$.delete_files_after')), 0) AS files "
        "FROM table_process WHERE finished_at_ms IS NOT NULL AND finished_at_ms >= :since GROUP BY status",
        {"since": to_ms(since)},
    )
    return WaitingFigures(
        statuses={
            **{(row["status"], ""): int(row["tables"]) for row in tables},
            **{(row["status"], row["refusal"]): int(row["tables"]) for row in refused},
        },
        enabled_tables=int(enabled["tables"]),
        oldest_pending=from_ms_or_none(pending["since"]),
        optimizers=int(known["optimizers"]),
        threads=int(known["threads"]),
        processes={row["status"]: int(row["processes"]) for row in active},
        waiting_tasks=int(waiting["tasks"]),
        running_tasks=int(held["tasks"]),
        ended={row["status"]: int(row["processes"]) for row in ended},
        rewritten_bytes=sum(int(row["bytes"]) for row in ended),
        removed_files=sum(int(row["files"]) for row in ended),
    )


@dataclass(frozen=True, slots=True)
class TaskSum:
    """The tasks of one process in one status, for one group."""

    process_id: str
    group: str
    status: TaskStatus
    tasks: int
    input_bytes: int


def sum_up(db: Connection, process_ids: Iterable[str]) -> list[TaskSum]:
    """How many tasks these processes have, and their input, by process, status and group."""
    rows = db.select(
        "SELECT process_id, group_name, status, sum(tasks) AS tasks, sum(input_bytes) AS bytes FROM task_sum "
        "WHERE process_id IN (SELECT value FROM json_each(:processes)) AND tasks > 0 "
        "GROUP BY process_id, status, group_name ORDER BY process_id, status, group_name",
        {"processes": to_json(sorted(process_ids))},
    )
    return [
        TaskSum(row["process_id"], row["group_name"], TaskStatus(row["status"]), int(row["tasks"]), int(row["bytes"]))
        for row in rows
    ]


def count_by_status(db: Connection, process_id: str) -> dict[TaskStatus, int]:
    """How many tasks of the process are in each status; every status is named."""
    counted = dict.fromkeys(TaskStatus, 0)
    for item in sum_up(db, (process_id,)):
        counted[item.status] += item.tasks
    return counted


def list_kinds(db: Connection, process_id: str) -> list[str]:
    """The kinds of work of the process's tasks that wait for an optimizer."""
    rows = db.select(
        "SELECT DISTINCT work_kind FROM task_sum WHERE process_id = :process_id AND status = 'planned' AND tasks > 0 "
        "ORDER BY work_kind",
        {"process_id": process_id},
    )
    return [row["work_kind"] for row in rows]


def count_open(db: Connection) -> dict[tuple[str, TaskStatus], int]:
    """How many tasks of active processes wait or are held, by group and status."""
    rows = db.select(
        "SELECT group_name, task_sum.status AS status, sum(tasks) AS tasks "
        "FROM table_process JOIN task_sum USING (process_id) "
        "WHERE table_process.finished_at_ms IS NULL AND table_process.status <> 'requested' "
        "AND task_sum.status IN ('planned', 'scheduled', 'acked') AND tasks > 0 GROUP BY group_name, task_sum.status",
    )
    return {(row["group_name"], TaskStatus(row["status"])): int(row["tasks"]) for row in rows}


def oldest_waiting(db: Connection) -> dict[str, datetime]:
    """When the oldest process with planned tasks was created, by the group that they wait for."""
    rows = db.select(
        "SELECT group_name, min(created_at_ms) AS since FROM table_process JOIN task_sum USING (process_id) "
        "WHERE table_process.finished_at_ms IS NULL AND table_process.status <> 'requested' "
        "AND task_sum.status = 'planned' AND tasks > 0 GROUP BY group_name"
    )
    return {row["group_name"]: from_ms(row["since"]) for row in rows}
