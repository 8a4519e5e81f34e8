"""The audit, and answers kept for repeated requests."""

import json
from datetime import datetime

from amoro_core.model.history_events import Audited, AuditEvent, AuditFilter, AuditOutcome
from amoro_core.model.principals import Channel, KeyedRequest, Principal, Role, StoredAnswer
from amoro_core.store.connection import Connection, Row, from_ms, to_json, to_ms


def add(db: Connection, call: Audited, at: datetime, outcome: AuditOutcome = AuditOutcome.BEGUN, code: str = "") -> int:
    """Append the call; the number of its row."""
    who = call.principal
    row = {
        "at_ms": to_ms(at),
        "actor": who.name,
        "is_user": int(who.is_user),
        "said": who.said,
        "role": who.role.value,
        "pattern": who.pattern,
        "address": who.address,
        "way": who.way.value,
        "operation": call.operation,
        "object": call.object,
        "parameters_json": to_json(dict(call.parameters)),
        "is_dry_run": int(call.is_dry_run),
        "outcome": outcome.value,
        "code": code,
    }
    return db.insert("audit_event", row)


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
        where.append("event_id < :before")
        values["before"] = before
    sql = f"SELECT * FROM audit_event WHERE {' AND '.join(where)} ORDER BY event_id DESC LIMIT :limit"
    return [_from_row(row) for row in db.select(sql, {**values, "limit": limit})]


def count(db: Connection, wanted: AuditFilter, most: int) -> int:
    """How many calls are asked for, counted up to `most`."""
    where, values = _where(wanted)
    return db.count("audit_event", " AND ".join(where), values, most)


def trim(db: Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` calls that are older than that; returns their number."""
    return db.execute(
        "DELETE FROM audit_event WHERE event_id IN "
        "(SELECT event_id FROM audit_event WHERE at_ms < :before_ms ORDER BY at_ms LIMIT :limit)",
        {"before_ms": to_ms(before), "limit": limit},
    )


def _where(wanted: AuditFilter) -> tuple[list[str], dict[str, str | int]]:
    possible: dict[str, str | int] = {
        "actor": wanted.actor,
        "operation": wanted.operation,
        "object": wanted.object,
        "outcome": wanted.outcome.value if wanted.outcome else "",
    }
    values = {name: value for name, value in possible.items() if value}
    where = ["1", *(f"{name} = :{name}" for name in values)]
    if wanted.since is not None:
        where.append("at_ms >= :since_ms")
        values["since_ms"] = to_ms(wanted.since)
    return where, values


def _from_row(row: Row) -> AuditEvent:
    principal = Principal(
        row["actor"],
        Role(row["role"]),
        row["pattern"],
        Channel(row["way"]),
        row["address"],
        bool(row["is_user"]),
        row["said"],
    )
    call = Audited(
        principal, row["operation"], row["object"], json.loads(row["parameters_json"]), bool(row["is_dry_run"])
    )
    return AuditEvent(row["event_id"], from_ms(row["at_ms"]), call, AuditOutcome(row["outcome"]), row["code"])


def find_answer(db: Connection, key_hash: str) -> KeyedRequest | None:
    """The request with that key; None when there is none."""
    row = db.select_one("SELECT * FROM keyed_request WHERE key_hash = :key_hash", {"key_hash": key_hash})
    if row is None:
        return None
    answer = StoredAnswer(row["status"] or 0, row["media_type"], row["location"], row["content"])
    begun_at = from_ms(row["begun_at_ms"])
    return KeyedRequest(row["key_hash"], row["request_hash"], begun_at, answer if row["status"] else None)


def add_request(db: Connection, key_hash: str, request_hash: str, begun_at: datetime) -> None:
    """Raises Duplicate for a key that is there."""
    row = {"key_hash": key_hash, "request_hash": request_hash, "begun_at_ms": to_ms(begun_at)}
    db.insert("keyed_request", row)


def save_answer(db: Connection, key_hash: str, answer: StoredAnswer) -> None:
    """Keep the answer of the request."""
    row = {
        "status": answer.status,
        "media_type": answer.media_type,
        "location": answer.location,
        "content": answer.content,
    }
    db.update("keyed_request", {"key_hash": key_hash, **row}, "key_hash")


def remove_request(db: Connection, key_hash: str) -> None:
    """Forget the request."""
    db.execute("DELETE FROM keyed_request WHERE key_hash = :key_hash", {"key_hash": key_hash})


def remove_older_requests(db: Connection, than: datetime) -> None:
    """Forget requests that began before."""
    db.execute("DELETE FROM keyed_request WHERE begun_at_ms < :than", {"than": to_ms(than)})
