"""amoro optimizer."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from amoro_cli.connection import DEFAULT_ADDRESS, parse_address, recorded_address
from amoro_cli.launcher import OptimizerOptions
from amoro_cli.output import OutputFormat, write
from amoro_cli.session import (
    LOCAL,
    OutputOption,
    Session,
    available_cores,
    command,
    memory_option,
    option_parser,
)
from amoro_cli.views.services import optimizer_list
from amoro_core.model.quantities import parse_duration


def register(app: typer.Typer) -> None:
    command(
        app,
        "run",
        "amoro optimizer run --address coordinator:1261 --group default --threads 4 --memory 512MB "
        "--token-file enrolment.token",
        LOCAL,
    )(run)
    command(app, "list", "amoro optimizer list")(list_optimizers)


def _heartbeat(text: str) -> timedelta:
    """A duration; a bare number means milliseconds, as for Amoro's -hb."""
    return parse_duration(f"{text.strip()}ms" if text.strip().isdecimal() else text)


def run(
    session: Session,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            "-a",
            metavar="HOST:PORT",
            help=f"The coordinator [default: $AMORO_ADDRESS, else the state directory's, else {DEFAULT_ADDRESS}].",
            show_default=False,
        ),
    ] = None,
    group: Annotated[str, typer.Option("--group", "-g", help="The group whose tasks it takes.")] = "default",
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", "-p", min=1, help="Tasks at a time [default: one for each core].", show_default=False
        ),
    ] = None,
    memory: Annotated[int, memory_option("--memory", help_="Memory of each thread.")] = "512MB",  # type: ignore[assignment]
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="The enrolment token [default: enrolment.token in the state directory].",
            show_default=False,
        ),
    ] = None,
    heartbeat_interval: Annotated[
        timedelta,
        typer.Option(
            "--heartbeat-interval",
            "-hb",
            metavar="DURATION",
            parser=option_parser(_heartbeat),
            help="How often it reports; a bare number is in milliseconds.",
        ),
    ] = "10s",  # type: ignore[assignment]
    resource_id: Annotated[
        str | None,
        typer.Option(
            "--resource-id", "-id", metavar="ID", help="The resource that it was started as.", show_default=False
        ),
    ] = None,
) -> None:
    """Run an optimizer: it asks a coordinator for tasks and rewrites files, until Ctrl-C or SIGTERM."""
    place = session.place
    named = parse_address(address) if address else place.address
    session.launcher.optimizer(
        OptimizerOptions(
            address=named or recorded_address(place.home) or DEFAULT_ADDRESS,
            group=group,
            threads=threads or available_cores(),
            memory_bytes=memory,
            token_file=token_file or session.options.token_file,
            home=place.home,
            heartbeat_interval=heartbeat_interval,
            resource_id=resource_id,
        )
    )


def list_optimizers(session: Session, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the optimizers that are registered with the coordinator."""
    with session.connect() as connection:
        write(optimizer_list(connection.client.list_optimizers()), output)
