"""Actions of tables: when each ran and is due, and the blockers against operations."""

import json
from collections.abc import Collection, Iterable
from datetime import datetime

from amoro_core.errors import BlockerNotFound, CatalogUnavailable, DataFileMissing, InvalidArgument
from amoro_core.model.paging import Page
from amoro_core.model.processes import OPTIMIZING_ACTION, pick
from amoro_core.model.tables import ActionRecord, BlockedOperation, Blocker
from amoro_core.state.backoff import MOST
from amoro_core.store.connection import Codec, Connection, RowMapping, to_json, to_ms

_RECORDS = RowMapping(ActionRecord, action="action_name", properties="properties_digest")


def save(db: Connection, record: ActionRecord) -> ActionRecord:
    """Store the record, replacing the previous one. Raises Referenced for an unknown table."""
    db.upsert("table_action", _RECORDS.to_row(record), ("table_id", "action_name"))
    return record


def get(db: Connection, table_id: int, action: str) -> ActionRecord:
    """The record of the action on the table; an empty one if none was stored."""
    sql = "SELECT * FROM table_action WHERE table_id = :table_id AND action_name = :action"
    return _RECORDS.find(db, sql, {"table_id": table_id, "action": action}) or ActionRecord(table_id, action)


def list_of(db: Connection, table_id: int) -> list[ActionRecord]:
    """What is stored of every action on the table, in no order."""
    return _RECORDS.select(db, "SELECT * FROM table_action WHERE table_id = :table_id", {"table_id": table_id})


_OF_ONE_OR_ALL = "(:table_id IS NULL OR table_id = :table_id)"
_OF_SOME_OR_ALL = (
    f"action_name <> '{OPTIMIZING_ACTION}' AND (:ids IS NULL OR table_id IN (SELECT value FROM json_each(:ids)))"
)


def list_first(db: Connection, table_ids: Collection[int] | None, limit: int) -> list[ActionRecord]:
    """Records but those of optimizing, of these tables or all: what fails or is paused first, then the next due."""
    sql = (
        f"SELECT * FROM table_action WHERE {_OF_SOME_OR_ALL} ORDER BY retry_at_ms IS NULL AND paused_at_ms IS NULL, "
        "next_at_ms IS NULL, next_at_ms, table_id, action_name LIMIT :limit"
    )
    return _RECORDS.select(db, sql, {"ids": _json(table_ids), "limit": limit})


def count(db: Connection, table_ids: Collection[int] | None) -> int:
    """The number of records but those of optimizing, of these tables or all."""
    return db.count("table_action", _OF_SOME_OR_ALL, {"ids": _json(table_ids)})


def _json(ids: Collection[int] | None) -> str | None:
    return None if ids is None else to_json(list(ids))


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


#: Of a record whose action lacks a file, or failed so often in a row, not by an outage.
KEEPS_FAILING = (
    f"failures > 0 AND (failure_code = '{DataFileMissing.code}' "
    f"OR failures >= {MOST} AND failure_code <> '{CatalogUnavailable.code}')"
)


def list_failing(db: Connection, limit: int) -> list[ActionRecord]:
    """At most `limit` records of actions that keep failing; those that began first lead."""
    order = "ORDER BY failing_since_ms, table_id, action_name"
    return _RECORDS.select(db, f"SELECT * FROM table_action WHERE {KEEPS_FAILING} {order} LIMIT :most", {"most": limit})


def set_aside(db: Connection, table_id: int) -> None:
    """Clear the due times of the table's actions, until it is evaluated again."""
    db.execute("UPDATE table_action SET next_at_ms = NULL WHERE table_id = :table_id", {"table_id": table_id})


def forget(db: Connection, table_id: int) -> None:
    """Delete the records of every action on the table but optimizing, whose record goes with the table's."""
    db.execute(
        f"DELETE FROM table_action WHERE table_id = :table_id AND action_name <> '{OPTIMIZING_ACTION}'",
        {"table_id": table_id},
    )


_BLOCKERS = RowMapping(
    Blocker,
    operations="operations_json",
    codecs={
        "operations": Codec(
            lambda operations: to_json(sorted(operations)),
            lambda text: frozenset(map(BlockedOperation, json.loads(text))),
        )
    },
)


def add_blocker(db: Connection, blocker: Blocker) -> Blocker:
    """Insert the blocker."""
    db.insert("table_blocker", _BLOCKERS.to_row(blocker))
    return blocker


def save_blocker(db: Connection, blocker: Blocker) -> Blocker:
    """Replace the stored blocker. Raises BlockerNotFound."""
    if not db.update("table_blocker", _BLOCKERS.to_row(blocker), "blocker_id"):
        raise _missing_blocker(blocker.blocker_id)
    return blocker


def remove_blocker(db: Connection, blocker_id: str) -> None:
    """Delete the blocker, if it is there."""
    db.execute("DELETE FROM table_blocker WHERE blocker_id = :blocker_id", {"blocker_id": blocker_id})


def list_expired_blockers(db: Connection, now: datetime) -> list[Blocker]:
    """Blockers that have expired and are there still."""
    return _BLOCKERS.select(db, "SELECT * FROM table_blocker WHERE expires_at_ms <= :now", {"now": to_ms(now)})


def find_blocker_by_part(db: Connection, text: str, now: datetime) -> Blocker:
    """The unexpired blocker whose id is the text, or begins or ends with it. Raises BlockerNotFound."""
    try:
        result = pick(text, list_blockers(db, now), "a blocker", lambda blocker: (blocker.blocker_id,))
    except InvalidArgument as error:
        raise BlockerNotFound(error.message, hint=error.hint) from error
    if result is None:
        raise _missing_blocker(text)
    return result


def list_blockers(db: Connection, now: datetime, table_id: int | None = None) -> list[Blocker]:
    """Unexpired blockers of one table or all, oldest first."""
    sql = (
        f"SELECT * FROM table_blocker WHERE expires_at_ms > :now AND {_OF_ONE_OR_ALL} "
        "ORDER BY created_at_ms, blocker_id"
    )
    return _BLOCKERS.select(db, sql, {"now": to_ms(now), "table_id": table_id})


def blocker_page(db: Connection, now: datetime, table_id: int | None, after: str, limit: int) -> Page[Blocker]:
    """At most `limit` unexpired blockers after an id, of one table or all, by id: oldest first."""
    where, values = f"expires_at_ms > :now AND {_OF_ONE_OR_ALL}", {"now": to_ms(now), "table_id": table_id}
    return _BLOCKERS.page(db, "table_blocker", "blocker_id", after, limit, where, values)


def find_blocker_against(
    db: Connection, table_id: int, operations: Iterable[BlockedOperation], now: datetime, *, partly: bool = False
) -> Blocker | None:
    """The oldest unexpired blocker of any of these operations on the table; `partly`: also of some partitions."""
    wanted = frozenset(operations)
    blockers = (blocker for blocker in list_blockers(db, now, table_id) if partly or not blocker.condition)
    return next((blocker for blocker in blockers if blocker.operations & wanted), None)


def _missing_blocker(blocker_id: str) -> BlockerNotFound:
    return BlockerNotFound(
        f"no blocker {blocker_id!r} holds: it was released or has expired", hint="See: amoro table blockers"
    )
