"""Glue as catalog: moto's server on loopback, with the version check that moto leaves out in front of it."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from moto.glue.models import glue_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.table import Table
from werkzeug.serving import WSGIRequestHandler, make_server

from amoro_core.errors import TableNotFound
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.model.commits import Trace
from amoro_core.model.processes import CatalogConfig
from tests.engine.oracle import assert_same_rows, live_rows
from tests.iceberg import scenarios
from tests.iceberg.rewriting import rewritten
from tests.iceberg.scenarios import TABLE, filled, staged, traced

Environment = dict[str, Any]
Responder = Callable[..., Any]


class Glue:
    """A WSGI application: Glue, which refuses an update of a version that is not the newest, and fails as told."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._updating = threading.Lock()
        self._version = 0
        self.before_update: Callable[[], None] | None = None
        self.answers: list[int] = []  # of the next updates, which are applied all the same
        self.updates: list[str] = []  # by the version they named

    def __call__(self, environ: Environment, respond: Responder) -> Iterable[bytes]:
        match environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]:
            case "UpdateTable":
                return self._update(environ, respond)
            case "GetTable":
                return self._versioned(environ, respond)
            case _:
                return self._moto(environ, respond)

    def _versioned(self, environ: Environment, respond: Responder) -> Iterable[bytes]:
        """moto's answer with the version that Glue would give."""
        with self._updating:
            said: list[Any] = []
            body = b"".join(self._moto(environ, lambda *start: said.extend(start)))
            found = json.loads(body)
            if "Table" in found:
                found["Table"]["VersionId"] = str(self._version)
            return _answer(respond, said[0], json.dumps(found).encode())

    def _update(self, environ: Environment, respond: Responder) -> Iterable[bytes]:
        before, self.before_update = self.before_update, None
        if before:
            before()
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        environ["wsgi.input"] = BytesIO(body)
        version = json.loads(body)["VersionId"]
        with self._updating:
            self.updates.append(version)
            if version != str(self._version):
                return _refuse(respond, "400 Bad Request", "ConcurrentModificationException")
            self._version += 1
            done = self._moto(environ, respond if not self.answers else lambda *_: None)
            if self.answers:
                return _refuse(respond, f"{self.answers.pop(0)} Failed", "InternalServiceException")
            return done


def _refuse(respond: Responder, status: str, kind: str) -> Iterable[bytes]:
    return _answer(respond, status, json.dumps({"__type": kind, "Message": kind}).encode())


def _answer(respond: Responder, status: str, body: bytes) -> Iterable[bytes]:
    respond(status, [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))])
    return [body]


class Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Nothing: requests are no news."""


@pytest.fixture
def glue() -> Glue:
    for account in glue_backends.values():  # moto keeps what earlier tests made
        account.reset()
    return Glue()


@pytest.fixture
def config(glue: Glue, tmp_path: Path) -> Iterator[CatalogConfig]:
    server = make_server("127.0.0.1", 0, glue, threaded=True, request_handler=Silent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    properties = {
        "type": "glue",
        "warehouse": (tmp_path / "warehouse").as_uri(),
        "glue.endpoint": f"http://127.0.0.1:{server.server_port}",
        "glue.region": "eu-west-1",
        "glue.access-key-id": "key",
        "glue.secret-access-key": "secret",
        "glue.max-retries": "2",
    }
    yield CatalogConfig("cat", tuple(sorted(properties.items())))
    close_catalogs()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def table(config: CatalogConfig) -> Iterator[Table]:
    catalog = GlueCatalog("cat", **{**dict(config.properties), "glue.max-retries": 0})
    yield filled(catalog)
    catalog.glue.close()


def test_a_rewrite_lands_between_the_commits_of_others(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_commit_lands(config, table)


def test_a_table_is_upgraded_and_committed_to_in_format_3(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_format_3_lands(config, table)


def test_a_column_that_is_not_handled_is_refused_by_name(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_a_variant_is_refused(config, table)


def test_a_key_of_the_metadata_that_is_not_known_is_never_lost(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_an_unknown_key_is_never_lost(config, table)


def test_a_commit_of_another_between_staging_and_sending_is_a_conflict(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_conflict_changes_nothing(config, table, lambda commit: commit())


def test_a_commit_of_another_that_glue_alone_can_see_is_a_conflict(
    config: CatalogConfig, table: Table, glue: Glue
) -> None:
    def just_before_the_update(commit: Callable[[], None]) -> None:
        glue.before_update = commit
        glue.updates.clear()

    scenarios.assert_conflict_changes_nothing(config, table, just_before_the_update)

    assert len(glue.updates) == 2
    assert glue.updates[0] == glue.updates[1]


def test_an_expiry_loses_no_tag(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_expiry_loses_no_tag(config, table)


def test_a_second_sending_finds_the_first(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_sent_again_applies_once(config, table)


def test_a_commit_that_was_applied_and_answered_with_an_error_is_found(
    config: CatalogConfig, table: Table, glue: Glue
) -> None:
    before = live_rows(table)
    found, attempt = staged(config, rewritten(table))
    glue.updates.clear()
    glue.answers.append(500)

    found.send(attempt.payload)  # the client asks again by itself and is told of a newer version, which is our own

    assert traced(found, attempt) is Trace.LANDED
    assert len(glue.updates) == 2
    assert_same_rows(before, live_rows(table))


def test_a_table_that_is_gone_is_not_found(config: CatalogConfig, table: Table) -> None:
    table.catalog.drop_table("db.t")

    with pytest.raises(TableNotFound):
        IcebergFormat().load(config, TABLE)


def test_locations_of_whole_databases_are_those_of_loaded_tables(config: CatalogConfig, table: Table) -> None:
    catalog = GlueCatalog("cat", **{**dict(config.properties), "glue.max-retries": 0})
    space, name = TABLE.in_catalog
    place = table.metadata_location
    for number in range(3):
        catalog.register_table((space, f"t{number}"), place)
    catalog.glue.create_table(DatabaseName=space, TableInput={"Name": "plain", "Parameters": {}})
    catalog.glue.close()

    said = IcebergFormat().locations(config, {(space, name), ("nowhere", "t")})

    assert said == dict.fromkeys([(space, name), *((space, f"t{number}") for number in range(3))], place)
    assert IcebergFormat().load(config, TABLE).facts.metadata_location == place
