"""Hashes of the tokens that let people and optimizers in, in `token`."""

from sqlite_utils import Database

from amoro_core.store.rows import execute, select_one


def save(db: Database, kind: str, token_hash: str) -> None:
    """Keep the hash; the one kept before under the kind counts no more."""
    execute(
        db,
        "INSERT INTO token (kind, token_hash) VALUES (?, ?) "
        "ON CONFLICT (kind) DO UPDATE SET token_hash = excluded.token_hash",
        (kind, token_hash),
    )


def find(db: Database, kind: str) -> str | None:
    """The hash kept under the kind."""
    row = select_one(db, "SELECT token_hash FROM token WHERE kind = ?", (kind,))
    return None if row is None else str(row["token_hash"])
