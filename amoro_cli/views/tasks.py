"""Optimizing tasks: lists and details."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.listing import AS_EVER, Arrangement, Column, Listing
from amoro_cli.output import Document, Grid, Pairs
from amoro_cli.paging import Part
from amoro_cli.views.lists import list_document
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_bytes, format_count, format_duration, format_time
from amoro_core.model.texts import one_line

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


TASKS: "Listing[pb.TaskInfo]" = Listing(
    (
        Column("TASK", lambda task: str(task.task_id), lambda task: task.task_id, right=True),
        Column("STATUS", lambda task: task.status),
        Column("ATTEMPT", lambda task: str(task.attempt), lambda task: task.attempt, right=True),
        Column("FILES", lambda task: format_count(task.input_files), lambda task: task.input_files, right=True),
        Column("SIZE", lambda task: format_bytes(task.input_bytes), lambda task: task.input_bytes, right=True),
        Column("ROWS", lambda task: _rows(task) if task.rows_total else "-", lambda task: task.rows_total, right=True),
        Column(
            "TOOK",
            lambda task: format_duration(_took_ms(task)) if task.started_ms and task.finished_ms else "-",
            lambda task: _took_ms(task),
            right=True,
        ),
        Column("OPTIMIZER", lambda task: _thread(task) if task.optimizer_id else "-"),
        Column("PARTITION", lambda task: task.partition or "-"),
        Column("FAILURE", lambda task: one_line(task.failure) or "-"),
    ),
    spare=("OPTIMIZER", "ATTEMPT", "SIZE", "ROWS", "TOOK"),
    elastic="FAILURE",
)


def task_list(process_id: str, part: "Part[pb.TaskInfo]", arrangement: Arrangement = AS_EVER) -> Document:
    """Schema amoro.tasks/v1: `process_id`, `tasks`, `total`, `next`. The names are PROCESS-N."""
    return list_document(
        "amoro.tasks/v1",
        TASKS,
        part,
        arrangement,
        lambda task: f"{process_id}-{task.task_id}",
        "No tasks.",
        before={"process_id": process_id},
    )


def task_detail(process: "pb.Process", task: "pb.TaskInfo") -> Document:
    """Schema amoro.task/v1: `process_id`, `table`, and the fields of the task."""
    name = f"{process.process_id}-{task.task_id}"
    took = f", after {format_duration(task.finished_ms - task.started_ms)}" if task.started_ms else ""
    pairs = (
        ("task", name),
        ("table", process.table),
        ("status", task.status),
        ("attempt", f"{task.attempt}, {task.failed_runs} failed, {task.lost_attempts} lost"),
        ("partition", task.partition or "-"),
        ("input", f"{format_count(task.input_files)} files, {format_bytes(task.input_bytes)}"),
        *((("optimizer", _thread(task)),) if task.optimizer_id else ()),
        ("handed out", format_time(task.scheduled_ms)),
        ("started", format_time(task.started_ms)),
        *((("finished", f"{format_time(task.finished_ms)}{took}"),) if task.finished_ms else ()),
        *((("rows", _rows(task)),) if task.rows_total else ()),
        *((("failure", _failure(task)),) if task.failure else ()),
    )
    body = {"process_id": process.process_id, "table": process.table, **encode(task)}
    return Document("amoro.task/v1", body, (name,), (Pairs(pairs),))


def task_grid(tasks: "Sequence[pb.TaskInfo]", indent: int = 0) -> Grid:
    """One row for each task."""
    return TASKS.grid(tasks, indent=indent)


def _took_ms(task: "pb.TaskInfo") -> int:
    return task.finished_ms - task.started_ms if task.started_ms and task.finished_ms else 0


def _rows(task: "pb.TaskInfo") -> str:
    return f"{format_count(task.rows_done)}/{format_count(task.rows_total)}"


def _thread(task: "pb.TaskInfo") -> str:
    return f"{task.optimizer_id}/{task.thread_id}"


def _failure(task: "pb.TaskInfo") -> str:
    failure = one_line(task.failure)
    return f"[{task.failure_code}] {failure}" if task.failure_code else failure
