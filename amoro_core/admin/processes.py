"""Optimizing processes and their tasks."""

from collections.abc import Sequence

from amoro_core.admin.arguments import word
from amoro_core.admin.messages import processes as messages
from amoro_core.admin.services import Call, Services
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.paging import Window
from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.planning.clustering.properties import PREFIX
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.overview import ProcessSummary

_MAY_MOVE = (ProcessStatus.RUNNING, ProcessStatus.COMMITTING, ProcessStatus.CLEARING)


def list_processes(services: Services, request: pb.ListProcessesRequest, call: Call) -> pb.ListProcessesResponse:
    """Processes, the newest first."""
    status = word(ProcessStatus, request.status, "status")
    table_id = services.tables.id_of(services.catalogs.resolve(request.table)) if request.table else None
    window = Window(request.limit, request.after)
    page = services.overview.processes(window, services.optimizers.progress(), table_id, status)
    return pb.ListProcessesResponse(processes=messages_of(services, page.items), next=page.next, total=page.total)


def list_tasks(services: Services, request: pb.ListTasksRequest, call: Call) -> pb.ListTasksResponse:
    """Tasks of a process by number, and the process."""
    status, progress = word(TaskStatus, request.status, "status"), services.optimizers.progress()
    window = Window(request.limit, request.after)
    found = services.overview.tasks(request.process_id, window, progress, status)
    (process,) = messages_of(services, [found.summary])
    tasks = [messages.task(task, progress) for task in found.tasks.items]
    return pb.ListTasksResponse(process=process, tasks=tasks, next=found.tasks.next, total=found.tasks.total)


def get_process(services: Services, request: pb.GetProcessRequest, call: Call) -> pb.Process:
    """The process as it is now."""
    summary = process_summary(services, request.process_id)
    (message,) = messages_of(services, [summary])
    ended = summary.process.status not in _MAY_MOVE
    if ended and summary.process.receipt is not None and summary.process.is_optimizing:
        made = summary.process.receipt.snapshot_id
        message.receipt.revertible = services.inspection.is_head(summary.table, made)
    return message


def has_moved(before: pb.Process | None, now: pb.Process) -> bool:
    """Whether to answer a waiting caller: the process has ended, or its commit waits for something new."""
    return now.status not in _MAY_MOVE or (before is not None and now.waiting not in ("", before.waiting))


def cancel_process(services: Services, request: pb.CancelProcessRequest, call: Call) -> pb.Process:
    """Cancel the process. Raises IllegalState once its commit was sent."""
    view = services.optimizing.cancel(request.process_id, f"cancelled by {call.caller}")
    (message,) = messages_of(services, [process_summary(services, view.process.process_id)])
    return message


def process_summary(services: Services, process_id: str) -> ProcessSummary:
    """The process with that id, with its tasks in figures. Raises ProcessNotFound."""
    return services.overview.process(process_id, services.optimizers.progress())


def messages_of(services: Services, summaries: Sequence[ProcessSummary]) -> list[pb.Process]:
    """The processes, with why nobody takes their tasks where that is so."""
    asked: dict[tuple[str, tuple[str, ...]], str] = {}

    def nobody(summary: ProcessSummary) -> str:
        if summary.process.status is not ProcessStatus.RUNNING or not summary.figures.waiting_in:
            return ""
        kinds = tuple(services.overview.waiting_kinds(summary.process.process_id))
        for group in summary.figures.waiting_in:
            if (group, kinds) not in asked:
                asked[group, kinds] = services.nobody_works(group, kinds)
        return "; ".join(filter(None, (asked[group, kinds] for group in summary.figures.waiting_in)))

    return [
        messages.process(summary, "; ".join(filter(None, (nobody(summary), _too_large(services, summary)))))
        for summary in summaries
    ]


def _too_large(services: Services, summary: ProcessSummary) -> str:
    """Which group of files is above what every optimizer takes, and whose bound is the greatest; "": none is."""
    process = summary.process
    if process.type != CLUSTER or process.status not in (ProcessStatus.RUNNING, ProcessStatus.COMMITTING):
        return ""
    found = services.overview.largest_cluster(process.process_id)
    bounds = [
        (optimizer.max_cluster_bytes, optimizer.optimizer_id)
        for optimizer, _ in services.optimizers.list_optimizers()
        if optimizer.group in summary.figures.waiting_in and CLUSTER in optimizer.kinds and not optimizer.draining
    ]
    most, whose = max(bounds, default=(0, ""))
    if not whose or found is None or found[1] <= most:
        return ""
    number, size = found
    takes = f"the largest that any takes is {most} bytes (optimizer {whose})"
    return f"group {number} has {size} bytes, and {takes}: give one more disk, or lower {PREFIX}max-group-bytes"
