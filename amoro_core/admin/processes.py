"""Operations on processes and their tasks."""

from collections.abc import Iterator, Mapping, Sequence

from amoro_core import errors
from amoro_core.admin.context import Call, Services, milliseconds, word
from amoro_core.errors import AmoroError
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.paging import Window
from amoro_core.model.processes import Attempt, OptimizingTask, ProcessStatus, Receipt, TaskStatus
from amoro_core.planning.clustering.model import PREFIX
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.listings import ProcessSummary


def process_message(summary: ProcessSummary, no_optimizer: str) -> pb.Process:
    """The process without its tasks; `revertible` of its receipt is not set."""
    item, figures = summary.process, summary.figures
    return pb.Process(
        process_id=item.process_id,
        table=str(summary.table),
        table_id=item.table_id,
        type=item.type,
        status=item.status,
        trigger=item.trigger,
        reason=item.reason,
        snapshot_id=item.snapshot_id,
        created_ms=milliseconds(item.created_at),
        finished_ms=milliseconds(item.finished_at),
        failure_code=item.failure_code,
        failure=item.failure,
        receipt=receipt_message(item.receipt) if item.receipt else None,
        tasks_total=figures.total,
        tasks_done=figures.by_status[TaskStatus.SUCCESS],
        exit_status=exit_status_message(item.status, item.failure_code),
        where=item.where,
        waiting=item.waiting,
        retry_ms=milliseconds(item.delay.retry_at if item.delay else None),
        no_optimizer=no_optimizer,
        task_counts=pb.TaskCounts(**{status.value: tasks for status, tasks in figures.by_status.items()}),
        input_bytes=figures.input_bytes,
        input_bytes_done=figures.input_bytes_done,
        busy_optimizers=figures.busy_optimizers,
    )


def task_message(item: OptimizingTask, progress: Mapping[Attempt, tuple[int, int]]) -> pb.TaskInfo:
    """The task with the rows last reported by its optimizer, done and in all; a succeeded task has all done."""
    who = item.thread or item.ended_on
    rows = progress.get(Attempt(item.task_id, item.attempt), (0, 0))
    done, total = (item.input_rows, item.input_rows) if item.status is TaskStatus.SUCCESS else rows
    return pb.TaskInfo(
        task_id=item.task_id.number,
        status=item.status.value,
        attempt=item.attempt,
        optimizer_id=who.optimizer_id if who else "",
        thread_id=who.thread_id if who else 0,
        partition=item.partition,
        input_files=item.input_files,
        input_bytes=item.input_bytes,
        failure=item.failure,
        started_ms=milliseconds(item.acked_at),
        finished_ms=milliseconds(item.finished_at),
        rows_done=done,
        rows_total=total,
        scheduled_ms=milliseconds(item.scheduled_at),
        failed_runs=item.failed_runs,
        lost_attempts=item.lost_attempts,
        failure_code=item.failure_code,
    )


def receipt_message(made: Receipt) -> pb.Receipt:
    """What the commit changed; `revertible` is not set."""
    return pb.Receipt(
        data_files_before=made.data_files_before,
        data_files_after=made.data_files_after,
        delete_files_before=made.delete_files_before,
        delete_files_after=made.delete_files_after,
        equality_delete_files_after=made.equality_delete_files_after,
        bytes_before=made.bytes_before,
        bytes_after=made.bytes_after,
        rows_before=made.rows_before,
        rows_after=made.rows_after,
        snapshot_id=made.snapshot_id,
        base_snapshot_id=made.base_snapshot_id,
        duration_ms=made.duration_ms,
        disputed_deletes=made.disputed_deletes,
        words=made.words,
        encoded=[pb.EncodedFiles(reason=one.reason, files=one.files) for one in made.encoded],
        figures=[pb.Figure(name=one.name, value=one.value, unit=one.unit) for one in made.figures],
        equations=[
            pb.Equation(left=one.left, right=one.right, holds=one not in made.unequal) for one in made.equations
        ],
    )


def exit_status_message(status: str, failure_code: str) -> int:
    """The exit status of a command that waited for the process."""
    match status:
        case ProcessStatus.PARTIAL:
            return errors.Conflict.exit_status
        case ProcessStatus.COMMIT_UNKNOWN:
            return errors.CommitUnknown.exit_status
        case ProcessStatus.FAILED | ProcessStatus.CLOSED:
            return _EXITS.get(failure_code, errors.WorkFailed.exit_status)
    return 0


def _tree(kind: type[AmoroError]) -> Iterator[type[AmoroError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


_EXITS = {kind.code: kind.exit_status for kind in _tree(AmoroError)}


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
    tasks = [task_message(task, progress) for task in found.tasks.items]
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
    """The processes, with the reason when no optimizer takes their tasks."""
    asked: dict[tuple[str, tuple[str, ...]], str] = {}

    def no_optimizer(summary: ProcessSummary) -> str:
        if summary.process.status is not ProcessStatus.RUNNING or not summary.figures.waiting_in:
            return ""
        kinds = tuple(services.overview.waiting_kinds(summary.process.process_id))
        for group in summary.figures.waiting_in:
            if (group, kinds) not in asked:
                asked[group, kinds] = services.no_optimizer_reason(group, kinds)
        return "; ".join(filter(None, (asked[group, kinds] for group in summary.figures.waiting_in)))

    return [
        process_message(summary, "; ".join(filter(None, (no_optimizer(summary), _too_large(services, summary)))))
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
