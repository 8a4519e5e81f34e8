"""Planning one process and waiting for its end, through busy tables and a coordinator's restart."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from amoro_cli.connection import remote_error
from amoro_cli.list_options import listed
from amoro_cli.output import tell
from amoro_cli.progress import ProgressReport
from amoro_cli.views.processes import is_active, planned_line
from amoro_core.errors import (
    AmoroError,
    CommitUnknown,
    ConfirmationRequired,
    Conflict,
    CoordinatorUnavailable,
    NotFound,
    TableBusy,
    WaitTimeout,
)
from amoro_core.model.paging import ALL
from amoro_core.model.processes import IN_NO_LANE, ProcessStatus
from amoro_core.model.tables import OptimizingStatus
from amoro_core.protocol import admin_pb2 as pb

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient
    from amoro_cli.connection import Connection


Answer = TypeVar("Answer")

_AGAIN = timedelta(milliseconds=200)  # minimum between two requests, in case the server does not wait
_RESTART = timedelta(seconds=30)  # a coordinator that returns within it counts as running
_CALLING_OFF = timedelta(minutes=1)  # a commit that has begun takes seconds
_LONGEST_POLL = timedelta(seconds=20)
_ANSWER = timedelta(seconds=5)  # for the answer to arrive, on top of the time for the work itself
_SLACK = timedelta(seconds=15)  # the same, on top of the time that the server may wait


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock."""

    within: timedelta
    started: float = field(default_factory=time.monotonic)

    @property
    def remaining(self) -> timedelta:
        """The time left; never negative."""
        passed = timedelta(seconds=time.monotonic() - self.started)
        return max(self.within - passed, timedelta(0))

    @property
    def seconds(self) -> float:
        return self.remaining.total_seconds()


def optimize_request(type_: str, force: bool, where: str, cluster: pb.ClusterOptions) -> pb.OptimizeTableRequest:
    """The request for any table, with the options of clustering if there are any."""
    request = pb.OptimizeTableRequest(type=type_, force=force, where=where)
    if cluster.ListFields():
        request.cluster.CopyFrom(cluster)
    return request


def plan_request(table: str, request: pb.OptimizeTableRequest) -> pb.PlanTableRequest:
    """The request for the plan that such a request would carry out."""
    cluster = request.cluster if request.HasField("cluster") else None
    return pb.PlanTableRequest(
        table=table, type=request.type, force=request.force, where=request.where, cluster=cluster
    )


def verify_table(
    client: "AdminClient", table: str, before: int | None, after: int | None, within: timedelta
) -> pb.Verification:
    """Raises WaitTimeout when reading the table takes longer than `within`; the verification is then abandoned."""
    request = pb.VerifyTableRequest(table=table, before=before or 0, after=after or 0)
    try:
        return client.VerifyTable(request, timeout=within.total_seconds())
    except WaitTimeout as late:
        raise WaitTimeout(
            f"Reading both sides of {table} did not end within {within.total_seconds():g} s, and was given up",
            hint="Nothing was changed. Give it more time with --timeout.",
        ) from late


def with_tasks(client: "AdminClient", process: pb.Process) -> pb.Process:
    """The same process with all its tasks, which the coordinator lists page by page."""
    if process.tasks_total > len(process.tasks):
        del process.tasks[:]
        process.tasks.extend(listed(client, ALL, pb.ListTasksRequest(process_id=process.process_id)).items)
    return process


def _process(client: "AdminClient", process_id: str, wait: timedelta = timedelta(0)) -> pb.Process:
    """The process without its tasks, when it ends or after `wait`, whichever comes first."""
    request = pb.GetProcessRequest(process_id=process_id, wait_ms=round(wait.total_seconds() * 1000))
    return client.GetProcess(request, timeout=(wait + _SLACK).total_seconds())


def optimize_once(
    connection: "Connection",
    request: pb.OptimizeTableRequest,
    deadline: Deadline,
    report: ProgressReport,
    *,
    wait: bool,
    patient: bool = True,
) -> tuple[pb.OptimizeTableResponse, pb.Process | None]:
    """Plan a process and, with `wait`, await its end; a process that runs in this process is always awaited.

    The process is None when there is nothing to do, and when it is not awaited. Ctrl-C cancels what runs in this
    process, and leaves alone what runs in another. Raises WaitTimeout when planning does not end in time, TableBusy for
    a table that is still busy at the deadline or, unless `patient`, busy at all.
    """
    client, table = connection.client, request.table
    try:
        return _once(
            connection,
            table,
            lambda timeout: client.OptimizeTable(request, timeout=timeout),
            lambda answer: planned_line(answer.plan, answer.process_id),
            deadline,
            report,
            wait=None if request.cluster.schedule_only else wait,
            patient=patient,
        )
    except WaitTimeout as late:
        raise _planning_timeout(client, table, connection.embedded) from late
    except PlanningInterrupted:
        if connection.embedded:
            _cancel(client, _process_planned_late(client, table), report)
        raise


def maintain_once(
    connection: "Connection",
    request: pb.MaintainTableRequest | pb.UndoRequest,
    deadline: Deadline,
    report: ProgressReport,
    *,
    wait: bool,
) -> tuple[pb.MaintainTableResponse, pb.Process | None]:
    """As `optimize_once`, for another action, or to undo a process. A process held by a breaker is not awaited."""
    client = connection.client
    if isinstance(request, pb.UndoRequest):
        table, method = _process(client, request.process_id).table, "UndoProcess"
    else:
        table, method = request.table, "ConfirmMaintenance" if request.confirm else "MaintainTable"
    return _once(
        connection,
        table,
        lambda timeout: client.ask(method, request, timeout),
        lambda answer: f"{answer.process_id}  planned {answer.action} of {answer.table}: {answer.reason}",
        deadline,
        report,
        wait=wait,
    )


def _once(
    connection: "Connection",
    table: str,
    ask: Callable[[float], Any],
    planned: Callable[[Any], str],
    deadline: Deadline,
    report: ProgressReport,
    *,
    wait: bool | None,
    patient: bool = True,
) -> tuple[Any, pb.Process | None]:
    """The answer, and the process at its end if it is awaited; with `wait` None it never is."""
    client, process_id = connection.client, ""
    try:
        answer = retry_while_busy(client, table, deadline, report, ask, patient=patient)
        process_id, no_optimizer = answer.process_id, getattr(answer, "no_optimizer", "")
        awaited = wait is not None and (wait or connection.embedded or bool(getattr(answer, "held", "")))
        if process_id and awaited:
            report.note(planned(answer))
        if process_id:
            report.remark(no_optimizer)
        return answer, wait_for_end(client, process_id, deadline, report) if process_id and awaited else None
    except KeyboardInterrupt:
        _interrupt(connection, process_id, report)
        raise


class PlanningInterrupted(KeyboardInterrupt):
    """Ctrl-C while the coordinator was planning."""


def _planning_timeout(client: "AdminClient", table: str, embedded: bool) -> AmoroError:
    """The error for planning that took too long, with its state if the coordinator answers at once."""
    try:
        request = pb.GetTableRequest(table=table, known_only=True)  # the catalog may be what does not answer
        state = client.GetTable(request, timeout=_ANSWER.total_seconds())
        process_id = state.process_id
        failure = failure_of(_process(client, process_id), embedded) if process_id else None
    except AmoroError:
        failure = None
    return failure or WaitTimeout(
        f"The planning of {table} did not end in time, and goes on{_later(embedded)}",
        hint=f"See: amoro table show {table}",
    )


def _process_planned_late(client: "AdminClient", table: str) -> str:
    """The process that planning created after all; "" when there is none."""
    deadline, request = Deadline(_CALLING_OFF), pb.GetTableRequest(table=table, known_only=True)
    with suppress(NotFound):  # no catalog has answered for it
        while (state := client.GetTable(request)).status == OptimizingStatus.PLANNING and deadline.remaining:
            time.sleep(_AGAIN.total_seconds())
        return state.process_id
    return ""


def _interrupt(connection: "Connection", process_id: str, report: ProgressReport) -> None:
    """Cancel what runs in this process; what runs in another goes on."""
    if connection.embedded:
        _cancel(connection.client, process_id, report)
    elif process_id:
        report.note(f"The process goes on. See: amoro process show {process_id}")


def _cancel(client: "AdminClient", process_id: str, report: ProgressReport) -> None:
    """Cancel a process that is no longer awaited; one whose commit has begun is awaited after all."""
    if not process_id:
        return
    try:
        client.CancelProcess(pb.CancelProcessRequest(process_id=process_id))
        report.note(f"{process_id}  cancelled: the table is as it was")
    except Conflict:
        process = wait_for_end(client, process_id, Deadline(_CALLING_OFF), report)
        failure = failure_of(process, embedded=True)
        report.note(f"{process_id}  {failure.message if failure else 'had been committed already'}")


def retry_while_busy(
    client: "AdminClient",
    table: str,
    deadline: Deadline,
    report: ProgressReport,
    ask: Callable[[float], Answer],
    *,
    patient: bool = True,
) -> Answer:
    """The answer; when `patient`, waits while the table is busy.

    Raises the coordinator's TableBusy when the table is still busy at the deadline.
    """
    noted = False
    while True:
        try:
            return ask((deadline.remaining + _ANSWER).total_seconds())
        except KeyboardInterrupt as interrupt:
            raise PlanningInterrupted from interrupt
        except TableBusy as error:
            if not (deadline.remaining and patient):
                raise
            if not noted:
                report.note(f"Waiting: {error.message}")
                noted = True
        _wait_until_free(client, table, deadline, report)


def wait_for_end(client: "AdminClient", process_id: str, deadline: Deadline, report: ProgressReport) -> pb.Process:
    """The process with its tasks once it is closed, or as it stands at the deadline.

    Raises CoordinatorUnavailable when the coordinator has been gone for half a minute.
    """
    restart: Deadline | None = None
    waiting = ""
    while True:
        start = time.monotonic()
        try:
            process = _process(client, process_id, min(report.pace, deadline.remaining))
            if not is_active(process) or process.status in IN_NO_LANE:
                return with_tasks(client, process)
        except CoordinatorUnavailable as error:
            if restart is None:
                restart = Deadline(_RESTART)
                report.note(f"{error.message}. Trying for another {_RESTART.total_seconds():g} s.")
            if not restart.remaining or not deadline.remaining:
                error.hint = f"The process goes on with its coordinator. See: amoro process show {process_id}"
                raise
        else:
            restart = None
            report.remark(process.no_optimizer)
            report.show(process)
            if process.waiting not in ("", waiting):
                waiting = process.waiting
                report.note(f"{process_id}  {waiting}")
            if not deadline.remaining:
                return with_tasks(client, process)
        _pause(start)


def failure_of(process: pb.Process, embedded: bool) -> AmoroError | None:
    """The error with which the process ends the command; None when it succeeded.

    A process that has not ended goes on in its coordinator; an `embedded` one in the next on the state directory.
    """
    show = f"amoro process show {process.process_id}"
    if process.status == ProcessStatus.COMMIT_UNKNOWN:
        because = f": {process.waiting or process.failure}" if process.waiting or process.failure else ""
        return CommitUnknown(
            f"It is not known whether the commit of {process.process_id} was applied{because}",
            hint=f"It is reconciled before anything else is done with {process.table}. See: {show}",
        )
    if process.status == ProcessStatus.HELD:
        confirm = f"amoro table maintain {process.table} --action {process.type} --confirm {process.table}"
        return ConfirmationRequired(
            f"Process {process.process_id} ({process.type}) is held: {process.failure}",
            hint=f"Look at its plan: {show}. Then: {confirm}",
        )
    if is_active(process):
        stands = f"{process.status}, {process.waiting}" if process.waiting else process.status
        return WaitTimeout(
            f"Process {process.process_id} did not end in time: it is {stands}, and goes on{_later(embedded)}",
            hint=f"It waits: {process.no_optimizer}." if process.no_optimizer else f"See: {show}",
        )
    if process.status == ProcessStatus.SUCCESS:
        return None
    message = process.failure or f"Process {process.process_id} ended as {process.status}"
    return remote_error(process.failure_code, process.exit_status, message, f"See: {show}")


def finish(
    process: pb.Process | None, process_id: str, embedded: bool, follow: str = "Follow it with: amoro process show"
) -> None:
    """Raise the error of a process that was awaited; of another one, print how to follow it."""
    if process is None and process_id:
        tell(f"{follow} {process_id}")
    failure = None if process is None else failure_of(process, embedded)
    if failure is not None:
        raise failure


def _later(embedded: bool) -> str:
    """What continues a process that is no longer awaited."""
    return " with the next coordinator or command on this state directory" if embedded else ""


def _wait_until_free(client: "AdminClient", table: str, deadline: Deadline, report: ProgressReport) -> None:
    start = time.monotonic()
    state = client.GetTable(pb.GetTableRequest(table=table, known_only=True))
    report.remark(state.no_optimizer)
    if state.process_id:
        _process(client, state.process_id, min(_LONGEST_POLL, deadline.remaining))
    _pause(start)


def _pause(start: float) -> None:
    time.sleep(max(0.0, _AGAIN.total_seconds() - (time.monotonic() - start)))
