"""Attempts of tasks, and events."""

from typing import TYPE_CHECKING

from amoro_cli.listing import AS_EVER, Arrangement, Column, Listing
from amoro_cli.output import Document, Pairs
from amoro_cli.paging import Part
from amoro_cli.views.lists import list_document
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_bytes, format_count, format_duration, format_time
from amoro_core.model.texts import one_line

if TYPE_CHECKING:
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


def attempt_list(process_id: str, part: "Part[pb.AttemptInfo]", arrangement: Arrangement = AS_EVER) -> Document:
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


def event_list(part: "Part[pb.Event]", arrangement: Arrangement = AS_EVER) -> Document:
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
