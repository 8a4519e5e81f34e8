"""Showing a document again whenever it changes."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from amoro_cli.output import Document, OutputFormat, is_live, write, write_pages
from amoro_cli.paging import Part, whole
from amoro_cli.progress import Bars
from amoro_cli.session import Session, default, duration_option
from amoro_core.records import record

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient
    from amoro_core.protocol import admin_pb2 as pb

Item = TypeVar("Item")

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes, until Ctrl-C.")]
IntervalOption = Annotated[timedelta, duration_option("--interval", help_="How often --watch looks.")]
INTERVAL = default("2s")

_FOR_PEOPLE = (OutputFormat.TABLE, OutputFormat.WIDE)
_CLEAR = "\x1b[H\x1b[2J"  # the screen, not the scrollback


@record
class Look:
    """A document to show, and whether it may still change."""

    document: Document
    ended: bool = False  # it will not change any more
    running: "Sequence[pb.Process]" = ()  # processes shown as bars on a terminal


def show_watched(
    session: Session,
    ask: "Callable[[AdminClient], Look]",
    output: OutputFormat,
    watch: bool,
    interval: timedelta,
) -> None:
    """Print what `ask` returns; with `watch`, again after each change until it has ended.

    On a terminal each replaces the one before, and running processes have a bar. Without a running coordinator nothing
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


@record
class Showing:
    """How a list is shown."""

    output: OutputFormat
    watch: bool
    interval: timedelta
    is_whole: bool = False  # all of it is needed before any of it can be shown


def show_list(
    session: Session,
    ask: "Callable[[AdminClient], Iterator[Part[Item]]]",
    shown: "Callable[[Part[Item]], Document]",
    how: Showing,
) -> None:
    """Print the pages of a list, each as it comes; watched as with `show_watched`.

    What is watched, sorted here, or fitted to a terminal is fetched as a whole.
    """
    is_fitted = how.output is OutputFormat.YAML or (how.output in _FOR_PEOPLE and sys.stdout.isatty())
    if how.watch or how.is_whole or is_fitted:

        def look(client: "AdminClient") -> Look:
            return Look(shown(whole(ask(client))))

        show_watched(session, look, how.output, how.watch, how.interval)
        return
    with session.reading() as connection:
        write_pages(map(shown, ask(connection.client)), how.output)


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
