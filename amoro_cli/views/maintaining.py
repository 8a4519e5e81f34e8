"""Maintenance of tables: what was planned or done, and what is known of each action."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from amoro_cli.listing import AS_EVER, Arrangement, Column, Listing
from amoro_cli.output import Block, Document, Grid
from amoro_cli.views.processes import receipt_blocks
from amoro_core.documents.bodies import maintain_body
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_count, format_time, many

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb

#: Rows of a plan that are shown on a terminal; JSON has all.
_SHOWN = 20


def maintain_document(answer: "pb.MaintainTableResponse", process: "pb.Process | None") -> Document:
    """Schema amoro.maintain/v1: `table`, `action`, `outcome`, `reason`, `due_at`, `is_due`, `tasks`, `held`,
    `process_id`, `plan`, `process`.

    The outcome is "nothing_to_do", "due" of a dry run, "planned" when the end was not waited for, else the status of
    the process. `plan` is what would be done, or was planned: the items with their reasons.
    """
    body = maintain_body(answer, process)
    blocks = _blocks(answer, process, body["plan"])
    return Document("amoro.maintain/v1", body, (answer.process_id,) if answer.process_id else (), blocks)


def maintenance_document(table: str, done: "Sequence[tuple[pb.MaintainTableResponse, pb.Process | None]]") -> Document:
    """Schema amoro.maintenance/v1: `table`, and in `actions` of each what amoro.maintain/v1 has."""
    bodies = [maintain_body(answer, process) for answer, process in done]
    pairs = zip(done, bodies, strict=True)
    blocks = [block for (answer, process), body in pairs for block in _blocks(answer, process, body["plan"])]
    names = tuple(answer.process_id for answer, _ in done if answer.process_id)
    nothing = () if done else (f"{table}: no action is due.",)
    return Document("amoro.maintenance/v1", {"table": table, "actions": bodies}, names, (*blocks, *nothing))


def _blocks(
    answer: "pb.MaintainTableResponse", process: "pb.Process | None", plan: Mapping[str, Any] | None
) -> tuple[Block, ...]:
    blocks: list[Block] = [f"{answer.table}  {answer.action}: {_maintained(answer)}"]
    if process is None:
        return (*blocks, *_plan_blocks(plan or {}))
    blocks = [f"{process.process_id}  {process.type}: {process.status}", f"  {process.failure or process.reason}"]
    return (*blocks, *(receipt_blocks(process) if process.HasField("receipt") else ()))


def _plan_blocks(plan: Mapping[str, Any]) -> tuple[Block, ...]:
    """The items of a plan, the first ones of each kind as a table, and figures in a line."""
    figures = [f"{name} {_said(value)}" for name, value in plan.items() if not isinstance(value, list | dict)]
    blocks: list[Block] = [f"  {', '.join(figures)}"] if figures else []
    for name, items in plan.items():
        rows = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        if not rows:
            continue
        titles = list(rows[0])
        cells = tuple(tuple(_said(item.get(title)) for title in titles) for item in rows[:_SHOWN])
        blocks.append(Grid(tuple(title.upper().replace("_", " ") for title in titles), cells))
        if len(rows) > _SHOWN:
            blocks.append(f"... {many(len(rows) - _SHOWN, 'more')} in {name}: see them all with -o json")
    return tuple(blocks)


def _said(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return "-" if value is None else str(value)
    return format_count(value) if 0 <= value < 10**15 else str(value)


def _maintained(answer: "pb.MaintainTableResponse") -> str:
    if answer.process_id:
        return f"planned as {answer.process_id}, {answer.reason}"
    if answer.is_due:
        held = f"; it would be held: {answer.held}" if answer.held else ""
        return f"would be done: {answer.reason}{held}"
    later = f"; next at {format_time(answer.due_ms)}" if answer.due_ms else ""
    return f"nothing to do: {answer.reason}{later}"


ACTIONS: "Listing[pb.TableAction]" = Listing(
    (
        Column("ACTION", lambda item: item.action),
        Column("ON", lambda item: "on" if item.is_on else "off"),
        Column("BY", lambda item: item.by or "-"),
        Column("LAST", lambda item: format_time(item.last_ms), lambda item: item.last_ms),
        Column("NEXT", lambda item: format_time(item.next_ms) if item.is_on else "-", lambda item: item.next_ms),
        Column("STATE", lambda item: _state(item)),
        Column("REASON", lambda item: item.paused_for or (item.is_on and item.reason) or "-"),
    ),
    spare=("BY", "STATE"),
    elastic="REASON",
)


def _state(item: "pb.TableAction") -> str:
    if item.process_id:
        return f"{item.process_status} {item.process_id}"
    if item.paused_ms:
        return f"paused since {format_time(item.paused_ms)}"
    if item.failures:
        return f"failed {many(item.failures, 'time')}, again at {format_time(item.retry_ms)}"
    return "-"


def actions_document(answer: "pb.ListActionsResponse", arrangement: Arrangement = AS_EVER) -> Document:
    """Schema amoro.actions/v1: `table`, and `actions`, each with whether it is on and why, and since when and why it
    is paused."""
    items = ACTIONS.arranged(answer.actions, arrangement)
    names = tuple(item.action for item in items)
    paused = (
        f"{item.action} is paused since {format_time(item.paused_ms)}: {item.paused_for}. It resumes after a run that "
        f"succeeds, amoro table maintain {answer.table} --action {item.action}, or when its properties change."
        for item in items
        if item.paused_ms
    )
    return Document("amoro.actions/v1", encode(answer), names, (ACTIONS.grid(items, arrangement), *paused))
