"""What waits for a plan, and what waits for threads."""

from typing import TYPE_CHECKING

from amoro_cli.listing import Column, Listing
from amoro_cli.output import Block, Document
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_count, format_time
from amoro_core.model.lines import Line

if TYPE_CHECKING:
    from amoro_core.protocol import queue_pb2 as pb

MOVED = "The queue has moved since the page before: something may be missing, or listed twice."

PENDING: "Listing[pb.PendingTable]" = Listing(
    (
        Column("GROUP", lambda item: item.group),
        Column("PLACE", lambda item: str(item.place), right=True),
        Column("TABLE", lambda item: item.table),
        Column("TYPE", lambda item: item.type or "-"),
        Column("SINCE", lambda item: format_time(item.since_ms)),
        Column("POLICY", lambda item: item.policy),
        Column("KEY", lambda item: item.key),
        Column("HELD BACK", lambda item: item.held_back or "-"),
    ),
    spare=("TYPE", "POLICY", "SINCE"),
    elastic="TABLE",
)
WAITING: "Listing[pb.WaitingProcess]" = Listing(
    (
        Column("GROUP", lambda item: item.group),
        Column("PLACE", lambda item: str(item.place), right=True),
        Column("PROCESS", lambda item: item.process_id),
        Column("TABLE", lambda item: item.table),
        Column("WAITING", lambda item: format_count(item.waiting_tasks), right=True),
        Column("RUNNING", lambda item: f"{item.running_tasks}/{item.limit}", right=True),
        Column("SHARE", lambda item: f"{item.share:.0%}", right=True),
        Column("AHEAD", lambda item: f"{item.ahead_s:.0f} s", right=True),
    ),
    spare=("SHARE", "RUNNING"),
    elastic="TABLE",
)


def group_queue(answer: "pb.ListQueueResponse", only: Line | None = None, after: str = "") -> Document:
    """Schema amoro.queue/v1: `pending` tables, `waiting` processes, how many there are of each, where they go on. The
    names are tables, then processes. `only` and `after` are those that were asked for."""
    names = (*(item.table for item in answer.pending), *(item.process_id for item in answer.waiting))
    more = " more" if after else ""
    lists: list[list[Block]] = []
    if only is not Line.WAITING:
        shown: list[Block] = [f"Nothing{more} waits for a plan."]
        if answer.pending:
            shown = ["Tables that wait for a plan:", PENDING.grid(answer.pending)]
        lists.append(shown + _rest(answer.pending_total - len(answer.pending), after))
    if only is not Line.PENDING:
        shown = [f"Nothing{more} waits for threads."]
        if answer.waiting:
            shown = ["Processes that wait for threads:", WAITING.grid(answer.waiting)]
        lists.append(shown + _rest(answer.waiting_total - len(answer.waiting), after))
    blocks = [block for number, shown in enumerate(lists) for block in ([""] if number else []) + shown]
    blocks += ["", "and more: see --limit"] if after and answer.next else []
    blocks += ["", MOVED] if answer.order_changed else []
    return Document("amoro.queue/v1", encode(answer), names, tuple(blocks))


def _rest(left: int, after: str) -> list[Block]:
    """The line beneath a list that is not whole; after a cursor nobody knows how many came before it."""
    return [f"and {format_count(left)} more: see --limit"] if left > 0 and not after else []
