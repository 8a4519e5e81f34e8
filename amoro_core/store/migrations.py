"""The schema, as functions that are appended and never edited. The number of a migration is its place."""

from collections.abc import Callable, Sequence

from amoro_core.errors import StoreFailed
from amoro_core.store.connection import Connection
from amoro_core.store.first_schema import create_tables
from amoro_core.store.maintenance_schema import MAINTENANCE

Migration = Callable[[Connection], None]


def migrate(db: Connection, migrations: Sequence[Migration] | None = None) -> int:
    """Bring the database to the newest schema, inside the caller's transaction; how many migrations that took.

    References are not to be enforced meanwhile: a table that others refer to may be made anew. Raises StoreFailed for
    a database that a newer version has written.
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
    return len(steps) - done


def applied(db: Connection) -> int:
    """The number of the last migration that was applied."""
    row = db.select_one("SELECT max(number) AS number FROM schema_migration")
    return (row and row["number"]) or 0


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


def name_lanes_and_actions(db: Connection) -> None:
    """A process has an action and a lane; what is known of a table's action has a row of its own.

    Which statuses and lanes there are stands in tables, so that another one is a row.
    """
    for statement in _LANES_AND_ACTIONS:
        db.execute(statement)


_OPEN = "finished_at_ms IS NULL"
_LANES_AND_ACTIONS = (
    """
    CREATE TABLE process_status (
        status TEXT PRIMARY KEY CHECK (status <> ''),
        is_active INTEGER NOT NULL CHECK (is_active IN (0, 1)),
        UNIQUE (status, is_active)
    ) STRICT
    """,
    """
    INSERT INTO process_status (status, is_active) VALUES ('running', 1), ('committing', 1), ('commit_unknown', 1),
        ('clearing', 1), ('success', 0), ('partial', 0), ('failed', 0), ('closed', 0)
    """,
    "CREATE TABLE process_lane (lane TEXT PRIMARY KEY CHECK (lane <> '')) STRICT",
    "INSERT INTO process_lane (lane) VALUES ('files'), ('metadata'), ('storage')",
    # The reference of status and is_active together: whoever is active has not finished, and the other way round.
    """
    CREATE TABLE table_process_in_lane (
        process_id TEXT PRIMARY KEY CHECK (process_id <> ''),
        table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
        process_type TEXT NOT NULL CHECK (process_type <> ''),
        action_name TEXT NOT NULL CHECK (action_name <> ''),
        lane TEXT NOT NULL REFERENCES process_lane (lane),
        status TEXT NOT NULL,
        is_active INTEGER NOT NULL,
        trigger_word TEXT NOT NULL,
        reason TEXT NOT NULL,
        table_uuid TEXT NOT NULL,
        format_version INTEGER NOT NULL,
        snapshot_id INTEGER NOT NULL,
        sequence_number INTEGER NOT NULL CHECK (sequence_number >= 0),
        schema_id INTEGER NOT NULL,
        last_column_id INTEGER NOT NULL,
        detail TEXT NOT NULL,
        commits INTEGER NOT NULL CHECK (commits IN (0, 1)),
        created_at_ms INTEGER NOT NULL,
        finished_at_ms INTEGER,
        failure_code TEXT NOT NULL,
        failure TEXT NOT NULL,
        max_retries INTEGER NOT NULL CHECK (max_retries >= 0),
        allow_partial_commit INTEGER NOT NULL CHECK (allow_partial_commit IN (0, 1)),
        commit_tries INTEGER NOT NULL CHECK (commit_tries >= 0),
        receipt_json TEXT,
        condition TEXT NOT NULL,
        delay_json TEXT,
        left_over INTEGER NOT NULL CHECK (left_over IN (0, 1)),
        FOREIGN KEY (status, is_active) REFERENCES process_status (status, is_active),
        CHECK (receipt_json IS NULL OR status IN ('clearing', 'success', 'partial')),
        CHECK (is_active = (finished_at_ms IS NULL)),
        CHECK (left_over = 0 OR finished_at_ms IS NOT NULL)
    ) STRICT
    """,
    """
    INSERT INTO table_process_in_lane (process_id, table_id, process_type, action_name, lane, status, trigger_word,
        reason, table_uuid, format_version, snapshot_id, sequence_number, schema_id, last_column_id, detail, commits,
        created_at_ms, finished_at_ms, failure_code, failure, max_retries, allow_partial_commit, commit_tries,
        receipt_json, condition, delay_json, is_active, left_over)
    SELECT process_id, table_id, process_type, 'optimizing', 'files', status, trigger_word,
        reason, table_uuid, format_version, snapshot_id, sequence_number, schema_id, last_column_id, '', 1,
        created_at_ms, finished_at_ms, failure_code, failure, max_retries, allow_partial_commit, commit_tries,
        receipt_json, condition, delay_json, finished_at_ms IS NULL, 0
    FROM table_process
    """,
    "DROP TABLE table_process",
    "ALTER TABLE table_process_in_lane RENAME TO table_process",
    f"CREATE UNIQUE INDEX table_process_active ON table_process (table_id, lane) WHERE {_OPEN}",
    # Two catalogs may name one table: it is worked on under one of its names at a time.
    f"CREATE UNIQUE INDEX table_process_active_uuid ON table_process (table_uuid, lane) WHERE {_OPEN}",
    "CREATE INDEX table_process_by_table ON table_process (table_id, created_at_ms)",
    "CREATE INDEX table_process_by_time ON table_process (created_at_ms)",
    f"CREATE INDEX table_process_active_by_time ON table_process (created_at_ms, process_id) WHERE {_OPEN}",
    "CREATE INDEX table_process_ended ON table_process (finished_at_ms) WHERE finished_at_ms IS NOT NULL",
    "CREATE INDEX table_process_left_over ON table_process (process_id) WHERE left_over = 1",
    # Files that a process removes after its work: written down before the first goes, taken out as they go,
    # marked where they stay.
    """
    CREATE TABLE process_clearing (
        process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
        path TEXT NOT NULL CHECK (path <> ''),
        kept INTEGER NOT NULL CHECK (kept IN (0, 1)),
        PRIMARY KEY (process_id, path)
    ) STRICT
    """,
    """
    CREATE TABLE table_action (
        table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
        action_name TEXT NOT NULL CHECK (action_name <> ''),
        reason TEXT NOT NULL,
        last_at_ms INTEGER,
        next_at_ms INTEGER,
        failures INTEGER NOT NULL CHECK (failures >= 0),
        retry_at_ms INTEGER,
        PRIMARY KEY (table_id, action_name)
    ) STRICT
    """,
    """
    INSERT INTO table_action (table_id, action_name, reason, last_at_ms, next_at_ms, failures, retry_at_ms)
    SELECT table_id, 'optimizing', status_reason, last_optimized_at_ms, next_due_at_ms, failures, retry_at_ms
    FROM table_runtime
    """,
    *(
        f"ALTER TABLE table_runtime DROP COLUMN {column}"
        for column in ("status_reason", "last_optimized_at_ms", "next_due_at_ms", "failures", "retry_at_ms")
    ),
    "CREATE INDEX table_action_due ON table_action (next_at_ms) WHERE action_name <> 'optimizing'",
)


def keep_what_maintenance_needs(db: Connection) -> None:
    """A process may be held, which holds no lane; condemned files wait in batches; snapshots are leased."""
    for statement in MAINTENANCE:
        db.execute(statement)


def keep_last_data_commits(db: Connection) -> None:
    """When data last came to a table: what data expiry counts back from once the snapshot is expired."""
    db.execute(
        """
        CREATE TABLE table_data_commit (
            table_id INTEGER PRIMARY KEY REFERENCES table_identifier (table_id) ON DELETE CASCADE,
            table_uuid TEXT NOT NULL,
            snapshot_id INTEGER NOT NULL,
            committed_at_ms INTEGER NOT NULL
        ) STRICT
        """
    )


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
    name_lanes_and_actions,
    keep_what_maintenance_needs,
    keep_last_data_commits,
)
