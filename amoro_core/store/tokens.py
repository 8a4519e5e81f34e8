"""Hashes of the tokens that let people and optimizers in, in `token`."""

from amoro_core.store.connection import Connection


def save(db: Connection, kind: str, token_hash: str) -> None:
    """Keep the hash; the one kept before under the kind counts no more."""
    db.execute(
        "INSERT INTO token (kind, token_hash) VALUES (:kind, :token_hash) "
        "ON CONFLICT (kind) DO UPDATE SET token_hash = excluded.token_hash",
        {"kind": kind, "token_hash": token_hash},
    )


def find(db: Connection, kind: str) -> str | None:
    """The hash kept under the kind."""
    row = db.select_one("SELECT token_hash FROM token WHERE kind = :kind", {"kind": kind})
    return None if row is None else str(row["token_hash"])
