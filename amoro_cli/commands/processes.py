"""amoro process."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.arranging import columns_option, sort_option
from amoro_cli.completing import names_of
from amoro_cli.launcher import Kind
from amoro_cli.listing import Arrangement
from amoro_cli.output import OutputFormat, write
from amoro_cli.paging import after_option, window
from amoro_cli.progress import progress_report
from amoro_cli.session import OutputOption, Session, command, default, duration_option
from amoro_cli.views.processes import PROCESSES, is_active, process_detail, process_list
from amoro_cli.waiting import Deadline, failure_of, wait_for_end
from amoro_cli.watching import INTERVAL, IntervalOption, Look, WatchOption, show_watched
from amoro_core.errors import InvalidArgument
from amoro_core.model.processes import ProcessStatus

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient

_SHORTEST_PREFIX = 6
_TIMEOUT = default("10m")


def register(app: typer.Typer) -> None:
    """Add the commands of `amoro process`."""
    command(app, "list", "amoro process list --table sales.db.orders --limit 5")(list_processes)
    command(app, "show", "amoro process show 01997a")(show)
    command(app, "start", "amoro process start 01997a")(start)
    command(app, "cancel", "amoro process cancel 01997a")(cancel)


def list_processes(
    session: Session,
    table: Annotated[
        str,
        typer.Option(
            metavar="TABLE",
            help="Only processes of this table.",
            show_default=False,
            autocompletion=names_of(Kind.TABLE),
        ),
    ] = "",
    status: Annotated[
        ProcessStatus | None,
        typer.Option(help="Only processes in this status.", case_sensitive=False, show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(help="How many to list at most, newest first.", min=1, max=1_000_000)] = 20,
    after: Annotated[str, after_option("PROCESS")] = "",
    sort_by: Annotated[str, sort_option(PROCESSES)] = "",
    columns: Annotated[str, columns_option(PROCESSES)] = "",
    watch: WatchOption = False,
    interval: IntervalOption = INTERVAL,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List optimizing processes, the newest first."""

    def ask(client: "AdminClient") -> Look:
        found = client.list_processes(table, status or "", window(limit, after))
        return Look(
            process_list(found, Arrangement(sort_by, columns)),
            running=[process for process in found.items if is_active(process)],
        )

    show_watched(session, ask, output, watch, interval)


ProcessArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The process's id, or a unique prefix of six characters or more.",
        autocompletion=names_of(Kind.PROCESS),
    ),
]


def show(
    session: Session,
    process_id: ProcessArgument,
    watch: WatchOption = False,
    interval: IntervalOption = INTERVAL,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show one process with its tasks, and the receipt of its commit."""
    refuse_short(process_id)

    def ask(client: "AdminClient") -> Look:
        process = client.with_tasks(client.get_process(process_id))
        return Look(
            process_detail(process), ended=not is_active(process), running=[process] if is_active(process) else []
        )

    show_watched(session, ask, output, watch, interval)


def start(
    session: Session,
    process_id: ProcessArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end and print the receipt.")] = False,
    timeout: Annotated[timedelta, duration_option("--timeout", help_="How long to wait at most.")] = _TIMEOUT,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Start a process that was planned and stored, and waits.

    Without a running coordinator it runs in this process, which waits for the end.
    """
    refuse_short(process_id)
    deadline = Deadline(timeout)
    with session.connect(timeout, lasting=True) as connection, progress_report() as report:
        client = connection.client
        process = client.start_process(process_id)
        if not (wait or connection.embedded):
            write(process_detail(client.with_tasks(process)), output)
            return
        process = wait_for_end(client, process.process_id, deadline, report)
        write(process_detail(process), output)
        failure = failure_of(process, connection.embedded)
    if failure is not None:
        raise failure


def cancel(session: Session, process_id: ProcessArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Cancel a running process before its commit. Its tasks are abandoned, and what they wrote is removed."""
    refuse_short(process_id)
    with session.connect() as connection:
        client = connection.client
        write(process_detail(client.with_tasks(client.cancel_process(process_id))), output)


def refuse_short(process_id: str) -> None:
    """Raises InvalidArgument for a prefix too short to be unique."""
    if len(process_id) < _SHORTEST_PREFIX:
        raise InvalidArgument(
            f"{process_id!r} is too short for the id of a process",
            hint=f"Give {_SHORTEST_PREFIX} characters or more. See: amoro process list",
        )
