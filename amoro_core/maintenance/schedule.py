"""Schedule of maintenance: intervals spread over tables, and the daily window."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from zoneinfo import ZoneInfo

from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.properties import Window, declared, duration, time_zone, window

#: Run times of tables are spread by up to this share of the interval, to either side.
SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """The properties of a table for when it is maintained, and how long that can be undone."""

    zone: ZoneInfo = declared("maintenance.zone", "UTC", time_zone)
    #: None: at any time.
    window: Window | None = declared("maintenance.window", "", window)
    undo_keep: timedelta = declared("maintenance.undo.keep", "7d", duration)


def next_run(last: datetime | None, interval: timedelta, table: str, action: str, now: datetime) -> datetime:
    """When an action is due by its last run, at once without one; intervals vary by a tenth, to spread the load."""
    if last is None:
        return now
    digest = blake2b(f"{table} {action}".encode(), digest_size=8).digest()
    return last + interval * (1 + SPREAD * (int.from_bytes(digest) / 2**63 - 1))


def opening(config: MaintenanceConfig | OptimizingConfig, moment: datetime) -> datetime:
    """The first moment at or after the given one that lies in the window."""
    if config.window is None:
        return moment
    local = moment.astimezone(config.zone)
    return config.window.next_opening(local).astimezone(moment.tzinfo)


def closed_until(config: OptimizingConfig, moment: datetime) -> datetime | None:
    """When the window of optimizing opens next; None: the moment lies in it, or there is none."""
    at = opening(config, moment)
    return at if at > moment else None
