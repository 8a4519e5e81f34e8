"""Leases of snapshots, in `snapshot_lease`."""

from dataclasses import dataclass
from datetime import datetime

from amoro_core.store.connection import Connection, RowMapping, to_ms


@dataclass(frozen=True, slots=True)
class SnapshotLease:
    """A holder's claim that a snapshot is needed for a while; its chain to the branch's head stays with it."""

    lease_id: str
    table_id: int
    table_uuid: str
    snapshot_id: int
    is_since: bool  # all newer snapshots stay as well
    holder: str
    created_at: datetime
    expires_at: datetime
    tag: str = ""  # the name of one on the snapshot, for other maintainers; "": it has none

    @property
    def words(self) -> str:
        """Whose it is, in a phrase."""
        return f"lease {self.lease_id[-8:]} of {self.holder}"


_LEASES = RowMapping(SnapshotLease)


def add(db: Connection, lease: SnapshotLease) -> None:
    """Keep a new lease. Raises Duplicate."""
    db.insert("snapshot_lease", _LEASES.to_row(lease))


def renew(db: Connection, lease_id: str, expires_at: datetime) -> None:
    """Let a lease last until then."""
    db.execute(
        "UPDATE snapshot_lease SET expires_at_ms = :at_ms WHERE lease_id = :lease_id",
        {"at_ms": to_ms(expires_at), "lease_id": lease_id},
    )


def remove(db: Connection, lease_id: str) -> None:
    """Forget a lease; one that is not known is no error."""
    db.execute("DELETE FROM snapshot_lease WHERE lease_id = :lease_id", {"lease_id": lease_id})


def remove_expired(db: Connection, now: datetime) -> int:
    """Forget the leases that have ended; how many."""
    return db.execute("DELETE FROM snapshot_lease WHERE expires_at_ms <= :now_ms", {"now_ms": to_ms(now)})


def list_leases(
    db: Connection, now: datetime, table_id: int | None = None, table_uuid: str = ""
) -> list[SnapshotLease]:
    """The leases that hold now, the next to end first; of the table, under this name or another, where given."""
    return _LEASES.select(
        db,
        "SELECT * FROM snapshot_lease WHERE expires_at_ms > :now_ms "
        "AND (:table_id IS NULL OR table_id = :table_id OR (table_uuid = :uuid AND :uuid <> '')) "
        "ORDER BY expires_at_ms, lease_id",
        {"now_ms": to_ms(now), "table_id": table_id, "uuid": table_uuid},
    )


def list_page(
    db: Connection, now: datetime, table_id: int | None, after: tuple[int, str] | None, limit: int
) -> list[SnapshotLease]:
    """At most `limit` of the leases that hold now, the next to end first, after a `place_of`; of the table if given."""
    after_ms, after_id = after or (-1, "")
    return _LEASES.select(
        db,
        "SELECT * FROM snapshot_lease WHERE expires_at_ms > :now_ms AND (:table_id IS NULL OR table_id = :table_id) "
        "AND (expires_at_ms, lease_id) > (:after_ms, :after_id) ORDER BY expires_at_ms, lease_id LIMIT :most",
        {"now_ms": to_ms(now), "table_id": table_id, "most": limit, "after_ms": after_ms, "after_id": after_id},
    )


def count(db: Connection, now: datetime, table_id: int | None) -> int:
    """How many leases hold now; of the table if given."""
    where = "expires_at_ms > :now AND (:table_id IS NULL OR table_id = :table_id)"
    return db.count("snapshot_lease", where, {"now": to_ms(now), "table_id": table_id})


def place_of(lease: SnapshotLease) -> tuple[int, str]:
    """The lease's place in a list."""
    return to_ms(lease.expires_at), lease.lease_id
