"""Commands of the history: amoro process, task, event."""

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.connection import Kind
from amoro_cli.context import (
    TIMEOUT,
    ProcessArgument,
    Session,
    TimeoutOption,
    WaitOption,
    argument,
    default,
    duration_option,
    names_of,
    option,
    since_option,
    table_option,
    until_option,
)
from amoro_cli.list_options import ListOptions, gather, list_command, listed
from amoro_cli.output import OutputFormat
from amoro_cli.progress import INTERVAL, IntervalOption, Look, WatchOption, progress_report, show_watched
from amoro_cli.views.processes import (
    ATTEMPTS,
    EVENTS,
    PROCESSES,
    TASKS,
    event_line,
    is_active,
    process_detail,
    report_document,
    task_detail,
)
from amoro_cli.wait import Deadline, finish, wait_for_end, with_tasks
from amoro_core.errors import InvalidArgument, TaskNotFound
from amoro_core.model.history_events import EventKind
from amoro_core.model.processes import SHORTEST_ID, ProcessStatus, TaskStatus
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal_pb

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient


@list_command(PROCESSES, after="PROCESS", limit=20, newest_first=True, watch=True)
def list_processes(
    session: Session,
    options: ListOptions,
    table: Annotated[str, table_option("Only processes of this table.")] = "",
    status: Annotated[ProcessStatus | None, option(help="Only processes in this status.")] = None,
    type_: Annotated[
        str, option("--type", metavar="TYPE", help="Only processes of this type: minor, major, full, cluster, ...")
    ] = "",
    since: Annotated[int | None, since_option("Only what ended then or later, or has not ended.")] = None,
    until: Annotated[int | None, until_option("Only what ended before that time.")] = None,
) -> None:
    """List optimizing processes, the newest first."""

    def ask(client: "AdminClient") -> Look:
        request = pb.ListProcessesRequest(
            table=table, status=status or "", type=type_, since_ms=since or 0, until_ms=until or 0
        )
        part = listed(client, options.window, request)
        running = [process for process in part.items if is_active(process)]
        return Look(PROCESSES.document(part, options), running=running)

    show_watched(session, ask, options.watch, options.interval)


HALF_A_DAY = default("12h")


def report(
    session: Session,
    since: Annotated[int, since_option("From that time on.")] = HALF_A_DAY,
    until: Annotated[int | None, until_option("Until that time [default: now].")] = None,
    table: Annotated[str, table_option("Only of this table, or of those that match a pattern such as 'shop.*'.")] = "",
) -> None:
    """Report what was done, what failed and why, and what got worse.

    It counts the processes that ended in that time, as long as they are kept; those of removed tables are not.
    """
    session.show(journal_pb.GetReportRequest(since_ms=since, until_ms=until or 0, table=table), report_document)


def show(
    session: Session, process_id: ProcessArgument, watch: WatchOption = False, interval: IntervalOption = INTERVAL
) -> None:
    """Show one process with its tasks, and the receipt of its commit."""
    refuse_short(process_id)

    def ask(client: "AdminClient") -> Look:
        process = with_tasks(client, client.GetProcess(pb.GetProcessRequest(process_id=process_id)))
        running = [process] if is_active(process) else []
        return Look(process_detail(process), ended=not running, running=running)

    show_watched(session, ask, watch, interval)


def start(
    session: Session, process_id: ProcessArgument, wait: WaitOption = False, timeout: TimeoutOption = TIMEOUT
) -> None:
    """Start a process that was planned with --schedule-only.

    Without a running coordinator it runs in this process, which waits for the end.
    """
    refuse_short(process_id)
    deadline = Deadline(timeout)
    with session.connect(timeout, lasting=True) as connection, progress_report() as report:
        client = connection.client
        process = client.StartProcess(pb.StartProcessRequest(process_id=process_id))
        if not (wait or connection.embedded):
            session.write(process_detail(with_tasks(client, process)))
            return
        process = wait_for_end(client, process.process_id, deadline, report)
        session.write(process_detail(process))
    finish(process, process.process_id, connection.embedded)


def cancel(session: Session, process_id: ProcessArgument) -> None:
    """Cancel a running process before its commit. Its tasks are abandoned, and what they wrote is removed."""
    refuse_short(process_id)
    with session.connect() as connection:
        client = connection.client
        cancelled = client.CancelProcess(pb.CancelProcessRequest(process_id=process_id))
        session.write(process_detail(with_tasks(client, cancelled)))


def refuse_short(process_id: str) -> None:
    """Raises InvalidArgument for a text too short for the beginning or the end of an id."""
    if len(process_id) < SHORTEST_ID:
        raise InvalidArgument(
            f"{process_id!r} is too short for the id of a process",
            hint=f"Give {SHORTEST_ID} characters or more. See: amoro process list",
        )


@list_command(TASKS, after="N", watch=True)
def list_tasks(
    session: Session,
    options: ListOptions,
    process_id: ProcessArgument,
    status: Annotated[TaskStatus | None, option(help="Only tasks in this status.")] = None,
) -> None:
    """List the tasks of a process, by number."""
    refuse_short(process_id)

    def ask(client: "AdminClient") -> Look:
        first, part = gather(client, options.window, pb.ListTasksRequest(process_id=process_id, status=status or ""))
        owner = first.process.process_id
        document = TASKS.document(
            part, options, before={"process_id": owner}, name=lambda task: f"{owner}-{task.task_id}"
        )
        return Look(document, ended=not is_active(first.process))

    show_watched(session, ask, options.watch, options.interval)


def show_task(
    session: Session,
    task_id: Annotated[
        str,
        argument(
            metavar="PROCESS-N",
            help="The process's id or six or more characters of its beginning or end, a dash, and the task's number.",
        ),
    ],
    watch: WatchOption = False,
    interval: IntervalOption = INTERVAL,
) -> None:
    """Show one task: its attempts, its optimizer, its last failure."""
    process_id, number = parse_task(task_id)

    def ask(client: "AdminClient") -> Look:
        answer = client.ListTasks(pb.ListTasksRequest(process_id=process_id, limit=1, after=str(number - 1)))
        process = answer.process
        for task in answer.tasks:
            if task.task_id == number:
                return Look(task_detail(process, task), ended=not is_active(process))
        raise TaskNotFound(
            f"process {process.process_id} has no task {number}",
            hint=f"Its tasks are numbered from 1 to {process.tasks_total}.",
        )

    show_watched(session, ask, watch, interval)


@list_command(ATTEMPTS, after="TASK-ATTEMPT", watch=True)
def attempts(
    session: Session,
    options: ListOptions,
    of: Annotated[
        str,
        argument(
            metavar="PROCESS[-N]",
            help="A process by its id or six or more characters of its beginning or end, or one of its tasks.",
        ),
    ],
) -> None:
    """List the attempts of a process's tasks, or of one task.

    It shows who ran them, for how long, and how they ended. The latest 100 of each task are kept with the process.
    """
    process_id, task = parse_task(of) if _names_task(of) else (of, 0)
    refuse_short(process_id)

    def ask(client: "AdminClient") -> Look:
        request = journal_pb.ListAttemptsRequest(process_id=process_id, task_id=task)
        first, part = gather(client, options.window, request)
        owner = first.process_id
        document = ATTEMPTS.document(
            part, options, before={"process_id": owner}, name=lambda item: f"{owner}-{item.task_id}-{item.attempt}"
        )
        return Look(document)

    show_watched(session, ask, options.watch, options.interval)


def _names_task(text: str) -> bool:
    """Whether a text with a dash at its end means a task: an id has four dashes of its own."""
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


EVENTS_INTERVAL = default("1s")


@list_command(EVENTS, after="NEXT", limit=20, newest_first=True)
def list_events(
    session: Session,
    options: ListOptions,
    kind: Annotated[list[EventKind] | None, option(help="Only events of this kind; repeatable.")] = None,
    table: Annotated[str, table_option("Only events of this table; a removed table keeps its last name.")] = "",
    process: Annotated[
        str, option(metavar="ID", help="Only events of this process.", autocompletion=names_of(Kind.PROCESS))
    ] = "",
    since: Annotated[int | None, since_option("Only events of that time or later.")] = None,
    until: Annotated[int | None, until_option("Only events before that time.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with events as they happen, oldest first, until Ctrl-C.")
    ] = False,
    interval: Annotated[timedelta, duration_option(help_="How often --follow polls.")] = EVENTS_INTERVAL,
) -> None:
    """List what happened, the newest first. Events are of tables, processes, optimizers and groups.

    Events are kept for 30 days, at most a million.
    """
    if process:
        refuse_short(process)
    if follow and (options.after or options.sort_by or options.columns):
        raise InvalidArgument("--follow goes by the time: leave out --after, --sort-by and --columns")
    events_request = journal_pb.ListEventsRequest(
        kinds=[item.value for item in kind or ()],
        table=table,
        process_id=process,
        since_ms=since or 0,
        until_ms=until or 0,
    )
    with session.reading() as connection:
        client = connection.client
        first, part = gather(client, options.window, events_request)
        last = first.last_event_id
        if not follow:
            session.write(EVENTS.document(part, options))
            return
        try:
            _show(session, list(reversed(part.items)))
            while not connection.embedded:
                time.sleep(interval.total_seconds())
                last = _show(session, _events_after(client, events_request, last)) or last
        except KeyboardInterrupt:
            return


def _show(session: Session, events: list[journal_pb.Event]) -> int:
    """Print each; the number of the last one, 0 without any."""
    for event in events:
        if session.output is OutputFormat.YAML:
            typer.echo("---")
        session.write(event_line(event))
    return events[-1].event_id if events else 0


def _events_after(client: "AdminClient", wanted: journal_pb.ListEventsRequest, event_id: int) -> list[journal_pb.Event]:
    """The wanted events that were stored after that one, in the order of storing."""
    events: list[journal_pb.Event] = []
    while True:
        request = journal_pb.ListEventsRequest(
            kinds=wanted.kinds,
            table=wanted.table,
            process_id=wanted.process_id,
            newer_than=events[-1].event_id if events else event_id,
        )
        answer = client.ListEvents(request)
        events += answer.events
        if answer.total_is_exact or not answer.events:
            return events
