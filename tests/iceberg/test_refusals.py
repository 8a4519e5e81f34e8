"""Sending through a SQL catalog that fails: what is known not to be applied, and what is not known at all."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError, ProgrammingError

from amoro_core.errors import AccessDenied, AmoroError, CatalogUnavailable, CommitRefused, CommitUnknown, StorageFull
from amoro_core.iceberg.catalogs import close_catalogs, open_catalog
from amoro_core.iceberg.refusals import is_lock, is_refusal, is_without_rights
from amoro_core.iceberg.sqlite import SqliteCatalog
from amoro_core.model.commits import Trace
from amoro_core.model.processes import CatalogConfig
from tests.engine import writer
from tests.engine.oracle import assert_same_rows, live_rows
from tests.faults.storage import Kind, Operation, StorageFault, Trouble, failing, storage_faults
from tests.iceberg.rewriting import rewritten
from tests.iceberg.scenarios import filled, staged, traced


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    catalog = writer.make_catalog(tmp_path)
    yield filled(catalog)
    catalog.close()


#: An option that SQLite's driver would not be given by us, so that SQLAlchemy opens the file.
THROUGH_SQLALCHEMY = "&cached_statements=100"


@pytest.fixture(params=["", THROUGH_SQLALCHEMY], ids=["driver", "sqlalchemy"])
def through(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def config(table: Table, through: str) -> Iterator[CatalogConfig]:
    yield with_uri(table, f"{table.catalog.properties['uri']}{through}")
    close_catalogs()


def with_uri(table: Table, uri: str) -> CatalogConfig:
    return CatalogConfig("cat", (("type", "sql"), ("uri", uri), ("warehouse", table.catalog.properties["warehouse"])))


def file_of(config: CatalogConfig) -> str:
    return dict(config.properties)["uri"].removeprefix("sqlite:///").partition("?")[0]


def sent(config: CatalogConfig, table: Table, fault: StorageFault | None = None) -> AmoroError | None:
    """The error of sending a rewrite; that it is not in the table, and nobody's rows are touched."""
    before = live_rows(table)
    found, attempt = staged(config, rewritten(table))
    try:
        if fault is None:
            found.send(attempt.payload)
        else:
            with storage_faults(), failing(fault):
                found.send(attempt.payload)
    except AmoroError as error:
        assert traced(found, attempt) is Trace.OPEN
        assert_same_rows(before, live_rows(table))
        return error
    assert traced(found, attempt) is Trace.LANDED
    return None


def test_a_database_that_is_read_only_refuses(table: Table, config: CatalogConfig) -> None:
    read_only = with_uri(table, f"sqlite:///file:{file_of(config)}?mode=ro&uri=true")

    error = sent(read_only, table)

    assert type(error) is CommitRefused
    assert "attempt to write a readonly database" in error.message


@pytest.mark.parametrize("by", ["writer", "reader"])
def test_a_database_that_others_have_locked_has_applied_nothing(
    table: Table, config: CatalogConfig, by: str, through: str
) -> None:
    """A writer keeps us from the statement, a reader from the COMMIT, which SQLAlchemy then leaves open."""
    impatient = with_uri(table, f"sqlite:///{file_of(config)}?timeout=0.1{through}")
    other = sqlite3.connect(file_of(config), isolation_level=None)
    plan = rewritten(table)
    found, attempt = staged(impatient, plan)
    other.execute("BEGIN IMMEDIATE" if by == "writer" else "BEGIN")
    other.execute("SELECT * FROM iceberg_tables").fetchall()

    with pytest.raises(CatalogUnavailable, match="database is locked") as caught:
        found.send(attempt.payload)
    other.execute("ROLLBACK")
    other.close()

    assert type(caught.value) is CatalogUnavailable
    assert traced(found, attempt) is Trace.OPEN
    found.send(attempt.payload)
    assert traced(found, attempt) is Trace.LANDED


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (Trouble.DENIED, AccessDenied),
        (Trouble.FORBIDDEN, AccessDenied),
        (Trouble.FULL, StorageFull),
        (Trouble.FAILS, CatalogUnavailable),
        (Trouble.BUSY, CatalogUnavailable),
        (Trouble.SLOW, CatalogUnavailable),
        (Trouble.TRUNCATED, CatalogUnavailable),
    ],
)
def test_a_metadata_file_that_can_not_be_written_has_applied_nothing(
    table: Table, config: CatalogConfig, trouble: Trouble, expected: type[AmoroError]
) -> None:
    error = sent(config, table, StorageFault(Operation.WRITE, Kind.METADATA, trouble))

    assert type(error) is expected
    assert "_write_metadata" not in vars(open_catalog(config))
    assert sent(config, table) is None


def test_what_fails_after_the_metadata_file_is_unknown(
    table: Table, config: CatalogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*arguments: Any, **named: Any) -> None:
        raise OSError("connection reset")

    found, attempt = staged(config, rewritten(table))
    monkeypatch.setattr("pyiceberg.catalog.sql.Session.commit", lost)
    monkeypatch.setattr(SqliteCatalog, "_change", lost)
    with pytest.raises(CommitUnknown, match="connection reset"):
        found.send(attempt.payload)


def from_sqlite(code: int, statement: str | None) -> OperationalError:
    driver = sqlite3.OperationalError("said SQLite")
    driver.sqlite_errorcode = code
    return OperationalError(statement, {}, driver)


class _FromPostgres(Exception):
    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.pgcode = state


def from_postgres(state: str, statement: str | None) -> ProgrammingError:
    return ProgrammingError(statement, {}, _FromPostgres(state))


READ_ONLY = [sqlite3.SQLITE_READONLY, sqlite3.SQLITE_READONLY_DBMOVED, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH]
LOCKED = [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_SNAPSHOT, sqlite3.SQLITE_LOCKED]
UNCLEAR = [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CANTOPEN]


@pytest.mark.parametrize("statement", ["UPDATE iceberg_tables", None])
@pytest.mark.parametrize("code", [*READ_ONLY, *LOCKED, *UNCLEAR])
def test_what_sqlite_says_counts_before_the_commit_and_of_the_commit_only_that_it_is_locked(
    code: int, statement: str | None
) -> None:
    error = from_sqlite(code, statement)
    assert is_refusal(error) == (code in READ_ONLY and statement is not None)
    assert is_lock(error) == (code in LOCKED)


@pytest.mark.parametrize("statement", ["UPDATE iceberg_tables", None])
@pytest.mark.parametrize("state", ["25006", "42501", "40001", "40P01", "55P03", "57P01", "08006"])
def test_what_postgresql_says_counts_before_the_commit_alone(state: str, statement: str | None) -> None:
    error = from_postgres(state, statement)
    assert is_refusal(error) == (state in ("25006", "42501") and statement is not None)
    assert is_lock(error) == (state in ("40001", "40P01", "55P03") and statement is not None)


class _FromAws(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


@pytest.mark.parametrize("code", ["AccessDeniedException", "ExpiredTokenException", "ThrottlingException"])
def test_what_aws_says_about_rights_is_a_refusal(code: str) -> None:
    assert is_refusal(_FromAws(code)) == is_without_rights(_FromAws(code)) == (code != "ThrottlingException")


def test_a_right_that_storage_denies_is_no_answer_of_the_catalog() -> None:
    """It may have come after the catalog was changed, from whatever the client does then."""
    assert is_without_rights(PermissionError(13, "Permission denied"))
    assert not is_refusal(PermissionError(13, "Permission denied"))
