"""amoro task."""

from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.arranging import columns_option, sort_option
from amoro_cli.commands.processes import ProcessArgument, refuse_short
from amoro_cli.listing import Arrangement
from amoro_cli.output import OutputFormat
from amoro_cli.paging import LimitOption, after_option, window
from amoro_cli.session import OutputOption, Session, command
from amoro_cli.views.journal import ATTEMPTS, attempt_list
from amoro_cli.views.processes import is_active
from amoro_cli.views.tasks import TASKS, task_detail, task_list
from amoro_cli.watching import INTERVAL, IntervalOption, Look, WatchOption, show_watched
from amoro_core.errors import InvalidArgument, TaskNotFound
from amoro_core.model.processes import TaskStatus

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient


def register(app: typer.Typer) -> None:
    """Add the commands of `amoro task`."""
    command(app, "list", "amoro task list 01997a --status failed")(list_tasks)
    command(app, "show", "amoro task show 01997a-3")(show)
    command(app, "attempts", "amoro task attempts 01997a-3")(attempts)


def list_tasks(
    session: Session,
    process_id: ProcessArgument,
    status: Annotated[
        TaskStatus | None,
        typer.Option(help="Only tasks in this status.", case_sensitive=False, show_default=False),
    ] = None,
    limit: LimitOption = None,
    after: Annotated[str, after_option("N")] = "",
    sort_by: Annotated[str, sort_option(TASKS)] = "",
    columns: Annotated[str, columns_option(TASKS)] = "",
    watch: WatchOption = False,
    interval: IntervalOption = INTERVAL,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the tasks of a process, by number."""
    refuse_short(process_id)

    def ask(client: "AdminClient") -> Look:
        process, found = client.list_tasks(process_id, status or "", window(limit, after))
        return Look(task_list(process.process_id, found, Arrangement(sort_by, columns)), ended=not is_active(process))

    show_watched(session, ask, output, watch, interval)


def show(
    session: Session,
    task_id: Annotated[
        str,
        typer.Argument(
            metavar="PROCESS-N",
            help="The process's id or a unique prefix of six characters or more, a dash, and the task's number.",
            show_default=False,
        ),
    ],
    watch: WatchOption = False,
    interval: IntervalOption = INTERVAL,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show one task: its attempts, the optimizer that runs it, and its last failure."""
    process_id, number = parse_task(task_id)

    def ask(client: "AdminClient") -> Look:
        process, found = client.list_tasks(process_id, window=window(1, str(number - 1)))
        for task in found.items:
            if task.task_id == number:
                return Look(task_detail(process, task), ended=not is_active(process))
        raise TaskNotFound(
            f"process {process.process_id} has no task {number}",
            hint=f"Its tasks are numbered from 1 to {process.tasks_total}.",
        )

    show_watched(session, ask, output, watch, interval)


def attempts(
    session: Session,
    of: Annotated[
        str,
        typer.Argument(
            metavar="PROCESS[-N]",
            help="A process by its id or a unique prefix of six characters or more, or one of its tasks.",
            show_default=False,
        ),
    ],
    limit: LimitOption = None,
    after: Annotated[str, after_option("TASK-ATTEMPT")] = "",
    sort_by: Annotated[str, sort_option(ATTEMPTS)] = "",
    columns: Annotated[str, columns_option(ATTEMPTS)] = "",
    watch: WatchOption = False,
    interval: IntervalOption = INTERVAL,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the attempts of a process's tasks, or of one task: who ran them, for how long, and what became of them.

    Of each task the latest 100 are kept, as long as the process.
    """
    process_id, task = parse_task(of) if _names_task(of) else (of, 0)
    refuse_short(process_id)

    def ask(client: "AdminClient") -> Look:
        process, found = client.list_attempts(process_id, task, window(limit, after))
        return Look(attempt_list(process, found, Arrangement(sort_by, columns)))

    show_watched(session, ask, output, watch, interval)


def _names_task(text: str) -> bool:
    """Whether a text with a dash at its end means a task: an id has four dashes of its own, a prefix maybe fewer."""
    head, dash, number = text.rpartition("-")
    return bool(dash) and _is_number(number) and head.count("-") in (0, 4)


def parse_task(text: str) -> tuple[str, int]:
    """The process id and task number in a text like "01997a-3". Raises InvalidArgument."""
    process_id, dash, number = text.rpartition("-")
    if not dash or not _is_number(number):
        raise InvalidArgument(f"{text!r} is not a task", hint="Write PROCESS-N, such as 01997a-3.")
    refuse_short(process_id)
    return process_id, int(number)


def _is_number(text: str) -> bool:
    """Whether a task may have that number."""
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0
