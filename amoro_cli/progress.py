"""Progress of a process on stderr: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from amoro_cli.context import Session, default, duration_option
from amoro_cli.output import Document, OutputFormat, is_live, tell, write
from amoro_core.documents.formatting import format_bytes, format_duration, many, short_id
from amoro_core.model.text_sanitizing import printable

if TYPE_CHECKING:
    from rich.progress import TaskID

    from amoro_cli.client import AdminClient
    from amoro_core.protocol import admin_pb2 as pb


_BETWEEN_LINES = 10.0  # seconds
_OTHERS = 59  # columns of everything but the bar, without sizes
_WITH_SIZES = 110  # width of a terminal from which sizes are shown too
_WITH_OPTIMIZERS = 117  # and the number of busy optimizers


class ProgressReport(ABC):
    """Shows a wait. `pace` is how often it wants an update."""

    pace: timedelta
    _remarked = ""

    @abstractmethod
    def show(self, process: "pb.Process") -> None:
        """Show how the process stands."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Show a line that stays."""

    def remark(self, waiting: str) -> None:
        """Note the reason for waiting, unless it was the last remark; "" clears it."""
        if waiting and waiting != self._remarked:
            self.note(f"Waiting: {waiting}")
        self._remarked = waiting


class PlainProgress(ProgressReport):
    """A line at the start, at each change of status, and otherwise every ten seconds."""

    pace = timedelta(seconds=_BETWEEN_LINES)

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._started = clock()
        self._last: tuple[str, float] | None = None

    def show(self, process: "pb.Process") -> None:
        now = self._clock()
        state = process.state or process.status
        if self._last is None or state != self._last[0] or now - self._last[1] >= _BETWEEN_LINES:
            self._last = (state, now)
            self.note(
                f"{process.process_id}  {describe(process)}, {format_duration(round((now - self._started) * 1000))}"
            )

    def note(self, text: str) -> None:
        tell(printable(text), self._stream)


class Bars:
    """A bar for each process: its stage, tasks, bytes, rate and time left."""

    def __init__(self, stream: TextIO, *, named: bool = True) -> None:
        from rich.console import Console  # slower to import than most commands are; only needed on a terminal
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

        console = Console(file=stream)
        # A narrow terminal shows fewer words to leave room for the bar.
        self._width = console.width
        spare = self._width - _OTHERS
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=min(24, max(10, spare))),
            TextColumn("{task.fields[detail]}", markup=False),
            TransferSpeedColumn(),
            *((TextColumn("ETA"),) if spare > 30 else ()),
            TimeRemainingColumn(),
        )
        self.progress: Progress = Progress(*columns, console=console, transient=True)
        self._named = named
        self._tasks: dict[str, TaskID] = {}

    def update(self, processes: "Sequence[pb.Process]") -> None:
        """Show a bar for each of these processes, at its present progress."""
        for process_id in self._tasks.keys() - {process.process_id for process in processes}:
            self.progress.remove_task(self._tasks.pop(process_id))
        for process in processes:
            key = process.process_id
            if key not in self._tasks:
                self._tasks[key] = self.progress.add_task(self._name(process), detail="")
            done, total = process.input_bytes_done, process.input_bytes
            detail = describe(process, sizes=self._width >= _WITH_SIZES, busy=self._width >= _WITH_OPTIMIZERS)
            self.progress.update(self._tasks[key], detail=detail, completed=done, total=total or None)

    def draw(self, processes: "Sequence[pb.Process]") -> None:
        """Print the bars once, at the cursor."""
        self.update(processes)
        if processes:
            self.progress.console.print("", self.progress.get_renderable(), sep="\n")

    def _name(self, process: "pb.Process") -> str:
        """The end of the table's name; without names, the end of the id."""
        if not self._named:
            return short_id(process.process_id)
        name, most = printable(process.table), max(13, (self._width - _WITH_SIZES) // 2)
        return name if len(name) <= most else f"…{name[1 - most :]}"


class LiveProgress(ProgressReport):
    """One line with a bar, redrawn in place."""

    pace = timedelta(milliseconds=500)

    def __init__(self, bars: Bars) -> None:
        self._bars = bars

    def show(self, process: "pb.Process") -> None:
        self._bars.update([process])

    def note(self, text: str) -> None:
        self._bars.progress.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_report(stream: TextIO | None = None) -> Iterator[ProgressReport]:
    """The report that suits the stream (stderr)."""
    out = stream or sys.stderr
    if not is_live(out):
        yield PlainProgress(out)
        return
    bars = Bars(out, named=False)
    with bars.progress:
        yield LiveProgress(bars)


def describe(process: "pb.Process", *, sizes: bool = True, busy: bool = True) -> str:
    """The stage and tasks in one phrase; `sizes` adds the bytes, `busy` the number of busy optimizers."""
    state = process.state or process.status
    words = f"{state.replace('_', ' ')}, {process.tasks_done}/{process.tasks_total} tasks"
    if process.input_bytes and sizes:
        words += f", {format_bytes(process.input_bytes_done)} of {format_bytes(process.input_bytes)}"
    optimizers = process.busy_optimizers
    return f"{words}, {many(optimizers, 'optimizer')}" if busy and optimizers else words


WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes, until Ctrl-C.")]
IntervalOption = Annotated[timedelta, duration_option(help_="How often --watch polls.")]
INTERVAL = default("2s")

_FOR_PEOPLE = (OutputFormat.TABLE, OutputFormat.WIDE)
_CLEAR = "\x1b[H\x1b[2J"  # the screen, not the scrollback


@dataclass(frozen=True, slots=True)
class Look:
    """A document to show, and what it shows of running work."""

    document: Document
    ended: bool = False  # it will not change any more
    running: "Sequence[pb.Process]" = ()  # processes shown as bars on a terminal


def show_watched(session: Session, ask: "Callable[[AdminClient], Look]", watch: bool, interval: timedelta) -> None:
    """Print what `ask` returns; with `watch`, again after each change until it has ended.

    On a terminal each replaces the one before, and running processes have a bar. Without a running coordinator nothing
    changes: it is shown once.
    """
    with session.reading() as connection:
        look = ask(connection.client)
        if not watch or connection.embedded:
            session.write(look.document)
            return
        screen = Screen(session.output)
        try:
            screen.show(look)
            while not (look.ended or connection.embedded):
                time.sleep(interval.total_seconds())
                look = ask(connection.client)
                screen.show(look)
        except KeyboardInterrupt:
            return


class Screen:
    """Shows a watched document: redrawn on a terminal, each change below the last elsewhere."""

    def __init__(self, output: OutputFormat) -> None:
        self._output = output
        self._bars = Bars(sys.stdout) if output in _FOR_PEOPLE and is_live(sys.stdout) else None
        self._shown: Document | None = None

    def show(self, look: Look) -> None:
        """Show what changed; bars move while something runs."""
        if look.document == self._shown and not (self._bars and look.running):
            return
        self._shown = look.document
        if self._bars:
            sys.stdout.write(_CLEAR)
        if self._output is OutputFormat.YAML:
            sys.stdout.write("---\n")
        write(look.document, self._output)
        if self._bars:
            self._bars.draw(look.running)
