"""amoro status."""

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, command
from amoro_cli.views.status import status_document


def register(app: typer.Typer) -> None:
    """Add `amoro status`."""
    command(app, "status", "amoro status -o json")(status)


def status(session: Session, output: OutputOption = OutputFormat.TABLE) -> None:
    """Say what runs and what is wrong: each condition that holds, and what to do about it."""
    with session.reading() as connection:
        found, conditions = connection.client.get_status(), connection.client.list_conditions()
    write(status_document(found, conditions), output)
