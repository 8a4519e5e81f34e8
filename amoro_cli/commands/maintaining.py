"""amoro table maintain, actions."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.arranging import columns_option, sort_option
from amoro_cli.listing import Arrangement
from amoro_cli.output import OutputFormat, write
from amoro_cli.progress import progress_report
from amoro_cli.session import OutputOption, Session, TableArgument, command, default, duration_option
from amoro_cli.streams import tell
from amoro_cli.views.maintaining import ACTIONS, actions_document, maintain_document, maintenance_document
from amoro_cli.waiting import Deadline, failure_of, maintain_once
from amoro_core.errors import InvalidArgument
from amoro_core.model.maintenance import TAKEN_BY, turn

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient
    from amoro_core.protocol import admin_pb2 as pb

_TIMEOUT = default("10m")


def register(app: typer.Typer) -> None:
    """Add the commands to their group."""
    command(app, "maintain", "amoro table maintain sales.db.orders --action expire-snapshots --dry-run")(maintain)
    command(app, "actions", "amoro table actions sales.db.orders")(actions)


def maintain(
    session: Session,
    table: TableArgument,
    action: Annotated[
        str,
        typer.Option(
            "--action", help="The actions, separated by commas [default: those that are due].", show_default=False
        ),
    ] = "",
    older_than: Annotated[
        timedelta | None, duration_option("--older-than", help_="Overrides the age that the properties set.")
    ] = None,
    retain_last: Annotated[
        int | None,
        typer.Option("--retain-last", min=1, help="How many snapshots of a branch to keep.", show_default=False),
    ] = None,
    snapshot: Annotated[
        list[int] | None, typer.Option("--snapshot", help="Expire this snapshot; may be repeated.", show_default=False)
    ] = None,
    location: Annotated[
        list[str] | None,
        typer.Option("--location", help="Search this location too; may be repeated.", show_default=False),
    ] = None,
    file_list: Annotated[
        str,
        typer.Option("--file-list", help="Use this inventory instead of listing: Parquet or CSV.", show_default=False),
    ] = "",
    confirm: Annotated[
        str, typer.Option("--confirm", help="The table's full name: override the breakers.", show_default=False)
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print the receipt.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    timeout: Annotated[
        timedelta,
        duration_option("--timeout", help_="How long to wait at most, for the lock, a busy table and the end."),
    ] = _TIMEOUT,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Maintain a table by actions other than optimizing, once.

    The action runs whether or not the table's properties enable it. Without a running coordinator it runs in this
    process, which waits for the end. What a breaker holds (6) waits for --confirm.

    Exit status: as of `amoro optimize`.
    """
    from amoro_cli.wanted import Wanted

    deadline = Deadline(timeout)
    names = [name.strip() for name in action.split(",")] if action else []
    if "" in names:
        raise InvalidArgument(f"--action {action!r} contains an empty name", hint="Separate actions by single commas.")
    given = {
        "--older-than": older_than,
        "--retain-last": retain_last,
        "--snapshot": snapshot,
        "--location": location,
        "--file-list": file_list,
    }
    _require_action(names, [option for option, value in given.items() if value])
    with session.reading(lasting=True) if dry_run else session.connect(timeout, lasting=True) as connection:
        wanted = [
            Wanted(
                table, name, older_than, retain_last, tuple(snapshot or ()), tuple(location or ()), file_list, confirm
            )
            for name in names or _due(connection.client, table, confirm)
        ]
        done: list[tuple[pb.MaintainTableResponse, pb.Process | None]] = []
        failure = None
        with progress_report() as report:
            for one in wanted:
                if dry_run:
                    done.append((connection.client.preview_maintenance(one, deadline.left), None))
                    continue
                # The next action sees the table as this one leaves it.
                done.append(maintain_once(connection, one, deadline, report, wait=wait or len(wanted) > 1))
                process = done[-1][1]
                failure = failure_of(process, connection.embedded) if process is not None else None
                if failure is not None:
                    break
        single = len(wanted) == 1 and bool(names)
        write(maintain_document(*done[0]) if single else maintenance_document(table, done), output)
        for answer, process in done:
            if process is None and answer.process_id:
                tell(f"Follow it with: amoro process show {answer.process_id}")
        if failure is not None:
            raise failure


def _require_action(names: list[str], given: list[str]) -> None:
    """Raise InvalidArgument for options that are for some action, where none is named."""
    if given and not names:
        takers = " or ".join(sorted(TAKEN_BY[given[0]]))
        raise InvalidArgument(f"{given[0]} needs --action", hint=f"It is for {takers}: --action {takers.split()[0]}")


def _due(client: "AdminClient", table: str, confirm: str) -> list[str]:
    """The actions that are on and due on the table, in order.

    Raises InvalidArgument for a confirmation that does not name the table, though nothing may be due that it is for.
    """
    known = client.list_actions(table)
    if confirm and confirm != known.table:
        raise InvalidArgument(
            f"--confirm names {confirm!r}, and the table is {known.table}",
            hint=f"Confirm it with: --confirm {known.table}",
        )
    return sorted((one.action for one in known.actions if one.is_due), key=turn)


def actions(
    session: Session,
    table: TableArgument,
    sort_by: Annotated[str, sort_option(ACTIONS)] = "",
    columns: Annotated[str, columns_option(ACTIONS)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the actions of a table: whether each is on and why, its last run, its next one, and what prevents it."""
    with session.reading() as connection:
        write(actions_document(connection.client.list_actions(table), Arrangement(sort_by, columns)), output)
