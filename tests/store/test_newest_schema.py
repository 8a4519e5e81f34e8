"""A new database is made at once as all migrations, one after another, would leave it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amoro_core.store import migrations
from amoro_core.store.connection import Connection
from amoro_core.store.database import Store
from amoro_core.store.migrations import MIGRATIONS, applied, migrate
from amoro_core.store.newest_schema import SCRIPT, make_newest, script_of


@pytest.fixture
def empty() -> Iterator[Connection]:
    with closing(Connection(sqlite3.connect(":memory:", isolation_level=None))) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        yield db


def by_steps() -> Connection:
    db = Connection(sqlite3.connect(":memory:", isolation_level=None))
    db.execute("PRAGMA foreign_keys = OFF")
    migrate(db, MIGRATIONS)
    return db


def everything(db: Connection) -> dict[str, list[dict[str, Any]]]:
    """The schema and the rows of all tables, without the times of migrations."""
    schema = db.select("SELECT type, name, tbl_name, sql FROM sqlite_master")
    rows = {row["name"]: db.select(f'SELECT * FROM "{row["name"]}"') for row in schema if row["type"] == "table"}
    for row in rows["schema_migration"]:
        row["applied_at_ms"] = None
    return {"sqlite_master": schema, **rows}


def test_the_script_is_that_of_the_migrations() -> None:
    with closing(by_steps()) as db:
        assert SCRIPT.read_text(encoding="utf-8") == script_of(db), "run: python docs/generate.py"


def test_a_new_database_is_as_the_migrations_leave_it(empty: Connection) -> None:
    assert migrate(empty) == len(MIGRATIONS)
    with closing(by_steps()) as db:
        expected = everything(db)
    assert everything(empty) == expected
    with_rows = {name for name, rows in expected.items() if rows}
    assert {"process_status", "resource_group", "coordinator_epoch"} <= with_rows


def test_a_new_database_needs_no_migration_to_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(db: Connection) -> None:
        raise AssertionError("a migration ran")

    monkeypatch.setattr(migrations, "MIGRATIONS", (refuse,) * len(MIGRATIONS))
    with Store.open(path) as store:
        assert store.read(applied) == len(MIGRATIONS)


def test_migrations_that_the_script_lacks_are_applied_to_a_new_database(
    empty: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_colour(db: Connection) -> None:
        db.execute("ALTER TABLE token ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'")

    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, add_colour))
    assert migrate(empty) == len(MIGRATIONS) + 1
    assert empty.select("SELECT colour FROM token") == []
    noted = empty.select("SELECT number, name, applied_at_ms FROM schema_migration ORDER BY number")
    assert [row["name"] for row in noted] == [step.__name__ for step in (*MIGRATIONS, add_colour)]
    assert all(row["applied_at_ms"] for row in noted)


def test_a_database_that_has_something_is_migrated_step_by_step(empty: Connection) -> None:
    migrate(empty, MIGRATIONS[:3])
    assert migrate(empty) == len(MIGRATIONS) - 3
    with closing(by_steps()) as db:
        assert everything(empty) == everything(db)


def test_values_are_written_as_literals(empty: Connection) -> None:
    empty.execute("CREATE TABLE kept (number INTEGER, share REAL, words TEXT)")
    empty.execute("INSERT INTO kept VALUES (-7, 0.5, 'it''s;' || char(10) || 'so')")
    empty.execute("INSERT INTO kept (number) VALUES (8)")
    script = script_of(empty)
    with closing(Connection(sqlite3.connect(":memory:", isolation_level=None))) as again:
        for statement in script.split(";\n\n")[:-1]:
            again.execute(statement)
        assert again.select("SELECT * FROM kept") == empty.select("SELECT * FROM kept")


def test_a_statement_that_would_be_cut_in_two_is_refused(empty: Connection) -> None:
    empty.execute("CREATE TABLE kept (words TEXT DEFAULT 'one;\n\ntwo')")
    with pytest.raises(ValueError, match=r"^a statement has an empty line after a semicolon: CREATE TABLE kept"):
        script_of(empty)


def test_a_transaction_that_is_rolled_back_leaves_an_empty_database(empty: Connection) -> None:
    empty.execute("BEGIN IMMEDIATE")
    make_newest(empty)
    empty.execute("ROLLBACK")
    assert empty.select("SELECT * FROM sqlite_master") == []
