"""amoro lease take, renew, release, list."""

from datetime import timedelta
from typing import Annotated

import typer

from amoro_cli.arranging import columns_option, sort_option
from amoro_cli.listing import Arrangement
from amoro_cli.output import OutputFormat, write
from amoro_cli.paging import LimitOption, after_option, window
from amoro_cli.session import AnyTableArgument, OutputOption, Session, TableArgument, command, duration_option
from amoro_cli.views.trash import LEASES, lease_detail, lease_list, lease_released
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
        int | None,
        typer.Option("--snapshot", help="Keep this snapshot and the chain from it to the head.", show_default=False),
    ] = None,
    since: Annotated[
        int | None, typer.Option("--since", help="Keep this snapshot and all newer ones.", show_default=False)
    ] = None,
    hold: HoldOption = None,
    holder: Annotated[str, typer.Option("--holder", help="Who needs it; shown.", show_default=False)] = "",
    as_tag: Annotated[
        bool, typer.Option("--as-tag", help="With --snapshot: also by a tag in the table, for other tools.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Keep a snapshot from expiring for a while, such as for a reader that will return to it.

    Other tools that expire snapshots of the table do not know of it, unless it is taken as a tag.
    """
    if (snapshot is None) == (since is None):
        raise InvalidArgument("a lease needs either --snapshot or --since")
    snapshot_id = snapshot if snapshot is not None else since
    with session.connect() as connection:
        made = connection.client.take_lease(table, snapshot_id or 0, since is not None, hold, holder, as_tag=as_tag)
        write(lease_detail(made), output)


def renew(
    session: Session, lease: LeaseArgument, hold: HoldOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Renew a lease and its tag, counted from now. An expired lease is not found (3): its snapshot may be gone."""
    with session.connect() as connection:
        write(lease_detail(connection.client.renew_lease(lease, hold)), output)


def release(session: Session, lease: LeaseArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Release a lease, and its tag."""
    with session.connect() as connection:
        write(lease_released(connection.client.release_lease(lease)), output)


def list_(
    session: Session,
    table: AnyTableArgument = "",
    limit: LimitOption = None,
    after: Annotated[str, after_option("CURSOR")] = "",
    sort_by: Annotated[str, sort_option(LEASES)] = "",
    columns: Annotated[str, columns_option(LEASES)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the active leases."""
    with session.reading() as connection:
        found = connection.client.list_leases(table, window(limit, after))
        write(lease_list(found, Arrangement(sort_by, columns)), output)
