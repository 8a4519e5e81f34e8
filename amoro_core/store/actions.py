"""Actions of tables: when each ran and is due, and the blockers against operations."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta

from amoro_core.errors import BlockerNotFound
from amoro_core.model.processes import OPTIMIZING_ACTION
from amoro_core.model.tables import ActionRecord, BlockedOperation, Blocker
from amoro_core.store.connection import (
    Connection,
    Row,
    from_ms,
    from_ms_or_none,
    insert_into,
    to_json,
    to_ms,
    to_ms_or_none,
    update_of,
)

_COLUMNS = (
    "table_id", "action_name", "reason", "last_at_ms", "next_at_ms", "failures", "retry_at_ms",
    "fruitless", "paused_at_ms", "paused_for", "properties_digest",
)  # fmt: skip
_KEY = ("table_id", "action_name")


def save(db: Connection, record: ActionRecord) -> ActionRecord:
    """Store the record, replacing the previous one. Raises Referenced for an unknown table."""
    db.upsert("table_action", _to_row(record), _KEY)
    return record


def get(db: Connection, table_id: int, action: str) -> ActionRecord:
    """The record of the action on the table; an empty one if none was stored."""
    row = db.select_one(
        "SELECT * FROM table_action WHERE table_id = :table_id AND action_name = :action",
        {"table_id": table_id, "action": action},
    )
    return ActionRecord(table_id, action) if row is None else _from_row(row)


def list_of(db: Connection, table_id: int) -> list[ActionRecord]:
    """What is stored of every action on the table, in no order."""
    rows = db.select("SELECT * FROM table_action WHERE table_id = :table_id", {"table_id": table_id})
    return [_from_row(row) for row in rows]


def list_due(db: Connection, now: datetime, table_id: int | None = None) -> list[tuple[int, str, str]]:
    """Table, action and catalog of everything that is due by now, the longest due first; of one table or all.

    Not what backs off or is paused, and what is under way already.

    Optimizing is not among them: what it waits for is the status of the table.
    """
    # Apart from all that is due, which may be much: of one table they are found by its key.
    own = "" if table_id is None else "AND table_id = :table_id "
    rows = db.select(
        "SELECT table_id, action_name, catalog_name FROM table_action JOIN table_identifier USING (table_id) "
        f"WHERE action_name <> '{OPTIMIZING_ACTION}' AND next_at_ms <= :now_ms {own}"
        "AND (retry_at_ms IS NULL OR retry_at_ms <= :now_ms) AND paused_at_ms IS NULL "
        "AND NOT EXISTS (SELECT 1 FROM table_process WHERE finished_at_ms IS NULL "
        "AND table_process.table_id = table_action.table_id AND table_process.action_name = table_action.action_name) "
        "ORDER BY next_at_ms, table_id, action_name",
        {"now_ms": to_ms(now), "table_id": table_id},
    )
    return [(row["table_id"], row["action_name"], row["catalog_name"]) for row in rows]


def count_paused(db: Connection) -> dict[str, int]:
    """The number of tables that each action is paused on; actions paused on none are left out."""
    rows = db.select(
        "SELECT action_name, count(*) AS tables FROM table_action WHERE paused_at_ms IS NOT NULL GROUP BY action_name"
    )
    return {row["action_name"]: row["tables"] for row in rows}


def set_aside(db: Connection, table_id: int) -> None:
    """Clear the due times of the table's actions, until it is evaluated again."""
    db.execute("UPDATE table_action SET next_at_ms = NULL WHERE table_id = :table_id", {"table_id": table_id})


def remove(db: Connection, table_id: int, action: str) -> None:
    """Delete the record of the action on the table, if there is one."""
    db.execute(
        "DELETE FROM table_action WHERE table_id = :table_id AND action_name = :action",
        {"table_id": table_id, "action": action},
    )


def forget(db: Connection, table_id: int) -> None:
    """Delete the records of every action on the table but optimizing, whose record goes with the table's."""
    db.execute(
        f"DELETE FROM table_action WHERE table_id = :table_id AND action_name <> '{OPTIMIZING_ACTION}'",
        {"table_id": table_id},
    )


def _to_row(record: ActionRecord) -> Row:
    return {
        "table_id": record.table_id,
        "action_name": record.action,
        "reason": record.reason,
        "last_at_ms": to_ms_or_none(record.last_at),
        "next_at_ms": to_ms_or_none(record.next_at),
        "failures": record.failures,
        "retry_at_ms": to_ms_or_none(record.retry_at),
        "fruitless": record.fruitless,
        "paused_at_ms": to_ms_or_none(record.paused_at),
        "paused_for": record.paused_for,
        "properties_digest": record.properties,
    }


def _from_row(row: Row) -> ActionRecord:
    return ActionRecord(
        table_id=row["table_id"],
        action=row["action_name"],
        reason=row["reason"],
        last_at=from_ms_or_none(row["last_at_ms"]),
        next_at=from_ms_or_none(row["next_at_ms"]),
        failures=row["failures"],
        retry_at=from_ms_or_none(row["retry_at_ms"]),
        fruitless=row["fruitless"],
        paused_at=from_ms_or_none(row["paused_at_ms"]),
        paused_for=row["paused_for"],
        properties=row["properties_digest"],
    )


_BLOCKER_COLUMNS = (
    "blocker_id",
    "table_id",
    "operations_json",
    "reason",
    "created_at_ms",
    "expires_at_ms",
    "held_for_ms",
)
_INSERT_BLOCKER = insert_into("table_blocker", _BLOCKER_COLUMNS)
_UPDATE_BLOCKER = update_of("table_blocker", _BLOCKER_COLUMNS, ("blocker_id",))
_MILLISECOND = timedelta(milliseconds=1)
_PREFIX = 6


def add_blocker(db: Connection, blocker: Blocker) -> Blocker:
    """Insert the blocker."""
    db.execute(_INSERT_BLOCKER, _blocker_to_row(blocker))
    return blocker


def save_blocker(db: Connection, blocker: Blocker) -> Blocker:
    """Replace the stored blocker. Raises BlockerNotFound."""
    if not db.execute(_UPDATE_BLOCKER, _blocker_to_row(blocker)):
        raise _missing_blocker(blocker.blocker_id)
    return blocker


def remove_blocker(db: Connection, blocker_id: str) -> None:
    """Delete the blocker, if it is there."""
    db.execute("DELETE FROM table_blocker WHERE blocker_id = :blocker_id", {"blocker_id": blocker_id})


def remove_expired_blockers(db: Connection, now: datetime) -> int:
    """Delete expired blockers; returns how many."""
    return db.execute("DELETE FROM table_blocker WHERE expires_at_ms <= :now_ms", {"now_ms": to_ms(now)})


def find_blocker_by_prefix(db: Connection, prefix: str, now: datetime) -> Blocker:
    """The unexpired blocker with that id or unique prefix of at least six characters. Raises BlockerNotFound."""
    if len(prefix) < _PREFIX:
        raise BlockerNotFound(f"no blocker: {prefix!r} is too short", hint="Give six characters or more of its id.")
    found = [blocker for blocker in list_blockers(db, now) if blocker.blocker_id.startswith(prefix)]
    if len(found) > 1:
        raise BlockerNotFound(f"{len(found)} blockers begin with {prefix!r}", hint="Give more of its id.")
    if not found:
        raise _missing_blocker(prefix)
    return found[0]


def list_blockers(db: Connection, now: datetime, table_id: int | None = None) -> list[Blocker]:
    """Unexpired blockers of one table or all, oldest first."""
    sql = (
        "SELECT * FROM table_blocker WHERE expires_at_ms > :now AND (:table_id IS NULL OR table_id = :table_id) "
        "ORDER BY created_at_ms, blocker_id"
    )
    return [_blocker_from_row(row) for row in db.select(sql, {"now": to_ms(now), "table_id": table_id})]


def list_blocker_page(db: Connection, now: datetime, table_id: int | None, after: str, limit: int) -> list[Blocker]:
    """At most `limit` unexpired blockers with greater ids, of one table or all, by id: oldest first."""
    sql = (
        "SELECT * FROM table_blocker WHERE blocker_id > :after AND expires_at_ms > :now "
        "AND (:table_id IS NULL OR table_id = :table_id) ORDER BY blocker_id LIMIT :limit"
    )
    values = {"after": after, "now": to_ms(now), "table_id": table_id, "limit": limit}
    return [_blocker_from_row(row) for row in db.select(sql, values)]


def count_blockers(db: Connection, now: datetime, table_id: int | None) -> int:
    """How many blockers have not expired, of one table or all."""
    where = "expires_at_ms > :now AND (:table_id IS NULL OR table_id = :table_id)"
    return db.count("table_blocker", where, {"now": to_ms(now), "table_id": table_id})


def find_blocker_against(
    db: Connection, table_id: int, operations: Iterable[BlockedOperation], now: datetime
) -> Blocker | None:
    """The oldest unexpired blocker of any of these operations on the table."""
    wanted = frozenset(operations)
    return next((blocker for blocker in list_blockers(db, now, table_id) if blocker.operations & wanted), None)


def _missing_blocker(blocker_id: str) -> BlockerNotFound:
    return BlockerNotFound(
        f"no blocker {blocker_id!r} holds: it was released or has expired", hint="See: amoro table blockers"
    )


def _blocker_to_row(blocker: Blocker) -> Row:
    return {
        "blocker_id": blocker.blocker_id,
        "table_id": blocker.table_id,
        "operations_json": to_json(sorted(blocker.operations)),
        "reason": blocker.reason,
        "created_at_ms": to_ms(blocker.created_at),
        "expires_at_ms": to_ms(blocker.expires_at),
        "held_for_ms": blocker.held_for // _MILLISECOND,
    }


def _blocker_from_row(row: Row) -> Blocker:
    return Blocker(
        blocker_id=row["blocker_id"],
        table_id=row["table_id"],
        operations=frozenset(map(BlockedOperation, json.loads(row["operations_json"]))),
        created_at=from_ms(row["created_at_ms"]),
        expires_at=from_ms(row["expires_at_ms"]),
        held_for=row["held_for_ms"] * _MILLISECOND,
        reason=row["reason"],
    )
