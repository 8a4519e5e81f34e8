"""The schema, as functions that are appended and never edited. The number of a migration is its place."""

from collections.abc import Callable, Sequence

from amoro_core.errors import StoreFailed
from amoro_core.store.connection import Connection

Migration = Callable[[Connection], None]


def migrate(db: Connection, migrations: Sequence[Migration] | None = None) -> None:
    """Bring the database to the newest schema, inside the caller's transaction.

    Raises StoreFailed for a database that a newer version has written.
    """
    steps = MIGRATIONS if migrations is None else migrations
    db.execute("CREATE TABLE IF NOT EXISTS schema_migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT")
    done = applied(db)
    if done > len(steps):
        raise StoreFailed(
            f"the state database has schema {done}, this version knows {len(steps)}: a newer version has written it",
            hint="Use that version, or a backup from before the upgrade.",
        )
    for number, step in enumerate(steps[done:], done + 1):
        step(db)
        db.execute(
            "INSERT INTO schema_migration (number, name) VALUES (:number, :name)",
            {"number": number, "name": step.__name__},
        )


def applied(db: Connection) -> int:
    """The number of the last migration that was applied."""
    row = db.select_one("SELECT max(number) AS number FROM schema_migration")
    return (row and row["number"]) or 0


def create_tables(db: Connection) -> None:
    """The first schema."""
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
    """Configuration files that somebody uploaded for a catalog, as they were, with what they stand for."""
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
    """To which partitions somebody limited a process."""
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


#: Append only.
MIGRATIONS: tuple[Migration, ...] = (
    create_tables,
    index_ended_tasks,
    index_ended_processes,
    create_access_tokens,
    keep_what_evaluations_said,
    create_blockers,
    keep_site_files,
    remember_draining,
    create_resources,
    keep_condition,
    name_kinds_of_work,
    remember_delays,
    keep_evidence,
    remember_who_ended_tasks,
    name_roles_of_tokens,
    keep_formats_of_tables,
)
