"""amoro undo."""

import json
from datetime import timedelta
from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.progress import progress_report
from amoro_cli.session import OutputOption, Session, command, default, duration_option
from amoro_cli.streams import tell
from amoro_cli.views.maintaining import maintain_document
from amoro_cli.waiting import Deadline, failure_of, undo_once
from amoro_core.model.tables import OptimizingType

_TIMEOUT = default("10m")


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "undo", "amoro undo 01a1ff --dry-run")(undo)


def undo(
    session: Session,
    process: Annotated[
        str,
        typer.Argument(
            metavar="PROCESS", help="Its id, or a unique prefix of six characters or more.", show_default=False
        ),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print the receipt.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show whether it is possible, and what would change.")
    ] = False,
    timeout: Annotated[
        timedelta,
        duration_option("--timeout", help_="How long to wait at most, for the lock, a busy table and the end."),
    ] = _TIMEOUT,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Undo a process by a new commit. What others have committed since is kept.

    Works for minor, major and full optimizing, data expiry, snapshot expiry, orphan cleaning, tags and statistics.
    When it is not possible, or no longer, it is refused with the reason (6), and nothing changes. Without a running
    coordinator it runs in this process, which waits for the end.

        Exit status: as of `amoro optimize`.
    """
    deadline = Deadline(timeout)
    if dry_run:
        with session.reading(lasting=True) as connection:
            answer = connection.client.preview_undo(process, deadline.left)
        write(maintain_document(answer, None), output)
        return
    with session.connect(timeout, lasting=True) as connection:
        with progress_report() as report:
            answer, done = undo_once(connection, process, deadline, report, wait=wait)
        write(maintain_document(answer, done), output)
        if json.loads(answer.document or "{}").get("type") in tuple(OptimizingType):
            tell(f"Optimizing may do the same again. To prevent it: amoro table disable {answer.table}")
        if done is None:
            if answer.process_id:
                tell(f"Follow it with: amoro process show {answer.process_id}")
            return
        failure = failure_of(done, connection.embedded)
        if failure is not None:
            raise failure
