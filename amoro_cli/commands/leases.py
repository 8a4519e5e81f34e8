"""amoro lease take, renew, release, list."""

from datetime import timedelta
from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, TableArgument, command, duration_option
from amoro_cli.views.trash import lease_detail, lease_list, lease_released
from amoro_core.errors import InvalidArgument

LeaseArgument = Annotated[str, typer.Argument(metavar="LEASE", help="Its id, or a unique prefix.", show_default=False)]
HoldOption = Annotated[
    timedelta | None, duration_option("--for", help_="How long it lasts from now on, at most 7d [default: 1d].")
]


def register(app: typer.Typer) -> None:
    """Add the commands to their group."""
    command(app, "take", "amoro lease take sales.db.orders --snapshot 3051729675574597004 --for 3d")(take)
    command(app, "renew", "amoro lease renew 01a1ffb2 --for 3d")(renew)
    command(app, "release", "amoro lease release 01a1ffb2")(release)
    command(app, "list", "amoro lease list sales.db.orders")(list_)


def take(
    session: Session,
    table: TableArgument,
    snapshot: Annotated[
        int | None, typer.Option("--snapshot", help="It stays, with its chain to the head.", show_default=False)
    ] = None,
    since: Annotated[
        int | None, typer.Option("--since", help="It stays, with all newer ones.", show_default=False)
    ] = None,
    hold: HoldOption = None,
    holder: Annotated[str, typer.Option("--holder", help="Who needs it; shown.", show_default=False)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Keep a snapshot from expiry for a while, such as for a reader that comes back to it."""
    if (snapshot is None) == (since is None):
        raise InvalidArgument("a lease needs --snapshot or --since, and not both")
    snapshot_id = snapshot if snapshot is not None else since
    with session.connect() as connection:
        made = connection.client.take_lease(table, snapshot_id or 0, since is not None, hold, holder)
        write(lease_detail(made), output)


def renew(
    session: Session, lease: LeaseArgument, hold: HoldOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Renew a lease, from now on. One that has expired is not found (3): its snapshot may be gone."""
    with session.connect() as connection:
        write(lease_detail(connection.client.renew_lease(lease, hold)), output)


def release(session: Session, lease: LeaseArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Release a lease."""
    with session.connect() as connection:
        write(lease_released(connection.client.release_lease(lease)), output)


def list_(
    session: Session,
    table: Annotated[
        str,
        typer.Argument(metavar="[TABLE]", help="catalog.namespace.table; all tables without it.", show_default=False),
    ] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the leases that hold now."""
    with session.reading() as connection:
        write(lease_list(connection.client.list_leases(table)), output)
