"""The audit, and answers kept for repeated requests."""

from datetime import datetime

from amoro_core.model.history_events import Audited, AuditEvent, AuditFilter, AuditOutcome
from amoro_core.model.principals import KeyedRequest, Principal, StoredAnswer
from amoro_core.store.connection import Connection, Row, RowMapping, conditions_of, from_ms, to_ms, to_ms_or_none

_CALLS = RowMapping(Audited, without=["principal"])
_CALLERS = RowMapping(Principal, name="actor")
_AUDITED = RowMapping(AuditEvent, without=["call"])
_ANSWERS = RowMapping(StoredAnswer)


def add(db: Connection, call: Audited, at: datetime, outcome: AuditOutcome = AuditOutcome.BEGUN, code: str = "") -> int:
    """Append the call; the number of its row."""
    row = {**_CALLERS.to_row(call.principal), **_CALLS.to_row(call)}
    return db.insert("audit_event", {**row, "at_ms": to_ms(at), "outcome": outcome.value, "code": code})


def end(db: Connection, event_id: int, outcome: AuditOutcome, code: str) -> None:
    """Set the outcome of a call that has begun; the database refuses it for one that has ended."""
    db.execute(
        "UPDATE audit_event SET outcome = :outcome, code = :code WHERE event_id = :event_id",
        {"outcome": outcome.value, "code": code, "event_id": event_id},
    )


def list_newest(db: Connection, wanted: AuditFilter, before: int | None, limit: int) -> list[AuditEvent]:
    """At most `limit` matching calls before that row, the newest first."""
    where, values = _where(wanted)
    if before is not None:
        where += " AND event_id < :before"
        values["before"] = before
    sql = f"SELECT * FROM audit_event WHERE {where} ORDER BY event_id DESC LIMIT :limit"
    rows = db.select(sql, {**values, "limit": limit})
    return [_AUDITED.from_row(row, call=_CALLS.from_row(row, principal=_CALLERS.from_row(row))) for row in rows]


def count(db: Connection, wanted: AuditFilter, most: int) -> int:
    """How many calls are asked for, counted up to `most`."""
    where, values = _where(wanted)
    return db.count("audit_event", where, values, most)


def trim(db: Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` calls that are older than that; returns their number."""
    return db.execute(
        "DELETE FROM audit_event WHERE event_id IN "
        "(SELECT event_id FROM audit_event WHERE at_ms < :before_ms ORDER BY at_ms LIMIT :limit)",
        {"before_ms": to_ms(before), "limit": limit},
    )


def _where(wanted: AuditFilter) -> tuple[str, Row]:
    return conditions_of(
        (
            ("actor", "actor = :actor", wanted.actor or None),
            ("operation", "operation = :operation", wanted.operation or None),
            ("object", "object = :object", wanted.object or None),
            ("outcome", "outcome = :outcome", wanted.outcome and wanted.outcome.value),
            ("since_ms", "at_ms >= :since_ms", to_ms_or_none(wanted.since)),
        )
    )


def find_answer(db: Connection, key_hash: str) -> KeyedRequest | None:
    """The request with that key; None when there is none."""
    row = db.select_one("SELECT * FROM keyed_request WHERE key_hash = :key_hash", {"key_hash": key_hash})
    if row is None:
        return None
    answer = _ANSWERS.from_row(row) if row["status"] else None
    return KeyedRequest(row["key_hash"], row["request_hash"], from_ms(row["begun_at_ms"]), answer)


def add_request(db: Connection, key_hash: str, request_hash: str, begun_at: datetime) -> None:
    """Raises Duplicate for a key that is there."""
    row = {"key_hash": key_hash, "request_hash": request_hash, "begun_at_ms": to_ms(begun_at)}
    db.insert("keyed_request", row)


def save_answer(db: Connection, key_hash: str, answer: StoredAnswer) -> None:
    """Keep the answer of the request."""
    db.update("keyed_request", {"key_hash": key_hash, **_ANSWERS.to_row(answer)}, "key_hash")


def remove_request(db: Connection, key_hash: str) -> None:
    """Forget the request."""
    db.execute("DELETE FROM keyed_request WHERE key_hash = :key_hash", {"key_hash": key_hash})


def remove_older_requests(db: Connection, than: datetime) -> None:
    """Forget requests that began before."""
    db.execute("DELETE FROM keyed_request WHERE begun_at_ms < :than", {"than": to_ms(than)})
