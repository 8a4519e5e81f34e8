"""What the store keeps for looking back, as the migration makes it; append another migration, do not edit this one."""

#: The statements of the migration, in order.
JOURNAL = (
    # An attempt is written down when it ends; until then it stands in task_runtime.
    """
    CREATE TABLE task_attempt (
        process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
        task_number INTEGER NOT NULL CHECK (task_number > 0),
        attempt INTEGER NOT NULL CHECK (attempt > 0),
        optimizer_id TEXT NOT NULL CHECK (optimizer_id <> ''),
        thread_id INTEGER NOT NULL,
        outcome TEXT NOT NULL CHECK (outcome IN ('success', 'failed', 'lost', 'returned', 'canceled')),
        scheduled_at_ms INTEGER NOT NULL,
        acked_at_ms INTEGER,
        finished_at_ms INTEGER NOT NULL,
        failure_code TEXT NOT NULL,
        failure TEXT NOT NULL,
        input_rows INTEGER NOT NULL CHECK (input_rows >= 0),
        input_bytes INTEGER NOT NULL CHECK (input_bytes >= 0),
        PRIMARY KEY (process_id, task_number, attempt)
    ) STRICT, WITHOUT ROWID
    """,
    # Numbers of events are never given twice: who follows them asks for what is above the last one seen. No
    # references: an event outlives its table and its process.
    """
    CREATE TABLE event (
        event_id INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms INTEGER NOT NULL,
        kind TEXT NOT NULL CHECK (kind <> ''),
        table_id INTEGER NOT NULL,
        table_name TEXT NOT NULL,
        process_id TEXT NOT NULL,
        optimizer_id TEXT NOT NULL,
        group_name TEXT NOT NULL,
        text TEXT NOT NULL,
        data_json TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX event_by_time ON event (at_ms)",
    "CREATE INDEX event_by_kind ON event (kind, at_ms)",
    "CREATE INDEX event_by_table ON event (table_id, at_ms) WHERE table_id <> 0",
    "CREATE INDEX event_by_process ON event (process_id, at_ms) WHERE process_id <> ''",
)
