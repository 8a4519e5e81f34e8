"""Registered optimizers, in `optimizer`."""

from amoro_core.errors import AlreadyExists, GroupNotFound, IllegalState, UnknownToken
from amoro_core.model.processes import Optimizer
from amoro_core.store import groups
from amoro_core.store.column_codecs import (
    from_ms,
    insert_into,
    pairs_from_json,
    pairs_to_json,
    to_json,
    to_ms,
    tuple_from_json,
    update_of,
)
from amoro_core.store.connection import Connection, Duplicate, Referenced, Row

_COLUMNS = (
    "optimizer_id",
    "token_hash",
    "group_name",
    "threads",
    "memory_bytes",
    "labels_json",
    "registered_at_ms",
    "draining",
    "work_kinds_json",
    "max_cluster_bytes",
)
_INSERT = insert_into("optimizer", _COLUMNS)
_UPDATE = update_of("optimizer", _COLUMNS, ("optimizer_id",))


def add(db: Connection, optimizer: Optimizer) -> Optimizer:
    """Raises GroupNotFound, AlreadyExists (id or token)."""
    if groups.find(db, optimizer.group) is None:
        raise GroupNotFound(f"optimizer group {optimizer.group!r} does not exist")
    try:
        db.execute(_INSERT, _to_row(optimizer))
    except Duplicate as error:
        known = find(db, optimizer.optimizer_id) or find_by_token_hash(db, optimizer.token_hash)
        if known is None:
            raise
        raise AlreadyExists(f"optimizer {known.optimizer_id} is registered already") from error
    return optimizer


def get(db: Connection, optimizer_id: str) -> Optimizer:
    """Raises UnknownToken: an optimizer that is not registered has no token that counts."""
    optimizer = find(db, optimizer_id)
    if optimizer is None:
        raise _missing(optimizer_id)
    return optimizer


def find_by_token_hash(db: Connection, token_hash: str) -> Optimizer | None:
    """The optimizer whose token has that hash; None when there is none."""
    row = db.select_one("SELECT * FROM optimizer WHERE token_hash = :token_hash", {"token_hash": token_hash})
    return None if row is None else _from_row(row)


def list_optimizers(db: Connection, group: str | None = None) -> list[Optimizer]:
    """Registered optimizers, of one group where it is given; in order of their registration."""
    rows = db.select(
        "SELECT * FROM optimizer WHERE (:group_name IS NULL OR group_name = :group_name) "
        "ORDER BY registered_at_ms, optimizer_id",
        {"group_name": group},
    )
    return [_from_row(row) for row in rows]


def list_page(db: Connection, group: str, after: str, limit: int) -> list[Optimizer]:
    """At most `limit` registered optimizers with greater ids, of a group or ("") all, by id."""
    rows = db.select(
        "SELECT * FROM optimizer WHERE optimizer_id > :after AND (:group_name = '' OR group_name = :group_name) "
        "ORDER BY optimizer_id LIMIT :limit",
        {"after": after, "group_name": group, "limit": limit},
    )
    return [_from_row(row) for row in rows]


def count(db: Connection, group: str) -> int:
    """How many optimizers are registered, of a group or ("") all."""
    (row,) = db.select(
        "SELECT count(*) AS known FROM optimizer WHERE :group_name = '' OR group_name = :group_name",
        {"group_name": group},
    )
    return int(row["known"])


def save(db: Connection, optimizer: Optimizer) -> Optimizer:
    """Raises UnknownToken when it is not registered."""
    if not db.execute(_UPDATE, _to_row(optimizer)):
        raise _missing(optimizer.optimizer_id)
    return optimizer


def remove(db: Connection, optimizer_id: str) -> None:
    """End a registration, if it exists.

    Raises IllegalState while it holds tasks: they are to be reset or adopted first.
    """
    try:
        db.execute("DELETE FROM optimizer WHERE optimizer_id = :optimizer_id", {"optimizer_id": optimizer_id})
    except Referenced as error:
        raise IllegalState(f"optimizer {optimizer_id} still holds tasks") from error


def find(db: Connection, optimizer_id: str) -> Optimizer | None:
    """The registered optimizer with that id; None when there is none."""
    row = db.select_one("SELECT * FROM optimizer WHERE optimizer_id = :optimizer_id", {"optimizer_id": optimizer_id})
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
        "work_kinds_json": to_json(optimizer.kinds),
        "max_cluster_bytes": optimizer.max_cluster_bytes,
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
        kinds=tuple_from_json(row["work_kinds_json"]),
        max_cluster_bytes=row["max_cluster_bytes"],
    )
