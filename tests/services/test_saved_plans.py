"""Plans that people have seen are kept: for ten minutes, a hundred of them, over a restart, each for its table."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from amoro_core.errors import NotFound
from amoro_core.model.tables import parse_table
from amoro_core.services.saved_plans import KEPT_FOR, MOST, SavedPlanService
from amoro_core.store.database import Store
from tests.store.ready import open_store

TABLE = parse_table("c.n.t")
TICK = timedelta(milliseconds=1)


class Clock:
    """A clock that is set."""

    now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "amoro.db")
    yield made
    made.close()


def _rows(store: Store) -> int:
    return len(store.read(lambda db: db.select("SELECT plan_id FROM saved_plan")))


def test_a_plan_is_kept_for_ten_minutes_and_no_longer(store: Store) -> None:
    clock = Clock()
    service = SavedPlanService(store, clock)
    made = service.keep(TABLE, b"plan")
    clock.now += KEPT_FOR - TICK
    assert service.get(TABLE, made.plan_id) == made
    clock.now += TICK
    with pytest.raises(NotFound, match=f"no plan '{made.plan_id}' of c.n.t is kept"):
        service.get(TABLE, made.plan_id)
    clock.now += TICK
    service.keep(TABLE, b"another")
    assert _rows(store) == 1, "what is too old is not kept either"


def test_a_plan_is_of_its_table_alone(store: Store) -> None:
    service = SavedPlanService(store, Clock())
    made = service.keep(TABLE, b"plan")
    for table, plan_id in ((parse_table("c.n.other"), made.plan_id), (TABLE, "another")):
        with pytest.raises(NotFound):
            service.get(table, plan_id)


def test_the_newest_hundred_are_kept(store: Store) -> None:
    service = SavedPlanService(store, Clock())
    first, *others = [service.keep(TABLE, b"plan") for _ in range(MOST + 1)]
    assert _rows(store) == MOST
    assert all(service.get(TABLE, one.plan_id) == one for one in others)
    with pytest.raises(NotFound):
        service.get(TABLE, first.plan_id)


def test_a_plan_is_there_after_a_restart(tmp_path: Path) -> None:
    before = open_store(tmp_path / "amoro.db")
    made = SavedPlanService(before, Clock()).keep(TABLE, b"plan")
    before.close()
    after = Store.open(tmp_path / "amoro.db")
    assert SavedPlanService(after, Clock()).get(TABLE, made.plan_id) == made
    after.close()
