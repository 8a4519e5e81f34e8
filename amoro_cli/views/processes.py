"""Optimizing processes: lists, details, receipts."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from amoro_cli.encoding import encode, encode_all
from amoro_cli.output import Block, Document, Grid, Pairs
from amoro_cli.quantities import format_bytes, format_count, format_duration, format_time
from amoro_cli.views.plans import nothing_to_do
from amoro_cli.views.tasks import task_grid
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES
from amoro_core.model.tables import parse_table

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def is_active(process: "pb.Process") -> bool:
    """Whether the process still holds its table."""
    return process.status in ACTIVE_PROCESS_STATUSES


def process_list(processes: "Sequence[pb.Process]") -> Document:
    """Schema amoro.processes/v1: `processes`."""
    if not processes:
        return Document("amoro.processes/v1", {"processes": []}, (), ("No processes.",))
    grid = Grid(
        ("PROCESS", "TABLE", "TYPE", "STATUS", "TASKS", "CREATED", "TOOK", "WHY"),
        tuple(_row(process) for process in processes),
        frozenset({"TASKS", "TOOK"}),
    )
    names = tuple(process.process_id for process in processes)
    return Document("amoro.processes/v1", {"processes": encode_all(processes)}, names, (grid,))


def process_detail(process: "pb.Process") -> Document:
    """Schema amoro.process/v1: the fields of the process."""
    pairs = (
        ("process", process.process_id),
        ("table", process.table),
        ("type", process.type),
        ("status", process.status),
        ("why", f"{process.reason} ({process.trigger})" if process.trigger else process.reason),
        ("snapshot", str(process.snapshot_id)),
        ("created", format_time(process.created_ms)),
        *(
            (("finished", f"{format_time(process.finished_ms)}, after {_took(process)}"),)
            if process.finished_ms
            else ()
        ),
        *((("failure", _failure(process)),) if process.failure else ()),
        ("tasks", f"{process.tasks_done}/{process.tasks_total} done"),
    )
    blocks: list[Block] = [Pairs(pairs)]
    if process.tasks:
        blocks += ["", task_grid(process.tasks, indent=2)]
    if process.HasField("receipt"):
        blocks += ["", *receipt_blocks(process)]
    return Document("amoro.process/v1", encode(process), (process.process_id,), tuple(blocks))


def optimize_document(plan: "pb.Plan", process_id: str, process: "pb.Process | None") -> Document:
    """Schema amoro.optimize/v1: `table`, `outcome`, `process_id`, `plan`, `process`.

    The outcome is "nothing_to_do", "planned" when the end was not waited for, else the status of the process.
    """
    outcome = process.status if process else "planned" if process_id else "nothing_to_do"
    body = {
        "table": plan.table,
        "outcome": outcome,
        "process_id": process_id or None,
        "plan": encode(plan),
        "process": encode(process) if process else None,
    }
    return Document(
        "amoro.optimize/v1", body, (process_id,) if process_id else (), _optimize_blocks(plan, process_id, process)
    )


def planned_line(plan: "pb.Plan", process_id: str) -> str:
    tasks = f"{format_count(plan.tasks)} task{'' if plan.tasks == 1 else 's'}"
    return f"{process_id}  planned {plan.type} optimizing of {plan.table}, {tasks}: {plan.reason}"


def receipt_blocks(process: "pb.Process") -> "tuple[Block, ...]":
    """What the commit did, that the rows add up, and how it is taken back."""
    receipt = process.receipt
    partly = " a part of the plan as" if process.status == "partial" else ""
    took = format_duration(receipt.duration_ms)
    title = f"{process.process_id}  committed{partly} snapshot {receipt.snapshot_id} in {took}"
    equal = receipt.rows_before == receipt.rows_after
    pairs = (
        ("files", f"{format_count(receipt.data_files_before)} → {format_count(receipt.data_files_after)}"),
        ("deletes", f"{format_count(receipt.delete_files_before)} → {format_count(receipt.delete_files_after)}"),
        ("bytes", f"{format_bytes(receipt.bytes_before)} → {format_bytes(receipt.bytes_after)}"),
        (
            "rows",
            f"{format_count(receipt.rows_before)} {'=' if equal else '≠'} {format_count(receipt.rows_after)} "
            f"{'✓' if equal else '✗'}",
        ),
        ("undo", undo(process)),
    )
    return (title, Pairs(pairs, indent=2))


def undo(process: "pb.Process") -> str:
    """How the commit can be taken back, while it can."""
    receipt = process.receipt
    if not receipt.revertible:
        return f"not possible by a rollback: snapshot {receipt.snapshot_id} is not the table's head any more"
    table = parse_table(process.table)
    catalog = table.catalog if re.fullmatch(r"[A-Za-z_]\w*", table.catalog) else f"`{table.catalog}`"
    name = str(replace(table, catalog="c")).removeprefix("c.")
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"in Spark: CALL {catalog}.system.rollback_to_snapshot('{quoted}', {receipt.base_snapshot_id})"


def _optimize_blocks(plan: "pb.Plan", process_id: str, process: "pb.Process | None") -> "tuple[Block, ...]":
    if not process_id:
        return (nothing_to_do(plan),)
    if process is None:
        return (planned_line(plan, process_id),)
    return receipt_blocks(process) if process.HasField("receipt") else ()


def _row(process: "pb.Process") -> tuple[str, ...]:
    return (
        process.process_id,
        process.table,
        process.type,
        process.status,
        f"{process.tasks_done}/{process.tasks_total}",
        format_time(process.created_ms),
        _took(process) if process.finished_ms else "-",
        _failure(process) or process.reason,
    )


def _failure(process: "pb.Process") -> str:
    return f"[{process.failure_code}] {process.failure}" if process.failure_code else process.failure


def _took(process: "pb.Process") -> str:
    return format_duration(process.finished_ms - process.created_ms)
