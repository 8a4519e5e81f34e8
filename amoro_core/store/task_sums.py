"""How many tasks there are and what they read, in `task_sum`, so that nobody counts the tasks of large processes.

Triggers of the schema keep it, in the transaction that writes the task.
"""

from collections.abc import Iterable
from datetime import datetime

from amoro_core.model.processes import TaskStatus
from amoro_core.records import record
from amoro_core.store.connection import Connection
from amoro_core.store.rows import from_ms, to_json

_KEY = ("process_id", "status", "group_name", "work_kind")


def keep_task_sums(db: Connection) -> None:
    """The tasks of a process in one status, for one group, of one kind of work."""
    names = ", ".join(_KEY)
    db.execute(
        f"""
        CREATE TABLE task_sum (
            process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
            status TEXT NOT NULL,
            group_name TEXT NOT NULL,
            work_kind TEXT NOT NULL,
            tasks INTEGER NOT NULL,
            input_bytes INTEGER NOT NULL,
            PRIMARY KEY ({names})
        ) STRICT, WITHOUT ROWID
        """
    )
    db.execute(
        f"INSERT INTO task_sum SELECT {names}, count(*), sum(input_bytes) FROM task_runtime WHERE true GROUP BY {names}"
    )
    add = (
        f"INSERT INTO task_sum ({names}, tasks, input_bytes) VALUES ({_of('NEW')}, 1, NEW.input_bytes) "
        "ON CONFLICT DO UPDATE SET tasks = tasks + 1, input_bytes = input_bytes + excluded.input_bytes;"
    )
    take = (
        "UPDATE task_sum SET tasks = tasks - 1, input_bytes = input_bytes - OLD.input_bytes "
        f"WHERE ({names}) = ({_of('OLD')});"
    )
    counts = f"WHEN ({_of('OLD')}, OLD.input_bytes) IS NOT ({_of('NEW')}, NEW.input_bytes)"
    for event, changes in (("INSERT", add), ("UPDATE", f"{take} {add}"), ("DELETE", take)):
        condition = counts if event == "UPDATE" else ""
        db.execute(
            f"CREATE TRIGGER task_sum_{event.lower()} AFTER {event} ON task_runtime {condition} BEGIN {changes} END"
        )


def _of(row: str) -> str:
    return ", ".join(f"{row}.{name}" for name in _KEY)


@record
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
