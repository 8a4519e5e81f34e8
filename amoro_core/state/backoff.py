"""Back-off of an action that fails on a table, and of a commit that can't proceed."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from amoro_core.model.tables import ActionRecord, TableRuntime

FIRST = timedelta(minutes=1)
LAST = timedelta(hours=6)
COMMIT_FIRST = timedelta(seconds=5)
COMMIT_LAST = timedelta(minutes=1)


#: For optimizing, the failures are kept in the table's runtime.
Failing = TypeVar("Failing", TableRuntime, ActionRecord)


def backed_off(known: Failing, now: datetime) -> Failing:
    """The state after one more failure in a row: nothing is tried for 1 min, doubling to 6 h."""
    failures = known.failures + 1
    wait = min(FIRST * 2 ** min(failures - 1, 20), LAST)
    return replace(known, failures=failures, retry_at=now + wait)


def pause(tries: int) -> timedelta:
    """How long a commit waits after that many tries in a row: 5 s, doubling to 1 min, since it occupies its table."""
    return min(COMMIT_FIRST * (1 << min(tries - 1, 20)), COMMIT_LAST)
