"""How a process comes along, on stderr: a live line on a terminal, plain lines elsewhere."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TextIO

from amoro_cli.output import printable
from amoro_cli.quantities import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from amoro_core.protocol import admin_pb2 as pb

_BETWEEN_LINES = 10.0  # seconds


class ProgressReport(Protocol):
    """Shows a wait. `pace` is how often it wants to hear of the process."""

    pace: timedelta

    def show(self, process: "pb.Process") -> None: ...

    def note(self, text: str) -> None: ...


class PlainProgress:
    """A line at the start, at each change of status, and else every ten seconds."""

    pace = timedelta(seconds=_BETWEEN_LINES)

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._started = clock()
        self._last: tuple[str, float] | None = None

    def show(self, process: "pb.Process") -> None:
        now = self._clock()
        if self._last is None or process.status != self._last[0] or now - self._last[1] >= _BETWEEN_LINES:
            self._last = (process.status, now)
            self.note(
                f"{process.process_id}  {describe(process)}, {format_duration(round((now - self._started) * 1000))}"
            )

    def note(self, text: str) -> None:
        self._stream.write(f"{printable(text)}\n")
        self._stream.flush()


class LiveProgress:
    """One line with a bar, redrawn in place."""

    pace = timedelta(milliseconds=500)

    def __init__(self, bar: "Progress") -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def show(self, process: "pb.Process") -> None:
        done, total = _bytes_done(process), sum(task.input_bytes for task in process.tasks)
        if self._task is None:
            self._task = self._bar.add_task(process.process_id[:8], detail="")
        self._bar.update(
            self._task,
            description=printable(process.process_id[:8]),
            detail=describe(process),
            completed=done,
            total=total or None,
        )

    def note(self, text: str) -> None:
        self._bar.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_report(stream: TextIO | None = None) -> Iterator[ProgressReport]:
    """The report that suits the stream (stderr)."""
    out = stream or sys.stderr
    if not out.isatty() or os.environ.get("TERM") == "dumb":
        yield PlainProgress(out)
        return
    from rich.console import Console  # costs more than most commands; only a terminal pays for it
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[detail]}", markup=False),
        TransferSpeedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=out), transient=True) as bar:
        yield LiveProgress(bar)


def describe(process: "pb.Process") -> str:
    """The stage, tasks and bytes in one phrase."""
    words = f"{process.status.replace('_', ' ')}, {process.tasks_done}/{process.tasks_total} tasks"
    total = sum(task.input_bytes for task in process.tasks)
    if total:
        words += f", {format_bytes(_bytes_done(process))} of {format_bytes(total)}"
    busy = len({task.optimizer_id for task in process.tasks if task.optimizer_id and not task.finished_ms})
    return f"{words}, {format_count(busy)} optimizer{'' if busy == 1 else 's'}" if busy else words


def _bytes_done(process: "pb.Process") -> int:
    """Input bytes dealt with; of a running task as many as its share of rows."""
    done = 0
    for task in process.tasks:
        if task.status == "success":
            done += task.input_bytes
        elif task.rows_total > 0:
            done += task.input_bytes * min(task.rows_done, task.rows_total) // task.rows_total
    return done
