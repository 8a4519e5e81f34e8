"""amoro verify."""

from datetime import timedelta
from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, TableArgument, command, default, duration_option, option_parser
from amoro_cli.views.verification import verification_document
from amoro_core.errors import VerificationFailed

_TIMEOUT = default("1h")


def register(app: typer.Typer) -> None:
    """Add `amoro verify`."""
    command(app, "verify", "amoro verify sales.db.orders")(verify)


def _snapshot(text: str) -> int:
    """A snapshot's id: a positive number of 64 bits."""
    word = text.strip()
    if word.isascii() and word.isdecimal() and len(word) <= 19 and 0 < int(word) < 2**63:
        return int(word)
    raise ValueError(f"{text!r} is not the id of a snapshot. See: amoro table snapshots TABLE")


def verify(
    session: Session,
    table: TableArgument,
    before: Annotated[
        int | None,
        typer.Option(
            metavar="SNAPSHOT",
            parser=option_parser(_snapshot),
            help="The older snapshot [default: the parent of the newer one].",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(
            metavar="SNAPSHOT",
            parser=option_parser(_snapshot),
            help="The newer snapshot [default: the last optimizing commit; with --before, the head].",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[timedelta, duration_option("--timeout", help_="How long reading may take.")] = _TIMEOUT,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Prove that optimizing lost, added or changed no row: read both sides of a rewrite and compare them.

    The rows of each partition are counted and checksummed from the files, with deletes applied, independent of what the
    rewrite reported. Files in both snapshots are not read. Where others wrote between --before and --after, each
    rewrite is compared with its own parent snapshot. It also checks that every live file exists.

        Exit status: 0 every row is there, or nothing to compare; 1 a difference, or a file that can't be read.
    """
    with session.reading(lasting=True) as connection:
        found = connection.client.verify_table(table, before or 0, after or 0, timeout)
    write(verification_document(found), output)
    if not found.sound:
        raise VerificationFailed(
            f"{found.table} did not pass the verification",
            hint="Don't expire its snapshots; roll the table back and report this. See: amoro table snapshots",
        )
