"""Amoro's automatic tags: which tag is due, and on which snapshot."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from amoro_core.maintenance.data_expiry import DatePattern
from amoro_core.model.properties import boolean, declared, interval, minutes, one_of
from amoro_core.model.tables import SnapshotFacts

UTC = ZoneInfo("UTC")


class TagPeriod(StrEnum):
    """How often a tag is made."""

    HOURLY = "hourly"
    DAILY = "daily"
    MONTHLY = "monthly"

    @property
    def pattern(self) -> str:
        """The default pattern of the tag's name."""
        return {"hourly": "'tag-'yyyyMMddHH", "daily": "'tag-'yyyyMMdd", "monthly": "'tag-'yyyyMM"}[self]

    def start_of(self, moment: datetime) -> datetime:
        """The beginning of the period in which the moment lies."""
        hour = moment.replace(minute=0, second=0, microsecond=0)
        match self:
            case TagPeriod.HOURLY:
                return hour
            case TagPeriod.DAILY:
                return hour.replace(hour=0)
            case TagPeriod.MONTHLY:
                return hour.replace(day=1, hour=0)

    def before(self, start: datetime) -> datetime:
        """The beginning of the period before the one that begins then."""
        return self.start_of(start - timedelta(microseconds=1))

    def after(self, start: datetime) -> datetime:
        """The beginning of the period after the one that begins then."""
        days = {TagPeriod.HOURLY: 0, TagPeriod.DAILY: 1, TagPeriod.MONTHLY: 31}[self]
        return self.start_of(start + timedelta(days=days, hours=1 if self is TagPeriod.HOURLY else 0))


@dataclass(frozen=True, slots=True)
class TagConfig:
    """The properties of a table for automatic tags, and the zone in which their periods begin."""

    enabled: bool = declared("tag.auto-create.enabled", "false", boolean)
    period: TagPeriod = declared(
        "tag.auto-create.trigger.period", "daily", one_of({tag_period.value: tag_period for tag_period in TagPeriod})
    )
    offset: timedelta = declared("tag.auto-create.trigger.offset.minutes", "0", minutes)
    #: 0: however late the snapshot comes.
    max_delay: timedelta = declared("tag.auto-create.trigger.max-delay.minutes", "60", minutes)
    #: None: the period's own.
    pattern: DatePattern | None = declared(
        "tag.auto-create.tag-format", "", lambda text: DatePattern(text) if text else None
    )
    #: None: the tag is kept for ever.
    max_age: timedelta | None = declared("tag.auto-create.max-age-ms", "-1", lambda text: interval(text) or None)
    zone: ZoneInfo = UTC  # that of `MaintenanceConfig`

    @property
    def max_age_ms(self) -> int | None:
        """None: the tag is kept for ever."""
        return None if self.max_age is None else self.max_age // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TagVerdict:
    """Whether to create a tag now, and why or why not; `due_at`: when the next one may be due."""

    reason: str
    due_at: datetime
    name: str = ""
    snapshot_id: int | None = None  # None: there is nothing to tag now


def evaluate_tag(
    config: TagConfig, now: datetime, history: Sequence[SnapshotFacts], refs: Collection[str]
) -> TagVerdict:
    """The tag of the period that ended last, if it is missing and a snapshot fits.

    `history` is main's, in any order; `refs` are the names of all branches and tags. The tag of a period is set on the
    first snapshot committed after the period and the offset; not if that is more than `max_delay` later, so that a tag
    never names a much later state.
    """
    # Local wall-clock times are compared, as by Java's LocalDateTime.
    local = now.astimezone(config.zone).replace(tzinfo=None)
    start = config.period.start_of(local - config.offset)
    name = (config.pattern or DatePattern(config.period.pattern)).format(config.period.before(start))
    due_at = _moment(config.period.after(start) + config.offset, config.zone)
    trigger = _moment(start + config.offset, config.zone)
    if name in refs:
        return TagVerdict(f"tag {name} exists", due_at, name)
    since = [snapshot_facts for snapshot_facts in history if snapshot_facts.committed_at >= trigger]
    if not since:
        return TagVerdict(f"no snapshot was committed since {trigger:%Y-%m-%d %H:%M} for tag {name}", due_at, name)
    first = min(since, key=lambda one: (one.committed_at, one.sequence_number))
    late = first.committed_at - trigger
    if timedelta(0) < config.max_delay < late:
        return TagVerdict(
            f"the first snapshot for tag {name} came {_minutes(late)} min after its time, "
            f"more than {_minutes(config.max_delay)} min",
            due_at,
            name,
        )
    return TagVerdict(f"tag {name} is missing", due_at, name, first.snapshot_id)


def _moment(local: datetime, zone: ZoneInfo) -> datetime:
    return local.replace(tzinfo=zone)


def _minutes(span: timedelta) -> int:
    return span // timedelta(minutes=1)
