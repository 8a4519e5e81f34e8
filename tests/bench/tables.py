"""A catalog of many tables: `python -m tests.bench.tables [--tables 10000] [--change]`.

Prints seconds, CPU and memory of a coordinator that finds, evaluates and lists them, of a minute in which nothing
changes, and, with `--change`, how long after a commit to one of them its process is planned. The tables are metadata
only; the catalog is SQLite, everything on the local disk.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from amoro_cli.client import AdminClient
from amoro_cli.launcher import Endpoint
from amoro_core.app import Coordinator, running
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableRuntime, parse_table
from amoro_core.settings import Settings
from tests.engine.lakes import MIB, append_unwritten, make_lake, name_of

ENABLED = ("table.self-optimizing.enabled", "true")
LIMIT_S = 3600.0


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--change", action="store_true", help="commit to one table, too, and wait for its plan")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="amoro-tables-") as directory:
        os.environ["PYICEBERG_HOME"] = directory
        _measure(Path(directory), given.tables, given.change)


def _measure(directory: Path, tables: int, change: bool) -> None:
    begun = time.monotonic()
    catalog = make_lake(directory / "lake", tables)
    print(f"{tables} tables made in {time.monotonic() - begun:.1f} s; {os.cpu_count()} cores", flush=True)
    with running(directory / "home", replace(Settings(), port=0)) as coordinator:
        config = CatalogConfig("cat", (*{**catalog.properties, "type": "sql"}.items(), ENABLED))
        memory = _resident()
        print(f"before: {memory / MIB:.0f} MB resident")
        with _Watch("found"):
            coordinator.catalogs.add(config)
            coordinator._loops.explore_now()
            _until(lambda: coordinator.tables.count() == tables)
        with _Watch("evaluated"):
            _until(lambda: _unevaluated(coordinator) == 0, pause=0.2)
        with closing(AdminClient(Endpoint(coordinator.address, coordinator.admin_token))) as client, _Watch("listed"):
            assert len(client.list_tables()) == tables
        with _Watch("60 s without a change"):
            time.sleep(60)
        if change:
            _change(coordinator, catalog, tables)
    print(f"peak {_peak() / MIB:.0f} MB resident")


def _change(coordinator: Coordinator, catalog: object, tables: int) -> None:
    name = name_of(tables // 2)
    table = catalog.load_table(f"db.{name}")

    def seen() -> TableRuntime:
        return coordinator.tables.find(parse_table(f"cat.db.{name}"))

    append_unwritten(table, 12, MIB)
    committed = time.time()
    before = seen()
    assert before.refreshed_at is not None
    assert before.refresh_at is not None
    interval = before.refresh_at - before.refreshed_at
    _until(lambda: coordinator.optimizing.active_process(before.table_id) is not None, pause=0.1)
    process = coordinator.optimizing.active_process(before.table_id)
    assert process is not None
    took = timedelta(seconds=process.created_at.timestamp() - committed)
    print(f"planned {took.total_seconds():.1f} s after the commit; the table's interval was {interval}", flush=True)


def _unevaluated(coordinator: Coordinator) -> int:
    sql = "SELECT count(*) AS waiting FROM table_runtime WHERE evaluated_at_ms IS NULL"
    return int(coordinator._store.read(lambda db: db.select(sql))[0]["waiting"])


class _Watch:
    """Prints what the block took."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def __exit__(self, *error: object) -> None:
        wall, cpu = time.monotonic() - self._wall, time.process_time() - self._cpu
        print(f"{self._name}: {wall:.1f} s, {cpu:.1f} s of CPU, {_resident() / MIB:.0f} MB resident", flush=True)


def _until(condition: Callable[[], bool], pause: float = 0.05) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("it took too long")
        time.sleep(pause)


def _resident() -> int:
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(key: str) -> int:
    match = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(match[1]) * 1024 if match else 0


if __name__ == "__main__":
    main()
