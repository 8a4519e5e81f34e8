"""What happened, in `event`: appended, never changed, trimmed from the oldest on."""

import json
from datetime import datetime

from amoro_core.model.history_events import MOST_EVENTS, About, Event, EventFilter, EventKind
from amoro_core.store.connection import Connection, Row, from_ms, to_json, to_ms


def add(db: Connection, event: Event) -> int:
    """Keep an event; its number."""
    about = event.about
    return db.insert(
        "event",
        {
            "at_ms": to_ms(event.at),
            "kind": event.kind.value,
            "table_id": about.table_id,
            "table_name": about.table,
            "process_id": about.process_id,
            "optimizer_id": about.optimizer_id,
            "group_name": about.group,
            "text": event.text,
            "data_json": to_json(dict(event.data)),
        },
    )


def list_newest(db: Connection, wanted: EventFilter, before: tuple[datetime, int] | None, limit: int) -> list[Event]:
    """At most `limit` events, the newest first; before that time and number, where they are given."""
    where, values = _where(wanted)
    if before is not None:
        where.append("(at_ms, event_id) < (:before_ms, :before_id)")
        values |= {"before_ms": to_ms(before[0]), "before_id": before[1]}
    return _select(db, where, {**values, "most": limit}, "at_ms DESC, event_id DESC")


def list_stored_after(db: Connection, wanted: EventFilter, event_id: int, limit: int) -> list[Event]:
    """At most `limit` events that were stored after the one with that number, in the order of storing."""
    where, values = _where(wanted)
    return _select(
        db, [*where, "event_id > :event_id"], {**values, "event_id": event_id, "most": limit}, "event_id", by_id=True
    )


def count(db: Connection, wanted: EventFilter, most: int) -> int:
    """How many events there are, counted up to `most`."""
    where, values = _where(wanted)
    return db.count("event", " AND ".join(where), values, most)


def last_id(db: Connection) -> int:
    """The number of the event that was stored last; 0 before the first."""
    return int(db.value("SELECT coalesce(max(event_id), 0) FROM event"))


def last_end(db: Connection, name: str) -> Event | None:
    """The end of the table that had that name and was disposed of, or renamed, last; None: there was none."""
    where = ["kind = :gone", "table_name = :name"]
    values: dict[str, str | int] = {"gone": EventKind.GONE.value, "name": name, "most": 1}
    return next(iter(_select(db, where, values, "at_ms DESC, event_id DESC")), None)


def trim(db: Connection, before: datetime, limit: int, most: int = MOST_EVENTS) -> int:
    """Delete at most `limit` events that are older than that, or beyond the latest `most`; returns their number."""
    return db.execute(
        "DELETE FROM event WHERE event_id IN (SELECT event_id FROM event WHERE at_ms < :before_ms "
        "ORDER BY at_ms LIMIT :limit)",
        {"before_ms": to_ms(before), "limit": limit},
    ) or db.execute(
        "DELETE FROM event WHERE event_id IN (SELECT event_id FROM event WHERE event_id <= :last ORDER BY event_id "
        "LIMIT :limit)",
        {"last": last_id(db) - most, "limit": limit},
    )


def _where(wanted: EventFilter) -> tuple[list[str], dict[str, str | int]]:
    where, values = ["1"], dict[str, str | int]()
    if wanted.kinds:
        names = [f"kind_{place}" for place in range(len(wanted.kinds))]
        where.append(f"kind IN ({', '.join(':' + name for name in names)})")
        values |= {name: kind.value for name, kind in zip(names, wanted.kinds, strict=True)}
    if wanted.table_id:
        # The second condition is the partial index's own, so that it is used.
        where.append("table_id = :table_id AND table_id <> 0")
        values["table_id"] = wanted.table_id
    if wanted.process_id:
        where.append("process_id = :process_id AND process_id <> ''")
        values["process_id"] = wanted.process_id
    if wanted.since is not None:
        where.append("at_ms >= :since_ms")
        values["since_ms"] = to_ms(wanted.since)
    if wanted.until is not None:
        where.append("at_ms < :until_ms")
        values["until_ms"] = to_ms(wanted.until)
    return where, values


def _select(
    db: Connection, where: list[str], values: dict[str, str | int], order: str, *, by_id: bool = False
) -> list[Event]:
    table = "event NOT INDEXED" if by_id else "event"
    rows = db.select(f"SELECT * FROM {table} WHERE {' AND '.join(where)} ORDER BY {order} LIMIT :most", values)
    return [_from_row(row) for row in rows]


def _from_row(row: Row) -> Event:
    return Event(
        EventKind(row["kind"]),
        from_ms(row["at_ms"]),
        row["text"],
        About(row["table_id"], row["table_name"], row["process_id"], row["optimizer_id"], row["group_name"]),
        json.loads(row["data_json"]),
        row["event_id"],
    )
