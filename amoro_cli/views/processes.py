"""Documents of processes, tasks, attempts and events."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.list_options import DEFAULT_ARRANGEMENT, Arrangement, Column, Listing, ListRange, list_document
from amoro_cli.output import Block, Document, Grid, Pairs
from amoro_cli.views.plans import disputed_deletes, nothing_to_do
from amoro_core.documents.formatting import (
    encoded_lines,
    format_bytes,
    format_count,
    format_duration,
    format_time,
    label,
    many,
    own_figures,
    row_equation,
    value,
)
from amoro_core.documents.json_documents import encode, optimize_body
from amoro_core.model.processes import UNDOABLE
from amoro_core.model.text_sanitizing import one_line

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as admin_pb
    from amoro_core.protocol import journal_pb2 as pb


ATTEMPTS: "Listing[pb.AttemptInfo]" = Listing(
    (
        Column("TASK", lambda item: str(item.task_id), lambda item: item.task_id, right=True),
        Column("ATTEMPT", lambda item: str(item.attempt), lambda item: item.attempt, right=True),
        Column("OUTCOME", lambda item: item.outcome),
        Column("SCHEDULED", lambda item: format_time(item.scheduled_ms), lambda item: item.scheduled_ms),
        Column(
            "TOOK",
            lambda item: format_duration(_took_ms(item)) if item.finished_ms else "-",
            lambda item: _took_ms(item),
            right=True,
        ),
        Column("ROWS", lambda item: format_count(item.input_rows), lambda item: item.input_rows, right=True),
        Column("SIZE", lambda item: format_bytes(item.input_bytes), lambda item: item.input_bytes, right=True),
        Column("OPTIMIZER", lambda item: f"{item.optimizer_id}/{item.thread_id}"),
        Column("FAILURE", lambda item: _failure(item) or "-"),
    ),
    spare=("OPTIMIZER", "SIZE", "ROWS", "SCHEDULED"),
    elastic="FAILURE",
)

EVENTS: "Listing[pb.Event]" = Listing(
    (
        Column("EVENT", lambda item: str(item.event_id), lambda item: item.event_id, right=True),
        Column("AT", lambda item: format_time(item.happened_ms), lambda item: item.happened_ms),
        Column("KIND", lambda item: item.kind),
        Column("TABLE", lambda item: item.table or "-"),
        Column("PROCESS", lambda item: item.process_id or "-"),
        Column("TEXT", lambda item: one_line(item.text)),
    ),
    spare=("PROCESS", "EVENT"),
    elastic="TEXT",
)


def attempt_list(
    process_id: str, part: "ListRange[pb.AttemptInfo]", arrangement: Arrangement = DEFAULT_ARRANGEMENT
) -> Document:
    """Schema amoro.attempts/v1: `process_id`, `attempts`, `total`, `next`. The names are PROCESS-TASK-ATTEMPT."""
    return list_document(
        "amoro.attempts/v1",
        ATTEMPTS,
        part,
        arrangement,
        lambda item: f"{process_id}-{item.task_id}-{item.attempt}",
        "No attempts.",
        before={"process_id": process_id},
    )


def event_list(part: "ListRange[pb.Event]", arrangement: Arrangement = DEFAULT_ARRANGEMENT) -> Document:
    """Schema amoro.events/v1: `events`, `total`, `next`. The names are numbers."""
    return list_document("amoro.events/v1", EVENTS, part, arrangement, lambda item: str(item.event_id), "No events.")


def event_line(event: "pb.Event") -> Document:
    """Schema amoro.event/v1: the fields of the event; one line for people."""
    about = " ".join(filter(None, (event.table, event.process_id)))
    line = (format_time(event.happened_ms), f"{event.kind}  {about}{'  ' if about else ''}{one_line(event.text)}")
    return Document("amoro.event/v1", encode(event), (str(event.event_id),), (Pairs((line,)),))


def _took_ms(item: "pb.AttemptInfo") -> int:
    return item.finished_ms - (item.started_ms or item.scheduled_ms) if item.finished_ms else 0


def _failure(item: "pb.AttemptInfo") -> str:
    failure = one_line(item.failure)
    return f"[{item.failure_code}] {failure}" if item.failure_code else failure


TASKS: "Listing[admin_pb.TaskInfo]" = Listing(
    (
        Column("TASK", lambda task: str(task.task_id), lambda task: task.task_id, right=True),
        Column("STATUS", lambda task: task.status),
        Column("ATTEMPT", lambda task: str(task.attempt), lambda task: task.attempt, right=True),
        Column("FILES", lambda task: format_count(task.input_files), lambda task: task.input_files, right=True),
        Column("SIZE", lambda task: format_bytes(task.input_bytes), lambda task: task.input_bytes, right=True),
        Column("ROWS", lambda task: _rows(task) if task.rows_total else "-", lambda task: task.rows_total, right=True),
        Column(
            "TOOK",
            lambda task: format_duration(_task_took_ms(task)) if task.started_ms and task.finished_ms else "-",
            lambda task: _task_took_ms(task),
            right=True,
        ),
        Column("OPTIMIZER", lambda task: _thread(task) if task.optimizer_id else "-"),
        Column("PARTITION", lambda task: task.partition or "-"),
        Column("FAILURE", lambda task: one_line(task.failure) or "-"),
    ),
    spare=("OPTIMIZER", "ATTEMPT", "SIZE", "ROWS", "TOOK"),
    elastic="FAILURE",
)


def task_list(
    process_id: str, part: "ListRange[admin_pb.TaskInfo]", arrangement: Arrangement = DEFAULT_ARRANGEMENT
) -> Document:
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


def task_detail(process: "admin_pb.Process", task: "admin_pb.TaskInfo") -> Document:
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
        *((("failure", _task_failure(task)),) if task.failure else ()),
    )
    body = {"process_id": process.process_id, "table": process.table, **encode(task)}
    return Document("amoro.task/v1", body, (name,), (Pairs(pairs),))


def task_grid(tasks: "Sequence[admin_pb.TaskInfo]", indent: int = 0) -> Grid:
    """One row for each task."""
    return TASKS.grid(tasks, indent=indent)


def _task_took_ms(task: "admin_pb.TaskInfo") -> int:
    return task.finished_ms - task.started_ms if task.started_ms and task.finished_ms else 0


def _rows(task: "admin_pb.TaskInfo") -> str:
    return f"{format_count(task.rows_done)}/{format_count(task.rows_total)}"


def _thread(task: "admin_pb.TaskInfo") -> str:
    return f"{task.optimizer_id}/{task.thread_id}"


def _task_failure(task: "admin_pb.TaskInfo") -> str:
    failure = one_line(task.failure)
    return f"[{task.failure_code}] {failure}" if task.failure_code else failure


def is_active(process: "admin_pb.Process") -> bool:
    """Whether the process has not ended."""
    return not process.finished_ms


PROCESSES: "Listing[admin_pb.Process]" = Listing(
    (
        Column("PROCESS", lambda process: process.process_id),
        Column("TABLE", lambda process: process.table),
        Column("TYPE", lambda process: process.type),
        Column("STATUS", lambda process: process.status),
        Column(
            "TASKS",
            lambda process: f"{process.tasks_done}/{process.tasks_total}",
            lambda process: (process.tasks_total, process.tasks_done),
            right=True,
        ),
        Column("CREATED", lambda process: format_time(process.created_ms), lambda process: process.created_ms),
        Column(
            "TOOK",
            lambda process: _took(process) if process.finished_ms else "-",
            lambda process: process.finished_ms - process.created_ms if process.finished_ms else 0,
            right=True,
        ),
        Column("WHY", lambda process: process.waiting or _process_failure(process) or process.reason),
    ),
    spare=("CREATED", "TOOK", "TYPE", "WHY", "TASKS"),
    elastic="TABLE",
)


def process_list(part: "ListRange[admin_pb.Process]", arrangement: Arrangement = DEFAULT_ARRANGEMENT) -> Document:
    """Schema amoro.processes/v1: `processes`, without their tasks one by one; `total`, `next`."""
    return list_document(
        "amoro.processes/v1", PROCESSES, part, arrangement, lambda process: process.process_id, "No processes."
    )


def process_detail(process: "admin_pb.Process") -> Document:
    """Schema amoro.process/v1: the fields of the process."""
    pairs = (
        ("process", process.process_id),
        ("table", process.table),
        ("type", process.type),
        ("status", process.status),
        ("why", f"{process.reason} ({process.trigger})" if process.trigger else process.reason),
        *((("where", process.where),) if process.where else ()),
        ("snapshot", str(process.snapshot_id)),
        ("created", format_time(process.created_ms)),
        *(
            (("finished", f"{format_time(process.finished_ms)}, after {_took(process)}"),)
            if process.finished_ms
            else ()
        ),
        *((("failure", _process_failure(process)),) if process.failure else ()),
        *((("commit", process.waiting),) if process.waiting else ()),
        ("tasks", f"{process.tasks_done}/{process.tasks_total} done"),
        *((("waiting", process.no_optimizer),) if process.no_optimizer else ()),
    )
    blocks: list[Block] = [Pairs(pairs)]
    if process.tasks:
        blocks += ["", task_grid(process.tasks, indent=2)]
    if process.HasField("receipt"):
        blocks += ["", *receipt_blocks(process)]
    return Document("amoro.process/v1", encode(process), (process.process_id,), tuple(blocks))


def optimize_document(plan: "admin_pb.Plan", process_id: str, process: "admin_pb.Process | None") -> Document:
    """Schema amoro.optimize/v1: `table`, `outcome`, `process_id`, `changes` (none), `plan`, `process`.

    The outcome is "nothing_to_do", "planned" when the end was not waited for, else the status of the process.
    """
    body = optimize_body(plan, process_id, process)
    return Document(
        "amoro.optimize/v1", body, (process_id,) if process_id else (), _optimize_blocks(plan, process_id, process)
    )


def planned_line(plan: "admin_pb.Plan", process_id: str) -> str:
    """That a process was planned, on one line."""
    return f"{process_id}  planned {plan.type} optimizing of {plan.table}, {many(plan.tasks, 'task')}: {plan.reason}"


def receipt_blocks(process: "admin_pb.Process") -> "tuple[Block, ...]":
    """What the commit did, the row balance, and how to undo it."""
    receipt = process.receipt
    if receipt.words:
        return _result_blocks(process)
    partly = " a part of the plan as" if process.status == "partial" else ""
    took = format_duration(receipt.duration_ms)
    title = f"{process.process_id}  committed{partly} snapshot {receipt.snapshot_id} in {took}"
    pairs = (
        ("files", f"{format_count(receipt.data_files_before)} → {format_count(receipt.data_files_after)}"),
        ("deletes", f"{format_count(receipt.delete_files_before)} → {format_count(receipt.delete_files_after)}"),
        ("bytes", f"{format_bytes(receipt.bytes_before)} → {format_bytes(receipt.bytes_after)}"),
        ("rows", row_equation(receipt)),
        *own_figures(receipt.figures),
        *encoded_lines(receipt),
        *_undo(process),
    )
    note = [f"  {disputed_deletes(receipt.disputed_deletes, 'show')}"] if receipt.disputed_deletes else []
    return (title, Pairs(pairs, indent=2), *note)


def _result_blocks(process: "admin_pb.Process") -> "tuple[Block, ...]":
    """The receipt of a process that replaces no files: a summary and its own figures."""
    receipt = process.receipt
    pairs = [(label(figure.name), value(figure)) for figure in receipt.figures]
    pairs += [
        ("check", f"{one.left} {'=' if one.holds else '≠'} {one.right} {'✓' if one.holds else '✗'}")
        for one in receipt.equations
    ]
    pairs += _undo(process)
    title = f"{process.process_id}  {receipt.words} in {format_duration(receipt.duration_ms)}"
    return (title, Pairs(tuple(pairs), indent=2)) if pairs else (title,)


def _undo(process: "admin_pb.Process") -> "tuple[tuple[str, str], ...]":
    """The command that undoes it, for types that can be undone."""
    return (("undo", f"amoro undo {process.process_id}"),) if process.type in UNDOABLE else ()


def _optimize_blocks(plan: "admin_pb.Plan", process_id: str, process: "admin_pb.Process | None") -> "tuple[Block, ...]":
    if not process_id:
        return tuple(nothing_to_do(plan))
    if process is None:
        return (planned_line(plan, process_id),)
    return receipt_blocks(process) if process.HasField("receipt") else ()


def _process_failure(process: "admin_pb.Process") -> str:
    failure = one_line(process.failure)
    return f"[{process.failure_code}] {failure}" if process.failure_code else failure


def _took(process: "admin_pb.Process") -> str:
    return format_duration(process.finished_ms - process.created_ms)
