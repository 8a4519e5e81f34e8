"""amoro table maintain."""

from datetime import timedelta
from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.progress import progress_report
from amoro_cli.session import OutputOption, Session, TableArgument, command, default, duration_option
from amoro_cli.streams import tell
from amoro_cli.views.processes import maintain_document
from amoro_cli.waiting import Deadline, failure_of, maintain_once

_TIMEOUT = default("10m")
ActionOption = Annotated[str, typer.Option("--action", help="What to do, such as auto-create-tags.")]


def register(app: typer.Typer) -> None:
    """Add the command to its group."""
    command(app, "maintain", "amoro table maintain sales.db.orders --action auto-create-tags --wait")(maintain)


def maintain(
    session: Session,
    table: TableArgument,
    action: ActionOption,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print the receipt.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    timeout: Annotated[
        timedelta,
        duration_option("--timeout", help_="How long to wait at most, for the lock, a busy table and the end."),
    ] = _TIMEOUT,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Maintain a table by an action other than optimizing, once.

    What is asked for is done whether or not the table's properties switch the action on. Without a running coordinator
    it is done in this process, which waits for the end.

    Exit status: as of `amoro optimize`.
    """
    deadline = Deadline(timeout)
    if dry_run:
        with session.reading(lasting=True) as connection:
            answer = connection.client.preview_maintenance(table, action, deadline.left)
        write(maintain_document(answer, None), output)
        return
    with session.connect(timeout, lasting=True) as connection:
        with progress_report() as report:
            answer, process = maintain_once(connection, table, action, deadline, report, wait=wait)
        write(maintain_document(answer, process), output)
        if process is None:
            if answer.process_id:
                tell(f"Follow it with: amoro process show {answer.process_id}")
            return
        failure = failure_of(process, connection.embedded)
        if failure is not None:
            raise failure
