"""Optimizing processes: lists, details, receipts."""

from typing import TYPE_CHECKING

from amoro_cli.listing import AS_EVER, Arrangement, Column, Listing
from amoro_cli.output import Block, Document, Pairs
from amoro_cli.paging import Part
from amoro_cli.views.lists import list_document
from amoro_cli.views.plans import disputed_deletes, nothing_to_do
from amoro_cli.views.tasks import task_grid
from amoro_core.documents.bodies import optimize_body
from amoro_core.documents.encoding import encode
from amoro_core.documents.figures import encoded_lines, label, own_figures, row_equation, value
from amoro_core.documents.quantities import format_bytes, format_count, format_duration, format_time, many
from amoro_core.model.texts import one_line
from amoro_core.model.undoing import UNDOABLE

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def is_active(process: "pb.Process") -> bool:
    """Whether the process has not ended."""
    return not process.finished_ms


PROCESSES: "Listing[pb.Process]" = Listing(
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
        Column("WHY", lambda process: process.waiting or _failure(process) or process.reason),
    ),
    spare=("CREATED", "TOOK", "TYPE", "WHY", "TASKS"),
    elastic="TABLE",
)


def process_list(part: "Part[pb.Process]", arrangement: Arrangement = AS_EVER) -> Document:
    """Schema amoro.processes/v1: `processes`, without their tasks one by one; `total`, `next`."""
    return list_document(
        "amoro.processes/v1", PROCESSES, part, arrangement, lambda process: process.process_id, "No processes."
    )


def process_detail(process: "pb.Process") -> Document:
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
        *((("failure", _failure(process)),) if process.failure else ()),
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


def optimize_document(plan: "pb.Plan", process_id: str, process: "pb.Process | None") -> Document:
    """Schema amoro.optimize/v1: `table`, `outcome`, `process_id`, `changes` (none), `plan`, `process`.

    The outcome is "nothing_to_do", "planned" when the end was not waited for, else the status of the process.
    """
    body = optimize_body(plan, process_id, process)
    return Document(
        "amoro.optimize/v1", body, (process_id,) if process_id else (), _optimize_blocks(plan, process_id, process)
    )


def planned_line(plan: "pb.Plan", process_id: str) -> str:
    """That a process was planned, on one line."""
    return f"{process_id}  planned {plan.type} optimizing of {plan.table}, {many(plan.tasks, 'task')}: {plan.reason}"


def receipt_blocks(process: "pb.Process") -> "tuple[Block, ...]":
    """What the commit did, the row balance, and how to undo it."""
    receipt = process.receipt
    if receipt.words:
        return _told(process)
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


def _told(process: "pb.Process") -> "tuple[Block, ...]":
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


def _undo(process: "pb.Process") -> "tuple[tuple[str, str], ...]":
    """The command that undoes it, for types that can be undone."""
    return (("undo", f"amoro undo {process.process_id}"),) if process.type in UNDOABLE else ()


def _optimize_blocks(plan: "pb.Plan", process_id: str, process: "pb.Process | None") -> "tuple[Block, ...]":
    if not process_id:
        return tuple(nothing_to_do(plan))
    if process is None:
        return (planned_line(plan, process_id),)
    return receipt_blocks(process) if process.HasField("receipt") else ()


def _failure(process: "pb.Process") -> str:
    failure = one_line(process.failure)
    return f"[{process.failure_code}] {failure}" if process.failure_code else failure


def _took(process: "pb.Process") -> str:
    return format_duration(process.finished_ms - process.created_ms)
