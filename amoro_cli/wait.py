"""Planning one process and waiting for its end, through busy tables and a coordinator's restart."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from amoro_cli.client import AS_CONFIGURED, Ordering, remote_error
from amoro_cli.progress import ProgressReport
from amoro_cli.views.processes import is_active, planned_line
from amoro_core.errors import (
    AmoroError,
    CommitUnknown,
    ConfirmationRequired,
    Conflict,
    CoordinatorUnavailable,
    TableBusy,
    WaitTimeout,
)
from amoro_core.model.processes import IN_NO_LANE, ProcessStatus
from amoro_core.model.tables import OptimizingStatus

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient, MaintenanceRequest
    from amoro_cli.connection import Connection
    from amoro_core.protocol import admin_pb2 as pb


Answer = TypeVar("Answer")

_AGAIN = timedelta(milliseconds=200)  # minimum between two requests, in case the server does not wait
_RESTART = timedelta(seconds=30)  # a coordinator that returns within it counts as running
_CALLING_OFF = timedelta(minutes=1)  # a commit that has begun takes seconds
_LONGEST_POLL = timedelta(seconds=20)
_ANSWER = timedelta(seconds=5)  # for the answer to arrive, on top of the time for the work itself


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock."""

    within: timedelta
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> timedelta:
        """The time left; never negative."""
        passed = timedelta(seconds=time.monotonic() - self.started)
        return max(self.within - passed, timedelta(0))


def optimize_once(
    connection: "Connection",
    table: str,
    type_: str,
    force: bool,
    deadline: Deadline,
    report: ProgressReport,
    *,
    wait: bool,
    where: str = "",
    patient: bool = True,
    ordering: Ordering = AS_CONFIGURED,
) -> "tuple[pb.OptimizeTableResponse, pb.Process | None]":
    """Plan a process and, with `wait`, await its end; a process that runs in this process is always awaited.

    The process is None when there is nothing to do, and when it is not awaited. Ctrl-C cancels what runs in this
    process, and leaves alone what runs in another. Raises WaitTimeout when planning does not end in time, TableBusy for
    a table that is still busy at the deadline or, unless `patient`, busy at all.
    """
    client, process_id = connection.client, ""
    try:
        answer = plan_process(client, table, type_, force, deadline, report, where, patient=patient, ordering=ordering)
        process_id = answer.process_id
        if not process_id:
            return answer, None
        if not (wait or connection.embedded) or ordering.schedule_only:
            report.remark(answer.no_optimizer)
            return answer, None
        report.note(planned_line(answer.plan, process_id))
        report.remark(answer.no_optimizer)
        return answer, wait_for_end(client, process_id, deadline, report)
    except WaitTimeout as late:
        raise _unplanned(client, table, connection.embedded) from late
    except PlanningInterrupted:
        if connection.embedded:
            _call_off(client, _planned_meanwhile(client, table), report)
        raise
    except KeyboardInterrupt:
        if connection.embedded:
            _call_off(client, process_id, report)
        elif process_id:
            report.note(f"The process goes on. See: amoro process show {process_id}")
        raise


def maintain_once(
    connection: "Connection",
    wanted: "MaintenanceRequest",
    deadline: Deadline,
    report: ProgressReport,
    *,
    wait: bool,
) -> "tuple[pb.MaintainTableResponse, pb.Process | None]":
    """As `optimize_once`, for another action. A process held by a breaker is not awaited."""
    client = connection.client

    def ask(within: timedelta) -> "pb.MaintainTableResponse":
        return client.maintain_table(wanted, within)

    return _once(connection, wanted.table, ask, deadline, report, wait=wait)


def undo_once(
    connection: "Connection", process_id: str, deadline: Deadline, report: ProgressReport, *, wait: bool
) -> "tuple[pb.MaintainTableResponse, pb.Process | None]":
    """As `maintain_once`, for undoing a process."""
    client = connection.client

    def ask(within: timedelta) -> "pb.MaintainTableResponse":
        return client.undo_process(process_id, within)

    return _once(connection, client.get_process(process_id).table, ask, deadline, report, wait=wait)


def _once(
    connection: "Connection",
    table: str,
    ask: "Callable[[timedelta], pb.MaintainTableResponse]",
    deadline: Deadline,
    report: ProgressReport,
    *,
    wait: bool,
) -> "tuple[pb.MaintainTableResponse, pb.Process | None]":
    client, process_id = connection.client, ""
    try:
        answer = once_free(client, table, deadline, report, ask)
        process_id = answer.process_id
        if not process_id or not (wait or connection.embedded or answer.held):
            return answer, None
        report.note(f"{process_id}  planned {answer.action} of {answer.table}: {answer.reason}")
        return answer, wait_for_end(client, process_id, deadline, report)
    except KeyboardInterrupt:
        if connection.embedded:
            _call_off(client, process_id, report)
        elif process_id:
            report.note(f"The process goes on. See: amoro process show {process_id}")
        raise


class PlanningInterrupted(KeyboardInterrupt):
    """Ctrl-C while the coordinator was planning."""


def _unplanned(client: "AdminClient", table: str, embedded: bool) -> AmoroError:
    """The error for planning that took too long, with its state if the coordinator answers at once."""
    try:
        process_id = client.get_table(table, _ANSWER).process_id
        failure = failure_of(client.get_process(process_id), embedded) if process_id else None
    except AmoroError:
        failure = None
    return failure or WaitTimeout(
        f"The planning of {table} did not end in time, and goes on{_later(embedded)}",
        hint=f"See: amoro table show {table}",
    )


def _planned_meanwhile(client: "AdminClient", table: str) -> str:
    """The process that planning created after all; "" when there is none."""
    deadline = Deadline(_CALLING_OFF)
    while (known := client.get_table(table)).status == OptimizingStatus.PLANNING and deadline.left:
        time.sleep(_AGAIN.total_seconds())
    return known.process_id


def _call_off(client: "AdminClient", process_id: str, report: ProgressReport) -> None:
    """Cancel a process that is no longer awaited; one whose commit has begun is awaited after all."""
    if not process_id:
        return
    try:
        client.cancel_process(process_id)
        report.note(f"{process_id}  cancelled: the table is as it was")
    except Conflict:
        process = wait_for_end(client, process_id, Deadline(_CALLING_OFF), report)
        failure = failure_of(process, embedded=True)
        report.note(f"{process_id}  {failure.message if failure else 'had been committed already'}")


def plan_process(
    client: "AdminClient",
    table: str,
    type_: str,
    force: bool,
    deadline: Deadline,
    report: ProgressReport,
    where: str = "",
    *,
    patient: bool = True,
    ordering: Ordering = AS_CONFIGURED,
) -> "pb.OptimizeTableResponse":
    """The answer of OptimizeTable; raises as `once_free`."""

    def ask(within: timedelta) -> "pb.OptimizeTableResponse":
        return client.optimize_table(table, type_, force, within, where, ordering)

    return once_free(client, table, deadline, report, ask, patient=patient)


def once_free(
    client: "AdminClient",
    table: str,
    deadline: Deadline,
    report: ProgressReport,
    ask: Callable[[timedelta], Answer],
    *,
    patient: bool = True,
) -> Answer:
    """The answer; when `patient`, waits while the table is busy.

    Raises the coordinator's TableBusy when the table is still busy at the deadline.
    """
    noted = False
    while True:
        try:
            return ask(deadline.left + _ANSWER)
        except KeyboardInterrupt as interrupt:
            raise PlanningInterrupted from interrupt
        except TableBusy as error:
            if not (deadline.left and patient):
                raise
            if not noted:
                report.note(f"Waiting: {error.message}")
                noted = True
        _wait_until_free(client, table, deadline, report)


def wait_for_end(client: "AdminClient", process_id: str, deadline: Deadline, report: ProgressReport) -> "pb.Process":
    """The process with its tasks once it is closed, or as it stands at the deadline.

    Raises CoordinatorUnavailable when the coordinator has been gone for half a minute.
    """
    gone: Deadline | None = None
    waiting = ""
    while True:
        asked = time.monotonic()
        try:
            process = client.get_process(process_id, min(report.pace, deadline.left))
            if not is_active(process) or process.status in IN_NO_LANE:
                return client.with_tasks(process)
        except CoordinatorUnavailable as error:
            if gone is None:
                gone = Deadline(_RESTART)
                report.note(f"{error.message}. Trying for another {_RESTART.total_seconds():g} s.")
            if not gone.left or not deadline.left:
                error.hint = f"The process goes on with its coordinator. See: amoro process show {process_id}"
                raise
        else:
            gone = None
            report.remark(process.no_optimizer)
            report.show(process)
            if process.waiting not in ("", waiting):
                waiting = process.waiting
                report.note(f"{process_id}  {waiting}")
            if not deadline.left:
                return client.with_tasks(process)
        _pause(asked)


def failure_of(process: "pb.Process", embedded: bool) -> AmoroError | None:
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


def _later(embedded: bool) -> str:
    """What continues a process that is no longer awaited."""
    return " with the next coordinator or command on this state directory" if embedded else ""


def _wait_until_free(client: "AdminClient", table: str, deadline: Deadline, report: ProgressReport) -> None:
    asked = time.monotonic()
    known = client.get_table(table)
    report.remark(known.no_optimizer)
    if known.process_id:
        client.get_process(known.process_id, min(_LONGEST_POLL, deadline.left))
    _pause(asked)


def _pause(asked: float) -> None:
    time.sleep(max(0.0, _AGAIN.total_seconds() - (time.monotonic() - asked)))
