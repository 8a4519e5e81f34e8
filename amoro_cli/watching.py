"""Showing something again whenever it changes."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.output import Document, OutputFormat, is_live, write
from amoro_cli.progress import Bars
from amoro_cli.session import Session, default, duration_option

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient
    from amoro_core.protocol import admin_pb2 as pb

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes, until Ctrl-C.")]
IntervalOption = Annotated[timedelta, duration_option("--interval", help_="How often --watch looks.")]
INTERVAL = default("2s")

_FOR_PEOPLE = (OutputFormat.TABLE, OutputFormat.WIDE)
_CLEAR = "\x1b[H\x1b[2J"  # the screen, not what was scrolled off it


@dataclass(frozen=True, slots=True)
class Look:
    """What is to be shown."""

    document: Document
    ended: bool = False  # nothing of it will change any more
    running: "Sequence[pb.Process]" = ()  # processes that have a bar each, on a terminal


def show_watched(
    session: Session,
    ask: "Callable[[AdminClient], Look]",
    output: OutputFormat,
    watch: bool,
    interval: timedelta,
) -> None:
    """Print what `ask` answers; with `watch` again after each change, until it says that nothing more will change.

    On a terminal each takes the place of the one before, and what runs has a bar. Without a running coordinator nothing
    changes: it is shown once.
    """
    with session.reading() as connection:
        look = ask(connection.client)
        if not watch or connection.embedded:
            write(look.document, output)
            return
        screen = Screen(output)
        try:
            screen.show(look)
            while not (look.ended or connection.embedded):
                time.sleep(interval.total_seconds())
                look = ask(connection.client)
                screen.show(look)
        except KeyboardInterrupt:
            return


class Screen:
    """Where a watched document is shown: over and over on a terminal, each change beneath the last elsewhere."""

    def __init__(self, output: OutputFormat) -> None:
        self._output = output
        self._bars = Bars(sys.stdout) if output in _FOR_PEOPLE and is_live(sys.stdout) else None
        self._shown: Document | None = None

    def show(self, look: Look) -> None:
        """Show what changed; bars move as long as something runs."""
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
