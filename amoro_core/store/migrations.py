"""The schema, as functions that are appended and never edited. The number of a migration is its place.

A new database gets the schema of all at once, from `schema.sql`, which `python docs/generate.py` makes from them.
"""

import time
from collections.abc import Callable, Sequence

from amoro_core.errors import StoreFailed
from amoro_core.store.access_schema import admit_people, keep_accounts, keep_audit, limit_tokens
from amoro_core.store.clustering_schema import keep_what_clustering_needs
from amoro_core.store.connection import Connection
from amoro_core.store.early_migrations import (
    create_access_tokens,
    create_blockers,
    create_resources,
    index_ended_processes,
    index_ended_tasks,
    keep_condition,
    keep_evidence,
    keep_formats_of_tables,
    keep_site_files,
    keep_what_evaluations_said,
    name_kinds_of_work,
    name_roles_of_tokens,
    remember_delays,
    remember_draining,
    remember_who_ended_tasks,
)
from amoro_core.store.first_schema import create_tables
from amoro_core.store.journal_schema import JOURNAL
from amoro_core.store.listing_schema import keep_listings
from amoro_core.store.maintenance_schema import MAINTENANCE
from amoro_core.store.newest_schema import is_empty, make_newest
from amoro_core.store.plans import keep_saved_plans
from amoro_core.store.queue_stats import keep_task_sums
from amoro_core.store.repeat_schema import REPEATS
from amoro_core.store.table_stats import keep_digests, keep_scans, keep_sources_of_scans
from amoro_core.store.tasks import rule_tasks_by_status
from amoro_core.store.time_series import keep_series
from amoro_core.store.trash_schema import keep_folders_of_trash

Migration = Callable[[Connection], None]


def migrate(db: Connection, migrations: Sequence[Migration] | None = None) -> int:
    """Bring the database to the newest schema, inside the caller's transaction; how many migrations that took.

    An empty one is made by the script, where no migrations are given; those that it lacks are applied to it.
    References are not to be enforced meanwhile: a table that others refer to may be made anew. Raises StoreFailed for
    a database that a newer version has written.
    """
    steps = MIGRATIONS if migrations is None else migrations
    new = migrations is None and is_empty(db)
    if new:
        make_newest(db)
    db.execute("CREATE TABLE IF NOT EXISTS schema_migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT")
    done = applied(db)
    before = 0 if new else done
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
    if before < len(steps) and _has_times(db):  # the newest schema has; a step of before it could not note its own
        db.execute(
            "UPDATE schema_migration SET applied_at_ms = :now_ms WHERE number > :before",
            {"now_ms": round(time.time() * 1000), "before": before},
        )
    return len(steps) - before


def _has_times(db: Connection) -> bool:
    return any(row["name"] == "applied_at_ms" for row in db.select("PRAGMA table_info(schema_migration)"))


def applied(db: Connection) -> int:
    """The number of the last applied migration."""
    row = db.select_one("SELECT max(number) AS number FROM schema_migration")
    return (row and row["number"]) or 0


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


def remember_pauses(db: Connection) -> None:
    """Which actions are paused on a table, why, and what may end that."""
    for column in (
        "fruitless INTEGER NOT NULL DEFAULT 0 CHECK (fruitless >= 0)",
        "paused_for TEXT NOT NULL DEFAULT ''",
        "paused_at_ms INTEGER CHECK ((paused_at_ms IS NULL) = (paused_for = ''))",
        "properties_digest TEXT NOT NULL DEFAULT ''",
    ):
        db.execute(f"ALTER TABLE table_action ADD COLUMN {column}")


def keep_tags_of_leases(db: Connection) -> None:
    """A lease may have a tag of its own in the table, which other maintainers honour."""
    db.execute("ALTER TABLE snapshot_lease ADD COLUMN tag TEXT NOT NULL DEFAULT ''")


def keep_blobs_of_work(db: Connection) -> None:
    """Bytes that tasks fetch beside their input; a task may wait for those of earlier stages."""
    db.execute(
        """
        CREATE TABLE work_blob (
            process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
            sha256 TEXT NOT NULL,
            piece INTEGER NOT NULL CHECK (piece >= 0),
            content BLOB NOT NULL,
            PRIMARY KEY (process_id, sha256, piece)
        ) STRICT
        """
    )
    db.execute("ALTER TABLE task_runtime ADD COLUMN stage INTEGER NOT NULL DEFAULT 0 CHECK (stage >= 0)")


def keep_journal(db: Connection) -> None:
    """Attempts of tasks that have ended, and what happened."""
    list(map(db.execute, JOURNAL))


def keep_keyed_requests(db: Connection) -> None:
    """Requests over HTTP that carry a key, and their answers."""
    list(map(db.execute, REPEATS))


def note_times_of_migrations(db: Connection) -> None:
    """When a step was applied; NULL for those before."""
    db.execute("ALTER TABLE schema_migration ADD COLUMN applied_at_ms INTEGER")


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
    remember_pauses,
    keep_tags_of_leases,
    keep_blobs_of_work,
    keep_scans,
    keep_what_clustering_needs,
    keep_listings,
    keep_journal,
    limit_tokens,
    keep_keyed_requests,
    keep_digests,
    keep_folders_of_trash,
    keep_audit,
    keep_series,
    keep_accounts,
    admit_people,
    note_times_of_migrations,
    keep_sources_of_scans,
    keep_saved_plans,
    keep_task_sums,
    rule_tasks_by_status,
)
