"""A table whose decoding ends its process: it alone is refused, by name, until it can be decoded."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_cli.client import AdminClient
from amoro_cli.launcher import Endpoint
from amoro_cli.main import run
from amoro_core.app import Coordinator
from amoro_core.command import LazyLauncher
from amoro_core.iceberg.decoding import DecodingWorkers
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import OptimizingStatus, TableRuntime, parse_table
from amoro_core.settings import Settings
from tests.engine import writer
from tests.engine.builders import SCHEMA, row

#: Files of the table that ends what decodes it.
FILES = 7
#: A worker that is killed by that table's manifest, as one that takes too much memory is, while there is the mark.
PROGRAM = """
import os, signal, sys
from multiprocessing.connection import Connection
from amoro_core.iceberg import decoding_worker

heard = decoding_worker._heard

def fragile(data):
    listed = heard(data)
    if listed.live_files == {files} and os.path.exists({mark!r}):
        os.kill(os.getpid(), signal.SIGKILL)
    return listed

decoding_worker._heard = fragile
decoding_worker.serve(Connection(int(sys.argv[1])))
"""


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    made = tmp_path / "fragile"
    made.touch()
    return made


@pytest.fixture
def fragile(tmp_path: Path, catalog: SqlCatalog, mark: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    """A coordinator whose workers decode every manifest."""
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    program = (sys.executable, "-P", "-c", PROGRAM.format(files=FILES, mark=str(mark)))
    workers = partial(DecodingWorkers, least_files=0, program=program)
    monkeypatch.setattr("amoro_core.wiring.DecodingWorkers", workers)
    coordinator = Coordinator(tmp_path / "home", replace(Settings(), port=0, planning_workers="2"))
    coordinator.start()
    coordinator.catalogs.add(CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items())))
    yield coordinator
    coordinator.stop()


@pytest.fixture
def ask(
    fragile: Coordinator, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any, str]]:
    """`amoro … -o json` beside the coordinator: its exit status, its document and what it says on stderr."""
    for name in ("AMORO_HOME", "AMORO_ADDRESS", "AMORO_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> tuple[int, Any, str]:
        status = run(LazyLauncher(), [*arguments, "-o", "json", "--home", str(fragile.home)])
        said = capfd.readouterr()
        return status, json.loads(said.out or "null"), said.err

    return call


def wait_for(coordinator: Coordinator, name: str, condition: Callable[[TableRuntime], object]) -> None:
    for _ in range(3000):
        found = coordinator.tables.find_known(parse_table(name))
        if condition(found):
            return
        threading.Event().wait(0.02)
    raise AssertionError(f"{name} is {found.status}: {found.status_reason}")


def test_a_table_that_ends_its_workers_is_refused_and_others_are_planned_until_it_can_be_decoded(
    fragile: Coordinator, catalog: SqlCatalog, mark: Path, ask: Callable[..., tuple[int, Any, str]]
) -> None:
    enabled = {"self-optimizing.enabled": "true"}
    bad, good = (writer.make_table(catalog, f"db.{name}", SCHEMA, properties=enabled) for name in ("bad", "good"))
    writer.append(bad, [row(number) for number in range(FILES)], files=FILES)
    with closing(AdminClient(Endpoint(fragile.address, fragile.admin_token))) as client:
        client.table_changed("cat.db.bad", "")
        wait_for(fragile, "cat.db.bad", lambda table: table.status is OptimizingStatus.REFUSED)
        for number in range(12):
            writer.append(good, [row(number)])
        client.table_changed("cat.db.good", "")
        known = fragile.tables.find_known(parse_table("cat.db.good"))
        wait_for(fragile, "cat.db.good", lambda _: fragile.optimizing.list_processes(known.table_id))

        (manifest,) = (one.manifest_path for one in bad.refresh().current_snapshot().manifests(bad.io))
        status, shown, _ = ask("table", "show", "cat.db.bad")
        assert (status, shown["status"]) == (0, "refused")
        assert f"decoding the manifest {manifest} has ended 3 processes" in shown["status_reason"]
        assert "If memory is short, add some" in shown["status_reason"]
        assert [one["table"] for one in ask("table", "list", "--refusal", "planning")[1]["tables"]] == ["cat.db.bad"]
        assert ask("table", "list", "--refusal", "location")[1]["tables"] == []
        status, _, said = ask("optimize", "cat.db.bad")
        assert status == 6
        assert f"decoding the manifest {manifest} has ended 3 processes" in said
        assert "[AMORO-6001]" in said

        mark.unlink()
        client.table_changed("cat.db.bad", "")
        wait_for(fragile, "cat.db.bad", lambda table: table.status is not OptimizingStatus.REFUSED)
    status, shown, _ = ask("table", "show", "cat.db.bad")
    assert (status, shown["files"]["data_files"]) == (0, FILES)
