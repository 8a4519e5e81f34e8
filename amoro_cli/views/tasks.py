"""Optimizing tasks: lists and details."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.encoding import encode, encode_all
from amoro_cli.output import Document, Grid, Pairs
from amoro_cli.quantities import format_bytes, format_count, format_duration, format_time

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def task_list(process_id: str, tasks: "Sequence[pb.TaskInfo]") -> Document:
    """Schema amoro.tasks/v1: `process_id`, `tasks`. The names are PROCESS-N."""
    body = {"process_id": process_id, "tasks": encode_all(tasks)}
    names = tuple(f"{process_id}-{task.task_id}" for task in tasks)
    return Document("amoro.tasks/v1", body, names, (task_grid(tasks),) if tasks else ("No tasks.",))


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
    return Grid(
        ("TASK", "STATUS", "ATTEMPT", "FILES", "SIZE", "ROWS", "TOOK", "OPTIMIZER", "PARTITION", "FAILURE"),
        tuple(_row(task) for task in tasks),
        frozenset({"TASK", "ATTEMPT", "FILES", "SIZE", "ROWS", "TOOK"}),
        indent,
    )


def _row(task: "pb.TaskInfo") -> tuple[str, ...]:
    finished = task.started_ms and task.finished_ms
    return (
        str(task.task_id),
        task.status,
        str(task.attempt),
        format_count(task.input_files),
        format_bytes(task.input_bytes),
        _rows(task) if task.rows_total else "-",
        format_duration(task.finished_ms - task.started_ms) if finished else "-",
        _thread(task) if task.optimizer_id else "-",
        task.partition or "-",
        task.failure or "-",
    )


def _rows(task: "pb.TaskInfo") -> str:
    return f"{format_count(task.rows_done)}/{format_count(task.rows_total)}"


def _thread(task: "pb.TaskInfo") -> str:
    return f"{task.optimizer_id}/{task.thread_id}"


def _failure(task: "pb.TaskInfo") -> str:
    return f"[{task.failure_code}] {task.failure}" if task.failure_code else task.failure
