"""amoro mcp."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amoro_cli.session import Session, command
from amoro_core.errors import CoordinatorUnavailable, InvalidSettings
from amoro_core.protocol.deadlines import LASTING

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from amoro_cli.client import AdminClient


def register(app: typer.Typer) -> None:
    """Add `amoro mcp`."""
    command(app, "mcp", "amoro mcp --token-file viewer.token")(mcp)


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

        from amoro_core.tools.serving import make_server
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
        client.say_way(MCP_WAY)

        async def ask(method: str, request: "Message", _: Any) -> "Message":
            return await anyio.to_thread.run_sync(_asked, client, method, request)

        async def serve() -> None:
            server = make_server(ask, version("amoro"), allow_writes=allow_writes)
            async with stdio_server() as (received, sent):
                await server.run(received, sent, server.create_initialization_options())

        anyio.run(serve)


def _asked(client: "AdminClient", method: str, request: "Message", within: timedelta = LASTING) -> "Message":
    return client.ask(method, request, within)
