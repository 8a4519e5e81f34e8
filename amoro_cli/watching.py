"""Showing something again whenever it changes."""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.output import Document, OutputFormat, write
from amoro_cli.session import Session, duration_option

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes, until Ctrl-C.")]
IntervalOption = Annotated[timedelta, duration_option("--interval", help_="How often --watch looks.")]

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def show_watched(
    session: Session,
    ask: "Callable[[AdminClient], tuple[Document, bool]]",
    output: OutputFormat,
    watch: bool,
    interval: timedelta,
) -> None:
    """Print what `ask` answers; with `watch` again after each change, until it says that nothing more will change.

    On a terminal each takes the place of the one before. Without a running coordinator nothing changes: it is shown
    once.
    """
    with session.connect() as connection:
        shown, ended = ask(connection.client)
        if not watch or connection.embedded:
            write(shown, output)
            return
        _write(shown, output)
        try:
            while not ended:
                time.sleep(interval.total_seconds())
                found, ended = ask(connection.client)
                if found != shown:
                    shown = found
                    _write(shown, output)
        except KeyboardInterrupt:
            return


def _write(document: Document, output: OutputFormat) -> None:
    if output is OutputFormat.TABLE and sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    if output is OutputFormat.YAML:
        sys.stdout.write("---\n")
    write(document, output)
