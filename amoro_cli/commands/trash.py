"""amoro trash list, show, restore, empty."""

from datetime import timedelta
from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.progress import progress_report
from amoro_cli.session import OutputOption, Session, TableArgument, command, default, duration_option
from amoro_cli.streams import tell
from amoro_cli.views.maintaining import maintain_document
from amoro_cli.views.trash import trash_detail, trash_list, trash_restored
from amoro_cli.waiting import Deadline, failure_of, maintain_once
from amoro_core.errors import InvalidArgument

ProcessArgument = Annotated[
    str,
    typer.Argument(metavar="PROCESS", help="Its id, or a unique prefix of six characters or more.", show_default=False),
]
_TIMEOUT = default("10m")
_EMPTYING = "empty-trash"


def register(app: typer.Typer) -> None:
    """Add the commands to their group."""
    command(app, "list", "amoro trash list")(list_)
    command(app, "show", "amoro trash show 01a1ffb2")(show)
    command(app, "restore", "amoro trash restore 01a1ffb2")(restore)
    command(app, "empty", "amoro trash empty sales.db.orders")(empty)


def list_(
    session: Session,
    table: Annotated[
        str,
        typer.Argument(metavar="[TABLE]", help="catalog.namespace.table; all tables without it.", show_default=False),
    ] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List what is condemned and not deleted yet, by process."""
    with session.reading() as connection:
        write(trash_list(connection.client.list_trash(table)), output)


def show(
    session: Session,
    process: ProcessArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Files to show at most.")] = 1000,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the files that a process has condemned, each with its reason."""
    with session.reading() as connection:
        write(trash_detail(connection.client.show_trash(process, limit)), output)


def restore(session: Session, process: ProcessArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Take back what a process has condemned: its files stay. What is being deleted can't be taken back (5)."""
    with session.connect() as connection:
        write(trash_restored(connection.client.restore_trash(process)), output)


def empty(
    session: Session,
    table: TableArgument,
    now: Annotated[bool, typer.Option("--now", help="All that waits, whatever its time.")] = False,
    confirm: Annotated[
        str, typer.Option("--confirm", help="With --now: the table's full name.", show_default=False)
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print the receipt.")] = False,
    timeout: Annotated[
        timedelta,
        duration_option("--timeout", help_="How long to wait at most, for the lock, a busy table and the end."),
    ] = _TIMEOUT,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Delete what is condemned on a table and due, each batch after one more look at what the table needs."""
    from amoro_cli.client import Wanted  # loads gRPC

    if now != bool(confirm):
        raise InvalidArgument(
            "--now and --confirm go together", hint=f"To delete at once what waits: --now --confirm {table}"
        )
    deadline = Deadline(timeout)
    with session.connect(timeout, lasting=True) as connection:
        if now:
            connection.client.hurry_trash(table, confirm)
        wanted = Wanted(table, _EMPTYING)
        with progress_report() as report:
            answer, process = maintain_once(connection, wanted, deadline, report, wait=wait)
        write(maintain_document(answer, process), output)
        if process is None:
            if answer.process_id:
                tell(f"Follow it with: amoro process show {answer.process_id}")
            return
        failure = failure_of(process, connection.embedded)
        if failure is not None:
            raise failure
