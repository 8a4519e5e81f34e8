"""Trying a commit again while other writers are faster: for a time, with waits that grow."""

import random
import time
from collections.abc import Callable
from datetime import timedelta

from amoro_core.errors import CatalogNotFound, CommitConflict, TableRefused
from amoro_core.formats.tables import Tables
from amoro_core.model.config import OptimizingConfig, effective_properties, parse_config
from amoro_core.model.tables import TableRuntime

_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 2.0


def config_of(tables: Tables, runtime: TableRuntime) -> OptimizingConfig:
    """The table's configuration as last loaded; Amoro's defaults while it is malformed or its catalog unknown."""
    try:
        defaults = dict(tables.catalog(runtime.identifier.catalog).properties)
        return parse_config(effective_properties(defaults, runtime.properties))
    except (TableRefused, CatalogNotFound):
        return OptimizingConfig()


def try_until(
    limit: timedelta,
    attempt: Callable[[], bool],
    *,
    now: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Repeat the attempt until it is true; the first repetition comes at once, others after waits with jitter.

    Two who always lose to each other would go on in step without it. Raises CommitConflict once the time is over, and
    what `attempt` raises.
    """
    started, tries, longest = now(), 1, 0.0
    while not attempt():
        spent = now() - started
        if spent >= limit.total_seconds():
            raise CommitConflict(f"other writers were faster {tries} times in {spent:.0f} s")
        wait(random.uniform(longest / 2, longest))  # noqa: S311 - jitter, no secret
        longest = min(max(2 * longest, _FIRST_WAIT_S), _LONGEST_WAIT_S)
        tries += 1
