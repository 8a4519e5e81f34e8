"""The demo's output: a live view on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from amoro_core.demo.feed import Written
from amoro_core.demo.ledger import Proof
from amoro_core.demo.table import FileCounts
from amoro_core.model.processes import OptimizingProcess, ProcessStatus, Receipt
from amoro_core.records import record
from amoro_core.services.optimizing import ProcessView

_BETWEEN_LINES_S = 5.0


@record
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
