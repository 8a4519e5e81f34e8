"""New state databases that are made already, since making one takes long, and the services over a store."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from amoro_core.bootstrap.composition import CoordinatorHooks, Dependencies, Services
from amoro_core.bootstrap.settings import Settings
from amoro_core.formats.tables import Formats
from amoro_core.model.processes import CatalogConfig
from amoro_core.scheduling.policy import POLICIES
from amoro_core.store.connect import migrate
from amoro_core.store.connection import Connection
from amoro_core.store.database import Store


def open_store(path: Path) -> Store:
    """As `Store.open`; a file that does not exist begins as a copy of a migrated database that no store has opened."""
    if not path.exists():
        path.write_bytes(_migrated())
    return Store.open(path)


@cache
def _migrated() -> bytes:
    made = sqlite3.connect(":memory:", isolation_level=None)
    db = Connection(made)
    db.execute("BEGIN")
    migrate(db)
    db.execute("COMMIT")
    image = made.serialize()
    made.close()
    return image


def services(
    store: Store,
    clock: Callable[[], datetime] = lambda: datetime(2026, 3, 1, 12, tzinfo=UTC),
    catalogs: Callable[[], Sequence[CatalogConfig]] = list,
) -> Services:
    """The services over a store, without any table format and without a program around them."""
    around = CoordinatorHooks(lambda *_: None, lambda *_: None, lambda: None, str, str)
    parts = Dependencies(Formats([]), {}, POLICIES, catalogs, clock=clock, monotonic=lambda: 0.0)
    return Services(store, Path("/nowhere"), Settings(), {}, around, parts)
