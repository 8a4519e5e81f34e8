"""amoro table block, renew, unblock, blockers."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.arranging import columns_option, sort_option
from amoro_cli.listing import Arrangement
from amoro_cli.output import OutputFormat, write
from amoro_cli.paging import LimitOption, after_option, window
from amoro_cli.session import AnyTableArgument, OutputOption, Session, TableArgument, command, duration_option
from amoro_cli.views.blockers import BLOCKERS, blocker_detail, blocker_list, blocker_released
from amoro_cli.watching import INTERVAL, IntervalOption, Look, WatchOption, show_watched
from amoro_core.model.blockers import BlockedOperation

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient

BlockerArgument = Annotated[
    str,
    typer.Argument(metavar="BLOCKER", help="Its id, or a unique prefix of six characters or more.", show_default=False),
]
HoldOption = Annotated[
    timedelta | None,
    duration_option("--for", help_="How long it lasts from now on, at most 1d; then it expires by itself."),
]


def register(app: typer.Typer) -> None:
    """Add `amoro table block` and the other commands of blockers."""
    command(app, "block", "amoro table block sales.db.orders --for 30m --reason 'nightly overwrite'")(block)
    command(app, "renew", "amoro table renew 01a1ffb2-9673")(renew)
    command(app, "unblock", "amoro table unblock 01a1ffb2-9673")(unblock)
    command(app, "blockers", "amoro table blockers sales.db.orders")(blockers)


def block(
    session: Session,
    table: TableArgument,
    operations: Annotated[
        list[BlockedOperation] | None,
        typer.Option(
            "--operation",
            case_sensitive=False,
            help="What is kept off the table; may be repeated [default: optimize].",
            show_default=False,
        ),
    ] = None,
    hold: HoldOption = None,
    reason: Annotated[str, typer.Option("--reason", help="Shown to whoever is blocked.", show_default=False)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Block optimizing, or batch writers that ask, on a table for a while.

    It is refused while a process is active on the table (5), and while another blocker covers the same operation (5).
    """
    with session.connect() as connection:
        names = [operation.value for operation in operations or ()]
        write(blocker_detail(connection.client.block_table(table, names, hold, reason)), output)


def renew(
    session: Session, blocker: BlockerArgument, hold: HoldOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Renew a blocker for as long as it was taken for, from now on. One that has expired is not found (3)."""
    with session.connect() as connection:
        write(blocker_detail(connection.client.renew_blocker(blocker, hold)), output)


def unblock(session: Session, blocker: BlockerArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Release a blocker."""
    with session.connect() as connection:
        write(blocker_released(connection.client.release_blocker(blocker)), output)


def blockers(
    session: Session,
    table: AnyTableArgument = "",
    limit: LimitOption = None,
    after: Annotated[str, after_option("BLOCKER")] = "",
    sort_by: Annotated[str, sort_option(BLOCKERS)] = "",
    columns: Annotated[str, columns_option(BLOCKERS)] = "",
    watch: WatchOption = False,
    interval: IntervalOption = INTERVAL,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the active blockers."""

    def ask(client: "AdminClient") -> Look:
        return Look(blocker_list(client.list_blockers(table, window(limit, after)), Arrangement(sort_by, columns)))

    show_watched(session, ask, output, watch, interval)
