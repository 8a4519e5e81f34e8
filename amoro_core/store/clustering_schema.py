"""What clustering keeps in the store, as the migration makes it; append another migration, do not edit this one."""

from amoro_core.store.connection import Connection

_IN_LANE = "finished_at_ms IS NULL AND status NOT IN ('held', 'requested')"
#: The statements of the migration, in order.
CLUSTERING = (
    "INSERT INTO process_status (status, is_active) VALUES ('requested', 1)",
    "INSERT INTO process_lane (lane) VALUES ('layout')",
    "DROP INDEX table_process_active",
    "DROP INDEX table_process_active_uuid",
    f"CREATE UNIQUE INDEX table_process_active ON table_process (table_id, lane) WHERE {_IN_LANE}",
    f"CREATE UNIQUE INDEX table_process_active_uuid ON table_process (table_uuid, lane) WHERE {_IN_LANE}",
    # 0: one commit, of everything; else by groups, in so many at most.
    "ALTER TABLE table_process ADD COLUMN max_commits INTEGER NOT NULL DEFAULT 0 CHECK (max_commits >= 0)",
    "ALTER TABLE optimizer ADD COLUMN max_cluster_bytes INTEGER NOT NULL DEFAULT 0 CHECK (max_cluster_bytes >= 0)",
    # When a plan that was stored begins by itself, and when it is closed.
    "ALTER TABLE process_plan ADD COLUMN start_at_ms INTEGER",
    "ALTER TABLE process_plan ADD COLUMN expires_at_ms INTEGER",
    # The commits of a process are numbered: each is done once at most.
    "ALTER TABLE commit_attempt ADD COLUMN part INTEGER NOT NULL DEFAULT 1 CHECK (part >= 1)",
    "DROP INDEX commit_attempt_done",
    "CREATE UNIQUE INDEX commit_attempt_done ON commit_attempt (process_id, part) WHERE outcome = 'done'",
    # Groups of a process that won't be committed, though others of it are.
    """
    CREATE TABLE process_dropped_group (
        process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
        task_number INTEGER NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (process_id, task_number)
    ) STRICT
    """,
    # What is known of groups of files whose rows are ordered; their files' names end in the group's id.
    """
    CREATE TABLE cluster_group (
        table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
        table_uuid TEXT NOT NULL,
        group_id TEXT NOT NULL CHECK (group_id <> ''),
        layout_json TEXT NOT NULL,
        depth_json TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (table_id, group_id)
    ) STRICT
    """,
)


def keep_what_clustering_needs(db: Connection) -> None:
    """A process may be planned and not started, and may commit group by group; layouts of groups are known."""
    for statement in CLUSTERING:
        db.execute(statement)
