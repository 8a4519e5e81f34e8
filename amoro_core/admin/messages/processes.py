"""Processes and their tasks as messages."""

from collections.abc import Iterator, Mapping

from amoro_core import errors
from amoro_core.admin.messages.values import milliseconds
from amoro_core.errors import AmoroError
from amoro_core.model.processes import Attempt, OptimizingTask, ProcessStatus, Receipt, TaskStatus
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.overview import ProcessSummary


def process(summary: ProcessSummary, nobody: str) -> pb.Process:
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
        receipt=receipt(item.receipt) if item.receipt else None,
        tasks_total=figures.total,
        tasks_done=figures.by_status[TaskStatus.SUCCESS],
        exit_status=exit_status(item.status, item.failure_code),
        where=item.where,
        waiting=item.waiting,
        retry_ms=milliseconds(item.delay.retry_at if item.delay else None),
        no_optimizer=nobody,
        task_counts=pb.TaskCounts(**{status.value: tasks for status, tasks in figures.by_status.items()}),
        input_bytes=figures.input_bytes,
        input_bytes_done=figures.input_bytes_done,
        busy_optimizers=figures.busy_optimizers,
    )


def task(item: OptimizingTask, progress: Mapping[Attempt, tuple[int, int]]) -> pb.TaskInfo:
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


def receipt(made: Receipt) -> pb.Receipt:
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


def exit_status(status: str, failure_code: str) -> int:
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
