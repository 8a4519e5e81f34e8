"""Tokens that somebody created, by name, in `access_token`; only their hashes are kept."""

import sqlite3

from sqlite_utils import Database

from amoro_core.errors import AlreadyExists, TokenNotFound
from amoro_core.model.tokens import AccessToken, TokenKind
from amoro_core.store.rows import Row, execute, from_ms, insert_into, select, select_one, to_ms

_INSERT = insert_into("access_token", ("token_name", "kind", "token_hash", "created_at_ms"))


def add(db: Database, token: AccessToken) -> AccessToken:
    """Raises AlreadyExists."""
    row = {
        "token_name": token.name,
        "kind": token.kind.value,
        "token_hash": token.token_hash,
        "created_at_ms": to_ms(token.created_at),
    }
    try:
        execute(db, _INSERT, row)
    except sqlite3.IntegrityError as error:
        raise AlreadyExists(f"token {token.name!r} exists already") from error
    return token


def find_by_hash(db: Database, kind: TokenKind, token_hash: str) -> AccessToken | None:
    row = select_one(db, "SELECT * FROM access_token WHERE kind = ? AND token_hash = ?", (kind.value, token_hash))
    return None if row is None else _from_row(row)


def list_tokens(db: Database) -> list[AccessToken]:
    """All of them, in order of their names."""
    return [_from_row(row) for row in select(db, "SELECT * FROM access_token ORDER BY token_name")]


def remove(db: Database, name: str) -> None:
    """Raises TokenNotFound."""
    if not execute(db, "DELETE FROM access_token WHERE token_name = ?", (name,)):
        raise TokenNotFound(f"token {name!r} is not known", hint="`amoro token list` shows the known ones.")


def _from_row(row: Row) -> AccessToken:
    return AccessToken(row["token_name"], TokenKind(row["kind"]), row["token_hash"], from_ms(row["created_at_ms"]))
