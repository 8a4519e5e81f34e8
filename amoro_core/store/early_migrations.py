"""The migrations of the first releases; `migrations.MIGRATIONS` has their order. Append no more here."""

from amoro_core.store.connection import Connection


def index_ended_tasks(db: Connection) -> None:
    """Occupation is counted from the tasks of the last hour, whatever the length of the history."""
    db.execute("CREATE INDEX task_runtime_ended ON task_runtime (finished_at_ms) WHERE finished_at_ms IS NOT NULL")


def index_ended_processes(db: Connection) -> None:
    """The history is cut by when processes ended."""
    db.execute("CREATE INDEX table_process_ended ON table_process (finished_at_ms) WHERE finished_at_ms IS NOT NULL")


def create_access_tokens(db: Connection) -> None:
    """Tokens that people create."""
    db.execute(
        """
        CREATE TABLE access_token (
            token_name TEXT PRIMARY KEY CHECK (token_name <> ''),
            kind TEXT NOT NULL CHECK (kind IN ('admin', 'enrolment')),
            token_hash TEXT NOT NULL UNIQUE CHECK (token_hash <> ''),
            created_at_ms INTEGER NOT NULL
        ) STRICT
        """,
    )


def keep_what_evaluations_said(db: Connection) -> None:
    """Health by its parts, when files were looked at, and when to look again: few of many tables are due at a time."""
    for column in (
        "scanned_at_ms INTEGER",
        "refresh_at_ms INTEGER",
        "health_json TEXT",
        "evaluated_config TEXT NOT NULL DEFAULT ''",
    ):
        db.execute(f"ALTER TABLE table_runtime ADD COLUMN {column}")
    db.execute("CREATE INDEX table_runtime_by_refresh ON table_runtime (refresh_at_ms)")
    db.execute("CREATE INDEX table_runtime_pending ON table_runtime (table_id) WHERE status = 'pending'")


def create_blockers(db: Connection) -> None:
    """Blockers of tables."""
    db.execute(
        """
        CREATE TABLE table_blocker (
            blocker_id TEXT PRIMARY KEY CHECK (blocker_id <> ''),
            table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
            operations_json TEXT NOT NULL CHECK (operations_json <> '[]'),
            reason TEXT NOT NULL,
            created_at_ms INTEGER NOT NULL,
            expires_at_ms INTEGER NOT NULL,
            held_for_ms INTEGER NOT NULL CHECK (held_for_ms > 0),
            CHECK (expires_at_ms > created_at_ms)
        ) STRICT
        """,
    )
    db.execute("CREATE INDEX table_blocker_by_table ON table_blocker (table_id, expires_at_ms)")


def keep_site_files(db: Connection) -> None:
    """Configuration files uploaded for a catalog, verbatim, with the properties that they stand for."""
    db.execute("ALTER TABLE catalog_metadata ADD COLUMN site_files_json TEXT NOT NULL DEFAULT '[]'")


def remember_draining(db: Connection) -> None:
    """That an optimizer is to leave survives a restart of the coordinator."""
    db.execute("ALTER TABLE optimizer ADD COLUMN draining INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1))")


def create_resources(db: Connection) -> None:
    """Where a group's optimizers run, how many there are to be, and which were started."""
    for column in (
        "container_name TEXT NOT NULL DEFAULT 'external' CHECK (container_name <> '')",
        "instances INTEGER NOT NULL DEFAULT 0 CHECK (instances >= 0)",
        "failed_starts INTEGER NOT NULL DEFAULT 0 CHECK (failed_starts >= 0)",
        "retry_at_ms INTEGER",
        "start_failure TEXT NOT NULL DEFAULT ''",
    ):
        db.execute(f"ALTER TABLE resource_group ADD COLUMN {column}")
    # No reference to resource_group: an instance is ended after its group was removed.
    db.execute(
        """
        CREATE TABLE resource (
            resource_id TEXT PRIMARY KEY CHECK (resource_id <> ''),
            group_name TEXT NOT NULL,
            container_name TEXT NOT NULL CHECK (container_name <> ''),
            state TEXT NOT NULL CHECK (state IN ('starting', 'running', 'draining', 'stopping')),
            started_at_ms INTEGER NOT NULL,
            since_ms INTEGER NOT NULL,
            handle TEXT NOT NULL
        ) STRICT
        """,
    )
    db.execute("CREATE INDEX resource_by_group ON resource (group_name)")


def keep_condition(db: Connection) -> None:
    """The partitions that a request limited a process to."""
    db.execute("ALTER TABLE table_process ADD COLUMN condition TEXT NOT NULL DEFAULT ''")


def name_kinds_of_work(db: Connection) -> None:
    """A task goes to an optimizer that knows the kind of its work; until now there was rewriting alone."""
    db.execute("ALTER TABLE task_runtime ADD COLUMN work_kind TEXT NOT NULL DEFAULT 'rewrite' CHECK (work_kind <> '')")
    db.execute("ALTER TABLE optimizer ADD COLUMN work_kinds_json TEXT NOT NULL DEFAULT '[\"rewrite\"]'")


def remember_delays(db: Connection) -> None:
    """What a commit waits for, and when it is tried again."""
    db.execute("ALTER TABLE table_process ADD COLUMN delay_json TEXT")


def keep_evidence(db: Connection) -> None:
    """An attempt to commit is traced by what its change leaves behind, which need not be a snapshot."""
    db.execute(
        """
        CREATE TABLE commit_change (
            process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
            attempt_number INTEGER NOT NULL CHECK (attempt_number >= 1),
            evidence_json TEXT NOT NULL CHECK (evidence_json <> ''),
            payload BLOB NOT NULL,
            groups_json TEXT NOT NULL,
            files_json TEXT NOT NULL,
            metadata_files_json TEXT NOT NULL,
            outcome TEXT NOT NULL CHECK (outcome IN ('sent', 'done', 'conflict', 'refused', 'unknown', 'refuted')),
            created_at_ms INTEGER NOT NULL,
            receipt_json TEXT NOT NULL,
            PRIMARY KEY (process_id, attempt_number)
        ) STRICT
        """
    )
    db.execute(
        """
        INSERT INTO commit_change
        SELECT process_id, attempt_number,
            json_object('kind', 'snapshot-added', 'snapshot_id', snapshot_id, 'parent_snapshot_id', parent_snapshot_id,
                'sequence_number', sequence_number, 'files', json(files_json)),
            payload, groups_json, files_json, metadata_files_json, outcome, created_at_ms, receipt_json
        FROM commit_attempt
        """
    )
    db.execute("DROP TABLE commit_attempt")
    db.execute("ALTER TABLE commit_change RENAME TO commit_attempt")
    # A process commits at most once, whatever a caller believes.
    db.execute("CREATE UNIQUE INDEX commit_attempt_done ON commit_attempt (process_id) WHERE outcome = 'done'")


def remember_who_ended_tasks(db: Connection) -> None:
    """What a task's record says after its end. No reference to optimizer: registrations go, what they did stays."""
    db.execute("ALTER TABLE task_runtime ADD COLUMN input_rows INTEGER NOT NULL DEFAULT 0 CHECK (input_rows >= 0)")
    db.execute("ALTER TABLE task_runtime ADD COLUMN ended_optimizer_id TEXT")
    db.execute("ALTER TABLE task_runtime ADD COLUMN ended_thread_id INTEGER")


def name_roles_of_tokens(db: Connection) -> None:
    """Tokens have a role; what was a kind is one, with the same word."""
    db.execute(
        """
        CREATE TABLE access_token_with_role (
            token_name TEXT PRIMARY KEY CHECK (token_name <> ''),
            role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin', 'enrolment')),
            token_hash TEXT NOT NULL UNIQUE CHECK (token_hash <> ''),
            created_at_ms INTEGER NOT NULL
        ) STRICT
        """,
    )
    db.execute(
        "INSERT INTO access_token_with_role SELECT token_name, kind, token_hash, created_at_ms FROM access_token"
    )
    db.execute("DROP TABLE access_token")
    db.execute("ALTER TABLE access_token_with_role RENAME TO access_token")


def keep_formats_of_tables(db: Connection) -> None:
    """The format that a table was seen with; those of before were all Iceberg's."""
    db.execute("ALTER TABLE table_runtime ADD COLUMN format TEXT NOT NULL DEFAULT ''")
    db.execute("UPDATE table_runtime SET format = 'iceberg' WHERE table_uuid <> ''")
