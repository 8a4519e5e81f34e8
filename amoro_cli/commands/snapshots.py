"""amoro table compare, retention."""

from typing import Annotated

import typer

from amoro_cli.arranging import columns_option, sort_option
from amoro_cli.listing import Arrangement
from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, TableArgument, command
from amoro_cli.views.snapshots import FATES, comparison_document, retention_document


def register(app: typer.Typer) -> None:
    """Add the commands to `amoro table`."""
    command(app, "compare", "amoro table compare sales.db.orders 3051729675574597004 5781947118336215154")(compare)
    command(app, "retention", "amoro table retention sales.db.orders")(retention)


def compare(
    session: Session,
    table: TableArgument,
    before: Annotated[int, typer.Argument(metavar="BEFORE", help="The id of a snapshot.", show_default=False)],
    after: Annotated[int, typer.Argument(metavar="AFTER", help="The id of another one.", show_default=False)],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Compare two snapshots of a table: files, rows and bytes, as their summaries tell them."""
    with session.reading() as connection:
        write(comparison_document(connection.client.compare_snapshots(table, before, after)), output)


def retention(
    session: Session,
    table: TableArgument,
    sort_by: Annotated[str, sort_option(FATES)] = "",
    columns: Annotated[str, columns_option(FATES)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show which snapshots the next expiry would take, and what keeps each of the others.

    Whether expiry is on, and when it is due, is told by amoro table actions.
    """
    with session.reading() as connection:
        write(retention_document(connection.client.get_retention(table), Arrangement(sort_by, columns)), output)
