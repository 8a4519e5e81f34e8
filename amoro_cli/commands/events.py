"""amoro event."""

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.arranging import columns_option, sort_option
from amoro_cli.commands.processes import refuse_short
from amoro_cli.completing import names_of
from amoro_cli.launcher import Kind
from amoro_cli.listing import Arrangement
from amoro_cli.output import OutputFormat, write
from amoro_cli.paging import after_option, window
from amoro_cli.session import OutputOption, Session, command, default, duration_option
from amoro_cli.views.journal import EVENTS, event_line, event_list
from amoro_core.errors import InvalidArgument
from amoro_core.model.journal import EventKind

if TYPE_CHECKING:
    from amoro_core.protocol import journal_pb2 as pb

INTERVAL = default("1s")


def register(app: typer.Typer) -> None:
    """Add the commands of `amoro event`."""
    command(app, "list", "amoro event list --kind failed --since 1d")(list_events)


def list_events(
    session: Session,
    kind: Annotated[
        list[EventKind] | None,
        typer.Option(help="Only events of this kind; repeatable.", case_sensitive=False, show_default=False),
    ] = None,
    table: Annotated[
        str,
        typer.Option(
            metavar="TABLE",
            help="Only events of this table; one that is gone has the name that it had.",
            show_default=False,
            autocompletion=names_of(Kind.TABLE),
        ),
    ] = "",
    process: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="Only events of this process.",
            show_default=False,
            autocompletion=names_of(Kind.PROCESS),
        ),
    ] = "",
    since: Annotated[
        timedelta | None, duration_option("--since", help_="Only events of so long ago or later, such as 1d.")
    ] = None,
    limit: Annotated[int, typer.Option(help="How many to list at most, newest first.", min=1, max=1_000_000)] = 20,
    after: Annotated[str, after_option("NEXT")] = "",
    sort_by: Annotated[str, sort_option(EVENTS)] = "",
    columns: Annotated[str, columns_option(EVENTS)] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with events as they happen, oldest first, until Ctrl-C.")
    ] = False,
    interval: Annotated[timedelta, duration_option("--interval", help_="How often --follow looks.")] = INTERVAL,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List what happened to tables, processes, optimizers and groups, the newest first.

    Events are kept for 30 days, at most a million.
    """
    if process:
        refuse_short(process)
    if follow and (after or sort_by or columns):
        raise InvalidArgument("--follow goes by the time: leave out --after, --sort-by and --columns")
    kinds = [item.value for item in kind or ()]
    oldest = datetime.now(UTC) - since if since is not None else None
    with session.reading() as connection:
        last, part = connection.client.list_events(kinds, table, process, oldest, window(limit, after))
        if not follow:
            write(event_list(part, Arrangement(sort_by, columns)), output)
            return
        try:
            _show(list(reversed(part.items)), output)
            while not connection.embedded:
                time.sleep(interval.total_seconds())
                last = _show(connection.client.events_after(last, kinds, table, process), output) or last
        except KeyboardInterrupt:
            return


def _show(events: "list[pb.Event]", output: OutputFormat) -> int:
    """Print each; the number of the last one, 0 without any."""
    for event in events:
        if output is OutputFormat.YAML:
            typer.echo("---")
        write(event_line(event), output)
    return events[-1].event_id if events else 0
