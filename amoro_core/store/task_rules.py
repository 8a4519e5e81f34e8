"""What a task's row may say in each status, as the migration makes it; append another migration, do not edit."""

from amoro_core.store.connection import Connection

_FREE = "optimizer_id IS NULL AND thread_id IS NULL"
_HELD = "optimizer_id IS NOT NULL AND thread_id IS NOT NULL"
_RUN = "attempt >= 1 AND scheduled_at_ms IS NOT NULL"
_COLUMNS = (
    "process_id, task_number, table_id, group_name, status, attempt, optimizer_id, thread_id, failed_runs, "
    "lost_attempts, lost_optimizers_json, scheduled_at_ms, acked_at_ms, finished_at_ms, failure_code, failure, "
    "cost_bytes, partition_path, input_files, input_bytes, work_kind, input_rows, ended_optimizer_id, "
    "ended_thread_id, stage"
)
#: One rule for each status. Every write of a task checks it, and SQLite would build an index for each list of words.
_TABLE = f"""
    CREATE TABLE task_runtime_new (
        process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
        task_number INTEGER NOT NULL CHECK (task_number >= 1),
        table_id INTEGER NOT NULL,
        group_name TEXT NOT NULL,
        status TEXT NOT NULL,
        attempt INTEGER NOT NULL CHECK (attempt >= 0),
        optimizer_id TEXT REFERENCES optimizer (optimizer_id),
        thread_id INTEGER,
        failed_runs INTEGER NOT NULL CHECK (failed_runs >= 0),
        lost_attempts INTEGER NOT NULL CHECK (lost_attempts >= 0),
        lost_optimizers_json TEXT NOT NULL,
        scheduled_at_ms INTEGER,
        acked_at_ms INTEGER,
        finished_at_ms INTEGER,
        failure_code TEXT NOT NULL,
        failure TEXT NOT NULL,
        cost_bytes INTEGER NOT NULL,
        partition_path TEXT NOT NULL,
        input_files INTEGER NOT NULL,
        input_bytes INTEGER NOT NULL,
        work_kind TEXT NOT NULL DEFAULT 'rewrite' CHECK (work_kind <> ''),
        input_rows INTEGER NOT NULL DEFAULT 0 CHECK (input_rows >= 0),
        ended_optimizer_id TEXT,
        ended_thread_id INTEGER,
        stage INTEGER NOT NULL DEFAULT 0 CHECK (stage >= 0),
        PRIMARY KEY (process_id, task_number),
        CHECK (CASE status
            WHEN 'planned' THEN {_FREE} AND acked_at_ms IS NULL AND finished_at_ms IS NULL
            WHEN 'scheduled' THEN {_HELD} AND {_RUN} AND acked_at_ms IS NULL AND finished_at_ms IS NULL
            WHEN 'acked' THEN {_HELD} AND {_RUN} AND acked_at_ms IS NOT NULL AND finished_at_ms IS NULL
            WHEN 'success' THEN {_FREE} AND {_RUN} AND acked_at_ms IS NOT NULL AND finished_at_ms IS NOT NULL
            WHEN 'failed' THEN {_FREE} AND {_RUN} AND acked_at_ms IS NOT NULL AND finished_at_ms IS NOT NULL
            WHEN 'canceled' THEN {_FREE} AND finished_at_ms IS NOT NULL
            ELSE 0
        END),
        CHECK (failed_runs + lost_attempts <= attempt)
    ) STRICT
"""


def rule_tasks_by_status(db: Connection) -> None:
    """The rules of a task's row stand by its status; its indexes and triggers stay as they were."""
    kept = db.select(
        "SELECT sql FROM sqlite_master WHERE tbl_name = 'task_runtime' AND type IN ('index', 'trigger') "
        "AND sql IS NOT NULL ORDER BY rowid"
    )
    db.execute(_TABLE)
    db.execute(f"INSERT INTO task_runtime_new ({_COLUMNS}) SELECT {_COLUMNS} FROM task_runtime")
    db.execute("DROP TABLE task_runtime")
    db.execute("ALTER TABLE task_runtime_new RENAME TO task_runtime")
    for row in kept:
        db.execute(row["sql"])
