"""Which conditions hold, and since when."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from amoro_core.events import get_logger
from amoro_core.model.conditions import Held, look
from amoro_core.model.expressions import Counted, Series, counters
from amoro_core.model.known_conditions import CONDITIONS
from amoro_core.model.metrics import Sample

log = get_logger("amoro.conditions")

_HOUR, _MINUTE = timedelta(hours=1), timedelta(minutes=1)
#: How long an answer is good for: a page that many look at costs one reading.
FRESH = timedelta(seconds=1)


class ConditionService:
    """Watches the conditions. What it knows of the past is in memory: at a restart durations begin anew."""

    def __init__(self, read: Callable[[], Sequence[Sample]], clock: Callable[[], datetime]) -> None:
        """`read` returns the samples of all metrics."""
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._held: tuple[Held, ...] = ()
        self._looked_at: datetime | None = None
        self._history: deque[tuple[datetime, dict[Series, float]]] = deque()  # counters, at most one a minute

    def look(self) -> tuple[tuple[Held, ...], datetime]:
        """Every condition that holds, the worst first, and of which moment that is.

        It is to be called now and then, so that durations count also while nobody asks.
        """
        with self._lock:
            now = self._clock()
            if self._looked_at is None or not timedelta() <= now - self._looked_at < FRESH:
                self._look(now)
                self._looked_at = now
            return self._held, self._looked_at

    def _look(self, now: datetime) -> None:
        samples = self._read()
        held = look(CONDITIONS, Counted(samples, self._hour_ago(now), now.timestamp()), self._held, now)
        before = self._looked_at or now
        known = {(one.condition.name, one.labels) for one in self._held if one.is_raised(before)}
        for one in held:
            if one.is_raised(now) and (one.condition.name, one.labels) not in known:
                log.warning("condition.raised", condition=one.condition.name, **one.named, what=one.text)
        self._held = held
        if not self._history or now - self._history[-1][0] >= _MINUTE:
            self._history.append((now, counters(samples)))

    def _hour_ago(self, now: datetime) -> dict[Series, float]:
        """The counters as they stood an hour ago; none: they began later."""
        while len(self._history) > 1 and self._history[1][0] <= now - _HOUR:
            self._history.popleft()
        if self._history and self._history[0][0] <= now - _HOUR:
            return self._history[0][1]
        return {}
