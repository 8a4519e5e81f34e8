"""Fields of requests as values."""

from datetime import timedelta
from difflib import get_close_matches
from typing import TypeVar

from amoro_core.errors import InvalidArgument
from amoro_core.model.audit import AuditOutcome
from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.lines import Line
from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.model.table_lists import Order, TableKey
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from amoro_core.model.tokens import Role

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
