"""The demo from the first row to the proof."""

import logging
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.app import Coordinator, embedded_settings, running
from amoro_core.demo.display import (
    Display,
    Scene,
    ended_line,
    open_display,
    planned_line,
    proof_line,
    running_line,
    summary_lines,
)
from amoro_core.demo.feed import HISTORY_COMMITS, Feed, FeedThread
from amoro_core.demo.flights import load_flights
from amoro_core.demo.interruption import Interruption, interruptible
from amoro_core.demo.ledger import Proof
from amoro_core.demo.table import (
    IDENTIFIER,
    FileCounter,
    FileCounts,
    catalog_config,
    create_table,
    open_catalog,
)
from amoro_core.errors import AmoroError, CheckFailed, InvalidArgument
from amoro_core.logs import configure_logs
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableRuntime
from amoro_core.settings import Settings

_THREADS = 2
_FEED_PAUSE_S = 0.8
_TICK_S = 1.0
_SETTLE_ROUNDS = 10
_SETTLE_TIMEOUT_S = 120.0


def run_demo(seconds: float, directory: Path | None, plain: bool) -> None:
    """Run the demo: write for `seconds`, then settle and prove the rows.

    Without a directory everything is made in a temporary one and removed at the end. Raises InvalidArgument for a
    directory that is not empty, CheckFailed when files, deletes or rows are not as promised, and SystemExit after
    Ctrl-C or SIGTERM, once everything is stopped and removed.
    """
    started = time.monotonic()
    configure_logs(logging.ERROR)  # the demo shows itself what would be logged
    pa.enable_signal_handlers(False)  # Ctrl-C is ours to handle, also while a file is read
    with (
        interruptible() as interruption,
        _workplace(directory) as place,
        closing(open_catalog(place)) as catalog,
        open_display(plain, started) as display,
    ):
        display.line(f"amoro demo in {place}")
        feed = _prepare(catalog, display, interruption)
        stopped, settled = _optimize(place, feed, seconds, display, interruption)
        display.line("reading the table with pyiceberg, to compare it with what the writer noted")
        proof = feed.ledger.prove(catalog.load_table(IDENTIFIER.in_catalog).scan().to_arrow())
        for line in (*summary_lines(feed.written, stopped, settled), proof_line(proof)):
            display.line(line, "bold")
        _require_kept_promise(feed.written.files, settled, proof)


@contextmanager
def _workplace(directory: Path | None) -> Iterator[Path]:
    """An empty directory with room for a warehouse and a state directory."""
    if directory is None:
        place = Path(tempfile.mkdtemp(prefix="amoro-demo-"))
        try:
            yield _laid_out(place)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return
    place = directory.expanduser().absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InvalidArgument(f"{place} is not an empty directory", hint="Name a new one, or leave --directory out.")
    yield _laid_out(place)


def _laid_out(place: Path) -> Path:
    try:
        (place / "warehouse").mkdir(parents=True)
    except OSError as error:
        raise InvalidArgument(f"the demo can't be made in {place}: {error.strerror}") from error
    return place


def _prepare(catalog: SqlCatalog, display: Display, interruption: Interruption) -> Feed:
    """The table with its history."""
    flights = load_flights()
    display.line(f"{flights.rows.num_rows:,} flights, {flights.source}")
    feed = Feed(catalog, create_table(catalog), flights)
    for part in range(HISTORY_COMMITS):
        interruption.check()
        feed.write_history(part)
    files = feed.written.files
    display.line(f"table {IDENTIFIER}: {feed.written.rows:,} rows in {files.data} data files, partitioned by month")
    return feed


def _optimize(
    place: Path,
    feed: Feed,
    seconds: float,
    display: Display,
    interruption: Interruption,
) -> tuple[FileCounts, FileCounts]:
    """Write and optimize concurrently, then settle; returns the file counts when the writer stopped and at the end."""
    settings = embedded_settings(Settings())
    # Without watching: the coordinator also knows the user's own catalogs, which the demo must not touch.
    with (
        closing(open_catalog(place)) as catalog,
        running(place / "state", settings, watch=False, threads=_THREADS) as coordinator,
    ):
        coordinator.catalogs.add(catalog_config(place))
        stage = _Stage(coordinator, catalog, feed, display)
        display.line(f"coordinator at {coordinator.address}, optimizer with {_THREADS} threads; the writer continues")
        thread = FeedThread(feed, _FEED_PAUSE_S)
        thread.start()
        try:
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                thread.require_healthy()
                stage.tick(left)
                interruption.pause(min(_TICK_S, left))
        finally:
            thread.stop()
        thread.require_healthy()
        stopped = stage.count()
        display.line("the writer has stopped; settling with full optimizing")
        stage.settle(interruption)
        return stopped, stage.count()


class _Stage:
    """The table under the coordinator, watched by polling."""

    def __init__(self, coordinator: Coordinator, catalog: SqlCatalog, feed: Feed, display: Display) -> None:
        self._coordinator = coordinator
        self._catalog = catalog
        self._feed = feed
        self._display = display
        self._counter = FileCounter()
        self._table_id = coordinator.tables.ensure(IDENTIFIER).table_id
        self._planned: set[str] = set()
        self._ended: set[str] = set()

    def count(self) -> FileCounts:
        """The table's files now."""
        return self._counter.count(self._catalog.load_table(IDENTIFIER.in_catalog))

    def tick(self, seconds_left: float) -> None:
        """Do for this table what a watching coordinator does, and show its state."""
        runtime = self._refresh()
        if runtime.status is OptimizingStatus.PENDING:
            self._begin("evaluation", None)
        self.show(runtime, seconds_left)

    def settle(self, interruption: Interruption) -> None:
        """Optimize fully until there is nothing to do. Raises CheckFailed when that takes too long."""
        for _ in range(_SETTLE_ROUNDS):
            self._wait(interruption)
            self._refresh()
            if not self._begin("request", OptimizingType.FULL):
                return
        raise CheckFailed(f"after {_SETTLE_ROUNDS} rounds there is still something to optimize")

    def show(self, runtime: TableRuntime, seconds_left: float) -> None:
        """Show processes that began or ended, and the table's state."""
        going_on = []
        for view in reversed(self._coordinator.optimizing.list_processes(self._table_id)):
            process = view.process
            if process.process_id not in self._planned:
                self._planned.add(process.process_id)
                self._display.line(planned_line(view), "cyan")
            if process.is_active:
                going_on.append(running_line(view))
            elif process.process_id not in self._ended:
                self._ended.add(process.process_id)
                self._display.line(*ended_line(process))
        scene = Scene(
            self.count(),
            self._feed.written,
            seconds_left,
            runtime.status.value,
            runtime.status_reason,
            tuple(going_on),
        )
        self._display.scene(scene)

    def _wait(self, interruption: Interruption) -> None:
        """Wait for the end of the table's active process, if any."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while True:
            active = self._coordinator.optimizing.active_process(self._table_id)
            self.show(self._refresh(), 0.0)
            if active is None:
                return
            if time.monotonic() > deadline:
                raise CheckFailed(f"process {active.process_id} did not end within {_SETTLE_TIMEOUT_S:g} s")
            interruption.pause(_TICK_S / 4)

    def _refresh(self) -> TableRuntime:
        runtime = self._coordinator.tables.refresh(self._table_id)
        if runtime is None:
            raise CheckFailed(f"table {IDENTIFIER} is gone")
        return runtime

    def _begin(self, trigger: str, requested: OptimizingType | None) -> bool:
        """Plan a process; returns whether there was something to do."""
        try:
            begun = self._coordinator.planning.begin(self._table_id, trigger=trigger, requested=requested)
        except AmoroError as error:
            self._display.line(f"planning failed: {error.message} [{error.code}]", "red")
            return True
        return begun.process_id is not None


def _require_kept_promise(written: FileCounts, settled: FileCounts, proof: Proof) -> None:
    if not proof.holds:
        raise CheckFailed(f"the table does not hold the rows that were written: {proof_line(proof)}")
    if settled.equality:
        raise CheckFailed(f"{settled.equality} equality delete files are left")
    if settled.data >= written.data:
        raise CheckFailed(f"{settled.data} data files are left of {written.data}")
