"""amoro table."""

from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.completing import names_of
from amoro_cli.launcher import Kind
from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, TableArgument, command
from amoro_cli.views.settings import properties_document
from amoro_cli.views.tables import table_detail, table_files, table_health, table_list, table_snapshots
from amoro_cli.watching import IntervalOption, Look, WatchOption, show_watched
from amoro_core.model.tables import OptimizingStatus

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient


def register(app: typer.Typer) -> None:
    command(app, "list", "amoro table list --catalog sales --status pending")(list_tables)
    command(app, "show", "amoro table show sales.db.orders")(show)
    command(app, "enable", "amoro table enable sales.db.orders")(enable)
    command(app, "disable", "amoro table disable sales.db.orders")(disable)
    command(app, "properties", "amoro table properties sales.db.orders")(properties)
    command(app, "health", "amoro table health sales.db.orders")(health)
    command(app, "files", "amoro table files sales.db.orders --limit 20")(files)
    command(app, "snapshots", "amoro table snapshots sales.db.orders --limit 5")(snapshots)


def list_tables(
    session: Session,
    catalog: Annotated[
        str,
        typer.Option(help="Only tables of this catalog.", show_default=False, autocompletion=names_of(Kind.CATALOG)),
    ] = "",
    status: Annotated[
        OptimizingStatus | None,
        typer.Option(help="Only tables in this status.", case_sensitive=False, show_default=False),
    ] = None,
    group: Annotated[str, typer.Option(help="Only tables of this optimizer group.", show_default=False)] = "",
    watch: WatchOption = False,
    interval: IntervalOption = "2s",  # type: ignore[assignment]
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the tables with their status and health."""

    def ask(client: "AdminClient") -> Look:
        found = client.list_tables(catalog, status or "")
        return Look(table_list([item for item in found if group in ("", item.group)]))

    show_watched(session, ask, output, watch, interval)


def show(
    session: Session,
    table: TableArgument,
    watch: WatchOption = False,
    interval: IntervalOption = "2s",  # type: ignore[assignment]
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show one table: status, health, files, and who decides whether it is optimized."""
    show_watched(session, lambda client: Look(table_detail(client.get_table(table))), output, watch, interval)


def enable(session: Session, table: TableArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Let the coordinator optimize a table by itself, unless the table's own property says no."""
    _set_enabled(session, table, True, output)


def disable(session: Session, table: TableArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Keep the coordinator from optimizing a table. The table itself is not touched."""
    _set_enabled(session, table, False, output)


def properties(session: Session, table: TableArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show every property that steers the optimizing of a table, its value, and who said it."""
    with session.connect() as connection:
        write(properties_document(connection.client.get_table_properties(table)), output)


def health(session: Session, table: TableArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Evaluate a table now and show its health score by its parts. Nothing is planned."""
    with session.connect() as connection:
        write(table_health(connection.client.get_table_health(table)), output)


def files(
    session: Session,
    table: TableArgument,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=10_000)] = 100,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the live data and delete files of a table, by partition."""
    with session.connect() as connection:
        write(table_files(table, connection.client.list_table_files(table, limit)), output)


def snapshots(
    session: Session,
    table: TableArgument,
    limit: Annotated[int, typer.Option(help="At most so many, the newest first.", min=1, max=10_000)] = 20,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the snapshots that a table still has, the newest first, and which of them our commits made."""
    with session.connect() as connection:
        write(table_snapshots(table, connection.client.list_snapshots(table, limit)), output)


def _set_enabled(session: Session, table: str, enabled: bool, output: OutputFormat) -> None:
    with session.connect() as connection:
        write(table_detail(connection.client.set_table_enabled(table, enabled)), output)
