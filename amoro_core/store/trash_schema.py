"""Condemned files that were moved to a trash."""

from amoro_core.store.connection import Connection

_STATUSES = "'written', 'waiting', 'moving', 'moved', 'returning', 'deleting', 'deleted', 'restored'"
_COLUMNS = "batch_id, process_id, table_id, table_uuid, kind, status, purge_at_ms, files, bytes, tries, content"


def keep_folders_of_trash(db: Connection) -> None:
    """Where the files of a batch were moved to, and that they are on the way."""
    db.execute(
        f"""
        CREATE TABLE condemned_batch_new (
            batch_id INTEGER PRIMARY KEY,
            process_id TEXT NOT NULL CHECK (process_id <> ''),
            table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
            table_uuid TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind <> ''),
            status TEXT NOT NULL CHECK (status IN ({_STATUSES})),
            purge_at_ms INTEGER NOT NULL,
            files INTEGER NOT NULL CHECK (files >= 0),
            bytes INTEGER NOT NULL CHECK (bytes >= 0),
            tries INTEGER NOT NULL CHECK (tries >= 0),
            content BLOB NOT NULL,
            moved_to TEXT NOT NULL DEFAULT '',
            CHECK ((moved_to = '') = (status NOT IN ('moving', 'moved', 'returning'))
                OR (moved_to <> '' AND status = 'deleting'))
        ) STRICT
        """
    )
    db.execute(f"INSERT INTO condemned_batch_new ({_COLUMNS}) SELECT {_COLUMNS} FROM condemned_batch")
    db.execute("DROP TABLE condemned_batch")
    db.execute("ALTER TABLE condemned_batch_new RENAME TO condemned_batch")
    db.execute("CREATE INDEX condemned_batch_by_table ON condemned_batch (table_id, status, purge_at_ms)")
    db.execute("CREATE INDEX condemned_batch_by_process ON condemned_batch (process_id)")
