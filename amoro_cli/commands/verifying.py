"""amoro verify."""

from datetime import timedelta
from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, TableArgument, command, duration_option
from amoro_cli.views.verification import verification_document
from amoro_core.errors import VerificationFailed


def register(app: typer.Typer) -> None:
    command(app, "verify", "amoro verify sales.db.orders")(verify)


def verify(
    session: Session,
    table: TableArgument,
    before: Annotated[
        int | None,
        typer.Option(
            metavar="SNAPSHOT",
            min=1,
            help="The older snapshot [default: the parent of the newer one].",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(
            metavar="SNAPSHOT",
            min=1,
            help="The newer snapshot [default: the last optimizing; with --before the head].",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[timedelta, duration_option("--timeout", help_="How long the reading may take.")] = "1h",  # type: ignore[assignment]
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Prove that optimizing lost, added and changed no row: read both sides of a rewrite and compare them.

    The rows of each partition are counted and summed up anew from the files, with their deletes, whatever the rewrite
    has reported. Files that both snapshots have are not read. Where others wrote between --before and --after, each
    rewrite is compared with its own parent, which nobody came between. Every live file is looked for, too.

    Exit status: 0 every row is there, or nothing to compare; 1 something differs or can't be read.
    """
    with session.connect(timeout, lasting=True) as connection:
        found = connection.client.verify_table(table, before or 0, after or 0, timeout)
    write(verification_document(found), output)
    if not found.sound:
        raise VerificationFailed(
            f"{found.table} did not pass the verification",
            hint="Don't expire its snapshots; set it back and report this. See: amoro table snapshots",
        )
