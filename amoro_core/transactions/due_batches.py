"""Condemned files that are due, batch after batch: no more of them than one is held at once."""

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from amoro_core.model.maintenance import DueBatch
from amoro_core.store import condemned
from amoro_core.store.database import Store


def due_batches(store: Store, table_id: int, table_uuid: str, now: datetime) -> Iterator[DueBatch]:
    """The batches of the table that are due at that time, by kind in order; not those that were moved to a trash."""
    for batch_id in store.read(lambda db: condemned.list_due(db, table_id, now)):
        batch = store.read(partial(condemned.get, batch_id=batch_id))
        if batch is not None and batch.table_uuid == table_uuid and not batch.moved_to:
            yield DueBatch(batch.batch_id, batch.kind, batch.files)
