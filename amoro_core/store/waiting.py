"""What waits and what there is, counted over the store's tables without reading their rows one by one."""

from collections.abc import Mapping
from datetime import datetime

from amoro_core.records import record
from amoro_core.store.connection import Connection
from amoro_core.store.rows import from_ms, from_ms_or_none, to_ms


@record
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


@record
class Figures:
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


def figures(db: Connection, since: datetime) -> Figures:
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
    return Figures(
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
