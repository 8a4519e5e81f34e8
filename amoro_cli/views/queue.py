"""What waits for a plan, and what waits for threads."""

from typing import TYPE_CHECKING

from amoro_cli.listing import Column, Listing
from amoro_cli.output import Block, Document
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_count, format_time

if TYPE_CHECKING:
    from amoro_core.protocol import queue_pb2 as pb

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


def group_queue(answer: "pb.ListQueueResponse") -> Document:
    """Schema amoro.queue/v1: `pending` tables, `waiting` processes, how many there are of each. The names are tables,
    then processes."""
    names = (*(item.table for item in answer.pending), *(item.process_id for item in answer.waiting))
    blocks: list[Block] = ["Nothing waits for a plan."]
    if answer.pending:
        blocks = ["Tables that wait for a plan:", PENDING.grid(answer.pending)]
        blocks += _rest(answer.pending_total - len(answer.pending))
    blocks.append("")
    if answer.waiting:
        blocks += ["Processes that wait for threads:", WAITING.grid(answer.waiting)]
        blocks += _rest(answer.waiting_total - len(answer.waiting))
    else:
        blocks.append("Nothing waits for threads.")
    return Document("amoro.queue/v1", encode(answer), names, tuple(blocks))


def _rest(left: int) -> list[Block]:
    return [f"and {format_count(left)} more"] if left > 0 else []
