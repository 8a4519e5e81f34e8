"""Back-off of an action that fails on a table, and of a commit that can't proceed."""

from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeVar

from amoro_core.model.tables import ActionRecord, TableRuntime

FIRST = timedelta(minutes=1)
LAST = timedelta(hours=6)
COMMIT_FIRST = timedelta(seconds=5)
COMMIT_LAST = timedelta(minutes=1)


#: For optimizing, the failures are kept in the table's runtime.
Failing = TypeVar("Failing", TableRuntime, ActionRecord)


def backed_off(failing: Failing, code: str, now: datetime) -> Failing:
    """The state after one more failure in a row, with its code: nothing is tried for 1 min, doubling to 6 h."""
    failures = failing.failures + 1
    wait = min(FIRST * 2 ** min(failures - 1, 20), LAST)
    since = failing.failing_since or now
    return replace(failing, failures=failures, failure_code=code, failing_since=since, retry_at=now + wait)


def recovered(failing: Failing) -> Failing:
    """The state after a try that worked."""
    return replace(failing, failures=0, failure_code="", failing_since=None, retry_at=None)


def pause(tries: int) -> timedelta:
    """How long a commit waits after that many tries in a row: 5 s, doubling to 1 min, since it occupies its table."""
    return min(COMMIT_FIRST * (1 << min(tries - 1, 20)), COMMIT_LAST)


#: Of failures in a row, and of runs in a row that changed nothing: the clock leaves the action alone from then on.
MOST = 3


class Outcome(Enum):
    """How a process of an action ended."""

    DONE = "done"
    FRUITLESS = "fruitless"  # nothing was changed though it was planned
    FAILED = "failed"
    ENDED = "ended"  # it was cancelled


def after(record: ActionRecord, outcome: Outcome, why: str, now: datetime, code: str = "") -> ActionRecord:
    """The action's record after one of its processes ended; `code` of its failure."""
    match outcome:
        case Outcome.DONE:
            return succeeded(record)
        case Outcome.FRUITLESS:
            return fruitless(record, why, now)
        case Outcome.FAILED:
            return failed(record, code, why, now)
        case Outcome.ENDED:
            return record


def succeeded(record: ActionRecord) -> ActionRecord:
    """The record after a run that did its work or found nothing to do: a pause ends."""
    return replace(recovered(record), fruitless=0, paused_at=None, paused_for="")


def failed(record: ActionRecord, code: str, why: str, now: datetime, *, is_outage: bool = False) -> ActionRecord:
    """The record after one more failure in a row; the third pauses the action, unless the failure is an outage."""
    action_record = backed_off(record, code, now)
    if is_outage or action_record.failures < MOST:
        return action_record
    return _paused(action_record, f"{action_record.failures} failures in a row, the last: {why}", now)


def fruitless(record: ActionRecord, why: str, now: datetime) -> ActionRecord:
    """The record after one more planned run in a row that changed nothing; the third pauses the action."""
    after = replace(record, fruitless=record.fruitless + 1)
    if after.fruitless < MOST:
        return after
    words = f"{after.fruitless} runs in a row changed nothing though there was something to do, the last: {why}"
    return _paused(after, words, now)


def with_properties(record: ActionRecord, properties: str) -> ActionRecord:
    """The record with these properties (a digest); a change of properties ends a pause."""
    if record.paused_at is not None and record.properties not in ("", properties):
        record = succeeded(record)
    return replace(record, properties=properties)


def _paused(record: ActionRecord, words: str, now: datetime) -> ActionRecord:
    return replace(record, next_at=None, paused_at=record.paused_at or now, paused_for=words)
