"""Errors: of sending through a SQL catalog that fails, and of libraries, in one line."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ServerError
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError, ProgrammingError

from amoro_core.errors import (
    AccessDenied,
    AmoroError,
    CatalogUnavailable,
    CommitRefused,
    CommitUnknown,
    StorageFull,
    TableRefused,
)
from amoro_core.iceberg.catalog.catalogs import catalog_errors, load_table, open_catalog
from amoro_core.iceberg.catalog.errors import error_text, is_lock, is_refusal, is_without_rights
from amoro_core.model.commits import Trace
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from tests.engine.oracle import assert_same_rows, live_rows
from tests.engine.parquet_rows import local_path
from tests.faults.storage import Kind, Operation, StorageFault, Trouble, failing, storage_faults
from tests.iceberg.rewriting import rewritten
from tests.iceberg.scenarios import filled, http_server, sql_config, staged, traced
from tests.tiers import sample


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return filled(catalog)


@pytest.fixture
def config(table: Table, tmp_path: Path) -> CatalogConfig:
    return sql_config(tmp_path)


def with_uri(config: CatalogConfig, uri: str) -> CatalogConfig:
    return replace(config, properties=tuple({**dict(config.properties), "uri": uri}.items()))


def file_of(config: CatalogConfig) -> str:
    return dict(config.properties)["uri"].removeprefix("sqlite:///")


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
    read_only = with_uri(config, f"sqlite:///file:{file_of(config)}?mode=ro&uri=true")

    error = sent(read_only, table)

    assert type(error) is CommitRefused
    assert "attempt to write a readonly database" in error.message


@pytest.mark.parametrize("by", ["writer", "reader"])
def test_a_database_that_others_have_locked_has_applied_nothing(table: Table, config: CatalogConfig, by: str) -> None:
    """A writer keeps us from the statement, a reader from the COMMIT, which SQLAlchemy then leaves open."""
    impatient = with_uri(config, f"sqlite:///{file_of(config)}?timeout=0.1")
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
    sample(
        [
            (Trouble.DENIED, AccessDenied),
            (Trouble.FORBIDDEN, AccessDenied),
            (Trouble.FULL, StorageFull),
            (Trouble.FAILS, CatalogUnavailable),
            (Trouble.BUSY, CatalogUnavailable),
            (Trouble.SLOW, CatalogUnavailable),
            (Trouble.TRUNCATED, CatalogUnavailable),
        ],
        every=2,
    ),
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
    error = ProgrammingError(statement, {}, _FromPostgres(state))
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


# What the errors of libraries come to: file or address, what was expected, what was found, in one line


HTML = "<!DOCTYPE html>\n<html>\n<title>Log in</title>" + "x" * 5000


@pytest.fixture
def pages() -> Iterator[str]:
    """A server of something else than a catalog."""
    with http_server(lambda path, headers: (502 if path.startswith("/bad") else 200, {}, HTML)) as uri:
        yield uri


@pytest.mark.parametrize(("path", "status"), [("", ""), ("/bad", " with status 502")])
def test_a_rest_catalog_that_answers_html_is_named_with_what_was_found(pages: str, path: str, status: str) -> None:
    config = CatalogConfig("web", (("type", "rest"), ("uri", pages + path)))
    with pytest.raises(CatalogUnavailable) as told, catalog_errors(config):
        open_catalog(config)
    assert told.value.message == (
        f"catalog web ({pages}{path}) does not answer as it should: expected JSON, "
        f"found '<!DOCTYPE html> <html> <title>Log in</title>{'x' * 35}…'{status}"
    )
    assert told.value.hint == "Check its settings and that it runs: amoro catalog show web, amoro doctor"


def test_a_catalog_that_nobody_serves_says_why_there_is_no_connection() -> None:
    config = CatalogConfig("web", (("type", "rest"), ("uri", "http://user:pass@127.0.0.1:9/x")))
    with pytest.raises(CatalogUnavailable) as told:
        open_catalog(config)
    assert told.value.message == (
        "catalog web (http://user:***@127.0.0.1:9/x) does not answer as it should: "
        "no connection: Failed to establish a new connection: Connection refused"
    )


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OperationalError("SELECT secret FROM t", {"p": 1}, Exception("no such table: t")),
         "the database says: no such table: t"),
        (ServerError("IllegalState: boom\n\tat a.b.C(D.java:1)\n\tat e"), "ServerError: IllegalState: boom"),
        (ValueError("one\ntwo"), "one"),
        (KeyError("x"), "KeyError: 'x'"),
        (TimeoutError(), "TimeoutError"),
        (PermissionError(13, "Permission denied", "/x"), "/x: Permission denied"),
        (RuntimeError("y" * 5000), f"RuntimeError: {'y' * 285}…"),
    ],
)  # fmt: skip
def test_an_error_of_a_library_comes_in_one_short_line(error: Exception, told: str) -> None:
    assert error_text(error) == told


@pytest.mark.parametrize(
    ("content", "kind", "found"),
    [
        ("", CatalogUnavailable, "expected JSON, found nothing"),
        (HTML, CatalogUnavailable, f"expected JSON, found '<!DOCTYPE html> <html> <title>Log in</title>{'x' * 35}…'"),
        ('{"schemas": [', CatalogUnavailable, "expected JSON, found it broken: EOF while parsing a list at line 1 col"),
        (b"\x80\x00", CatalogUnavailable, "expected UTF-8, found byte 0x80 at 0"),
        ("[1, 2]", AmoroError, "expected an object, found '[1, 2]'"),
        ('{"format-version": 2, "location": "/x"}', AmoroError, "expected the field last-column-id, found none"),
        ({"location": None}, TableRefused, "expected a valid string at location, found 'None'"),
        (
            {"partition-specs": 7, "refs": "x"},
            TableRefused,
            "expected a valid array at partition-specs, found '7' (and 1 more)",
        ),
    ],
)
def test_a_metadata_file_that_is_broken_is_named_with_what_was_found(
    table: Table, config: CatalogConfig, content: str | bytes | dict[str, object], kind: type[AmoroError], found: str
) -> None:
    path = Path(local_path(table.metadata_location))
    if isinstance(content, dict):
        content = json.dumps({**json.loads(path.read_text()), **content})
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(kind) as told:
        load_table(config, parse_table("cat.db.t"))
    message = told.value.message
    assert message.startswith(f"the metadata file {table.metadata_location} of cat.db.t can't be read: {found}")
    assert "\n" not in message
    assert kind is not CatalogUnavailable or told.value.hint.startswith("Restore the file")
