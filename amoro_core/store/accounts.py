"""Tokens, users and sessions; of tokens only hashes are stored."""

from datetime import datetime

from amoro_core.errors import AlreadyExists, NotFound, TokenNotFound
from amoro_core.model.paging import Page
from amoro_core.model.principals import (
    IDLE_SESSION,
    LONGEST_SESSION,
    AccessToken,
    Holder,
    HttpSession,
    Role,
    UserAccount,
)
from amoro_core.store.connection import Codec, Connection, Duplicate, RowMapping, to_ms

_TOKENS = RowMapping(AccessToken, name="token_name")


def add_token(db: Connection, token: AccessToken) -> AccessToken:
    """Raises AlreadyExists."""
    try:
        db.insert("access_token", _TOKENS.to_row(token))
    except Duplicate as error:
        raise AlreadyExists(f"token {token.name!r} exists already") from error
    return token


def find_token_by_hash(db: Connection, token_hash: str) -> AccessToken | None:
    """The token with that hash; None when there is none."""
    return _TOKENS.find(db, "SELECT * FROM access_token WHERE token_hash = :token_hash", {"token_hash": token_hash})


def find_token(db: Connection, name: str) -> AccessToken | None:
    """The token of that name; None when there is none."""
    return _TOKENS.find(db, "SELECT * FROM access_token WHERE token_name = :name", {"name": name})


def token_page(db: Connection, after: str, limit: int) -> Page[AccessToken]:
    """At most `limit` of them after a name, by their names."""
    return _TOKENS.page(db, "access_token", "token_name", after, limit)


def remove_token(db: Connection, name: str) -> None:
    """Raises TokenNotFound."""
    if not db.execute("DELETE FROM access_token WHERE token_name = :name", {"name": name}):
        raise TokenNotFound(f"token {name!r} is not known", hint="`amoro token list` shows the known ones.")


_USERS = RowMapping(UserAccount, name="user_name")


def add_user(db: Connection, user: UserAccount) -> UserAccount:
    """Raises AlreadyExists."""
    try:
        db.insert("user_account", _USERS.to_row(user))
    except Duplicate as error:
        raise AlreadyExists(f"user {user.name!r} exists already") from error
    return user


def find_user(db: Connection, name: str) -> UserAccount | None:
    """The user of that name; None when there is none."""
    return _USERS.find(db, "SELECT * FROM user_account WHERE user_name = :name", {"name": name})


def get_user(db: Connection, name: str) -> UserAccount:
    """The user of that name. Raises NotFound."""
    account = find_user(db, name)
    if account is None:
        raise _unknown(name)
    return account


def save_user(db: Connection, user: UserAccount) -> UserAccount:
    """Raises NotFound."""
    if not db.update("user_account", _USERS.to_row(user), "user_name"):
        raise _unknown(user.name)
    return user


def remove_user(db: Connection, name: str) -> None:
    """Raises NotFound."""
    if not db.execute("DELETE FROM user_account WHERE user_name = :name", {"name": name}):
        raise _unknown(name)


def user_page(db: Connection, after: str, limit: int) -> Page[UserAccount]:
    """At most `limit` of them after a name, by their names."""
    return _USERS.page(db, "user_account", "user_name", after, limit)


def _unknown(name: str) -> NotFound:
    return NotFound(f"user {name!r} is not known", hint="`amoro user list` shows the known ones.")


_SESSIONS = RowMapping(
    HttpSession,
    name="account_name",
    codecs={"role": Codec(lambda role: role.value, lambda word: Role(word) if word else None)},
)


def add_session(db: Connection, session: HttpSession) -> None:
    """Store the session."""
    row = _SESSIONS.to_row(session)
    db.insert("http_session", {**row, "role": row["role"] or ""})


def find_session(db: Connection, session_hash: str) -> HttpSession | None:
    """The session with that hash; None when there is none."""
    return _SESSIONS.find(db, "SELECT * FROM http_session WHERE session_hash = :hash", {"hash": session_hash})


def touch_session(db: Connection, session_hash: str, now: datetime) -> None:
    """Note that the session was used."""
    db.execute(
        "UPDATE http_session SET seen_at_ms = :now WHERE session_hash = :hash",
        {"now": to_ms(now), "hash": session_hash},
    )


def remove_session(db: Connection, session_hash: str) -> None:
    """End the session; it need not exist."""
    db.execute("DELETE FROM http_session WHERE session_hash = :hash", {"hash": session_hash})


def remove_sessions_of_user(db: Connection, name: str) -> int:
    """End all sessions of the user; how many."""
    return db.execute(
        "DELETE FROM http_session WHERE holder = :holder AND account_name = :name",
        {"holder": Holder.USER.value, "name": name},
    )


def trim_sessions(db: Connection, now: datetime) -> int:
    """Forget the sessions that have ended by their age; how many."""
    return db.execute(
        "DELETE FROM http_session WHERE seen_at_ms <= :idle OR created_at_ms <= :oldest",
        {"idle": to_ms(now - IDLE_SESSION), "oldest": to_ms(now - LONGEST_SESSION)},
    )


def save_builtin_token(db: Connection, kind: str, token_hash: str) -> None:
    """Store the hash, replacing the previous one of its kind."""
    db.upsert("token", {"kind": kind, "token_hash": token_hash}, ["kind"])
