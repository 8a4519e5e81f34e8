"""A coordinator with a catalog that never answers: the others are found, evaluated and planned all the same."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.app import running
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from amoro_core.settings import Settings
from tests.acceptance.processes import wait_until
from tests.engine import writer
from tests.engine.builders import SCHEMA, row


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
