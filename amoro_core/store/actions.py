"""The record of each action on each table, in `table_action`."""

from datetime import datetime

from amoro_core.model.processes import OPTIMIZING_ACTION
from amoro_core.model.tables import ActionRecord
from amoro_core.store.column_codecs import from_ms_or_none, insert_into, to_ms, to_ms_or_none
from amoro_core.store.connection import Connection, Row

_COLUMNS = (
    "table_id", "action_name", "reason", "last_at_ms", "next_at_ms", "failures", "retry_at_ms",
    "fruitless", "paused_at_ms", "paused_for", "properties_digest",
)  # fmt: skip
_KEY = ("table_id", "action_name")
_CHANGES = ", ".join(f"{column} = excluded.{column}" for column in _COLUMNS if column not in _KEY)
_SAVE = f"{insert_into('table_action', _COLUMNS)} ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {_CHANGES}"


def save(db: Connection, record: ActionRecord) -> ActionRecord:
    """Store the record, replacing the previous one. Raises Referenced for an unknown table."""
    db.execute(_SAVE, _to_row(record))
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
