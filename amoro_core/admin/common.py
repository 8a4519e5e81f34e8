"""Parts that many messages share."""

from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import TypeVar

from amoro_core.errors import InvalidArgument
from amoro_core.model.history_events import AuditOutcome
from amoro_core.model.paging import Line
from amoro_core.model.principals import Role
from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.model.tables import BlockedOperation, FileSummary, OptimizingStatus, OptimizingType, Order, TableKey
from amoro_core.protocol import admin_pb2 as pb


def milliseconds(moment: datetime | None) -> int:
    """UTC milliseconds since the epoch; 0 for never."""
    return 0 if moment is None else round(moment.timestamp() * 1000)


def moment(since_epoch_ms: int) -> datetime:
    """The time in UTC. Raises InvalidArgument for one that no calendar has."""
    try:
        if since_epoch_ms < 0:
            raise OverflowError
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=since_epoch_ms)
    except OverflowError as error:
        raise InvalidArgument(f"{since_epoch_ms} ms since 1970 is no time") from error


def files(summary: FileSummary) -> pb.FileSummary:
    """Live files in figures."""
    return pb.FileSummary(
        data_files=summary.data_files,
        data_bytes=summary.data_bytes,
        fragment_files=summary.fragment_files,
        undersized_files=summary.undersized_files,
        equality_delete_files=summary.equality_delete_files,
        position_delete_files=summary.position_delete_files,
        delete_bytes=summary.delete_bytes,
        dangling_delete_files=summary.dangling_delete_files,
        records=summary.records,
        coarse_files=summary.coarse_files,
        coarse_bytes=summary.coarse_bytes,
    )


Word = TypeVar(
    "Word",
    OptimizingStatus,
    OptimizingType,
    ProcessStatus,
    TaskStatus,
    Role,
    BlockedOperation,
    TableKey,
    Order,
    AuditOutcome,
    Line,
)


def word(kind: type[Word], text: str, name: str) -> Word | None:
    """The value that the text stands for, in any case; None for "". Raises InvalidArgument with those known."""
    if not text:
        return None
    try:
        return kind(text.lower())
    except ValueError as error:
        words = [item.value for item in kind]
        close = get_close_matches(text.lower(), words, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise InvalidArgument(f"{text!r} is not a {name}", hint=f"{meant}One of: {', '.join(words)}.") from error


def requested_type(type_: str, force: bool) -> OptimizingType | None:
    """The type of optimizing that is asked for. Raises InvalidArgument, also for a force that would have no effect."""
    requested = word(OptimizingType, type_, "type")
    if force and requested is not OptimizingType.FULL:
        raise InvalidArgument("force needs the type full", hint="Ask for that type: --type full --force.")
    return requested


def duration(milliseconds: int) -> timedelta | None:
    """The duration; None for 0. Raises InvalidArgument for one beyond what a date can be moved by."""
    try:
        return timedelta(milliseconds=milliseconds) if milliseconds else None
    except OverflowError as error:
        raise InvalidArgument(f"{milliseconds} ms is not a duration", hint="Give at most ten years.") from error
