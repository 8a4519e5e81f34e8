"""amoro state."""

from pathlib import Path
from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, command
from amoro_cli.views.state import backup_document, check_document, state_document
from amoro_core.errors import StoreFailed


def register(app: typer.Typer) -> None:
    """Add the commands of `amoro state`."""
    command(app, "show", "amoro state show")(show)
    command(app, "backup", "amoro state backup amoro-backup.db")(backup)
    command(app, "check", "amoro state check")(check)


def show(session: Session, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the state database: where it is, its size, its schema, and the last backup."""
    with session.reading() as connection:
        write(state_document(connection.client.get_state()), output)


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
        write(backup_document(connection.client.backup_state(str(file.expanduser().absolute()))), output)


def check(session: Session, output: OutputOption = OutputFormat.TABLE) -> None:
    """Check the state database. Exit status 1 when it is damaged."""
    with session.reading() as connection:
        problems = connection.client.check_state()
    write(check_document(problems), output)
    if problems:
        raise StoreFailed(
            "the state database is damaged",
            hint="Stop the coordinator and replace amoro.db with a backup; the tables are not affected.",
        )
