"""A writer that never pauses for long, beside a coordinator and an optimizer as they run for real.

AMORO_LIVE_SECONDS says for how long it writes.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from amoro_core.app import Coordinator, running
from amoro_core.errors import CommitConflict
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.tables import parse_table
from amoro_core.settings import Settings
from tests.engine.writer import make_catalog
from tests.model.lake import Lake, process_of, row

SECONDS = float(os.environ.get("AMORO_LIVE_SECONDS", "30"))
COMMIT_EVERY_S = 1.0
#: Triggers so low that there is always something to do, and a look at the table as often as it changes.
PROPERTIES = {
    "self-optimizing.enabled": "true",
    "self-optimizing.minor.trigger.file-count": "4",
    "self-optimizing.minor.trigger.interval": "1000",
    "self-optimizing.min-plan-interval": "-1",
}
KEYS = 40
LANDED = (ProcessStatus.SUCCESS, ProcessStatus.PARTIAL)


class Writer:
    """Commits about each second, by turns an append and an upsert, until told to stop."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._stop = threading.Event()
        self._chance = random.Random(1)
        self.commits = 0
        self.failure: BaseException | None = None
        self.failed = threading.Event()

    @contextmanager
    def writing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="writer")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                self._commit()
                self.commits += 1
                self._stop.wait(max(0.0, COMMIT_EVERY_S - (time.monotonic() - began)))
        except BaseException as error:
            self.failure = error
            self.failed.set()

    def _commit(self) -> None:
        """The lake asserts before and after that the rows are the model's, whatever was optimized meanwhile."""
        fresh = KEYS + self.commits
        ids = [fresh] if self.commits % 2 else self._chance.sample(range(KEYS), 3)
        rows = [row(id_, "ab"[id_ % 2], f"{self.commits}") for id_ in ids]
        if self.commits % 2:
            self._lake.append(rows)
        else:
            self._lake.upsert(rows)


def watch(coordinator: Coordinator, writer: Writer) -> None:
    """Let the coordinator look at the table each second, as if its refresh were that frequent."""
    table_id = coordinator.tables.ensure(parse_table("cat.db.t")).table_id
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and writer.failure is None:
        coordinator.tables.refresh(table_id)
        writer.failed.wait(COMMIT_EVERY_S)


@pytest.mark.timeout(SECONDS + 270)
@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
def test_rewrites_land_beside_a_writer_that_commits_each_second(quick_path: Path, partitioned: bool) -> None:
    """apache/fluss #4352, apache/amoro #1095: with deletes in each commit a strict rewrite never landed."""
    catalog = make_catalog(quick_path)
    lake = Lake.created(catalog, partitioned=partitioned, properties=PROPERTIES)
    lake.append([row(id_, "ab"[id_ % 2], "first") for id_ in range(KEYS)])
    writer = Writer(lake)
    settings = Settings(port=0, heartbeat_interval=timedelta(seconds=1))
    try:
        with running(quick_path / "home", settings, threads=1) as coordinator:
            coordinator.catalogs.add(CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items())))
            with writer.writing():
                watch(coordinator, writer)
            views = coordinator.optimizing.list_processes()
        if writer.failure is not None:
            raise writer.failure
        lake.require()
        landed = [found for one in lake.table.metadata.snapshots if (found := process_of(one)) is not None]
        assert len(landed) == len(set(landed)) >= 2
        said = {view.process.process_id for view in views if view.process.status in LANDED}
        assert said <= set(landed)
        assert {view.process.failure_code for view in views if view.process.status is ProcessStatus.FAILED} <= {
            CommitConflict.code
        }
    finally:
        close_catalogs()
        catalog.close()
