"""When data last came to each table, in `table_data_commit`: an expired snapshot tells it no more."""

from amoro_core.model.times import DataCommit
from amoro_core.store.connection import Connection


def save(db: Connection, table_id: int, uuid: str, commit: DataCommit | None) -> None:
    """Store the commit, replacing the previous one; None deletes it."""
    if commit is None:
        forget(db, table_id)
        return
    db.execute(
        "INSERT INTO table_data_commit (table_id, table_uuid, snapshot_id, committed_at_ms) "
        "VALUES (:table_id, :uuid, :snapshot_id, :committed_at_ms) ON CONFLICT (table_id) DO UPDATE SET "
        "table_uuid = excluded.table_uuid, snapshot_id = excluded.snapshot_id, "
        "committed_at_ms = excluded.committed_at_ms",
        {
            "table_id": table_id,
            "uuid": uuid,
            "snapshot_id": commit.snapshot_id,
            "committed_at_ms": commit.committed_at_ms,
        },
    )


def find(db: Connection, table_id: int, uuid: str) -> DataCommit | None:
    """The stored commit of the table; None if there is none, or only one of another table (UUID) with its name."""
    row = db.select_one(
        "SELECT snapshot_id, committed_at_ms FROM table_data_commit WHERE table_id = :table_id AND table_uuid = :uuid",
        {"table_id": table_id, "uuid": uuid},
    )
    return None if row is None else DataCommit(row["snapshot_id"], row["committed_at_ms"])


def forget(db: Connection, table_id: int) -> None:
    """Delete the table's record, if there is one."""
    db.execute("DELETE FROM table_data_commit WHERE table_id = :table_id", {"table_id": table_id})
