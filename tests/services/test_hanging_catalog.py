"""A coordinator with a catalog that never answers: the others are found, planned and committed all the same."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.app import Coordinator, running
from amoro_core.loops.coordinator import COMMIT_THREADS
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.settings import Settings
from tests.acceptance.processes import wait_until
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.faults.proxy import Applied, Cut, Fault
from tests.faults.rest import RestServer


class Silent:
    """A server that takes what it is asked and says nothing until it hangs up."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()
        self.asked = threading.Event()
        self.uri = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                self._taken.append(self._listener.accept()[0])
            except OSError:
                return
            self.asked.set()

    def hang_up(self) -> None:
        """End every connection, and take none any more."""
        if self._thread.is_alive():
            self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._listener.close()
        while self._taken:
            self._taken.pop().close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    made = Silent()
    yield made
    made.hang_up()


def test_a_catalog_that_never_answers_holds_up_no_other(
    tmp_path: Path, catalog: SqlCatalog, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    # It would be given up after two minutes, which is longer than what is waited for below.
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  a_silent:\n    type: rest\n    uri: {silent.uri}\n")
    table = writer.make_table(catalog, "db.t", SCHEMA, properties={"self-optimizing.enabled": "true"})
    for number in range(12):
        writer.append(table, [row(number)])
    with running(tmp_path / "home", replace(Settings(), port=0)) as coordinator:
        try:
            assert silent.asked.wait(60)
            coordinator.catalogs.add(CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items())))
            coordinator._loops.explore_now()
            runtime = wait_until(lambda: next(iter(coordinator.tables.list_tables("cat")), None), "the table is found")
            assert runtime.identifier == parse_table("cat.db.t")
            wait_until(lambda: coordinator.optimizing.active_process(runtime.table_id), "it is planned")
        finally:
            silent.hang_up()


def fragments(catalog: SqlCatalog, name: str) -> None:
    table = writer.make_table(catalog, name, SCHEMA)
    for number in range(2):
        writer.append(table, [row(number)])


def begun(coordinator: Coordinator, name: str) -> str:
    table = coordinator.tables.ensure(parse_table(name))
    process = coordinator.planning.begin(table.table_id, trigger="request", requested=OptimizingType.MINOR).process_id
    assert process is not None
    return process


def test_commits_that_hang_in_one_catalog_hold_up_no_other(tmp_path: Path, catalog: SqlCatalog) -> None:
    beneath = writer.make_catalog(tmp_path / "slow")
    names = [f"db.t{number}" for number in range(COMMIT_THREADS)]
    for name in names:
        fragments(beneath, name)
    fragments(catalog, "db.t")
    server = RestServer(beneath)
    server.proxy.plan(*[Fault(Applied.NEVER, Cut.HANG)] * COMMIT_THREADS)
    slow = CatalogConfig(
        "slow", (("type", "rest"), ("uri", server.uri), ("warehouse", beneath.properties["warehouse"]))
    )
    quick = CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items()))
    settings = replace(Settings(), port=0)
    home = tmp_path / "home"
    # The server ends first, so that what hangs in it ends.
    with running(home, settings, watch=False, threads=2, catalogs=[slow, quick]) as coordinator, server:
        hung = [begun(coordinator, f"slow.{name}") for name in names]
        wait_until(lambda: len(server.proxy.sent) == COMMIT_THREADS, "every thread of that catalog hangs")
        process = begun(coordinator, "cat.db.t")

        def status(one: str) -> ProcessStatus:
            return coordinator.optimizing.find_process(one).process.status

        wait_until(lambda: status(process) is ProcessStatus.SUCCESS, "the other catalog's commit is done")
        assert {status(one) for one in hung} == {ProcessStatus.COMMITTING}
    beneath.close()
