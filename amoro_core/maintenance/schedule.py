"""Schedule of maintenance: intervals spread over tables, and the daily window."""

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from hashlib import blake2b
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from amoro_core.model.properties import declared, duration

#: Run times of tables are spread by up to this share of the interval, to either side.
SPREAD = 0.1
_WINDOW = re.compile(r"([0-9]{1,2}):([0-9]{2})\s*-\s*([0-9]{1,2}):([0-9]{2})")


@dataclass(frozen=True, slots=True)
class Window:
    """The part of each day in which maintenance may begin, in local time; its end is exclusive."""

    start: time
    end: time

    def holds(self, local: datetime) -> bool:
        """Whether the moment lies in it."""
        at = local.time()
        if self.start <= self.end:
            return self.start <= at < self.end
        return at >= self.start or at < self.end

    def next_opening(self, local: datetime) -> datetime:
        """The moment itself if it is in the window, else the next opening of the window."""
        if self.holds(local):
            return local
        opening = local.replace(hour=self.start.hour, minute=self.start.minute, second=0, microsecond=0)
        return opening if opening > local else opening + timedelta(days=1)


def _window(text: str) -> Window | None:
    if not text.strip():
        return None
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        raise ValueError("expected two times, such as 22:00-06:00")
    numbers = [int(group) for group in match.groups()]
    window = Window(time(numbers[0], numbers[1]), time(numbers[2], numbers[3]))
    if window.start == window.end:
        raise ValueError("expected two different times")
    return window


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text.strip())
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError("expected the name of a time zone, such as Europe/Berlin") from error


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """The properties of a table for when it is maintained, and how long that can be undone."""

    zone: ZoneInfo = declared("maintenance.zone", "UTC", _zone)
    #: None: at any time.
    window: Window | None = declared("maintenance.window", "", _window)
    undo_keep: timedelta = declared("maintenance.undo.keep", "7d", duration)


def next_run(last: datetime | None, every: timedelta, table: str, action: str, now: datetime) -> datetime:
    """When an action is due by its last run, at once without one; intervals vary by a tenth, to spread the load."""
    if last is None:
        return now
    digest = blake2b(f"{table} {action}".encode(), digest_size=8).digest()
    return last + every * (1 + SPREAD * (int.from_bytes(digest) / 2**63 - 1))


def opening(config: MaintenanceConfig, moment: datetime) -> datetime:
    """The first moment at or after the given one that lies in the window."""
    if config.window is None:
        return moment
    local = moment.astimezone(config.zone)
    return config.window.next_opening(local).astimezone(moment.tzinfo)
