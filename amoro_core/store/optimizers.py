"""Registered optimizers, in `optimizer`."""

import sqlite3

from sqlite_utils import Database

from amoro_core.errors import AlreadyExists, GroupNotFound, IllegalState, UnknownToken
from amoro_core.model.processes import Optimizer
from amoro_core.store import groups
from amoro_core.store.rows import (
    Row,
    execute,
    from_ms,
    insert_into,
    pairs_from_json,
    pairs_to_json,
    select,
    select_one,
    to_ms,
    update_of,
)

_COLUMNS = (
    "optimizer_id",
    "token_hash",
    "group_name",
    "threads",
    "memory_bytes",
    "labels_json",
    "registered_at_ms",
    "draining",
)
_INSERT = insert_into("optimizer", _COLUMNS)
_UPDATE = update_of("optimizer", _COLUMNS, ("optimizer_id",))


def add(db: Database, optimizer: Optimizer) -> Optimizer:
    """Raises GroupNotFound, AlreadyExists (id or token)."""
    if groups.find(db, optimizer.group) is None:
        raise GroupNotFound(f"optimizer group {optimizer.group!r} does not exist")
    try:
        execute(db, _INSERT, _to_row(optimizer))
    except sqlite3.IntegrityError as error:
        known = _find(db, optimizer.optimizer_id) or find_by_token_hash(db, optimizer.token_hash)
        if known is None:
            raise
        raise AlreadyExists(f"optimizer {known.optimizer_id} is registered already") from error
    return optimizer


def get(db: Database, optimizer_id: str) -> Optimizer:
    """Raises UnknownToken: an optimizer that is not registered has no token that counts."""
    optimizer = _find(db, optimizer_id)
    if optimizer is None:
        raise _missing(optimizer_id)
    return optimizer


def is_registered(db: Database, optimizer_id: str) -> bool:
    """Whether the registration has not ended."""
    return select_one(db, "SELECT 1 AS found FROM optimizer WHERE optimizer_id = ?", (optimizer_id,)) is not None


def find_by_token_hash(db: Database, token_hash: str) -> Optimizer | None:
    row = select_one(db, "SELECT * FROM optimizer WHERE token_hash = ?", (token_hash,))
    return None if row is None else _from_row(row)


def list_optimizers(db: Database, group: str | None = None) -> list[Optimizer]:
    """Registered optimizers, of one group where it is given; in order of their registration."""
    rows = select(
        db,
        "SELECT * FROM optimizer WHERE (:group_name IS NULL OR group_name = :group_name) "
        "ORDER BY registered_at_ms, optimizer_id",
        {"group_name": group},
    )
    return [_from_row(row) for row in rows]


def save(db: Database, optimizer: Optimizer) -> Optimizer:
    """Raises UnknownToken when it is not registered."""
    if not execute(db, _UPDATE, _to_row(optimizer)):
        raise _missing(optimizer.optimizer_id)
    return optimizer


def remove(db: Database, optimizer_id: str) -> None:
    """End a registration; one that has ended already is no error.

    Raises IllegalState while it holds tasks: they are to be reset or adopted first.
    """
    try:
        execute(db, "DELETE FROM optimizer WHERE optimizer_id = ?", (optimizer_id,))
    except sqlite3.IntegrityError as error:
        raise IllegalState(f"optimizer {optimizer_id} still holds tasks") from error


def _find(db: Database, optimizer_id: str) -> Optimizer | None:
    row = select_one(db, "SELECT * FROM optimizer WHERE optimizer_id = ?", (optimizer_id,))
    return None if row is None else _from_row(row)


def _missing(optimizer_id: str) -> UnknownToken:
    return UnknownToken(f"optimizer {optimizer_id} is not registered")


def _to_row(optimizer: Optimizer) -> Row:
    return {
        "optimizer_id": optimizer.optimizer_id,
        "token_hash": optimizer.token_hash,
        "group_name": optimizer.group,
        "threads": optimizer.threads,
        "memory_bytes": optimizer.memory_bytes,
        "labels_json": pairs_to_json(optimizer.labels),
        "registered_at_ms": to_ms(optimizer.registered_at),
        "draining": optimizer.draining,
    }


def _from_row(row: Row) -> Optimizer:
    return Optimizer(
        optimizer_id=row["optimizer_id"],
        token_hash=row["token_hash"],
        group=row["group_name"],
        threads=row["threads"],
        memory_bytes=row["memory_bytes"],
        labels=pairs_from_json(row["labels_json"]),
        registered_at=from_ms(row["registered_at_ms"]),
        draining=bool(row["draining"]),
    )
