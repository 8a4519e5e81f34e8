"""A writer that never pauses for long, beside a coordinator and an optimizer as they run for real."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from amoro_core.bootstrap.coordinator_app import Coordinator, running
from amoro_core.bootstrap.settings import Settings
from amoro_core.errors import CommitConflict
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.tables import parse_table
from tests.engine.writer import make_catalog
from tests.model.lake import Lake, process_of, row

EVERY_S = 1.0
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
    """Commits once in so long, by turns an append and an upsert, until told to stop."""

    def __init__(self, lake: Lake, chance: random.Random, every_s: float) -> None:
        self._lake = lake
        self.every_s = every_s
        self._stop = threading.Event()
        self._chance = chance
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
                took = time.monotonic() - began
                # At least as long as its own commit takes: on a busy machine a rewrite's commit takes longer, too.
                self._stop.wait(max(took, self.every_s - took))
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


def run(
    commits: float, seed: int, directory: Path, totals: Counter[str], *, partitioned: bool, every_s: float = EVERY_S
) -> None:
    """Optimize a table beside its writer until that has made so many commits, and count in `totals` what came of it.

    Raises what made the writer fail; AssertionError when a row differs from the model's, fewer than two rewrites
    landed, one landed twice, or a process failed by anything but a conflict.
    """
    catalog = make_catalog(directory)
    lake = Lake.created(catalog, partitioned=partitioned, properties=PROPERTIES)
    lake.append([row(id_, "ab"[id_ % 2], "first") for id_ in range(KEYS)])
    writer = Writer(lake, random.Random(seed), every_s)
    settings = Settings(port=0, heartbeat_interval=timedelta(seconds=1))
    try:
        with running(directory / "home", settings, threads=1) as coordinator:
            coordinator.catalogs.add(CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items())))
            began = time.monotonic()
            with writer.writing():
                _watch(coordinator, writer, commits)
            totals["live seconds"] += round(time.monotonic() - began)
            views = coordinator.optimizing.list_processes(limit=100_000)
        totals["live commits"] += writer.commits
        totals["live writer failures"] += writer.failure is not None
        if writer.failure is not None:
            raise writer.failure
        lake.require()
        landed = [found for one in lake.table.metadata.snapshots if (found := process_of(one)) is not None]
        totals["live rewrites landed"] += len(landed)
        assert len(landed) == len(set(landed)) >= 2
        said = {view.process.process_id for view in views if view.process.status in LANDED}
        assert said <= set(landed)
        failed = [view.process.failure_code for view in views if view.process.status is ProcessStatus.FAILED]
        totals["live rewrites lost to the writer"] += len(failed)
        assert set(failed) <= {CommitConflict.code}
    finally:
        close_catalogs()
        catalog.close()


def _watch(coordinator: Coordinator, writer: Writer, commits: float) -> None:
    """Let the coordinator look at the table as often as the writer commits, as if its refresh were that frequent.

    It goes on until the writer has made so many commits and two rewrites have landed: only the test's time limit ends
    it before.
    """
    table_id = coordinator.tables.ensure(parse_table("cat.db.t")).table_id
    while writer.failure is None:
        if writer.commits >= commits and _landed(coordinator) >= 2:
            return
        coordinator.tables.refresh(table_id)
        writer.failed.wait(writer.every_s)


def _landed(coordinator: Coordinator) -> int:
    views = coordinator.optimizing.list_processes(limit=100_000)
    return sum(view.process.status in LANDED for view in views)
