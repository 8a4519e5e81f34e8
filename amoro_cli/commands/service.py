"""Commands of the coordinator: amoro status, series, monitoring, state, config."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from amoro_cli.connection import Kind
from amoro_cli.context import OutputOption, Session, default, duration_option, milliseconds_ago, names_of
from amoro_cli.output import OutputFormat, write
from amoro_cli.views.services import (
    backup_document,
    check_document,
    exported_document,
    series_document,
    state_document,
    status_document,
)
from amoro_cli.views.tables import settings_document
from amoro_core.documents.prometheus_files import BOARD, RULES, SCRAPE, board, rules, scrape
from amoro_core.errors import InvalidArgument, StoreFailed
from amoro_core.model.metrics import SYSTEM_SERIES, TABLE_SERIES
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.journal_pb2 import GetSeriesRequest
from amoro_core.protocol.monitoring_pb2 import ListConditionsRequest


def status(session: Session, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show what runs, each problem, and how to fix it."""
    with session.reading() as connection:
        found, conditions = (
            connection.client.GetStatus(pb.GetStatusRequest()),
            connection.client.ListConditions(ListConditionsRequest()),
        )
    write(status_document(found, conditions.conditions), output)


DAY = default("1d")


def show_series(
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
    request = GetSeriesRequest(
        names=names or [],
        label=label,
        table=table,
        since_ms=milliseconds_ago(since),
        step_s=int(step.total_seconds()) if step else 0,
    )
    with session.reading() as connection:
        write(series_document(connection.client.GetSeries(request)), output)


def export(
    session: Session,
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Where to; files of these names are replaced.", show_default=False),
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Write rules and a job for Prometheus, and a board for Grafana. No coordinator is needed."""
    paths = []
    for name, text in ((RULES, rules()), (SCRAPE, scrape()), (BOARD, board())):
        path = directory / name
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(
                f"{path} can't be written: {error.strerror}", hint="Name a directory that you may write."
            ) from error
        paths.append(str(path))
    write(exported_document(paths), output)


def show_state(session: Session, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the state database: where it is, its size, its schema, and the last backup."""
    with session.reading() as connection:
        write(state_document(connection.client.GetState(pb.GetStateRequest())), output)


def backup(
    session: Session,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A new file on the coordinator's machine.", show_default=False)
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Back up the state database while it is in use. To restore it, replace amoro.db with the copy.

    The copy holds the catalogs' properties, secrets included: keep it as safe as the state directory.
    """
    with session.reading() as connection:
        request = pb.BackupStateRequest(path=str(file.expanduser().absolute()))
        write(backup_document(connection.client.BackupState(request)), output)


def check(session: Session, output: OutputOption = OutputFormat.TABLE) -> None:
    """Check the state database. Exit status 1 when it is damaged."""
    with session.reading() as connection:
        problems = connection.client.CheckState(pb.CheckStateRequest()).problems
    write(check_document(problems), output)
    if problems:
        raise StoreFailed(
            "the state database is damaged",
            hint="Stop the coordinator and replace amoro.db with a backup; the tables are not affected.",
        )


def show_config(
    session: Session,
    origin: Annotated[
        bool, typer.Option("--origin", help="Show where each value comes from: flag, environment, file or default.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the settings that the coordinator runs with."""
    with session.reading(lasting=True) as connection:
        write(settings_document(connection.client.GetSettings(pb.GetSettingsRequest()).settings, origin), output)
