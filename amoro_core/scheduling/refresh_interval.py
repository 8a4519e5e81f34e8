"""When a table is refreshed next."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import isqrt

from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.tables import TableRuntime

REFRESH_INTERVAL = timedelta(seconds=60)
REFRESH_INTERVAL_MAX = timedelta(minutes=5)
#: A table whose catalog says that it has not changed is refreshed all the same once in a time between these.
RESTING_LEAST = timedelta(hours=3)
RESTING_MOST = timedelta(hours=6)
_MS = timedelta(milliseconds=1)


def next_refresh(runtime: TableRuntime, refreshed_at: datetime, config: OptimizingConfig) -> datetime:
    """When a table that was just refreshed is refreshed again: soon after changes, later while nothing changes.

    An enabled table is also refreshed when an interval trigger comes due, but not more often than the base interval.
    """
    changed_at = max(runtime.status_since, runtime.evaluated_at or runtime.status_since)
    usual = refreshed_at + refresh_interval(refreshed_at - changed_at, config)
    if not runtime.enabled or runtime.next_due_at is None:
        return usual
    return min(usual, max(runtime.next_due_at, refreshed_at + REFRESH_INTERVAL))


def refresh_interval(
    quiet: timedelta,
    config: OptimizingConfig,
    base: timedelta = REFRESH_INTERVAL,
    longest: timedelta = REFRESH_INTERVAL_MAX,
) -> timedelta:
    """The interval until the next refresh of a table that last changed, or needed work, `quiet` ago.

    It begins with the base and grows with every refresh by `self-optimizing.refresh-table.adaptive.increase-step-ms`,
    up to `max-interval-ms` if the table has one, else to `longest`. It is never below the base.
    """
    most = max(base, config.refresh_max_interval or longest)
    step = config.refresh_increase_step
    looks = _looks(max(quiet, timedelta()) // _MS, base // _MS, step // _MS)
    return min(base + min(looks, (most - base) // step + 1) * step, most)


def rests_until(
    table_id: int, refreshed_at: datetime, moments: Iterable[datetime | None], now: datetime
) -> datetime | None:
    """When a table that has not changed since its refresh is refreshed next; None: it is time, by the clock.

    `moments` are those at which something comes due; those that its refresh has seen do not count. Tables that rest
    are spread over hours by their ids, so that they are not all refreshed at once.
    """
    spread = (RESTING_MOST - RESTING_LEAST) // _MS
    until = refreshed_at + RESTING_LEAST + table_id * 1009 % spread * _MS
    coming = [moment for moment in moments if moment is not None and moment > refreshed_at]
    earliest = min((until, *coming))
    return earliest if earliest > now else None


def _looks(quiet: int, base: int, step: int) -> int:
    """How many intervals of base, base + step, base + 2 × step, … fit into the quiet time.

    The first n take n × base + n × (n − 1) / 2 × step, which is solved for n.
    """
    half = 2 * base - step
    return (isqrt(half * half + 8 * step * quiet) - half) // (2 * step)
