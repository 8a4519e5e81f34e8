"""`kill -9` of a coordinator whose processes decode manifests: none of them outlives it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.acceptance.processes import SETTINGS, Installation, Process, install, wait_until
from tests.acceptance.tables import name_of
from tests.engine import writer
from tests.engine.builders import SCHEMA
from tests.engine.lakes import MIB, append_unwritten


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    made = install(tmp_path, f"{SETTINGS}planning-workers: 2\n")
    yield made
    made.close()


def workers_of(coordinator: Process) -> list[psutil.Process]:
    """The processes that decode for it; both once a large table was read."""
    children = psutil.Process(coordinator.popen.pid).children(recursive=True)
    return [one for one in children if "amoro_core.iceberg.decoding_worker" in one.cmdline()]


def lives(process: psutil.Process) -> bool:
    """Whether it runs: one that has ended may wait for whoever has adopted it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_processes_that_decode_end_with_a_coordinator_that_is_killed(installation: Installation) -> None:
    table = writer.make_table(installation.catalog, "db.large", SCHEMA)
    for _ in range(8):
        append_unwritten(table, 300, MIB)
    coordinator = installation.up()
    assert installation.run("table", "changed", name_of(table)).status == 0
    workers = wait_until(lambda: workers_of(coordinator), "processes decode")
    wait_until(
        lambda: installation.ask("table", "show", name_of(table))["files"]["data_files"] == 2400, "the table is read"
    )
    workers = workers_of(coordinator)
    assert 1 <= len(workers) <= 2
    assert all(lives(one) for one in workers)
    coordinator.kill()
    wait_until(lambda: not any(lives(one) for one in workers), "they have ended", 10)
