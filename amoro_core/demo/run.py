"""The demo: a table under constant writes is optimized; at the end its rows are compared with what was written."""

import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from rich.console import Console
from rich.live import Live
from rich.text import Text

from amoro_core.bootstrap.coordinator_app import Coordinator, embedded_settings, running
from amoro_core.bootstrap.settings import Settings
from amoro_core.demo.feed import HISTORY_COMMITS, IDENTIFIER, Feed, FileCounts, count_files, create_table, load_flights
from amoro_core.documents.formatting import balance, format_bytes, many
from amoro_core.errors import AmoroError, CheckFailed, InvalidArgument
from amoro_core.model.processes import CatalogConfig, OptimizingProcess, ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableRuntime

_BETWEEN_LINES_S = 5.0
_THREADS = 2
_TICK_S = 1.0
_SETTLE_ROUNDS = 10
_SETTLE_TIMEOUT_S = 120.0


def run_demo(seconds: float, directory: Path | None, *, plain: bool) -> None:
    """Write and optimize for `seconds`, then settle and compare the rows.

    Without a directory everything is in a temporary one, which is removed at the end. Raises InvalidArgument for a
    directory that is not empty, CheckFailed when files, deletes or rows are not as promised, and SystemExit after
    Ctrl-C or SIGTERM.
    """
    pa.enable_signal_handlers(False)  # Ctrl-C is ours to handle, also while a file is read
    with (
        _exit_on_signals(),
        _workplace(directory) as place,
        closing(_open_catalog(place)) as catalog,
        _display(plain) as display,
    ):
        display.line(f"amoro demo in {place}")
        flights = load_flights()
        display.line(f"{flights.rows.num_rows:,} flights, {flights.source}")
        feed = Feed(catalog, create_table(catalog), flights)
        for part in range(HISTORY_COMMITS):
            feed.write_history(part)
        rows, files = len(feed.ledger), feed.written["DATA"]
        display.line(f"table {IDENTIFIER}: {rows:,} rows in {files} data files, partitioned by month")
        stopped, settled = _optimize(place, feed, seconds, display)
        display.line("reading the table with pyiceberg, to compare it with what the writer noted")
        holds, proof = feed.ledger.compare(catalog.load_table(IDENTIFIER.in_catalog).scan().to_arrow())
        for line in (*_summary(feed.written, stopped, settled), proof):
            display.line(line, "bold")
        if not holds:
            raise CheckFailed(f"the table does not hold the rows that were written: {proof}")
        if settled["EQUALITY_DELETES"]:
            raise CheckFailed(f"{settled['EQUALITY_DELETES']} equality delete files are left")
        if settled["DATA"] >= feed.written["DATA"]:
            raise CheckFailed(f"{settled['DATA']} data files are left of {feed.written['DATA']}")


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Raise SystemExit on the first SIGINT or SIGTERM, with the conventional status; a second one acts as before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def leave(number: int, frame: FrameType | None) -> None:
        restore()
        raise SystemExit(128 + number)

    for number in before:
        signal.signal(number, leave)
    try:
        yield
    finally:
        restore()


@contextmanager
def _workplace(directory: Path | None) -> Iterator[Path]:
    """An empty directory with room for a warehouse and a state directory."""
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="amoro-demo-", ignore_cleanup_errors=True) as temporary:
            (Path(temporary) / "warehouse").mkdir()
            yield Path(temporary)
        return
    place = directory.expanduser().absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InvalidArgument(f"{place} is not an empty directory", hint="Name a new one, or leave --directory out.")
    try:
        (place / "warehouse").mkdir(parents=True)
    except OSError as error:
        raise InvalidArgument(f"the demo can't use {place}: {error.strerror}") from error
    yield place


def _properties(directory: Path) -> dict[str, str]:
    # The timeout: writer and coordinator share the database, and a slow disk must not look like a failure.
    uri = f"sqlite:///{directory / 'catalog.db'}?timeout=60"
    return {"uri": uri, "warehouse": (directory / "warehouse").as_uri()}


def _open_catalog(directory: Path) -> SqlCatalog:
    """The demo's catalog, created if missing; it must not be shared between threads."""
    return SqlCatalog(IDENTIFIER.catalog, **_properties(directory))


class Display:
    """Prints lines that stay. The present figures follow them on a terminal, else every few seconds on a line."""

    def __init__(self, live: Live | None) -> None:
        self._live = live
        self._started = self._last_figures = time.monotonic()

    def line(self, text: str, style: str = "") -> None:
        """Print a line with the seconds since the start."""
        text = f"[{time.monotonic() - self._started:5.1f} s]  {text}"
        if self._live:
            self._live.console.print(Text(text, style=style), soft_wrap=True)
        else:
            print(text, flush=True)  # noqa: T201 - the output of a command

    def figures(self, text: str, running: list[str]) -> None:
        """Show the present figures, and a line for each running process."""
        if self._live:
            self._live.update(Text("\n".join(["", text, *(f"  {line}" for line in running)])))
        elif time.monotonic() - self._last_figures >= _BETWEEN_LINES_S:
            self._last_figures = time.monotonic()
            self.line(f"now    {text}")


@contextmanager
def _display(plain: bool) -> Iterator[Display]:
    if plain:
        yield Display(None)
        return
    with Live(console=Console(file=sys.stdout, highlight=False), transient=True, refresh_per_second=4) as live:
        yield Display(live)


def _result(process: OptimizingProcess) -> tuple[str, str]:
    """How a process ended, and the style that suits it."""
    receipt = process.receipt
    if receipt is None:
        return f"{process.type:5}  {process.status}: {process.failure}", "yellow"
    partly = "" if process.status is ProcessStatus.SUCCESS else f"  ({process.status})"
    return (
        f"{process.type:5}  files {receipt.data_files_before}→{receipt.data_files_after}  "
        f"deletes {receipt.delete_files_before}→{receipt.delete_files_after}  "
        f"rows {balance(receipt.rows_before, receipt.rows_after)}  "
        f"{receipt.duration_ms / 1000:.1f} s  snapshot {receipt.snapshot_id}{partly}"
    ), "green"


def _summary(*columns: FileCounts) -> list[str]:
    """The files that were written, those before settling, and those at the end."""
    rows: list[tuple[str, ...]] = [("", "written", "before settling", "after")]
    for name in ("data files", "equality delete files", "position delete files"):
        key = name.removesuffix(" files").upper().replace(" ", "_").replace("DELETE", "DELETES")
        rows.append((name, *(f"{counter[key]:,}" for counter in columns)))
    rows.append(("size", *(format_bytes(counter["BYTES"]) for counter in columns)))
    return [f"{name:22}{first:>10}{second:>17}{third:>10}" for name, first, second, third in rows]


def _optimize(place: Path, feed: Feed, seconds: float, display: Display) -> tuple[FileCounts, FileCounts]:
    """Write and optimize concurrently, then settle; the files when the writer stopped, and at the end."""
    stop = threading.Event()
    # Without watching: the coordinator also knows the user's own catalogs, which the demo must not touch.
    with (
        closing(_open_catalog(place)) as catalog,
        running(place / "state", embedded_settings(Settings()), watch=False, threads=_THREADS) as coordinator,
        ThreadPoolExecutor(1, thread_name_prefix="feed") as pool,
    ):
        properties = (("type", "sql"), *_properties(place).items())
        coordinator.catalogs.add(CatalogConfig(IDENTIFIER.catalog, properties))
        stage = _Stage(coordinator, catalog, feed, display)
        display.line(f"coordinator at {coordinator.address}, optimizer with {_THREADS} threads; the writer continues")
        writing = pool.submit(feed.run, stop)
        try:
            end = time.monotonic() + seconds
            while (rest := end - time.monotonic()) > 0 and not writing.done():
                stage.tick()
                time.sleep(min(_TICK_S, rest))
        finally:
            stop.set()
        writing.result()
        stopped = stage.count()
        display.line("the writer has stopped; settling with full optimizing")
        stage.settle()
        return stopped, stage.count()


class _Stage:
    """The table under the coordinator, watched by polling."""

    def __init__(self, coordinator: Coordinator, catalog: SqlCatalog, feed: Feed, display: Display) -> None:
        self._coordinator = coordinator
        self._catalog = catalog
        self._feed = feed
        self._display = display
        self._table_id = coordinator.tables.ensure(IDENTIFIER).table_id
        self._planned: set[str] = set()
        self._ended: set[str] = set()

    def count(self) -> FileCounts:
        """The table's files now."""
        return count_files(self._catalog.load_table(IDENTIFIER.in_catalog))

    def tick(self) -> None:
        """Do for this table what a watching coordinator does, and show its state."""
        if self._show().status is OptimizingStatus.PENDING:
            self._begin("evaluation", None)

    def settle(self) -> None:
        """Optimize fully until there is nothing to do. Raises CheckFailed when that takes too long."""
        for _ in range(_SETTLE_ROUNDS):
            self._wait()
            if not self._begin("request", OptimizingType.FULL):
                return
        raise CheckFailed(f"after {_SETTLE_ROUNDS} rounds there is still something to optimize")

    def _show(self) -> TableRuntime:
        """Refresh the table, show processes that began or ended and the table's state, and return it."""
        runtime = self._coordinator.tables.refresh(self._table_id)
        if runtime is None:
            raise CheckFailed(f"table {IDENTIFIER} was dropped")
        active = []
        for view in reversed(self._coordinator.optimizing.list_processes(self._table_id)):
            process, tasks = view.process, len(view.tasks)
            if process.process_id not in self._planned:
                self._planned.add(process.process_id)
                planned = f"planned, {many(tasks, 'task')}"
                self._display.line(f"{process.type:5}  {planned}: {process.reason}", "cyan")
            if process.is_active:
                done = sum(task.status.value == "success" for task in view.tasks)
                active.append(f"{process.type}: {process.status}, {done}/{tasks} tasks")
            elif process.process_id not in self._ended:
                self._ended.add(process.process_id)
                self._display.line(*_result(process))
        files, state = self.count(), active or [f"{runtime.status.value}: {runtime.status_reason}"]
        figures = (
            f"data files {files['DATA']}  equality deletes {files['EQUALITY_DELETES']}  "
            f"position deletes {files['POSITION_DELETES']}  size {format_bytes(files['BYTES'])}  "
            f"rows {len(self._feed.ledger):,}  commits {self._feed.commits}"
        )
        self._display.figures(figures, state)
        return runtime

    def _wait(self) -> None:
        """Wait for the end of the table's active process, if any."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while active := self._coordinator.optimizing.active_process(self._table_id):
            if time.monotonic() > deadline:
                raise CheckFailed(f"process {active.process_id} did not end within {_SETTLE_TIMEOUT_S:g} s")
            self._show()
            time.sleep(_TICK_S / 4)
        self._show()

    def _begin(self, trigger: str, requested: OptimizingType | None) -> bool:
        """Plan a process; returns whether there was something to do."""
        try:
            plan = self._coordinator.planning.begin(self._table_id, trigger=trigger, requested=requested)
        except AmoroError as error:
            self._display.line(f"planning failed: {error.message} [{error.code}]", "red")
            return True
        return plan.process_id is not None
