"""Commands that run something, and those of the coordinator: amoro up, demo, doctor, mcp, status, series, state, ..."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from google.protobuf.message import Message

from amoro_cli.connection import UpOptions
from amoro_cli.context import (
    MEMORY,
    MOST_THREADS,
    Session,
    argument,
    default,
    duration_option,
    memory_option,
    option,
    since_option,
    table_option,
)
from amoro_cli.list_options import ListOptions, list_command, show_list
from amoro_cli.progress import INTERVAL, IntervalOption, Look, WatchOption, show_watched
from amoro_cli.views.services import (
    LISTENERS,
    backup_document,
    check_document,
    exported_document,
    findings_document,
    listener_detail,
    series_document,
    state_document,
    status_document,
)
from amoro_cli.views.tables import settings_document
from amoro_core.documents.prometheus_files import BOARD, RULES, SCRAPE, SCRAPE_JOB, board, rules
from amoro_core.errors import CoordinatorUnavailable, InvalidArgument, InvalidSettings, StoreFailed
from amoro_core.model.alert_rules import Severity
from amoro_core.model.metrics import SYSTEM_SERIES, TABLE_SERIES
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.journal_pb2 import GetSeriesRequest, ListListenersRequest, ResumeListenerRequest
from amoro_core.protocol.monitoring_pb2 import ListConditionsRequest

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient


def up(
    session: Session,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on [default: the settings', else 127.0.0.1].")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="The port to listen on; 0 picks a free one [default: the settings', else 1261].", min=0, max=65535
        ),
    ] = None,
    threads: Annotated[
        int | None, option(help="Threads of the optimizer [default: one for each core].", min=1, max=MOST_THREADS)
    ] = None,
    memory: Annotated[int, memory_option(help_="Memory of each optimizer thread.")] = MEMORY,
    without_optimizer: Annotated[
        bool, typer.Option("--without-optimizer", help="Run the coordinator alone; optimizers are started elsewhere.")
    ] = False,
) -> None:
    """Run a coordinator and one optimizer until Ctrl-C."""
    place = session.place
    session.launcher.up(UpOptions(place.home, place.config, host, port, threads, memory, without_optimizer))


def demo(
    session: Session,
    seconds: Annotated[int, typer.Option(help="How long the writer runs.", min=1, max=86_400)] = 45,
    directory: Annotated[
        Path | None,
        option(metavar="DIR", help="Where to create and keep the warehouse [default: a temporary directory]."),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Plain lines instead of a live display, as always when stdout is not a terminal."),
    ] = False,
) -> None:
    """Show Amoro at work on a table under constant writes. It stays healthy, and every row is accounted for."""
    session.launcher.demo(seconds, directory, plain=plain or not sys.stdout.isatty())


def doctor(session: Session) -> None:
    """Check the installation, and say how to fix what is wrong. Exit status 1 when a check fails."""
    place = session.place
    findings = session.launcher.doctor(place.home, place.config)
    session.write(findings_document(findings))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def mcp(
    session: Session,
    allow_writes: Annotated[
        bool,
        typer.Option(
            "--allow-writes",
            help="Also offer to optimize tables, cancel processes, enable and disable tables, if the token allows it.",
        ),
    ] = False,
) -> None:
    """Serve assistants over the Model Context Protocol (MCP). It uses stdin and stdout, until stdin ends.

    They may do what the token allows: create one for them, with the role viewer or operator.
    """
    try:
        import anyio
        from mcp import stdio_server

        from amoro_core.mcp.server import make_server
    except ImportError as missing:
        raise InvalidSettings(
            f"amoro mcp needs the package {missing.name}", hint="Install it with: pip install 'amoro[mcp]'"
        ) from missing
    from importlib.metadata import version

    from amoro_core.protocol.channels import MCP_WAY

    with session.reading(lasting=True) as connection:
        if connection.embedded and allow_writes:
            raise CoordinatorUnavailable(
                "no coordinator runs here: nothing could be changed",
                hint="Start one with amoro up, or leave --allow-writes out.",
            )
        client = connection.client
        client.set_channel(MCP_WAY)

        async def ask(method: str, request: Message, _: Any) -> Message:
            return await anyio.to_thread.run_sync(client.ask, method, request)

        async def serve() -> None:
            server = make_server(ask, version("amoro"), allow_writes=allow_writes)
            async with stdio_server() as (received, sent):
                await server.run(received, sent, server.create_initialization_options())

        anyio.run(serve)


def status(session: Session, watch: WatchOption = False, interval: IntervalOption = INTERVAL) -> None:
    """Show what runs, each problem, and how to fix it.

    Exit status 1 while a problem of severity `page` is raised, without --watch.
    """
    raised: list[str] = []

    def ask(client: "AdminClient") -> Look:
        answer = client.GetStatus(pb.GetStatusRequest())
        conditions = client.ListConditions(ListConditionsRequest()).conditions
        raised[:] = [condition.severity for condition in conditions if condition.raised]
        return Look(status_document(answer, conditions))

    show_watched(session, ask, watch, interval)
    if Severity.PAGE in raised and not watch:
        raise typer.Exit(1)


DAY = default("1d")


def show_series(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help=f"Of the system and of groups: {', '.join(SYSTEM_SERIES)}. Of a table: {', '.join(TABLE_SERIES)}.",
            show_default="all",
        ),
    ] = None,
    label: Annotated[str, option(help="Only of this group, or of this status of processes.")] = "",
    table: Annotated[str, table_option("Series of this table.")] = "",
    since: Annotated[int, since_option("From that time on.")] = DAY,
    step: Annotated[
        timedelta | None, duration_option(help_="The step between values: 1m, 10m or 2h; for a table 1h or 1d.")
    ] = None,
) -> None:
    """Show values over time: of the system and of groups, or of a table.

    A value of a total is the sum of its step, of anything else the mean. Steps of a minute are kept for 48 hours, of
    10 minutes for 30 days, of 2 hours for 400 days; for tables, those of an hour for 7 days and of a day for 90 days.
    Nothing is recorded while no coordinator runs.
    """
    step_s = int(step.total_seconds()) if step else 0
    request = GetSeriesRequest(names=names, label=label, table=table, since_ms=since, step_s=step_s)
    session.show(request, series_document)


@list_command(LISTENERS, after="NAME")
def list_listeners(session: Session, options: ListOptions) -> None:
    """List the listeners. They are those of the setting `listeners`, and functions of packages."""
    show_list(session, options, LISTENERS, ListListenersRequest())


def resume_listener(
    session: Session, name: Annotated[str, argument(metavar="NAME", help="The listener's name.")]
) -> None:
    """Send to a failing or paused listener again at once. What it lost is forgotten."""
    session.change(ResumeListenerRequest(name=name), listener_detail)


def export(
    session: Session,
    directory: Annotated[Path, argument(metavar="DIR", help="Where to; files of these names are replaced.")],
) -> None:
    """Write rules and a job for Prometheus, and a board for Grafana. No coordinator is needed."""
    paths = []
    for name, text in ((RULES, rules()), (SCRAPE, SCRAPE_JOB), (BOARD, board())):
        path = directory / name
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(
                f"{path} can't be written: {error.strerror}", hint="Name a directory that you may write."
            ) from error
        paths.append(str(path))
    session.write(exported_document(paths))


def show_state(session: Session) -> None:
    """Show the state database: where it is, size, schema, last backup."""
    session.show(pb.GetStateRequest(), state_document)


def backup(
    session: Session, file: Annotated[Path, argument(metavar="FILE", help="A new file on the coordinator's machine.")]
) -> None:
    """Back up the state database while it is in use. To restore it, replace amoro.db with the copy.

    The copy holds the catalogs' properties, secrets included: keep it as safe as the state directory.
    """
    session.show(pb.BackupStateRequest(path=str(file.expanduser().absolute())), backup_document)


def check(session: Session) -> None:
    """Check the state database. Exit status 1 when it is damaged."""
    with session.reading() as connection:
        problems = connection.client.CheckState(pb.CheckStateRequest()).problems
    session.write(check_document(problems))
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
) -> None:
    """Show the settings that the coordinator runs with."""
    session.show(pb.GetSettingsRequest(), lambda answer: settings_document(answer.settings, origin), lasting=True)
