"""Operations on processes and their tasks."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from amoro_core import errors
from amoro_core.admin.context import Call, Services, as_message, milliseconds, period, table_id, word
from amoro_core.errors import InvalidArgument
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.history_events import ProcessFilter
from amoro_core.model.paging import Window
from amoro_core.model.processes import Attempt, OptimizingTask, ProcessStatus, Receipt, TaskStatus
from amoro_core.planning.clustering.model import PREFIX
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.listings import ProcessSummary


def _process(summary: ProcessSummary, no_optimizer: str) -> pb.Process:
    """The process without its tasks; `revertible` of its receipt is not set."""
    item, figures = summary.process, summary.figures
    return as_message(
        pb.Process,
        summary,
        item,
        figures,
        tasks=(),
        receipt=_receipt(item.receipt) if item.receipt else None,
        tasks_total=figures.total,
        tasks_done=figures.by_status[TaskStatus.SUCCESS],
        exit_status=_exit_status(item.status, item.failure_code),
        retry_ms=milliseconds(item.delay.retry_at if item.delay else None),
        no_optimizer=no_optimizer,
        state="waiting" if item.status == ProcessStatus.RUNNING and figures.is_waiting else str(item.status),
        task_counts=pb.TaskCounts(**{status.value: tasks for status, tasks in figures.by_status.items()}),
    )


def _task(item: OptimizingTask, progress: Mapping[Attempt, tuple[int, int]]) -> pb.TaskInfo:
    """The task with the rows last reported by its optimizer, done and in all; a succeeded task has all done."""
    who = item.thread or item.ended_on
    rows = progress.get(Attempt(item.task_id, item.attempt), (0, 0))
    done, total = (item.input_rows, item.input_rows) if item.status is TaskStatus.SUCCESS else rows
    return as_message(
        pb.TaskInfo,
        item,
        task_id=item.task_id.number,
        optimizer_id=who.optimizer_id if who else "",
        thread_id=who.thread_id if who else 0,
        started_ms=milliseconds(item.acked_at),
        rows_done=done,
        rows_total=total,
    )


def _receipt(receipt: Receipt) -> pb.Receipt:
    """What the commit changed; `revertible` is not set."""
    equations = [as_message(pb.Equation, item, holds=item not in receipt.unequal) for item in receipt.equations]
    return as_message(pb.Receipt, receipt, revertible=False, equations=equations)


def _exit_status(status: str, failure_code: str) -> int:
    """The exit status of a command that waited for the process."""
    match status:
        case ProcessStatus.PARTIAL:
            return errors.Conflict.exit_status
        case ProcessStatus.COMMIT_UNKNOWN:
            return errors.CommitUnknown.exit_status
        case ProcessStatus.FAILED | ProcessStatus.CLOSED:
            return _EXITS.get(failure_code, errors.WorkFailed.exit_status)
    return 0


_EXITS = {code: kind.exit_status for code, kind in errors.error_classes().items()}


_MAY_MOVE = (ProcessStatus.RUNNING, ProcessStatus.COMMITTING, ProcessStatus.CLEARING)


def list_processes(services: Services, request: pb.ListProcessesRequest, call: Call) -> pb.ListProcessesResponse:
    """Processes, the newest first."""
    status, window = word(ProcessStatus, request.status, "status"), Window(request.limit, request.after)
    progress = services.optimizers.progress()
    types = services.maintaining.actions.names
    if request.type and request.type.lower() not in types:
        raise InvalidArgument(f"{request.type!r} is not a type of process", hint=f"One of: {', '.join(types)}.")
    wanted = ProcessFilter(table_id(services, request.table), status, request.type.lower(), *period(request))
    page = services.overview.processes(window, progress, wanted)
    return pb.ListProcessesResponse(processes=_messages(services, page.items), next=page.next, total=page.total)


def list_tasks(services: Services, request: pb.ListTasksRequest, call: Call) -> pb.ListTasksResponse:
    """Tasks of a process by number, and the process."""
    status, progress = word(TaskStatus, request.status, "status"), services.optimizers.progress()
    window = Window(request.limit, request.after)
    summary, page = services.overview.tasks(request.process_id, window, progress, status)
    (process,) = _messages(services, [summary])
    tasks = [_task(task, progress) for task in page.items]
    return pb.ListTasksResponse(process=process, tasks=tasks, next=page.next, total=page.total)


def get_process(services: Services, request: pb.GetProcessRequest, call: Call) -> pb.Process:
    """The process as it is now."""
    summary = process_summary(services, request.process_id)
    (message,) = _messages(services, [summary])
    process = summary.process
    if process.status not in _MAY_MOVE and process.receipt is not None and process.is_optimizing:
        message.receipt.revertible = services.inspection.is_head(summary.table, process.receipt.snapshot_id)
    return message


def has_moved(before: pb.Process | None, now: pb.Process) -> bool:
    """Whether to answer a waiting caller: the process has ended, or its commit waits for something new."""
    return now.status not in _MAY_MOVE or (before is not None and now.waiting not in ("", before.waiting))


def cancel_process(services: Services, request: pb.CancelProcessRequest, call: Call) -> pb.Process:
    """Cancel the process. Raises IllegalState once its commit was sent."""
    view = services.optimizing.cancel(request.process_id, f"cancelled by {call.caller}")
    return find_process(services, view.process.process_id)


def process_summary(services: Services, process_id: str) -> ProcessSummary:
    """The process with that id, with its tasks in figures. Raises ProcessNotFound."""
    return services.overview.process(process_id, services.optimizers.progress())


def find_process(services: Services, process_id: str) -> pb.Process:
    """The process with that id. Raises ProcessNotFound."""
    (message,) = _messages(services, [process_summary(services, process_id)])
    return message


def _messages(services: Services, summaries: Sequence[ProcessSummary]) -> list[pb.Process]:
    """The processes, with the reason when no optimizer takes their tasks."""
    reason_of = cache(services.no_optimizer_reason)

    def no_optimizer(summary: ProcessSummary) -> str:
        if summary.process.status is not ProcessStatus.RUNNING or not summary.figures.waiting_in:
            return ""
        kinds = tuple(services.overview.waiting_kinds(summary.process.process_id))
        return _joined(reason_of(group, kinds) for group in summary.figures.waiting_in)

    return [_process(summary, _joined((no_optimizer(summary), _too_large(services, summary)))) for summary in summaries]


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(filter(None, reasons))


def _too_large(services: Services, summary: ProcessSummary) -> str:
    """Which group of files is above what every optimizer takes, and whose bound is the greatest; "": none is."""
    process = summary.process
    if process.type != CLUSTER or process.status not in (ProcessStatus.RUNNING, ProcessStatus.COMMITTING):
        return ""
    largest = services.overview.largest_cluster(process.process_id)
    bounds = [
        (optimizer.max_cluster_bytes, optimizer.optimizer_id)
        for optimizer, _ in services.optimizers.list_optimizers()
        if optimizer.group in summary.figures.waiting_in and CLUSTER in optimizer.kinds and not optimizer.draining
    ]
    most, whose = max(bounds, default=(0, ""))
    if not whose or largest is None or largest[1] <= most:
        return ""
    number, size = largest
    takes = f"the largest that any takes is {most} bytes (optimizer {whose})"
    return f"group {number} has {size} bytes, and {takes}: give one more disk, or lower {PREFIX}max-group-bytes"
