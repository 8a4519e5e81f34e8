"""Tokens created by users, by name, in `access_token`; only their hashes are stored."""

from amoro_core.errors import AlreadyExists, TokenNotFound
from amoro_core.model.tokens import AccessToken, Role
from amoro_core.store.connection import Connection, Duplicate, Row
from amoro_core.store.rows import from_ms, from_ms_or_none, insert_into, to_ms, to_ms_or_none

_INSERT = insert_into("access_token", ("token_name", "role", "token_hash", "created_at_ms", "pattern", "expires_at_ms"))


def add(db: Connection, token: AccessToken) -> AccessToken:
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


def find_by_hash(db: Connection, token_hash: str) -> AccessToken | None:
    """The token with that hash; None when there is none."""
    row = db.select_one("SELECT * FROM access_token WHERE token_hash = :token_hash", {"token_hash": token_hash})
    return None if row is None else _from_row(row)


def find(db: Connection, name: str) -> AccessToken | None:
    """The token of that name; None when there is none."""
    row = db.select_one("SELECT * FROM access_token WHERE token_name = :name", {"name": name})
    return None if row is None else _from_row(row)


def list_page(db: Connection, after: str, limit: int) -> list[AccessToken]:
    """Up to `limit` of them in order of name, after the name `after`, which need not exist."""
    sql = "SELECT * FROM access_token WHERE token_name > :after ORDER BY token_name LIMIT :most"
    return [_from_row(row) for row in db.select(sql, {"after": after, "most": limit})]


def count(db: Connection) -> int:
    """How many there are."""
    return int(db.select("SELECT count(*) AS known FROM access_token")[0]["known"])


def remove(db: Connection, name: str) -> None:
    """Raises TokenNotFound."""
    if not db.execute("DELETE FROM access_token WHERE token_name = :name", {"name": name}):
        raise TokenNotFound(f"token {name!r} is not known", hint="`amoro token list` shows the known ones.")


def _from_row(row: Row) -> AccessToken:
    return AccessToken(
        row["token_name"],
        Role(row["role"]),
        row["token_hash"],
        from_ms(row["created_at_ms"]),
        row["pattern"],
        from_ms_or_none(row["expires_at_ms"]),
    )
