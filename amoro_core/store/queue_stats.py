"""What scheduling and queue pages read of tasks in bulk: candidates, thread use, sums by process."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from amoro_core.model.processes import Attempt, TaskId, TaskStatus
from amoro_core.store.connection import Connection, RowMapping, from_ms, from_ms_or_none, to_json, to_ms

_RANK = "priority, table_process.value AS value, coalesce(due_at_ms, created_at_ms) AS since_ms"
_OPEN = "status IN ('planned', 'scheduled', 'acked', 'failed')"
_QUIET = (
    "SELECT DISTINCT process_id FROM json_each(:asked) AS one CROSS JOIN table_process AS owner "
    "ON owner.process_id = json_extract(one.value, '$[0]') WHERE max_commits > 0 OR NOT ("
    "EXISTS (SELECT 1 FROM task_runtime WHERE process_id = owner.process_id AND optimizer_id IS NOT NULL) OR "
    "EXISTS (SELECT 1 FROM task_runtime WHERE group_name = json_extract(one.value, '$[1]') "
    "AND process_id = owner.process_id AND status = 'planned'))"
)


class WaitingProcess(NamedTuple):
    """A running process with planned tasks."""

    process_id: str
    table_id: int
    quota: float  # of its table
    priority: int  # of its table
    value: float
    since_ms: int  # when it became due, or was requested


def list_waiting_processes(db: Connection, group: str) -> list[WaitingProcess]:
    """The running processes with planned tasks for the group, the oldest first."""
    rows = db.tuples(
        f"SELECT process_id, table_process.table_id AS table_id, quota, {_RANK} "
        "FROM table_process JOIN table_runtime ON table_runtime.table_id = table_process.table_id "
        "WHERE finished_at_ms IS NULL AND table_process.status IN ('running', 'committing') "
        "AND EXISTS (SELECT 1 FROM task_sum WHERE task_sum.process_id = table_process.process_id "
        "AND task_sum.status = 'planned' AND group_name = :group AND tasks > 0) ORDER BY created_at_ms, process_id",
        {"group": group},
    )
    return [WaitingProcess(*row) for row in rows]


def has_planned(db: Connection, group: str, kinds: Iterable[str]) -> bool:
    """Whether a running process has planned tasks of one of these kinds for the group."""
    row = db.select_one(
        "SELECT 1 FROM table_process JOIN task_sum USING (process_id) "
        "WHERE table_process.finished_at_ms IS NULL AND table_process.status IN ('running', 'committing') "
        "AND task_sum.status = 'planned' AND tasks > 0 AND group_name = :group "
        "AND work_kind IN (SELECT value FROM json_each(:kinds)) LIMIT 1",
        {"group": group, "kinds": to_json(list(kinds))},
    )
    return row is not None


def next_planned(
    db: Connection,
    process_id: str,
    group: str,
    kinds: Iterable[str],
    max_cluster_bytes: int,
    limit: int,
    certain: datetime,
) -> list[TaskId]:
    """The first planned tasks of a process, by number, that an optimizer of the group with these abilities can do.

    Tasks of a later stage wait for those of earlier ones that are not done. A procedure waits while an attempt on its
    table that began, and ended after `certain` without a report, may go on: its engine commits by itself.
    """
    rows = db.select(
        "SELECT task_number FROM task_runtime "
        "WHERE group_name = :group AND process_id = :process AND status = 'planned' "
        f"AND stage = (SELECT min(stage) FROM task_runtime WHERE process_id = :process AND {_OPEN}) "
        "AND work_kind IN (SELECT value FROM json_each(:kinds)) "
        "AND (work_kind <> 'cluster' OR input_bytes <= :most_clustered) "
        "AND (work_kind NOT LIKE 'procedure:%' OR NOT EXISTS (SELECT 1 FROM table_process AS owner "
        "JOIN task_attempt AS ended USING (process_id) WHERE owner.table_id = task_runtime.table_id "
        "AND ended.outcome IN ('lost', 'returned', 'canceled') AND ended.acked_at_ms IS NOT NULL "
        "AND ended.finished_at_ms > :certain)) ORDER BY task_number LIMIT :limit",
        {
            "group": group,
            "process": process_id,
            "kinds": to_json(list(kinds)),
            "most_clustered": max_cluster_bytes,
            "limit": limit,
            "certain": to_ms(certain),
        },
    )
    return [TaskId(process_id, row["task_number"]) for row in rows]


def count_assigned(db: Connection, group: str) -> dict[int, int]:
    """How many of the group's tasks optimizers hold, by table."""
    rows = db.tuples(
        "SELECT table_id, count(*) FROM task_runtime INDEXED BY task_runtime_held_by_table "
        "WHERE optimizer_id IS NOT NULL AND group_name = :group GROUP BY table_id",
        {"group": group},
    )
    return dict(rows)


def count_waiting(db: Connection, group: str) -> dict[str, int]:
    """How many tasks of running processes wait for threads of the group, by kind of work."""
    rows = db.select(
        "SELECT work_kind, sum(tasks) AS tasks FROM table_process JOIN task_sum USING (process_id) "
        "WHERE table_process.finished_at_ms IS NULL AND table_process.status IN ('running', 'committing') "
        "AND task_sum.status = 'planned' AND tasks > 0 AND group_name = :group GROUP BY work_kind",
        {"group": group},
    )
    return {row["work_kind"]: int(row["tasks"]) for row in rows}


def list_quiet(db: Connection, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Of these processes those without a task that is held, or planned for the group that is named with each.

    Those that commit group by group are among them, whatever they have. The cost does not grow with their tasks.
    """
    return [row["process_id"] for row in db.select(_QUIET, {"asked": to_json(list(pairs))})]


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """The last attempt of a task: when it was given to a thread and when it ended."""

    attempt: Attempt
    table_id: int
    scheduled_at: datetime | None  # None: it never was
    finished_at: datetime | None  # None: it still holds the thread


def list_thread_uses(db: Connection, group: str, since: datetime) -> list[ThreadUse]:
    """The group's tasks that are held, then those that ended after that moment in the order of their ends.

    The cost does not grow with those that ended before.
    """
    columns = "process_id, task_number, attempt, table_id, scheduled_at_ms, finished_at_ms"
    running = db.select(
        f"SELECT {columns} FROM task_runtime INDEXED BY task_runtime_held "
        "WHERE optimizer_id IS NOT NULL AND group_name = :group",
        {"group": group},
    )
    ended = db.select(  # another order would have SQLite read all tasks in it
        f"SELECT {columns} FROM task_runtime WHERE finished_at_ms > :since_ms AND group_name = :group "
        "ORDER BY finished_at_ms",
        {"since_ms": to_ms(since), "group": group},
    )
    return [
        ThreadUse(
            Attempt(TaskId(row["process_id"], row["task_number"]), row["attempt"]),
            row["table_id"],
            from_ms_or_none(row["scheduled_at_ms"]),
            from_ms_or_none(row["finished_at_ms"]),
        )
        for row in (*running, *ended)
    ]


def input_sizes(db: Connection, task_ids: Iterable[TaskId]) -> dict[TaskId, int]:
    """The bytes of the tasks' inputs; one that has none is left out."""
    rows = db.select(
        "SELECT process_id, task_number, length(input) AS size FROM json_each(:asked) AS one CROSS JOIN task_payload "
        "ON process_id = json_extract(one.value, '$[0]') AND task_number = json_extract(one.value, '$[1]')",
        {"asked": to_json([(id_.process_id, id_.number) for id_ in task_ids])},
    )
    return {TaskId(row["process_id"], row["task_number"]): int(row["size"]) for row in rows}


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
    priority: int  # of its table
    value: float
    since_ms: int  # when it became due, or was requested


_WAITING_TASKS = RowMapping(WaitingTasks, group="group_name", type="process_type")


def list_waiting(db: Connection, group: str = "") -> list[WaitingTasks]:
    """The active processes with planned tasks for one group or all, by group, the oldest first."""
    return _WAITING_TASKS.select(
        db,
        "SELECT task_sum.group_name AS group_name, process_id, table_process.table_id AS table_id, process_type, "
        f"table_process.created_at_ms AS created_at_ms, quota, {_RANK}, sum(tasks) AS tasks "
        "FROM table_process JOIN task_sum USING (process_id) "
        "JOIN table_runtime ON table_runtime.table_id = table_process.table_id "
        "WHERE table_process.finished_at_ms IS NULL AND table_process.status IN ('running', 'committing') "
        "AND task_sum.status = 'planned' AND tasks > 0 AND :group IN ('', task_sum.group_name) "
        "GROUP BY task_sum.group_name, process_id ORDER BY task_sum.group_name, created_at_ms, process_id",
        {"group": group},
    )


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
    pending_ms = db.value("SELECT min(status_since_ms) FROM table_runtime WHERE status = 'pending'")
    (sums,) = db.select("SELECT count(*) AS optimizers, coalesce(sum(threads), 0) AS threads FROM optimizer")
    active = db.select(
        "SELECT status, count(*) AS processes FROM table_process WHERE finished_at_ms IS NULL GROUP BY status"
    )
    (waiting,) = db.select(
        "SELECT coalesce(sum(tasks), 0) AS tasks FROM task_sum WHERE status = 'planned' AND process_id IN (SELECT "
        "process_id FROM table_process WHERE finished_at_ms IS NULL AND status IN ('running', 'committing'))"
    )
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
        enabled_tables=db.count("table_listing", "enabled = 1"),
        oldest_pending=from_ms_or_none(pending_ms),
        optimizers=int(sums["optimizers"]),
        threads=int(sums["threads"]),
        processes={row["status"]: int(row["processes"]) for row in active},
        waiting_tasks=int(waiting["tasks"]),
        running_tasks=db.count("task_runtime", "optimizer_id IS NOT NULL"),
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


_TASK_SUMS = RowMapping(TaskSum, group="group_name")


def sum_up(db: Connection, process_ids: Iterable[str]) -> list[TaskSum]:
    """How many tasks these processes have, and their input, by process, status and group."""
    return _TASK_SUMS.select(
        db,
        "SELECT process_id, group_name, status, sum(tasks) AS tasks, sum(input_bytes) AS input_bytes FROM task_sum "
        "WHERE process_id IN (SELECT value FROM json_each(:processes)) AND tasks > 0 "
        "GROUP BY process_id, status, group_name ORDER BY process_id, status, group_name",
        {"processes": to_json(sorted(process_ids))},
    )


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
        "AND task_sum.status IN ('planned', 'scheduled', 'acked') AND tasks > 0 GROUP BY group_name, task_sum.status"
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
