"""A catalog in a file of SQLite: whose tables it has, which of several commits wins, and locks of others."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from sqlalchemy.exc import OperationalError

from amoro_core.errors import AmoroError, CatalogUnavailable
from amoro_core.iceberg.catalog.catalogs import close_catalogs, locations, open_catalog, other_names
from amoro_core.iceberg.catalog.errors import close_connections
from amoro_core.model.processes import CatalogConfig
from tests.engine import writer
from tests.engine.builders import SCHEMA

TABLES = ("db.a", "db.b")


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = writer.make_catalog(tmp_path)
    opened.create_namespace("empty.within")
    for name in TABLES:
        writer.make_table(opened, name, SCHEMA)
    yield opened
    opened.close()
    close_catalogs()


@pytest.fixture
def file(theirs: SqlCatalog, tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def config(theirs: SqlCatalog, file: Path) -> CatalogConfig:
    return configured(theirs, file)


@pytest.fixture
def ours(config: CatalogConfig) -> Any:
    return open_catalog(config)


def configured(theirs: SqlCatalog, file: Path, timeout_s: float = 5) -> CatalogConfig:
    uri, warehouse = f"sqlite:///{file}?timeout={timeout_s:g}", theirs.properties["warehouse"]
    return CatalogConfig("cat", (("type", "sql"), ("uri", uri), ("warehouse", warehouse)))


def changed(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        for statement in statements:
            database.execute(statement)


def test_tables_of_another_name_are_not_seen(theirs: SqlCatalog, file: Path) -> None:
    uri = f"sqlite:///{file}"
    other = CatalogConfig("other", (("type", "sql"), ("uri", uri), ("warehouse", theirs.properties["warehouse"])))
    assert open_catalog(other).list_namespaces() == []
    assert locations(other, ()) == {}
    assert other_names(other) == ("cat",)


def test_a_database_of_something_else_is_said_to_be_so(theirs: SqlCatalog, file: Path) -> None:
    changed(file, "DROP TABLE iceberg_tables")
    config = CatalogConfig("cat", (("uri", f"sqlite:///{file}"),))
    with pytest.raises(CatalogUnavailable, match="the database says: no such table: iceberg_tables"):
        locations(config, ())


# --- Commits ----------------------------------------------------------------------------------------------------------


def set_property(catalog: Catalog, table: Table, value: str) -> None:
    required = AssertTableUUID(uuid=table.metadata.table_uuid)
    catalog.commit_table(table, (required,), (SetPropertiesUpdate(updates={"p": value}),))


def row_of(file: Path) -> tuple[Any, ...]:
    with closing(sqlite3.connect(file)) as database:
        found: tuple[Any, ...] = database.execute("SELECT * FROM iceberg_tables WHERE table_name = 'a'").fetchone()
    return found


def test_a_commit_leaves_what_pyiceberg_reads(ours: Any, theirs: SqlCatalog, file: Path) -> None:
    table = theirs.load_table("db.a")
    before = row_of(file)
    set_property(ours, table, "1")
    found = theirs.load_table("db.a")
    assert found.properties["p"] == "1"
    assert row_of(file) == (*before[:3], found.metadata_location, table.metadata_location, "TABLE")
    assert found.metadata.metadata_log[-1].metadata_file == table.metadata_location
    set_property(theirs, found, "2")
    assert ours.load_table("db.a").properties["p"] == "2"


def test_of_commits_to_one_state_one_wins(theirs: SqlCatalog, file: Path) -> None:
    """All have loaded the same state when the first one swaps."""
    together = threading.Barrier(8)
    table = theirs.load_table("db.a")

    def committed(number: int) -> str:
        own: Any = open_catalog(configured(theirs, file, 60))
        write = own._write_metadata

        def writing(*arguments: Any, **named: Any) -> None:
            write(*arguments, **named)
            together.wait(60)

        vars(own)["_write_metadata"] = writing
        try:
            set_property(own, table, str(number))
        except CommitFailedException as error:
            return str(error)
        finally:
            close_catalogs()
        return "committed"

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(committed, range(8)))
    assert sorted(done) == ["Table has been updated by another process: db.a"] * 7 + ["committed"]
    assert theirs.load_table("db.a").properties["p"] == str(done.index("committed"))


def test_a_table_that_is_gone_is_not_made_anew(ours: Any, theirs: SqlCatalog) -> None:
    table = theirs.load_table("db.a")
    theirs.drop_table("db.a")
    with pytest.raises(CommitFailedException):
        set_property(ours, table, "1")
    assert not theirs.table_exists("db.a")


@pytest.mark.parametrize(("by", "failed"), [("writer", True), ("reader", False)])
def test_a_lock_of_others_is_told_with_the_statement_and_leaves_nothing_open(
    theirs: SqlCatalog, file: Path, by: str, failed: bool
) -> None:
    """A writer keeps us from the statement, a reader from the COMMIT."""
    table = theirs.load_table("db.a")
    before = row_of(file)
    own = open_catalog(configured(theirs, file, 0.05))
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE" if by == "writer" else "BEGIN")
        other.execute("SELECT * FROM iceberg_tables").fetchall()
        with pytest.raises(OperationalError, match="database is locked") as caught:
            set_property(own, table, "1")
        other.execute("ROLLBACK")
        assert (caught.value.statement is not None) == failed
        assert caught.value.orig.sqlite_errorcode == sqlite3.SQLITE_BUSY
        close_connections(own, caught.value)
        # A COMMIT that failed leaves its transaction open: in the same connection it would look as if it had landed.
        assert own.load_table("db.a").metadata_location == table.metadata_location
        assert row_of(file) == before
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        set_property(own, table, "2")
    assert theirs.load_table("db.a").properties["p"] == "2"


def test_a_query_holds_no_lock(ours: Any, config: CatalogConfig, file: Path) -> None:
    ours.load_table("db.a")
    assert locations(config, ()) != {}
    with closing(sqlite3.connect(file, 0.05, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")


def test_a_failed_query_is_an_error_of_the_catalog(theirs: SqlCatalog, file: Path) -> None:
    config = CatalogConfig("cat", (("uri", f"sqlite:///{file}?timeout=0.05"),))
    open_catalog(config)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(AmoroError, match="the database says: database is locked"):
            locations(config, ())
        other.execute("ROLLBACK")
    assert locations(config, ()) != {}
