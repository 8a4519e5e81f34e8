"""The state machine of a table's optimizing status."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from amoro_core.documents.formatting import many
from amoro_core.errors import IllegalState
from amoro_core.model.plans import Evaluation
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableRuntime


@dataclass(frozen=True, slots=True)
class _Event:
    """An event with a reason for people."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Necessary:
    """The evaluator found work of this type."""

    type: OptimizingType
    reason: str = ""


class Unnecessary(_Event):
    """The evaluator found nothing to do, or optimizing is not enabled."""


class BeginPlan(_Event):
    """A plan is being made, outside of any transaction."""


class PlannedMinor(_Event):
    """A minor process begins."""


class PlannedMajor(_Event):
    """A major process begins."""


class PlannedFull(_Event):
    """A full process begins."""


class PlanEmpty(_Event):
    """The plan has no tasks."""


class PlanFailed(_Event):
    """Planning failed, or the coordinator ended during it."""


class BeginCommit(_Event):
    """The process commits; an unknown commit counts as this until it is reconciled."""


class ProcessEnded(_Event):
    """The process is over, however it ended."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The table has an unsupported feature; `refusal` is its word, `reason` the sentence."""

    refusal: str
    reason: str = ""


class Mended(_Event):
    """The reason for which the table was refused is gone."""


Planned = PlannedMinor | PlannedMajor | PlannedFull
TableEvent = (
    Necessary
    | Unnecessary
    | BeginPlan
    | PlannedMinor
    | PlannedMajor
    | PlannedFull
    | PlanEmpty
    | PlanFailed
    | BeginCommit
    | ProcessEnded
    | Refuse
    | Mended
)

#: A table is refused only while it has no process; otherwise once the process has ended.
TRANSITIONS: Mapping[tuple[OptimizingStatus, type[TableEvent]], OptimizingStatus] = MappingProxyType(
    {
        (OptimizingStatus.IDLE, Necessary): OptimizingStatus.PENDING,
        (OptimizingStatus.IDLE, Unnecessary): OptimizingStatus.IDLE,
        (OptimizingStatus.IDLE, BeginPlan): OptimizingStatus.PLANNING,
        (OptimizingStatus.IDLE, Refuse): OptimizingStatus.REFUSED,
        (OptimizingStatus.PENDING, Necessary): OptimizingStatus.PENDING,
        (OptimizingStatus.PENDING, Unnecessary): OptimizingStatus.IDLE,
        (OptimizingStatus.PENDING, BeginPlan): OptimizingStatus.PLANNING,
        (OptimizingStatus.PENDING, Refuse): OptimizingStatus.REFUSED,
        (OptimizingStatus.PLANNING, PlannedMinor): OptimizingStatus.MINOR_OPTIMIZING,
        (OptimizingStatus.PLANNING, PlannedMajor): OptimizingStatus.MAJOR_OPTIMIZING,
        (OptimizingStatus.PLANNING, PlannedFull): OptimizingStatus.FULL_OPTIMIZING,
        (OptimizingStatus.PLANNING, PlanEmpty): OptimizingStatus.IDLE,
        (OptimizingStatus.PLANNING, PlanFailed): OptimizingStatus.IDLE,
        (OptimizingStatus.PLANNING, Refuse): OptimizingStatus.REFUSED,
        (OptimizingStatus.MINOR_OPTIMIZING, BeginCommit): OptimizingStatus.COMMITTING,
        (OptimizingStatus.MINOR_OPTIMIZING, ProcessEnded): OptimizingStatus.IDLE,
        (OptimizingStatus.MAJOR_OPTIMIZING, BeginCommit): OptimizingStatus.COMMITTING,
        (OptimizingStatus.MAJOR_OPTIMIZING, ProcessEnded): OptimizingStatus.IDLE,
        (OptimizingStatus.FULL_OPTIMIZING, BeginCommit): OptimizingStatus.COMMITTING,
        (OptimizingStatus.FULL_OPTIMIZING, ProcessEnded): OptimizingStatus.IDLE,
        (OptimizingStatus.COMMITTING, ProcessEnded): OptimizingStatus.IDLE,
        (OptimizingStatus.REFUSED, Refuse): OptimizingStatus.REFUSED,
        (OptimizingStatus.REFUSED, Mended): OptimizingStatus.IDLE,
    }
)


def planned(type_: OptimizingType, reason: str = "") -> Planned:
    """The event that says a process of this type begins."""
    match type_:
        case OptimizingType.MINOR:
            return PlannedMinor(reason)
        case OptimizingType.MAJOR:
            return PlannedMajor(reason)
        case OptimizingType.FULL:
            return PlannedFull(reason)


def advance(runtime: TableRuntime, event: TableEvent, now: datetime) -> TableRuntime:
    """The table after the event.

    Sets status, status_since (only if the status changes), status_reason and refusal, and pending_type if work was
    found; after the end of a process the table is refreshed at once. Back-off and the other fields are the caller's.
    Raises IllegalState for an edge that is not in the table of transitions.
    """
    status = TRANSITIONS.get((runtime.status, type(event)))
    if status is None:
        raise IllegalState(f"table {runtime.identifier} is {runtime.status}: {type(event).__name__} is not possible")
    return replace(
        runtime,
        status=status,
        status_since=runtime.status_since if status is runtime.status else now,
        status_reason=event.reason,
        refusal=event.refusal if isinstance(event, Refuse) else "",
        pending_type=event.type if isinstance(event, Necessary) else runtime.pending_type,
        evaluated_snapshot_id=None if isinstance(event, PlanFailed | ProcessEnded) else runtime.evaluated_snapshot_id,
        refresh_at=None if isinstance(event, ProcessEnded) else runtime.refresh_at,
    )


def with_evaluation(
    runtime: TableRuntime,
    evaluation: Evaluation,
    skip_reason: str | None,
    now: datetime,
    opens_at: datetime | None = None,
) -> TableRuntime:
    """The runtime after an evaluation: pending when there is work that may be done now, else idle with the reason.

    `opens_at`: when the table's window opens next; None: it is open.
    """
    runtime = replace(
        runtime,
        evaluated_snapshot_id=evaluation.snapshot_id,
        evaluated_at=now,
        next_due_at=evaluation.due_at,
        pending_type=evaluation.type,
        summary=evaluation.summary,
        health=evaluation.health or runtime.health,
        saving=evaluation.saving,
    )
    if runtime.status is OptimizingStatus.REFUSED:
        runtime = advance(runtime, Mended(), now)
    reason = _blocked_reason(runtime, skip_reason, now)
    if evaluation.type is None:
        return advance(runtime, Unnecessary(evaluation.reason), now)
    if reason is None and opens_at is not None:
        runtime, reason = replace(runtime, next_due_at=opens_at), window_reason(opens_at)
    if reason is not None:
        return advance(runtime, Unnecessary(f"{evaluation.reason}; {reason}"), now)
    return advance(runtime, Necessary(evaluation.type, evaluation.reason), now)


def window_reason(opens_at: datetime) -> str:
    """That work waits for the table's window, in words."""
    return f"waits for the window until {opens_at:%Y-%m-%d %H:%M} UTC"


def _blocked_reason(runtime: TableRuntime, skip_reason: str | None, now: datetime) -> str | None:
    if not runtime.enabled:
        return runtime.enabled_origin
    if skip_reason is not None:
        return skip_reason
    if runtime.retry_at is not None and runtime.retry_at > now:
        failures = many(runtime.failures, "failure")
        code = f" ({runtime.failure_code})" if runtime.failure_code else ""
        return f"after {failures} in a row{code} it is tried again at {runtime.retry_at:%Y-%m-%d %H:%M:%S} UTC"
    return None
