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

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient
    from amoro_core.protocol import admin_pb2 as pb

_TIMEOUT = default("10m")
#: In this order what is due is done: what removes rows or files from the table before what looks for leftovers.
_ORDER = (
    "auto-create-tags",
    "expire-data",
    "clean-dangling-delete-files",
    "rewrite-manifests",
    "expire-snapshots",
    "clean-orphan-files",
    "empty-trash",
    "compute-statistics",
)


def register(app: typer.Typer) -> None:
    """Add the commands to their group."""
    command(app, "maintain", "amoro table maintain sales.db.orders --action expire-snapshots --dry-run")(maintain)
    command(app, "actions", "amoro table actions sales.db.orders")(actions)


def maintain(
    session: Session,
    table: TableArgument,
    action: Annotated[
        str,
        typer.Option("--action", help="What to do, several with commas [default: what is due].", show_default=False),
    ] = "",
    older_than: Annotated[
        timedelta | None, duration_option("--older-than", help_="In place of the age that properties say.")
    ] = None,
    retain_last: Annotated[
        int | None, typer.Option("--retain-last", min=1, help="Snapshots of a branch that stay.", show_default=False)
    ] = None,
    snapshot: Annotated[
        list[int] | None, typer.Option("--snapshot", help="This one goes; may be repeated.", show_default=False)
    ] = None,
    location: Annotated[
        list[str] | None, typer.Option("--location", help="Look here, too; may be repeated.", show_default=False)
    ] = None,
    file_list: Annotated[
        str, typer.Option("--file-list", help="Go by this inventory, Parquet or CSV.", show_default=False)
    ] = "",
    confirm: Annotated[
        str, typer.Option("--confirm", help="The table's full name: whatever breakers say.", show_default=False)
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print the receipt.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    timeout: Annotated[
        timedelta,
        duration_option("--timeout", help_="How long to wait at most, for the lock, a busy table and the end."),
    ] = _TIMEOUT,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Maintain a table by actions other than optimizing, once.

    What is asked for is done whether or not the table's properties switch the action on. Without a running coordinator
    it is done in this process, which waits for the end. What a breaker holds (6) waits for --confirm.

    Exit status: as of `amoro optimize`.
    """
    from amoro_cli.client import Wanted  # loads gRPC

    deadline = Deadline(timeout)
    names = [name.strip() for name in action.split(",")] if action else []
    if "" in names:
        raise InvalidArgument(f"--action {action!r} names an action that is empty")
    with session.reading(lasting=True) if dry_run else session.connect(timeout, lasting=True) as connection:
        wanted = [
            Wanted(
                table, name, older_than, retain_last, tuple(snapshot or ()), tuple(location or ()), file_list, confirm
            )
            for name in names or _due(connection.client, table)
        ]
        done: list[tuple[pb.MaintainTableResponse, pb.Process | None]] = []
        failure = None
        with progress_report() as report:
            for one in wanted:
                if dry_run:
                    done.append((connection.client.preview_maintenance(one, deadline.left), None))
                    continue
                # The next one looks at the table as this one leaves it.
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


def _due(client: "AdminClient", table: str) -> list[str]:
    """The actions that are on and due on the table, in order."""
    due = [one.action for one in client.list_actions(table).actions if one.is_due]
    return sorted(due, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


def actions(
    session: Session,
    table: TableArgument,
    sort_by: Annotated[str, sort_option(ACTIONS)] = "",
    columns: Annotated[str, columns_option(ACTIONS)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the actions of a table: on or off and by whose word, the last run, the next, what keeps it."""
    with session.reading() as connection:
        write(actions_document(connection.client.list_actions(table), Arrangement(sort_by, columns)), output)
