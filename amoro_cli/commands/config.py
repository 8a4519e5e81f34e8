"""amoro config."""

from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, command
from amoro_cli.views.settings import settings_document


def register(app: typer.Typer) -> None:
    """Add the commands of `amoro config`."""
    command(app, "show", "amoro config show --origin")(show)


def show(
    session: Session,
    origin: Annotated[
        bool, typer.Option("--origin", help="Say where each value comes from: flag, environment, file or default.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the settings that the coordinator runs with."""
    with session.reading(lasting=True) as connection:
        write(settings_document(connection.client.get_settings(), origin), output)
