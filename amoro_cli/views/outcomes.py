"""Outcomes of a command for several tables: a line for each, and counts by kind; and rows of a statement."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from amoro_cli.list_options import ListRange
from amoro_cli.multi_table import Optimized, Outcome, worst
from amoro_cli.output import Block, Document, Grid
from amoro_cli.views.plans import optimize_command, plan_document
from amoro_cli.views.tables import TABLES, table_detail
from amoro_core.documents.formatting import balance, format_bytes, format_count, format_duration, many
from amoro_core.documents.json_documents import encode, rows_body
from amoro_core.protocol import admin_pb2 as pb


def optimized_document(outcomes: Sequence[Outcome[Optimized]]) -> Document:
    """Schema amoro.optimized/v1: `tables`, each with its outcome, and `exit_status`. The names are ids of processes."""
    grid = Grid(
        ("TABLE", "OUTCOME", "FILES", "DELETES", "ROWS", "TOOK", "WHY"),
        tuple(_optimized_row(outcome) for outcome in outcomes),
        frozenset({"TOOK"}),
        spare=("TOOK", "DELETES", "ROWS"),
        elastic="WHY",
    )
    names = tuple(
        outcome.answer[0].process_id for outcome in outcomes if outcome.answer and outcome.answer[0].process_id
    )
    body = [{**_head(outcome), **_optimized(outcome)} for outcome in outcomes]
    return Document("amoro.optimized/v1", _body(outcomes, body), names, (grid, _count(outcomes)))


def plans_document(outcomes: Sequence[Outcome[pb.Plan]], request: pb.OptimizeTableRequest, explain: bool) -> Document:
    """Schema amoro.plans/v1: `tables`, those first of which it saves most files, and `exit_status`.

    The names are tables with work. `explain` adds every partition of each.
    """
    body = [
        {
            **_head(outcome),
            "gain_files": outcome.answer.saved_files if outcome.answer else 0,
            "cost_bytes": _cost(outcome.answer) if outcome.answer else 0,
            "plan": encode(outcome.answer) if outcome.answer else None,
        }
        for outcome in outcomes
    ]
    names = tuple(outcome.table for outcome in outcomes if outcome.answer and outcome.answer.type)
    if not outcomes:
        return Document("amoro.plans/v1", _body(outcomes, body), (), ("No catalog has any tables.",))
    grid = Grid(
        ("TABLE", "WHAT", "AUTOMATIC", "FILES SAVED", "READS", "WHY"),
        tuple(_plan_row(outcome) for outcome in outcomes),
        frozenset({"FILES SAVED", "READS"}),
        spare=("AUTOMATIC", "READS"),
        elastic="WHY",
    )
    blocks: list[Block] = [grid, f"{_count(outcomes)}. Nothing was changed."]
    for plan in (outcome.answer for outcome in outcomes if explain and outcome.answer):
        blocks += ["", *plan_document(plan, optimize_command(plan.table, request), explain=True).blocks]
    return Document("amoro.plans/v1", _body(outcomes, body), names, tuple(blocks))


def selected_document(outcomes: Sequence[Outcome[pb.Table]], *, detailed: bool) -> Document:
    """Schema amoro.selected/v1: `tables`, each with its outcome and its fields, and `exit_status`.

    `detailed`: all fields of each, else one line.
    """
    body = [{**_head(outcome), "result": encode(outcome.answer) if outcome.answer else None} for outcome in outcomes]
    tables = [outcome.answer for outcome in outcomes if outcome.answer]
    blocks: list[Block] = []
    if detailed:
        blocks = [block for table in tables for block in (*table_detail(table).blocks, "")]
    elif tables:
        blocks = list(TABLES.document(ListRange(tables)).blocks)
    errors = tuple((outcome.table, _words(outcome.word), _why(outcome)) for outcome in outcomes if outcome.error)
    blocks += [Grid(("TABLE", "OUTCOME", "WHY"), errors, elastic="WHY")] if errors else []
    blocks.append(_count(outcomes))
    return Document("amoro.selected/v1", _body(outcomes, body), tuple(table.table for table in tables), tuple(blocks))


def _body(outcomes: Sequence[Outcome[Any]], tables: list[dict[str, Any]]) -> dict[str, Any]:
    return {"tables": tables, "exit_status": worst(outcome.exit_status for outcome in outcomes)}


def _head(outcome: Outcome[Any]) -> dict[str, Any]:
    error = outcome.error
    return {
        "table": outcome.table,
        "outcome": outcome.word,
        "exit_status": outcome.exit_status,
        "code": error.code if error else "",
        "message": error.message if error else "",
        "hint": (error.hint or error.remedy) if error else "",
    }


def _optimized(outcome: Outcome[Optimized]) -> dict[str, Any]:
    if outcome.answer is None:
        return {"process_id": None, "plan": None, "process": None}
    answer, process = outcome.answer
    return {
        "process_id": answer.process_id or None,
        "plan": encode(answer.plan),
        "process": encode(process) if process else None,
    }


def _optimized_row(outcome: Outcome[Optimized]) -> tuple[str, ...]:
    process = outcome.answer[1] if outcome.answer else None
    plan = outcome.answer[0].plan if outcome.answer else None
    why = _why(outcome) if outcome.error or plan is None else plan.reason
    if process is None or not process.HasField("receipt"):
        return (outcome.table, _words(outcome.word), "-", "-", "-", "-", why)
    receipt = process.receipt
    equal = receipt.rows_before == receipt.rows_after
    rows = f"{format_count(receipt.rows_after)} ✓" if equal else balance(receipt.rows_before, receipt.rows_after)
    return (
        outcome.table,
        _words(outcome.word),
        f"{format_count(receipt.data_files_before)} → {format_count(receipt.data_files_after)}",
        f"{format_count(receipt.delete_files_before)} → {format_count(receipt.delete_files_after)}",
        rows,
        format_duration(receipt.duration_ms),
        why,
    )


def _plan_row(outcome: Outcome[pb.Plan]) -> tuple[str, ...]:
    plan = outcome.answer
    if plan is None:
        return (outcome.table, _words(outcome.word), "-", "-", "-", _why(outcome))
    by_itself = "yes" if plan.enabled else "no"
    if not plan.type:
        return (outcome.table, "nothing", by_itself, "-", "-", plan.reason.removeprefix("nothing to do: "))
    saved, read = format_count(plan.saved_files), format_bytes(plan.saved_bytes)
    return (outcome.table, plan.type, by_itself, saved, read, plan.reason)


def _cost(plan: pb.Plan) -> int:
    """The bytes to read, and 4 MiB for opening each file: the default of Iceberg's `read.split.open-file-cost`."""
    planned = (part for part in plan.partitions if part.type)
    files = sum(part.data_files + part.equality_delete_files + part.position_delete_files for part in planned)
    return plan.saved_bytes + files * 4 * 1024 * 1024


def _why(outcome: Outcome[Any]) -> str:
    return f"[{outcome.error.code}] {outcome.error.message}" if outcome.error else ""


def _count(outcomes: Sequence[Outcome[Any]]) -> str:
    kinds = Counter(_words(outcome.word) for outcome in outcomes)
    counts = ", ".join(f"{format_count(count)} {word}" for word, count in kinds.most_common())
    return f"{many(len(outcomes), 'table')}: {counts}"


def _words(word: str) -> str:
    return word.replace("_", " ")


def rows_document(result: pb.StatementResult) -> Document:
    """Schema amoro.rows/v1: `columns` with their types, and `rows` of texts."""
    body = rows_body(result)
    rows = tuple(tuple("NULL" if text is None else text for text in row) for row in body["rows"])
    more = "; there are more, terminal.result-limit is the most" if result.is_cut else ""
    grid = Grid(tuple(column.name for column in result.columns), rows)
    return Document("amoro.rows/v1", body, (), (grid, f"{many(len(rows), 'row')}{more}"))
