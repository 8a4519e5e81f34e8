"""A table's state after an evaluation."""

from dataclasses import replace
from datetime import datetime

from amoro_core.model.plans import Evaluation
from amoro_core.model.tables import OptimizingStatus, TableRuntime
from amoro_core.state.tables import Mended, Necessary, Unnecessary, advance


def with_evaluation(
    runtime: TableRuntime, evaluation: Evaluation, left_alone: str | None, now: datetime
) -> TableRuntime:
    """The runtime after an evaluation: pending when there is work that may be done now, else idle with the reason."""
    runtime = replace(
        runtime,
        evaluated_snapshot_id=evaluation.snapshot_id,
        evaluated_at=now,
        next_due_at=evaluation.due_at,
        pending_type=evaluation.type,
        summary=evaluation.summary,
        health=evaluation.health or runtime.health,
    )
    if runtime.status is OptimizingStatus.REFUSED:
        runtime = advance(runtime, Mended(), now)
    held = _held_back(runtime, left_alone, now)
    if evaluation.type is None:
        return advance(runtime, Unnecessary(evaluation.reason), now)
    if held is not None:
        return advance(runtime, Unnecessary(f"{evaluation.reason}; {held}"), now)
    return advance(runtime, Necessary(evaluation.type, evaluation.reason), now)


def _held_back(runtime: TableRuntime, left_alone: str | None, now: datetime) -> str | None:
    if not runtime.enabled:
        return runtime.enabled_origin
    if left_alone is not None:
        return left_alone
    if runtime.retry_at is not None and runtime.retry_at > now:
        return f"after {runtime.failures} failures in a row it is retried at {runtime.retry_at:%Y-%m-%d %H:%M:%S} UTC"
    return None
