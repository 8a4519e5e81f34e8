"""Commands that run something: amoro up, demo, doctor, mcp."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amoro_cli.connection import DemoOptions, UpOptions
from amoro_cli.context import MEMORY, MOST_THREADS, OutputOption, Session, memory_option
from amoro_cli.output import OutputFormat, write
from amoro_cli.views.services import findings_document
from amoro_core.errors import CoordinatorUnavailable, InvalidSettings

if TYPE_CHECKING:
    from google.protobuf.message import Message


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
        int | None,
        typer.Option(
            help="Threads of the optimizer [default: one for each core].", min=1, max=MOST_THREADS, show_default=False
        ),
    ] = None,
    memory: Annotated[int, memory_option("--memory", help_="Memory of each optimizer thread.")] = MEMORY,
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
        typer.Option(
            metavar="DIR",
            help="Where to create and keep the warehouse [default: a temporary directory].",
            show_default=False,
        ),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Plain lines instead of a live display, as always when stdout is not a terminal."),
    ] = False,
) -> None:
    """Show Amoro at work: a table under constant writes is kept healthy, and every row is accounted for."""
    session.launcher.demo(DemoOptions(seconds, directory, plain or not sys.stdout.isatty()))


def doctor(session: Session, output: OutputOption = OutputFormat.TABLE) -> None:
    """Check the installation, and say how to fix what is wrong. Exit status 1 when a check fails."""
    place = session.place
    findings = session.launcher.doctor(place.home, place.config)
    write(findings_document(findings), output)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def mcp(
    session: Session,
    allow_writes: Annotated[
        bool,
        typer.Option(
            "--allow-writes",
            help="Also offer to optimize tables, cancel processes, enable and disable tables, as far as the token may.",
        ),
    ] = False,
) -> None:
    """Serve assistants over the Model Context Protocol on stdin and stdout, until stdin ends.

    What they may see and do is the token's: give them one of their own, with the role viewer or operator.
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

        async def ask(method: str, request: "Message", _: Any) -> "Message":
            return await anyio.to_thread.run_sync(client.ask, method, request)

        async def serve() -> None:
            server = make_server(ask, version("amoro"), allow_writes=allow_writes)
            async with stdio_server() as (received, sent):
                await server.run(received, sent, server.create_initialization_options())

        anyio.run(serve)
