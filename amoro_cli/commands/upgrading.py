"""amoro table upgrade."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, TableArgument, command
from amoro_cli.streams import tell
from amoro_cli.views.upgrading import upgrade_document
from amoro_core.errors import InvalidArgument

if TYPE_CHECKING:
    from amoro_core.protocol import snapshots_pb2 as pb

_YES = ("y", "yes")


def register(app: typer.Typer) -> None:
    """Add the command to those of tables."""
    command(app, "upgrade", "amoro table upgrade sales.db.orders --format-version 3 --dry-run")(upgrade)


def upgrade(
    session: Session,
    table: TableArgument,
    format_version: Annotated[
        int, typer.Option("--format-version", min=1, max=100, help="The version to have: 3.", show_default=False)
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check whether it is possible, and say what it means.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Upgrade a table to format 3, which can't be taken back. No other command does, and no property.

    Engines that don't know format 3 lose the table. Rows get ids with the next commit. Another version than 3, and a
    table that has it already, are refused (2); so is one that is not handled (6).
    """
    with session.connect() as connection:
        checked = connection.client.upgrade_table(table, format_version, dry_run=True)
        if dry_run:
            write(upgrade_document(checked), output)
            return
        if not yes:
            _ask(checked)
        write(upgrade_document(connection.client.upgrade_table(table, format_version)), output)


def _ask(upgrade: "pb.TableUpgrade") -> None:
    """Tell what it means, and ask. Raises InvalidArgument unless the answer is yes."""
    if not sys.stdin.isatty():
        raise InvalidArgument(
            f"the upgrade of {upgrade.table} can't be taken back, and there is no terminal to ask", hint="Say --yes."
        )
    for note in upgrade.notes:
        tell(note)
    # Not by typer, which writes to stdout, where the document goes.
    tell(f"Upgrade {upgrade.table} from format {upgrade.before} to {upgrade.after}? [y/N]")
    if sys.stdin.readline().strip().lower() not in _YES:
        raise InvalidArgument(
            f"{upgrade.table} was not upgraded: the answer was not yes", hint="Answer y, or say --yes."
        )
