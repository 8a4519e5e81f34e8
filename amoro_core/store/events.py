"""What happened, in `event`: appended, never changed, trimmed from the oldest on. And how far listeners are."""

from collections.abc import Sequence
from datetime import datetime

from amoro_core.model.history_events import MOST_EVENTS, About, Event, EventFilter, EventKind
from amoro_core.model.listeners import ListenerCursor
from amoro_core.store.connection import Connection, Row, RowMapping, conditions_of, to_json, to_ms, to_ms_or_none

_EVENTS = RowMapping(Event, without=["about", "event_id"])
_ABOUTS = RowMapping(About, table="table_name", group="group_name")
_CURSORS = RowMapping(ListenerCursor)


def add(db: Connection, event: Event) -> int:
    """Keep an event; its number."""
    return db.insert("event", {**_EVENTS.to_row(event), **_ABOUTS.to_row(event.about)})


def list_newest(db: Connection, wanted: EventFilter, before: tuple[datetime, int] | None, limit: int) -> list[Event]:
    """At most `limit` events, the newest first; before that time and number, where they are given."""
    where, values = _where(wanted)
    if before is not None:
        where += " AND (at_ms, event_id) < (:before_ms, :before_id)"
        values |= {"before_ms": to_ms(before[0]), "before_id": before[1]}
    return _select(db, where, {**values, "most": limit}, "at_ms DESC, event_id DESC")


def list_stored_after(db: Connection, wanted: EventFilter, event_id: int, limit: int) -> list[Event]:
    """At most `limit` events that were stored after the one with that number, in the order of storing."""
    where, values = _where(wanted)
    values |= {"event_id": event_id, "most": limit}
    return _select(db, f"{where} AND event_id > :event_id", values, "event_id", by_id=True)


def count(db: Connection, wanted: EventFilter, most: int) -> int:
    """How many events there are, counted up to `most`."""
    where, values = _where(wanted)
    return db.count("event", where, values, most)


def last_id(db: Connection) -> int:
    """The number of the event that was stored last; 0 before the first."""
    return int(db.value("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'event'"))


def last_end(db: Connection, name: str) -> Event | None:
    """The end of the table that had that name and was disposed of, or renamed, last; None: there was none."""
    values = {"gone": EventKind.GONE.value, "name": name, "most": 1}
    return next(iter(_select(db, "kind = :gone AND table_name = :name", values, "at_ms DESC, event_id DESC")), None)


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


def cursor_of(db: Connection, name: str) -> ListenerCursor:
    """How far a listener is; one that is not known begins now."""
    result = _CURSORS.find(db, "SELECT * FROM listener WHERE listener_name = :name", {"name": name})
    return result or ListenerCursor(name, last_id(db))


def save_cursor(db: Connection, cursor: ListenerCursor) -> None:
    """Keep how far a listener is."""
    db.upsert("listener", _CURSORS.to_row(cursor), ["listener_name"])


def keep_cursors(db: Connection, names: Sequence[str]) -> None:
    """Let the listeners of these names begin now, if they are new; forget others whose next event is deleted."""
    for name in names:
        save_cursor(db, cursor_of(db, name))
    others = "listener_name NOT IN (SELECT value FROM json_each(:names))"
    sql = f"DELETE FROM listener WHERE {others} AND event_id + 1 < (SELECT min(event_id) FROM event)"
    db.execute(sql, {"names": to_json(list(names))})


def _where(wanted: EventFilter) -> tuple[str, Row]:
    kinds = {f"kind_{place}": kind.value for place, kind in enumerate(wanted.kinds)}
    # The second condition of a table or process is the partial index's own, so that it is used.
    where, values = conditions_of(
        (
            ("table_id", "table_id = :table_id AND table_id <> 0", wanted.table_id or None),
            ("process_id", "process_id = :process_id AND process_id <> ''", wanted.process_id or None),
            ("since_ms", "at_ms >= :since_ms", to_ms_or_none(wanted.since)),
            ("until_ms", "at_ms < :until_ms", to_ms_or_none(wanted.until)),
        )
    )
    if kinds:
        where += f" AND kind IN ({', '.join(':' + name for name in kinds)})"
    return where, {**values, **kinds}


def _select(db: Connection, where: str, values: Row, order: str, *, by_id: bool = False) -> list[Event]:
    table = "event NOT INDEXED" if by_id else "event"
    rows = db.select(f"SELECT * FROM {table} WHERE {where} ORDER BY {order} LIMIT :most", values)
    return [_EVENTS.from_row(row, about=_ABOUTS.from_row(row), event_id=row["event_id"]) for row in rows]
