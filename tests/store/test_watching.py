"""What a transaction changed is told once it is committed, by whoever wrote it."""

from collections.abc import Iterable

import pytest

from amoro_core.model.processes import ResourceGroup
from amoro_core.revisions import Subject
from amoro_core.store import groups
from amoro_core.store.database import Connection, Store
from amoro_core.store.watching import WATCHED


class Heard:
    def __init__(self) -> None:
        self.told: list[set[Subject]] = []

    def __call__(self, changed: Iterable[Subject]) -> None:
        self.told.append(set(changed))


@pytest.fixture
def heard(store: Store) -> Heard:
    made = Heard()
    store.watch(made)
    return made


def test_an_insert_an_update_and_a_deletion_are_told(store: Store, heard: Heard) -> None:
    store.write(lambda db: groups.add(db, ResourceGroup("fast")))
    store.write(
        lambda db: db.execute("UPDATE resource_group SET scheduling_policy = 'balanced' WHERE group_name = 'fast'")
    )
    store.write(lambda db: db.execute("DELETE FROM resource_group WHERE group_name = 'fast'"))
    assert heard.told == [{("groups", "fast")}] * 3


def test_what_is_told_can_be_read(store: Store) -> None:
    """A page that is rendered for a revision shows that revision's rows, not the ones before."""
    seen: list[int] = []

    def look(changed: Iterable[Subject]) -> None:
        seen.append(store.read(lambda db: len(db.select("SELECT * FROM resource_group WHERE group_name = 'fast'"))))

    store.watch(look)
    store.write(lambda db: groups.add(db, ResourceGroup("fast")))
    assert seen == [1]


def test_a_transaction_that_failed_tells_nothing(store: Store, heard: Heard) -> None:
    def fail(db: Connection) -> None:
        groups.add(db, ResourceGroup("fast"))
        db.execute("ROLLBACK")

    with pytest.raises(Exception, match="ended"):
        store.write(fail)
    assert heard.told == []
    store.write(lambda db: db.execute("UPDATE coordinator_epoch SET epoch = epoch"))
    assert heard.told == []


def test_every_watched_column_exists_and_has_its_triggers(store: Store, heard: Heard) -> None:
    def columns(db: Connection) -> set[tuple[str, str]]:
        tables = [row["name"] for row in db.select("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {(table, row["name"]) for table in tables for row in db.select(f"PRAGMA table_info({table})")}

    assert {(table, column) for table, _, column in WATCHED} <= store.read(columns)
    triggers = store.write(lambda db: db.select("SELECT name FROM temp.sqlite_master WHERE type = 'trigger'"))
    assert len(triggers) == 3 * len(WATCHED)


def test_the_schema_keeps_no_trigger_of_them(store: Store, heard: Heard) -> None:
    kept = store.read(lambda db: db.select("SELECT name FROM main.sqlite_master WHERE type = 'trigger'"))
    assert [row["name"] for row in kept if row["name"].startswith("watched")] == []
