"""HTTP sessions, by the hash of their ids, in `http_session`."""

from datetime import datetime

from amoro_core.model.accounts import IDLE_SESSION, LONGEST_SESSION, Holder, HttpSession
from amoro_core.model.tokens import Role
from amoro_core.store.connection import Connection
from amoro_core.store.rows import from_ms, insert_into, to_ms

_INSERT = insert_into(
    "http_session",
    ("session_hash", "holder", "account_name", "fingerprint", "created_at_ms", "seen_at_ms", "role", "pattern"),
)


def add(db: Connection, session: HttpSession) -> None:
    """Store the session."""
    row = {
        "session_hash": session.session_hash,
        "holder": session.holder.value,
        "account_name": session.name,
        "fingerprint": session.fingerprint,
        "created_at_ms": to_ms(session.created_at),
        "seen_at_ms": to_ms(session.seen_at),
        "role": session.role.value if session.role else "",
        "pattern": session.pattern,
    }
    db.execute(_INSERT, row)


def find(db: Connection, session_hash: str) -> HttpSession | None:
    """The session with that hash; None when there is none."""
    row = db.select_one("SELECT * FROM http_session WHERE session_hash = :hash", {"hash": session_hash})
    if row is None:
        return None
    return HttpSession(
        row["session_hash"],
        Holder(row["holder"]),
        row["account_name"],
        row["fingerprint"],
        from_ms(row["created_at_ms"]),
        from_ms(row["seen_at_ms"]),
        Role(row["role"]) if row["role"] else None,
        row["pattern"],
    )


def touch(db: Connection, session_hash: str, now: datetime) -> None:
    """Note that the session was used."""
    db.execute(
        "UPDATE http_session SET seen_at_ms = :now WHERE session_hash = :hash",
        {"now": to_ms(now), "hash": session_hash},
    )


def remove(db: Connection, session_hash: str) -> None:
    """End the session; it need not exist."""
    db.execute("DELETE FROM http_session WHERE session_hash = :hash", {"hash": session_hash})


def remove_of_user(db: Connection, name: str) -> int:
    """End all sessions of the user; how many."""
    return db.execute(
        "DELETE FROM http_session WHERE holder = :holder AND account_name = :name",
        {"holder": Holder.USER.value, "name": name},
    )


def trim(db: Connection, now: datetime) -> int:
    """Forget the sessions that have ended by their age; how many."""
    return db.execute(
        "DELETE FROM http_session WHERE seen_at_ms <= :idle OR created_at_ms <= :oldest",
        {"idle": to_ms(now - IDLE_SESSION), "oldest": to_ms(now - LONGEST_SESSION)},
    )
