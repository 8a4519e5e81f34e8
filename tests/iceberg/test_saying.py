"""What the errors of libraries come to: file or address, what was expected, what was found, in one line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pyiceberg.catalog.rest.response import ErrorResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ServerError
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

from amoro_core.errors import AmoroError, CatalogUnavailable, TableRefused
from amoro_core.iceberg.catalogs import catalog_errors, load_table, open_catalog
from amoro_core.iceberg.conditions import parse_condition
from amoro_core.iceberg.saying import said
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path

HTML = "<!DOCTYPE html>\n<html>\n<title>Log in</title>" + "x" * 5000


class _Pages(BaseHTTPRequestHandler):
    """A server of something else than a catalog."""

    def do_GET(self) -> None:
        body = HTML.encode()
        self.send_response(502 if self.path.startswith("/bad") else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - http.server asks for it

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


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


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    catalog = writer.make_catalog(tmp_path)
    made = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(made, [row(1)])
    yield made
    catalog.close()


def loaded(table: Table) -> AmoroError:
    """The error of loading the table."""
    assert isinstance(table.catalog, SqlCatalog)
    properties = {key: str(table.catalog.properties[key]) for key in ("uri", "warehouse")}
    config = CatalogConfig("cat", tuple({"type": "sql", **properties}.items()))
    with pytest.raises(AmoroError) as told:
        load_table(config, parse_table("cat.db.t"))
    return told.value


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "expected JSON, found nothing"),
        (HTML, f"expected JSON, found '<!DOCTYPE html> <html> <title>Log in</title>{'x' * 35}…'"),
        (
            '{"format-version": 2, "schemas": [',
            "expected JSON, found it broken: EOF while parsing a list at line 1 col",
        ),
        (b"\x80\x00", "expected UTF-8, found byte 0x80 at 0"),
    ],
)
def test_a_metadata_file_that_is_broken_is_named_with_what_was_found(
    table: Table, content: str | bytes, found: str
) -> None:
    path = Path(local_path(table.metadata_location))
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    error = loaded(table)
    assert isinstance(error, CatalogUnavailable)
    assert error.message.startswith(f"the metadata file {table.metadata_location} of cat.db.t can't be read: {found}")
    assert (error.hint.startswith("Restore the file"), "\n" in error.message) == (True, False)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"location": None}, "expected a valid string at location, found 'None'"),
        ({"partition-specs": 7, "refs": "x"}, "expected a valid array at partition-specs, found '7' (and 1 more)"),
    ],
)
def test_metadata_of_another_shape_are_refused_by_the_field(
    table: Table, change: dict[str, object], found: str
) -> None:
    path = Path(local_path(table.metadata_location))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    error = loaded(table)
    assert isinstance(error, TableRefused)
    assert error.message == f"the metadata file {table.metadata_location} of cat.db.t can't be read: {found}"


def test_metadata_that_are_no_object_or_lack_a_field_are_refused_too(table: Table) -> None:
    path = Path(local_path(table.metadata_location))
    path.write_text("[1, 2]")
    assert loaded(table).message.endswith("can't be read: expected an object, found '[1, 2]'")
    path.write_text('{"format-version": 2, "location": "/x"}')
    assert loaded(table).message.endswith("can't be read: expected the field last-column-id, found none")


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
    assert said(error) == told


def test_an_error_of_pydantic_names_the_first_field() -> None:
    with pytest.raises(ValueError, match="validation error") as raised:
        ErrorResponse.model_validate_json('{"error": {"message": "m", "type": "t"}}')
    assert said(raised.value) == "expected the field error.code, found none"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id >", "expected a condition, found 'id >' at character 1"),
        ("id = 1 OR", "expected a condition, found the end at character 10"),
        ("((((", "expected a condition, found the end at character 5"),
        ("id = 1; drop", "expected a condition, found '; drop' at character 7"),
        ("nope = 1", "the table has no column nope"),
        ("id = 'x'", "Could not convert x into a long"),
    ],
)
def test_a_broken_condition_says_where_and_not_the_grammar(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=r"^(expected|the table|Could)") as raised:
        parse_condition(text, SCHEMA)
    assert str(raised.value) == told
