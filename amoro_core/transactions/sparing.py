"""Condemned files that the guard found needed: taken off, so that nobody deletes them."""

from collections.abc import Mapping
from dataclasses import replace

from amoro_core.events import get_logger
from amoro_core.store import condemned
from amoro_core.store.condemned import Batch, BatchStatus
from amoro_core.store.connection import Connection

log = get_logger("amoro.sweeping")


def spare(db: Connection, batch: Batch, needed: Mapping[str, str]) -> None:
    """Take off what is needed, each with the reason; the rest of the batch waits as before, where it is."""
    for path in sorted({one.path for one in batch.files}.intersection(needed)):
        log.error("guard.spoke", process=batch.process_id, path=path, why=needed[path])
    status = BatchStatus.MOVING if batch.status is BatchStatus.MOVING else BatchStatus.MOVED
    spared = condemned.without(replace(batch, status=status if batch.moved_to else BatchStatus.WAITING), needed)
    if not spared.files:
        condemned.remove(db, batch.batch_id)
    else:
        condemned.save_unless_restored(db, spared)


def spared_words(needed: Mapping[str, str]) -> str:
    """Why nothing of a batch was deleted, for people."""
    path, why = next(iter(sorted(needed.items())))
    more = f" and {len(needed) - 1} more" if len(needed) > 1 else ""
    return f"the table needs {path} ({why}){more}, which was condemned"
