"""Ctrl-C and SIGTERM as a flag to check, so that a run ends between two steps and cleans up."""

import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Protocol, TextIO

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from amoro_core.bootstrap.coordinator_app import Coordinator, embedded_settings, running
from amoro_core.bootstrap.settings import Settings
from amoro_core.demo.feed import HISTORY_COMMITS, Feed, FeedThread, Written
from amoro_core.demo.table import (
    IDENTIFIER,
    FileCounter,
    FileCounts,
    Proof,
    catalog_config,
    create_table,
    load_flights,
    open_catalog,
)
from amoro_core.errors import AmoroError, CheckFailed, InvalidArgument
from amoro_core.model.processes import OptimizingProcess, ProcessStatus, Receipt
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableRuntime
from amoro_core.services.task_lifecycle import ProcessView

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Whether the user asked to stop."""

    def __init__(self) -> None:
        self._signal: signal.Signals | None = None
        # A handler may put into it whatever the main thread is about to do.
        self._noted: SimpleQueue[None] = SimpleQueue()

    def want(self, number: int) -> None:
        """Note the signal; a pause ends at once."""
        self._signal = signal.Signals(number)
        self._noted.put(None)

    def check(self) -> None:
        """Raise SystemExit, with the conventional status of the signal, if one was noted."""
        if self._signal is not None:
            raise SystemExit(128 + self._signal)

    def pause(self, seconds: float) -> None:
        """Wait, unless a signal was or is noted: then raises like `check`."""
        self.check()
        with suppress(Empty):
            self._noted.get(timeout=seconds)
        self.check()


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Note signals during the block; a second one ends the process as usual.

    Outside of the main thread, where Python handles no signals, nothing is noted.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        interruption.want(number)
        for one in _SIGNALS:
            signal.signal(one, before[one])

    for number in _SIGNALS:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        for number in _SIGNALS:
            signal.signal(number, before[number])


_BETWEEN_LINES_S = 5.0


@dataclass(frozen=True, slots=True)
class Scene:
    """The state to show at one moment."""

    files: FileCounts
    written: Written
    seconds_left: float
    status: str  # of the table
    reason: str
    running: tuple[str, ...] = ()  # a line for each running process


class Display(Protocol):
    """Where the demo shows what happens."""

    def line(self, text: str, style: str = "") -> None:
        """Show a line that stays."""

    def scene(self, scene: Scene) -> None:
        """Show the present state; where possible, each scene replaces the last."""


class PlainDisplay:
    """Prints lines with the seconds since the start, and a scene only every few seconds."""

    def __init__(self, stream: TextIO, started: float) -> None:
        self._stream = stream
        self._started = started
        self._last_scene = started

    def line(self, text: str, style: str = "") -> None:
        self._stream.write(f"{stamp(self._started)}  {text}\n")
        self._stream.flush()

    def scene(self, scene: Scene) -> None:
        if time.monotonic() - self._last_scene >= _BETWEEN_LINES_S:
            self._last_scene = time.monotonic()
            self.line(f"now    {scene_line(scene)}")


class LiveDisplay:
    """A table of figures that is redrawn in place, under the lines that stay."""

    def __init__(self, live: Live, started: float) -> None:
        self._live = live
        self._started = started

    def line(self, text: str, style: str = "") -> None:
        self._live.console.print(Text(f"{stamp(self._started)}  {text}", style=style), soft_wrap=True)

    def scene(self, scene: Scene) -> None:
        self._live.update(_picture(scene))


@contextmanager
def open_display(plain: bool, started: float) -> Iterator[Display]:
    """The display on stdout; a live one is removed afterwards, its lines stay."""
    if plain:
        yield PlainDisplay(sys.stdout, started)
        return
    with Live(console=Console(file=sys.stdout, highlight=False), transient=True, refresh_per_second=4) as live:
        yield LiveDisplay(live, started)


def stamp(started: float) -> str:
    """The seconds since the start, in brackets."""
    return f"[{time.monotonic() - started:5.1f} s]"


def scene_line(scene: Scene) -> str:
    """The scene on one line."""
    files = scene.files
    return (
        f"data files {files.data}  equality deletes {files.equality}  position deletes {files.position}  "
        f"rows {scene.written.rows:,}  commits {scene.written.commits}  {scene.status}"
    )


def planned_line(view: ProcessView) -> str:
    """What a process is going to do, and why."""
    tasks = len(view.tasks)
    return f"{view.process.type:5}  planned, {tasks} task{'' if tasks == 1 else 's'}: {view.process.reason}"


def running_line(view: ProcessView) -> str:
    """The progress of a process."""
    done = sum(task.status.value == "success" for task in view.tasks)
    return f"{view.process.type}: {view.process.status}, {done}/{len(view.tasks)} tasks"


def ended_line(process: OptimizingProcess) -> tuple[str, str]:
    """How a process ended, and the style that suits it."""
    if process.receipt is None:
        return f"{process.type:5}  {process.status}: {process.failure}", "yellow"
    partly = "" if process.status is ProcessStatus.SUCCESS else f"  ({process.status})"
    return f"{process.type:5}  {_receipt(process.receipt)}{partly}", "green"


def _receipt(receipt: Receipt) -> str:
    return (
        f"files {receipt.data_files_before}→{receipt.data_files_after}  "
        f"deletes {receipt.delete_files_before}→{receipt.delete_files_after}  "
        f"{equation('rows', receipt.rows_before, receipt.rows_after)}  "
        f"{receipt.duration_ms / 1000:.1f} s  snapshot {receipt.snapshot_id}"
    )


def equation(what: str, expected: int, found: int) -> str:
    """Two counts and whether they are the same: rows 12 = 12 ✓."""
    same = expected == found
    return f"{what} {expected:,} {'=' if same else '≠'} {found:,} {'✓' if same else '✗'}"


def summary_lines(written: Written, stopped: FileCounts, settled: FileCounts) -> list[str]:
    """Counts before and after, with everything the writer wrote."""
    columns = (written.files, stopped, settled)
    rows = [
        ("", "written", "before settling", "after"),
        ("data files", *(f"{one.data:,}" for one in columns)),
        ("equality delete files", *(f"{one.equality:,}" for one in columns)),
        ("position delete files", *(f"{one.position:,}" for one in columns)),
        ("size", *(size(one.size_bytes) for one in columns)),
    ]
    return [f"{name:22}{first:>10}{second:>17}{third:>10}" for name, first, second, third in rows]


def proof_line(proof: Proof) -> str:
    """The proof of the rows."""
    same = proof.expected_checksum == proof.found_checksum
    sign, mark = ("=", "✓") if same else ("≠", "✗")
    return (
        f"{equation('rows', proof.expected_rows, proof.found_rows)}  "
        f"checksum {proof.expected_checksum:016x} {sign} {proof.found_checksum:016x} {mark}"
    )


def size(size_bytes: int) -> str:
    """The size in MB, below 1 MB in kB."""
    return f"{size_bytes / (1 << 20):.1f} MB" if size_bytes >= 1 << 20 else f"{size_bytes / 1024:.0f} kB"


def _picture(scene: Scene) -> Group:
    figures = Table(box=None, padding=(0, 2), show_header=True, header_style="bold")
    for title in ("data files", "equality deletes", "position deletes", "size", "rows", "commits", "writer"):
        figures.add_column(title, justify="right")
    files = scene.files
    figures.add_row(
        f"{files.data:,}",
        f"{files.equality:,}",
        f"{files.position:,}",
        size(files.size_bytes),
        f"{scene.written.rows:,}",
        f"{scene.written.commits:,}",
        f"{scene.seconds_left:.0f} s left" if scene.seconds_left > 0 else "stopped",
    )
    lines = [Text(f"  {line}", style="cyan") for line in scene.running] or [
        Text(f"  {scene.status}: {scene.reason}", style="dim")
    ]
    return Group(Text(), figures, *lines)


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
