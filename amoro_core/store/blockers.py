"""Blockers of tables, in `table_blocker`. Expired ones are never found, whether they were deleted or not."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta

from amoro_core.errors import BlockerNotFound
from amoro_core.model.tables import BlockedOperation, Blocker
from amoro_core.store.column_codecs import from_ms, insert_into, to_json, to_ms, update_of
from amoro_core.store.connection import Connection, Row

_COLUMNS = ("blocker_id", "table_id", "operations_json", "reason", "created_at_ms", "expires_at_ms", "held_for_ms")
_INSERT = insert_into("table_blocker", _COLUMNS)
_UPDATE = update_of("table_blocker", _COLUMNS, ("blocker_id",))
_MILLISECOND = timedelta(milliseconds=1)
_PREFIX = 6


def add(db: Connection, blocker: Blocker) -> Blocker:
    """Insert the blocker."""
    db.execute(_INSERT, _to_row(blocker))
    return blocker


def save(db: Connection, blocker: Blocker) -> Blocker:
    """Replace the stored blocker. Raises BlockerNotFound."""
    if not db.execute(_UPDATE, _to_row(blocker)):
        raise _missing(blocker.blocker_id)
    return blocker


def remove(db: Connection, blocker_id: str) -> None:
    """Delete the blocker, if it is there."""
    db.execute("DELETE FROM table_blocker WHERE blocker_id = :blocker_id", {"blocker_id": blocker_id})


def remove_expired(db: Connection, now: datetime) -> int:
    """Delete expired blockers; returns how many."""
    return db.execute("DELETE FROM table_blocker WHERE expires_at_ms <= :now_ms", {"now_ms": to_ms(now)})


def find_by_prefix(db: Connection, prefix: str, now: datetime) -> Blocker:
    """The unexpired blocker with that id or unique prefix of at least six characters. Raises BlockerNotFound."""
    if len(prefix) < _PREFIX:
        raise BlockerNotFound(f"no blocker: {prefix!r} is too short", hint="Give six characters or more of its id.")
    found = [blocker for blocker in list_active(db, now) if blocker.blocker_id.startswith(prefix)]
    if len(found) > 1:
        raise BlockerNotFound(f"{len(found)} blockers begin with {prefix!r}", hint="Give more of its id.")
    if not found:
        raise _missing(prefix)
    return found[0]


def list_active(db: Connection, now: datetime, table_id: int | None = None) -> list[Blocker]:
    """Unexpired blockers of one table or all, oldest first."""
    sql = (
        "SELECT * FROM table_blocker WHERE expires_at_ms > :now AND (:table_id IS NULL OR table_id = :table_id) "
        "ORDER BY created_at_ms, blocker_id"
    )
    return [_from_row(row) for row in db.select(sql, {"now": to_ms(now), "table_id": table_id})]


def list_page(db: Connection, now: datetime, table_id: int | None, after: str, limit: int) -> list[Blocker]:
    """At most `limit` unexpired blockers with greater ids, of one table or all, by id: oldest first."""
    sql = (
        "SELECT * FROM table_blocker WHERE blocker_id > :after AND expires_at_ms > :now "
        "AND (:table_id IS NULL OR table_id = :table_id) ORDER BY blocker_id LIMIT :limit"
    )
    values = {"after": after, "now": to_ms(now), "table_id": table_id, "limit": limit}
    return [_from_row(row) for row in db.select(sql, values)]


def count(db: Connection, now: datetime, table_id: int | None) -> int:
    """How many blockers have not expired, of one table or all."""
    (row,) = db.select(
        "SELECT count(*) AS known FROM table_blocker WHERE expires_at_ms > :now "
        "AND (:table_id IS NULL OR table_id = :table_id)",
        {"now": to_ms(now), "table_id": table_id},
    )
    return int(row["known"])


def find_against(
    db: Connection, table_id: int, operations: Iterable[BlockedOperation], now: datetime
) -> Blocker | None:
    """The oldest unexpired blocker of any of these operations on the table."""
    wanted = frozenset(operations)
    return next((blocker for blocker in list_active(db, now, table_id) if blocker.operations & wanted), None)


def _missing(blocker_id: str) -> BlockerNotFound:
    return BlockerNotFound(
        f"no blocker {blocker_id!r} holds: it was released or has expired", hint="See: amoro table blockers"
    )


def _to_row(blocker: Blocker) -> Row:
    return {
        "blocker_id": blocker.blocker_id,
        "table_id": blocker.table_id,
        "operations_json": to_json(sorted(blocker.operations)),
        "reason": blocker.reason,
        "created_at_ms": to_ms(blocker.created_at),
        "expires_at_ms": to_ms(blocker.expires_at),
        "held_for_ms": blocker.held_for // _MILLISECOND,
    }


def _from_row(row: Row) -> Blocker:
    return Blocker(
        blocker_id=row["blocker_id"],
        table_id=row["table_id"],
        operations=frozenset(map(BlockedOperation, json.loads(row["operations_json"]))),
        created_at=from_ms(row["created_at_ms"]),
        expires_at=from_ms(row["expires_at_ms"]),
        held_for=row["held_for_ms"] * _MILLISECOND,
        reason=row["reason"],
    )
