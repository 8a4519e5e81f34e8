"""What lists of tables are sorted and filtered by, as the migration makes it; append another migration, do not edit."""

import json

from amoro_core.store.connection import Connection

#: Apart from table_runtime, whose rows hold properties and summaries: a filter without an index reads this table whole.
_TABLE = """
    CREATE TABLE table_listing (
        table_id INTEGER PRIMARY KEY REFERENCES table_identifier (table_id) ON DELETE CASCADE,
        catalog_name TEXT NOT NULL,
        namespace_json TEXT NOT NULL,
        table_name TEXT NOT NULL,
        search_text TEXT NOT NULL,
        status TEXT NOT NULL,
        refusal TEXT NOT NULL,
        group_name TEXT NOT NULL,
        enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
        health INTEGER NOT NULL CHECK (health BETWEEN 0 AND 101),
        files INTEGER NOT NULL,
        small_files INTEGER NOT NULL,
        delete_files INTEGER NOT NULL,
        data_bytes INTEGER NOT NULL,
        last_optimized_ms INTEGER NOT NULL,
        next_due_ms INTEGER NOT NULL
    ) STRICT
"""
_INDEXED = (
    "status", "group_name", "health", "files", "small_files", "delete_files", "data_bytes", "last_optimized_ms",
    "next_due_ms",
)  # fmt: skip
_FILLED = """
    INSERT INTO table_listing (table_id, catalog_name, namespace_json, table_name, search_text, status, refusal,
        group_name, enabled, health, files, small_files, delete_files, data_bytes, last_optimized_ms, next_due_ms)
    SELECT table_id, catalog_name, namespace_json, table_name, '', status, refusal, group_name, enabled,
        CASE WHEN summary_json ->> '$.health_score' BETWEEN 0 AND 100 THEN summary_json ->> '$.health_score'
            ELSE 101 END,
        coalesce(summary_json ->> '$.data_files', 0),
        coalesce(summary_json ->> '$.fragment_files', 0) + coalesce(summary_json ->> '$.undersized_files', 0),
        coalesce(summary_json ->> '$.equality_delete_files', 0)
            + coalesce(summary_json ->> '$.position_delete_files', 0),
        coalesce(summary_json ->> '$.data_bytes', 0), coalesce(last_at_ms, 0),
        coalesce(next_at_ms, 9223372036854775807)
    FROM table_identifier JOIN table_runtime USING (table_id)
    JOIN table_action USING (table_id) WHERE action_name = 'optimizing'
"""


def keep_listings(db: Connection) -> None:
    """The narrow rows that lists of tables are sorted and filtered by."""
    db.execute(_TABLE)
    db.execute(_FILLED)
    named = db.select("SELECT table_id, catalog_name, namespace_json, table_name FROM table_listing")
    db.execute_many(
        "UPDATE table_listing SET search_text = :text WHERE table_id = :table_id",
        ({"table_id": row["table_id"], "text": _search_text(row)} for row in named),
    )
    db.execute("CREATE UNIQUE INDEX table_listing_by_name ON table_listing (catalog_name, namespace_json, table_name)")
    for column in _INDEXED:
        db.execute(f"CREATE INDEX table_listing_by_{column} ON table_listing ({column}, table_id)")


def _search_text(row: dict[str, object]) -> str:
    namespace = json.loads(str(row["namespace_json"]))
    return ".".join((str(row["catalog_name"]), *namespace, str(row["table_name"]))).casefold()
