"""Tokens, users and sessions; of tokens only hashes are stored."""

from datetime import datetime

from amoro_core.errors import AlreadyExists, NotFound, TokenNotFound
from amoro_core.model.principals import (
    IDLE_SESSION,
    LONGEST_SESSION,
    AccessToken,
    Holder,
    HttpSession,
    Role,
    UserAccount,
)
from amoro_core.store.connection import (
    Connection,
    Duplicate,
    Row,
    from_ms,
    from_ms_or_none,
    insert_into,
    to_ms,
    to_ms_or_none,
    update_of,
)

_INSERT = insert_into("access_token", ("token_name", "role", "token_hash", "created_at_ms", "pattern", "expires_at_ms"))


def add_token(db: Connection, token: AccessToken) -> AccessToken:
    """Raises AlreadyExists."""
    row = {
        "token_name": token.name,
        "role": token.role.value,
        "token_hash": token.token_hash,
        "created_at_ms": to_ms(token.created_at),
        "pattern": token.pattern,
        "expires_at_ms": to_ms_or_none(token.expires_at),
    }
    try:
        db.execute(_INSERT, row)
    except Duplicate as error:
        raise AlreadyExists(f"token {token.name!r} exists already") from error
    return token


def find_token_by_hash(db: Connection, token_hash: str) -> AccessToken | None:
    """The token with that hash; None when there is none."""
    row = db.select_one("SELECT * FROM access_token WHERE token_hash = :token_hash", {"token_hash": token_hash})
    return None if row is None else _token_from_row(row)


def find_token(db: Connection, name: str) -> AccessToken | None:
    """The token of that name; None when there is none."""
    row = db.select_one("SELECT * FROM access_token WHERE token_name = :name", {"name": name})
    return None if row is None else _token_from_row(row)


def list_token_page(db: Connection, after: str, limit: int) -> list[AccessToken]:
    """Up to `limit` of them in order of name, after the name `after`, which need not exist."""
    sql = "SELECT * FROM access_token WHERE token_name > :after ORDER BY token_name LIMIT :most"
    return [_token_from_row(row) for row in db.select(sql, {"after": after, "most": limit})]


def count_tokens(db: Connection) -> int:
    """How many there are."""
    return db.count("access_token")


def remove_token(db: Connection, name: str) -> None:
    """Raises TokenNotFound."""
    if not db.execute("DELETE FROM access_token WHERE token_name = :name", {"name": name}):
        raise TokenNotFound(f"token {name!r} is not known", hint="`amoro token list` shows the known ones.")


def _token_from_row(row: Row) -> AccessToken:
    return AccessToken(
        row["token_name"],
        Role(row["role"]),
        row["token_hash"],
        from_ms(row["created_at_ms"]),
        row["pattern"],
        from_ms_or_none(row["expires_at_ms"]),
    )


_COLUMNS = ("user_name", "role", "pattern", "password_hash", "created_at_ms")
_USER_ACCOUNTS_INSERT = insert_into("user_account", _COLUMNS)
_UPDATE = update_of("user_account", _COLUMNS, ("user_name",))


def add_user(db: Connection, user: UserAccount) -> UserAccount:
    """Raises AlreadyExists."""
    try:
        db.execute(_USER_ACCOUNTS_INSERT, _row(user))
    except Duplicate as error:
        raise AlreadyExists(f"user {user.name!r} exists already") from error
    return user


def find_user(db: Connection, name: str) -> UserAccount | None:
    """The user of that name; None when there is none."""
    row = db.select_one("SELECT * FROM user_account WHERE user_name = :name", {"name": name})
    return None if row is None else _user_from_row(row)


def get_user(db: Connection, name: str) -> UserAccount:
    """The user of that name. Raises NotFound."""
    found = find_user(db, name)
    if found is None:
        raise _unknown(name)
    return found


def save_user(db: Connection, user: UserAccount) -> UserAccount:
    """Raises NotFound."""
    if not db.execute(_UPDATE, _row(user)):
        raise _unknown(user.name)
    return user


def remove_user(db: Connection, name: str) -> None:
    """Raises NotFound."""
    if not db.execute("DELETE FROM user_account WHERE user_name = :name", {"name": name}):
        raise _unknown(name)


def list_user_page(db: Connection, after: str, limit: int) -> list[UserAccount]:
    """Up to `limit` of them in order of name, after the name `after`, which need not exist."""
    sql = "SELECT * FROM user_account WHERE user_name > :after ORDER BY user_name LIMIT :most"
    return [_user_from_row(row) for row in db.select(sql, {"after": after, "most": limit})]


def count_users(db: Connection) -> int:
    """How many there are."""
    return db.count("user_account")


def _unknown(name: str) -> NotFound:
    return NotFound(f"user {name!r} is not known", hint="`amoro user list` shows the known ones.")


def _row(user: UserAccount) -> Row:
    return {
        "user_name": user.name,
        "role": user.role.value,
        "pattern": user.pattern,
        "password_hash": user.password_hash,
        "created_at_ms": to_ms(user.created_at),
    }


def _user_from_row(row: Row) -> UserAccount:
    return UserAccount(
        row["user_name"], Role(row["role"]), row["pattern"], row["password_hash"], from_ms(row["created_at_ms"])
    )


_HTTP_SESSIONS_INSERT = insert_into(
    "http_session",
    ("session_hash", "holder", "account_name", "fingerprint", "created_at_ms", "seen_at_ms", "role", "pattern"),
)


def add_session(db: Connection, session: HttpSession) -> None:
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
    db.execute(_HTTP_SESSIONS_INSERT, row)


def find_session(db: Connection, session_hash: str) -> HttpSession | None:
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


def find_builtin_token(db: Connection, kind: str) -> str | None:
    """The hash kept under the kind."""
    row = db.select_one("SELECT token_hash FROM token WHERE kind = :kind", {"kind": kind})
    return None if row is None else str(row["token_hash"])
