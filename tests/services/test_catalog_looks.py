"""What is known of catalogs without asking them: their last answer, and how many of their tables are known."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from amoro_core.errors import AccessDenied, CatalogUnavailable
from amoro_core.services.catalog_looks import CatalogLook, CatalogLookService
from amoro_core.store.database import Store
from tests.dashboard import states
from tests.services.rigs import Limits
from tests.store.ready import open_store

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "amoro.db")
    made.write(lambda db: states.fill(db, 3))
    yield made
    made.close()


def test_the_last_answer_of_a_catalog_counts(store: Store) -> None:
    times = iter(NOON + timedelta(minutes=number) for number in range(9))
    service = CatalogLookService(store, lambda: next(times))

    def look() -> CatalogLook:
        (made,) = service.looks(["lake"])
        return made

    assert look() == CatalogLook("lake", 3, True, None, "")
    service.note("lake", CatalogUnavailable("https://me:secret@host refused it"))
    assert look() == CatalogLook("lake", 3, True, NOON, "https://me:***@host refused it")
    service.note("lake", AccessDenied("not for you"))
    assert look() == CatalogLook("lake", 3, True, NOON + timedelta(minutes=1), "")
    service.note("lake", None)
    assert look() == CatalogLook("lake", 3, True, NOON + timedelta(minutes=2), "")


def test_tables_are_counted_up_to_a_bound_each_catalog_by_itself(store: Store, limits: Limits) -> None:
    service = CatalogLookService(store, lambda: NOON)
    for most, counted in ((3, (3, True)), (2, (2, False))):
        limits(counted_tables=most)
        looks = service.looks(["other", "lake"])
        assert [(one.catalog, one.tables, one.tables_is_exact) for one in looks] == [
            ("other", 0, True),
            ("lake", *counted),
        ]
