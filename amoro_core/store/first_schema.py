"""The first schema of the state database; later changes are in `migrations`."""

from amoro_core.store.connection import Connection


def create_tables(db: Connection) -> None:
    """Make every table of the first version."""
    for statement in _CREATE_TABLES:
        db.execute(statement)


_CREATE_TABLES = (
    # Bumped by each coordinator that opens the database and checked in each transaction, so that one that was paused
    # while another took over cannot write.
    """
    CREATE TABLE coordinator_epoch (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        epoch INTEGER NOT NULL CHECK (epoch >= 0)
    ) STRICT
    """,
    "INSERT INTO coordinator_epoch (id, epoch) VALUES (1, 0)",
    """
    CREATE TABLE token (
        kind TEXT PRIMARY KEY CHECK (kind <> ''),
        token_hash TEXT NOT NULL CHECK (token_hash <> '')
    ) STRICT
    """,
    """
    CREATE TABLE resource_group (
        group_name TEXT PRIMARY KEY CHECK (group_name <> ''),
        scheduling_policy TEXT NOT NULL,
        properties_json TEXT NOT NULL
    ) STRICT
    """,
    "INSERT INTO resource_group (group_name, scheduling_policy, properties_json) VALUES ('default', 'quota', '{}')",
    """
    CREATE TABLE catalog_metadata (
        catalog_name TEXT PRIMARY KEY CHECK (catalog_name <> ''),
        origin TEXT NOT NULL,
        properties_json TEXT NOT NULL,
        allowed_locations_json TEXT NOT NULL
    ) STRICT
    """,
    # No reference to catalog_metadata: pyiceberg's own configuration names catalogs too.
    # AUTOINCREMENT: the id of a removed table is never given again.
    """
    CREATE TABLE table_identifier (
        table_id INTEGER PRIMARY KEY AUTOINCREMENT,
        catalog_name TEXT NOT NULL,
        namespace_json TEXT NOT NULL,
        table_name TEXT NOT NULL,
        UNIQUE (catalog_name, namespace_json, table_name)
    ) STRICT
    """,
    # No reference to resource_group: a table's owner may name a group that does not exist (yet).
    """
    CREATE TABLE table_runtime (
        table_id INTEGER PRIMARY KEY REFERENCES table_identifier (table_id) ON DELETE CASCADE,
        table_uuid TEXT NOT NULL,
        format_version INTEGER NOT NULL CHECK (format_version >= 0),
        location TEXT NOT NULL,
        group_name TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('idle', 'pending', 'planning', 'minor_optimizing', 'major_optimizing',
            'full_optimizing', 'committing', 'refused')),
        status_since_ms INTEGER NOT NULL,
        status_reason TEXT NOT NULL,
        refusal TEXT NOT NULL,
        enabled_override INTEGER CHECK (enabled_override IN (0, 1)),
        enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
        enabled_origin TEXT NOT NULL,
        snapshot_id INTEGER,
        metadata_location TEXT NOT NULL,
        evaluated_snapshot_id INTEGER,
        evaluated_at_ms INTEGER,
        refreshed_at_ms INTEGER,
        next_due_at_ms INTEGER,
        pending_type TEXT CHECK (pending_type IN ('minor', 'major', 'full')),
        quota REAL NOT NULL CHECK (quota >= 0),
        failures INTEGER NOT NULL CHECK (failures >= 0),
        retry_at_ms INTEGER,
        last_optimized_at_ms INTEGER,
        properties_json TEXT NOT NULL,
        summary_json TEXT NOT NULL,
        CHECK ((status = 'refused') = (refusal <> ''))
    ) STRICT
    """,
    "CREATE INDEX table_runtime_by_uuid ON table_runtime (table_uuid)",
    """
    CREATE TABLE table_partition (
        table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
        spec_id INTEGER NOT NULL,
        partition BLOB NOT NULL,
        minor_at_ms INTEGER,
        major_at_ms INTEGER,
        full_at_ms INTEGER,
        PRIMARY KEY (table_id, spec_id, partition),
        CHECK (minor_at_ms IS NOT NULL OR major_at_ms IS NOT NULL OR full_at_ms IS NOT NULL)
    ) STRICT
    """,
    """
    CREATE TABLE table_process (
        process_id TEXT PRIMARY KEY CHECK (process_id <> ''),
        table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
        process_type TEXT NOT NULL CHECK (process_type IN ('minor', 'major', 'full')),
        status TEXT NOT NULL CHECK (status IN ('running', 'committing', 'commit_unknown', 'success', 'partial',
            'failed', 'closed')),
        trigger_word TEXT NOT NULL,
        reason TEXT NOT NULL,
        table_uuid TEXT NOT NULL,
        format_version INTEGER NOT NULL,
        snapshot_id INTEGER NOT NULL,
        sequence_number INTEGER NOT NULL CHECK (sequence_number >= 0),
        schema_id INTEGER NOT NULL,
        last_column_id INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        finished_at_ms INTEGER,
        failure_code TEXT NOT NULL,
        failure TEXT NOT NULL,
        max_retries INTEGER NOT NULL CHECK (max_retries >= 0),
        allow_partial_commit INTEGER NOT NULL CHECK (allow_partial_commit IN (0, 1)),
        commit_tries INTEGER NOT NULL CHECK (commit_tries >= 0),
        receipt_json TEXT,
        CHECK ((status IN ('running', 'committing', 'commit_unknown')) = (finished_at_ms IS NULL)),
        CHECK (receipt_json IS NULL OR status IN ('success', 'partial'))
    ) STRICT
    """,
    """
    CREATE UNIQUE INDEX table_process_active ON table_process (table_id)
        WHERE status IN ('running', 'committing', 'commit_unknown')
    """,
    # Two catalogs may name one table: it is optimized under one of its names at a time.
    """
    CREATE UNIQUE INDEX table_process_active_uuid ON table_process (table_uuid)
        WHERE status IN ('running', 'committing', 'commit_unknown')
    """,
    "CREATE INDEX table_process_by_table ON table_process (table_id, created_at_ms)",
    "CREATE INDEX table_process_by_time ON table_process (created_at_ms)",
    # Polls ask which processes run and which tasks are held: their cost must not grow with the history.
    """
    CREATE INDEX table_process_active_by_time ON table_process (created_at_ms, process_id)
        WHERE status IN ('running', 'committing', 'commit_unknown')
    """,
    """
    CREATE TABLE optimizer (
        optimizer_id TEXT PRIMARY KEY CHECK (optimizer_id <> ''),
        token_hash TEXT NOT NULL UNIQUE CHECK (token_hash <> ''),
        group_name TEXT NOT NULL REFERENCES resource_group (group_name),
        threads INTEGER NOT NULL CHECK (threads >= 0),
        memory_bytes INTEGER NOT NULL CHECK (memory_bytes >= 0),
        labels_json TEXT NOT NULL,
        registered_at_ms INTEGER NOT NULL
    ) STRICT
    """,
    # The reference to optimizer: a registration cannot go while it holds a task, or nobody would ever reset the task.
    """
    CREATE TABLE task_runtime (
        process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
        task_number INTEGER NOT NULL CHECK (task_number >= 1),
        table_id INTEGER NOT NULL,
        group_name TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('planned', 'scheduled', 'acked', 'success', 'failed', 'canceled')),
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
        PRIMARY KEY (process_id, task_number),
        CHECK ((status IN ('scheduled', 'acked')) = (optimizer_id IS NOT NULL)),
        CHECK ((optimizer_id IS NULL) = (thread_id IS NULL)),
        CHECK (status IN ('planned', 'canceled') OR (attempt >= 1 AND scheduled_at_ms IS NOT NULL)),
        CHECK (status NOT IN ('acked', 'success', 'failed') OR acked_at_ms IS NOT NULL),
        CHECK (status NOT IN ('planned', 'scheduled') OR acked_at_ms IS NULL),
        CHECK ((status IN ('success', 'failed', 'canceled')) = (finished_at_ms IS NOT NULL)),
        CHECK (failed_runs + lost_attempts <= attempt)
    ) STRICT
    """,
    "CREATE INDEX task_runtime_planned ON task_runtime (group_name, process_id, task_number) WHERE status = 'planned'",
    "CREATE INDEX task_runtime_held ON task_runtime (process_id, task_number) WHERE optimizer_id IS NOT NULL",
    "CREATE INDEX task_runtime_by_optimizer ON task_runtime (optimizer_id) WHERE optimizer_id IS NOT NULL",
    # Apart from task_runtime, so that its rows stay small: an ack must not write a payload again.
    """
    CREATE TABLE task_payload (
        process_id TEXT NOT NULL,
        task_number INTEGER NOT NULL,
        input BLOB NOT NULL,
        output BLOB,
        output_attempt INTEGER CHECK (output_attempt >= 1),
        PRIMARY KEY (process_id, task_number),
        FOREIGN KEY (process_id, task_number) REFERENCES task_runtime (process_id, task_number) ON DELETE CASCADE,
        CHECK ((output IS NULL) = (output_attempt IS NULL))
    ) STRICT
    """,
    """
    CREATE TABLE commit_attempt (
        process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
        attempt_number INTEGER NOT NULL CHECK (attempt_number >= 1),
        snapshot_id INTEGER NOT NULL,
        parent_snapshot_id INTEGER NOT NULL,
        sequence_number INTEGER NOT NULL CHECK (sequence_number >= 0),
        manifest_list TEXT NOT NULL,
        payload BLOB NOT NULL,
        groups_json TEXT NOT NULL,
        files_json TEXT NOT NULL,
        metadata_files_json TEXT NOT NULL,
        outcome TEXT NOT NULL CHECK (outcome IN ('sent', 'done', 'conflict', 'refused', 'unknown', 'refuted')),
        created_at_ms INTEGER NOT NULL,
        receipt_json TEXT NOT NULL,
        PRIMARY KEY (process_id, attempt_number)
    ) STRICT
    """,
    # A process commits at most once, whatever a caller believes.
    "CREATE UNIQUE INDEX commit_attempt_done ON commit_attempt (process_id) WHERE outcome = 'done'",
)
