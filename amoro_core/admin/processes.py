"""Optimizing processes and their tasks."""

from collections.abc import Sequence

from amoro_core.admin.arguments import word
from amoro_core.admin.messages import processes as messages
from amoro_core.admin.services import Call, Services
from amoro_core.model.paging import Window
from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.optimizing import ProcessView
from amoro_core.services.overview import ProcessSummary, figures_of_tasks

_MAY_MOVE = (ProcessStatus.RUNNING, ProcessStatus.COMMITTING)


def list_processes(services: Services, request: pb.ListProcessesRequest, call: Call) -> pb.ListProcessesResponse:
    """Processes, the newest first."""
    status = word(ProcessStatus, request.status, "status")
    table_id = services.tables.id_of(services.catalogs.resolve(request.table)) if request.table else None
    window = Window(request.limit, request.after)
    page = services.overview.processes(window, services.optimizers.progress(), table_id, status)
    return pb.ListProcessesResponse(processes=_summaries(services, page.items), next=page.next, total=page.total)


def list_tasks(services: Services, request: pb.ListTasksRequest, call: Call) -> pb.ListTasksResponse:
    """Tasks of a process by number, and the process."""
    status, progress = word(TaskStatus, request.status, "status"), services.optimizers.progress()
    window = Window(request.limit, request.after)
    found = services.overview.tasks(request.process_id, window, progress, status)
    (process,) = _summaries(services, [found.summary])
    tasks = [messages.task(task, progress) for task in found.tasks.items]
    return pb.ListTasksResponse(process=process, tasks=tasks, next=found.tasks.next, total=found.tasks.total)


def get_process(services: Services, request: pb.GetProcessRequest, call: Call) -> pb.Process:
    """The process as it is now."""
    view = services.optimizing.find_process(request.process_id)
    is_revertible = view.process.status not in _MAY_MOVE and services.optimizing.is_head(view)
    return process_message(services, view, is_revertible)


def has_moved(before: pb.Process | None, now: pb.Process) -> bool:
    """Whether who waits for the process hears of it: it has ended, or its commit begins to wait for something else."""
    return now.status not in _MAY_MOVE or (before is not None and now.waiting not in ("", before.waiting))


def cancel_process(services: Services, request: pb.CancelProcessRequest, call: Call) -> pb.Process:
    """End the process before its commit."""
    return process_message(services, services.optimizing.cancel(request.process_id, f"cancelled by {call.caller}"))


def process_message(services: Services, view: ProcessView, is_revertible: bool = False) -> pb.Process:
    """The process with its tasks."""
    progress = services.optimizers.progress()
    summary = ProcessSummary(view.process, view.table, figures_of_tasks(view.tasks, progress))
    (message,) = _summaries(services, [summary])
    if message.HasField("receipt"):
        message.receipt.revertible = is_revertible
    message.tasks.extend(messages.task(task, progress) for task in view.tasks)
    return message


def _summaries(services: Services, summaries: Sequence[ProcessSummary]) -> list[pb.Process]:
    """The processes without their tasks."""
    waiting = {
        group
        for summary in summaries
        if summary.process.status is ProcessStatus.RUNNING
        for group in summary.figures.waiting_in
    }
    nobody = {group: services.nobody_works(group) for group in waiting}
    return [
        messages.process(summary, "; ".join(filter(None, map(nobody.get, summary.figures.waiting_in))))
        for summary in summaries
    ]
