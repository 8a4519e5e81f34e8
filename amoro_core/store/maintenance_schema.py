"""What maintenance keeps in the store, as the migration makes it; append another migration, do not edit this one."""

_IN_LANE = "finished_at_ms IS NULL AND status <> 'held'"
#: The statements of the migration, in order.
MAINTENANCE = (
    "INSERT INTO process_status (status, is_active) VALUES ('held', 1)",
    "INSERT INTO process_lane (lane) VALUES ('statistics')",
    "DROP INDEX table_process_active",
    "DROP INDEX table_process_active_uuid",
    f"CREATE UNIQUE INDEX table_process_active ON table_process (table_id, lane) WHERE {_IN_LANE}",
    f"CREATE UNIQUE INDEX table_process_active_uuid ON table_process (table_uuid, lane) WHERE {_IN_LANE}",
    # Paths of a batch are compressed; a batch is written before anything of it is touched.
    """
    CREATE TABLE condemned_batch (
        batch_id INTEGER PRIMARY KEY,
        process_id TEXT NOT NULL CHECK (process_id <> ''),
        table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
        table_uuid TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind <> ''),
        status TEXT NOT NULL CHECK (status IN ('written', 'waiting', 'deleting', 'deleted', 'restored')),
        purge_at_ms INTEGER NOT NULL,
        files INTEGER NOT NULL CHECK (files >= 0),
        bytes INTEGER NOT NULL CHECK (bytes >= 0),
        tries INTEGER NOT NULL CHECK (tries >= 0),
        content BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX condemned_batch_by_table ON condemned_batch (table_id, status, purge_at_ms)",
    "CREATE INDEX condemned_batch_by_process ON condemned_batch (process_id)",
    # What the plan of a process keeps for its end, and by which it was held.
    """
    CREATE TABLE process_plan (
        process_id TEXT PRIMARY KEY REFERENCES table_process (process_id) ON DELETE CASCADE,
        document_json TEXT NOT NULL,
        measures_json TEXT NOT NULL,
        options_json TEXT NOT NULL,
        keep_ms INTEGER NOT NULL CHECK (keep_ms >= 0)
    ) STRICT
    """,
    """
    CREATE TABLE snapshot_lease (
        lease_id TEXT PRIMARY KEY CHECK (lease_id <> ''),
        table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
        table_uuid TEXT NOT NULL,
        snapshot_id INTEGER NOT NULL,
        is_since INTEGER NOT NULL CHECK (is_since IN (0, 1)),
        holder TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL,
        expires_at_ms INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX snapshot_lease_by_table ON snapshot_lease (table_id, expires_at_ms)",
)
