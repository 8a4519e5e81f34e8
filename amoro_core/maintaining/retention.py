"""The properties of a table for the retention of snapshots: Iceberg's, Amoro's, and ours."""

import re
from datetime import timedelta

from amoro_core.model.properties import boolean, declared, interval, milliseconds, minutes, whole
from amoro_core.records import record

#: Iceberg's default, if neither its property nor Amoro's is set; Amoro's own default is 720 min.
DEFAULT_AGE = timedelta(days=5)

_UNITS = {
    ("d", "day", "days"): timedelta(days=1),
    ("h", "hour", "hours"): timedelta(hours=1),
    ("m", "min", "minute", "minutes"): timedelta(minutes=1),
    ("s", "sec", "second", "seconds"): timedelta(seconds=1),
    ("ms", "milli", "millis", "millisecond", "milliseconds"): timedelta(milliseconds=1),
}
_SPAN = re.compile(r"([0-9]{1,9})\s*([a-z]+)")


def span(text: str) -> timedelta:
    """A whole number with one of Amoro's units, such as "720min" or "7 d"; a bare number is minutes."""
    word = text.strip().lower()
    if word.isascii() and word.isdigit():
        return minutes(word)
    match = _SPAN.fullmatch(word)
    unit = next((one for names, one in _UNITS.items() if match is not None and match[2] in names), None)
    if match is None or unit is None:
        raise ValueError("expected a whole number with its unit, such as 30min, 12h or 7d")
    return int(match[1]) * unit


def _age(text: str) -> timedelta | None:
    return span(text) if text.strip() else None


def _milliseconds(text: str) -> timedelta | None:
    return milliseconds(0)(text) if text.strip() else None


def _never(text: str) -> timedelta | None:
    return interval(text) if text.strip() else None


def _keys(text: str) -> tuple[str, ...]:
    if not text.strip():
        return ()
    keys = tuple(part.strip() for part in text.split(","))
    if not all(re.fullmatch(r"[\w.:/-]*[A-Za-z][\w.:/-]*", key, re.ASCII) and "'" not in key for key in keys):
        raise ValueError("expected keys of snapshots' summaries, with commas between them")
    return keys


@record
class RetentionConfig:
    """Which snapshots of a table are kept and for how long, and how long the files of expired ones are kept."""

    enabled: bool = declared("table-expire.enabled", "true", boolean)
    amoro_age: timedelta | None = declared("snapshot.keep.duration", "", _age)
    iceberg_age: timedelta | None = declared("history.expire.max-snapshot-age-ms", "", _milliseconds)
    amoro_count: int = declared("snapshot.keep.min-count", "1", whole(0))
    iceberg_count: int = declared("history.expire.min-snapshots-to-keep", "1", whole(0))
    #: The maximum age of branches and tags without their own; None: they are kept for ever.
    max_ref_age: timedelta | None = declared("history.expire.max-ref-age-ms", "", _never)
    writer_retention: timedelta = declared("snapshot.keep.flink.checkpoint-retention", "7d", span)
    writer_keys: tuple[str, ...] = declared("maintenance.expire-snapshots.writer-keys", "", _keys)
    trash_keep: timedelta = declared("maintenance.expire-snapshots.trash-keep", "1d", span)
    clean_metadata: bool = declared("maintenance.expire-snapshots.clean-metadata", "false", boolean)

    @property
    def max_age(self) -> timedelta:
        """The maximum age of snapshots, unless their branch sets another: the longer of the configured ones."""
        known = [one for one in (self.amoro_age, self.iceberg_age) if one is not None]
        return max(known) if known else DEFAULT_AGE

    @property
    def min_count(self) -> int:
        """The minimum of snapshots to keep of a branch, unless it sets another: at least one."""
        return max(self.amoro_count, self.iceberg_count, 1)
