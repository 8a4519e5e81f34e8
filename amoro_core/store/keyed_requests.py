"""Requests that carry a key, in `keyed_request`, with their answers once they have ended."""

from datetime import datetime

from amoro_core.model.repeats import KeptAnswer, KeyedRequest
from amoro_core.store.connection import Connection
from amoro_core.store.rows import from_ms, insert_into, to_ms

_INSERT = insert_into("keyed_request", ("key_hash", "request_hash", "begun_at_ms"))


def find(db: Connection, key_hash: str) -> KeyedRequest | None:
    """The request with that key; None when there is none."""
    row = db.select_one("SELECT * FROM keyed_request WHERE key_hash = :key_hash", {"key_hash": key_hash})
    if row is None:
        return None
    kept = KeptAnswer(row["status"] or 0, row["media_type"], row["location"], row["content"])
    begun_at = from_ms(row["begun_at_ms"])
    return KeyedRequest(row["key_hash"], row["request_hash"], begun_at, kept if row["status"] else None)


def add(db: Connection, key_hash: str, request_hash: str, begun_at: datetime) -> None:
    """Raises Duplicate for a key that is there."""
    db.execute(_INSERT, {"key_hash": key_hash, "request_hash": request_hash, "begun_at_ms": to_ms(begun_at)})


def save_answer(db: Connection, key_hash: str, answer: KeptAnswer) -> None:
    """Keep the answer of the request."""
    sql = (
        "UPDATE keyed_request SET status = :status, media_type = :media_type, location = :location, content = :content "
        "WHERE key_hash = :key_hash"
    )
    row = {
        "status": answer.status,
        "media_type": answer.media_type,
        "location": answer.location,
        "content": answer.content,
    }
    db.execute(sql, {"key_hash": key_hash, **row})


def remove(db: Connection, key_hash: str) -> None:
    """Forget the request."""
    db.execute("DELETE FROM keyed_request WHERE key_hash = :key_hash", {"key_hash": key_hash})


def remove_older(db: Connection, than: datetime) -> None:
    """Forget requests that began before."""
    db.execute("DELETE FROM keyed_request WHERE begun_at_ms < :than", {"than": to_ms(than)})
