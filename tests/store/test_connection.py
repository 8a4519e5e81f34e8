"""The connection that the store's modules use: named parameters, and errors of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from amoro_core.errors import StoreFailed
from amoro_core.store.connection import Connection, Duplicate, Referenced
from amoro_core.store.database import Store


@pytest.fixture
def db() -> Iterator[Connection]:
    made = Connection(sqlite3.connect(":memory:", isolation_level=None))
    made.execute("PRAGMA foreign_keys = ON")
    made.execute(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, size INTEGER CHECK (size > 0))"
    )
    made.execute("CREATE TABLE child (parent INTEGER REFERENCES parent (id))")
    yield made
    made.close()


def test_rows_come_by_name_and_an_insert_tells_its_number(db: Connection) -> None:
    assert db.insert("INSERT INTO parent (name, size) VALUES (:name, :size)", {"name": "a", "size": 1}) == 1
    assert db.execute_many("INSERT INTO parent (name, size) VALUES (:name, :size)", [{"name": "b", "size": 2}]) == 1
    assert db.select("SELECT name, size FROM parent ORDER BY id") == [
        {"name": "a", "size": 1},
        {"name": "b", "size": 2},
    ]
    assert db.select_one("SELECT id FROM parent WHERE name = :name", {"name": "b"}) == {"id": 2}
    assert db.select_one("SELECT id FROM parent WHERE name = :name", {"name": "c"}) is None
    assert db.execute("UPDATE parent SET size = size + 1") == 2
    rows = [{"name": name} for name in ("a", "b", "c")]
    assert db.execute_many("UPDATE parent SET size = 5 WHERE name = :name", rows) == 2
    assert db.execute_many("UPDATE parent SET size = 5 WHERE name = :name", []) == 0


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO parent (id, name, size) VALUES (1, 'b', 1)",
        "INSERT INTO parent (name, size) VALUES ('a', 1)",
    ],
)
def test_a_key_or_a_unique_value_that_is_there_is_a_duplicate(db: Connection, statement: str) -> None:
    db.execute("INSERT INTO parent (name, size) VALUES ('a', 1)")
    with pytest.raises(Duplicate, match="UNIQUE constraint failed"):
        db.execute(statement)


def test_a_row_that_another_refers_to_stays_and_one_that_refers_to_nothing_does_not_come(db: Connection) -> None:
    db.execute("INSERT INTO parent (name, size) VALUES ('a', 1)")
    db.execute("INSERT INTO child (parent) VALUES (1)")
    with pytest.raises(Referenced, match="FOREIGN KEY"):
        db.execute("DELETE FROM parent")
    with pytest.raises(Referenced, match="FOREIGN KEY"):
        db.execute_many("INSERT INTO child (parent) VALUES (:parent)", [{"parent": 7}])


def test_a_check_that_fails_is_the_stores_own_error(db: Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        db.execute("INSERT INTO parent (name, size) VALUES ('a', 0)")


@pytest.mark.parametrize("call", ["select", "select_one", "execute", "insert"])
def test_parameters_by_position_are_refused(db: Connection, call: str) -> None:
    with pytest.raises(TypeError, match="parameters have names, they are no tuple"):
        getattr(db, call)("SELECT :a", (1,))


def test_a_duplicate_that_nobody_expects_fails_its_write_alone(tmp_path: Path) -> None:
    with Store.open(tmp_path / "amoro.db") as store:
        change = (
            "INSERT INTO resource_group (group_name, scheduling_policy, properties_json) VALUES ('default', '', '')"
        )
        with pytest.raises(StoreFailed, match=r"UNIQUE constraint failed: resource_group\.group_name"):
            store.write(lambda db: db.execute(change))
        assert store.read(lambda db: db.select_one("SELECT count(*) AS groups FROM resource_group")) == {"groups": 1}
