"""How long an action that fails on a table is left alone, and a commit that can't go on."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from amoro_core.model.tables import ActionRecord, TableRuntime

FIRST = timedelta(minutes=1)
LAST = timedelta(hours=6)
COMMIT_FIRST = timedelta(seconds=5)
COMMIT_LAST = timedelta(minutes=1)


#: What is known of optimizing a table stands in its runtime.
Failing = TypeVar("Failing", TableRuntime, ActionRecord)


def backed_off(known: Failing, now: datetime) -> Failing:
    """What is known after one more failure in a row: nothing is tried for 1 min, doubling to 6 h."""
    failures = known.failures + 1
    wait = min(FIRST * 2 ** min(failures - 1, 20), LAST)
    return replace(known, failures=failures, retry_at=now + wait)


def pause(tries: int) -> timedelta:
    """How long a commit waits after so many tries in a row: 5 s, doubling to 1 min, since it holds up its table."""
    return min(COMMIT_FIRST * (1 << min(tries - 1, 20)), COMMIT_LAST)
