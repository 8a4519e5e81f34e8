"""amoro series."""

from datetime import timedelta
from typing import Annotated

import typer

from amoro_cli.completing import names_of
from amoro_cli.launcher import Kind
from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, command, default, duration_option
from amoro_cli.views.series import series_document
from amoro_core.model.series import SYSTEM_SERIES, TABLE_SERIES

DAY = default("1d")


def register(app: typer.Typer) -> None:
    """Add the commands of `amoro series`."""
    command(app, "show", "amoro series show threads-busy queue-tasks --label default --since 6h")(show)


def show(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help=f"Of the system and of groups: {', '.join(SYSTEM_SERIES)}. Of a table: {', '.join(TABLE_SERIES)}.",
            show_default="all",
        ),
    ] = None,
    label: Annotated[
        str, typer.Option(help="Only of this group, or of this status of processes.", show_default=False)
    ] = "",
    table: Annotated[
        str,
        typer.Option(
            metavar="TABLE", help="Series of this table.", show_default=False, autocompletion=names_of(Kind.TABLE)
        ),
    ] = "",
    since: Annotated[timedelta, duration_option("--since", help_="From so long ago on.")] = DAY,
    step: Annotated[
        timedelta | None,
        duration_option("--step", help_="The time of one value: 1m, 10m or 2h; of a table 1h or 1d."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show values over time: of the system and of groups, or of a table.

    A value of a total is what was added in its time, any other the mean. Kept are values of a minute for 48 hours, of
    10 minutes for 30 days, of 2 hours for 400 days; of tables, when they changed, those of an hour for 7 days and of a
    day for 90. Without a coordinator nothing is sampled.
    """
    with session.reading() as connection:
        write(series_document(connection.client.get_series(names or [], label, table, since, step)), output)
