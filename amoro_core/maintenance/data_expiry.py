"""Data expiry: which files hold only rows that are too old; date patterns of Java's `DateTimeFormatter`."""

import re
from calendar import monthrange
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow.compute as pc

from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.files import DataFile, TableScan
from amoro_core.model.maintenance import DataCommit, TimeColumn, TimeKind, TimePart
from amoro_core.model.plans import PartitionKey
from amoro_core.model.properties import boolean, declared, name, one_of
from amoro_core.model.tables import SnapshotFacts, ancestors
from amoro_core.scan.live_files import LiveFiles

#: A quoted text (in which '' is a quote), a run of one letter, or anything but letters and quotes.
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z']+)")
_WIDTHS = {
    "yyyy": "{0.year:04d}",
    "yy": "{1:02d}",
    "MM": "{0.month:02d}",
    "dd": "{0.day:02d}",
    "HH": "{0.hour:02d}",
    "mm": "{0.minute:02d}",
    "ss": "{0.second:02d}",
}
#: From the most to the least significant part.
_WIDTHS_IN_ORDER = ("yyyy", "MM", "dd", "HH", "mm", "ss")


@dataclass(frozen=True)
class DatePattern:
    """A pattern of the letters yyyy, yy, MM, dd, HH, mm, ss, and of other text, whose letters must be quoted.

    The constructor raises ValueError for a pattern with other letters, or with an unclosed quote.
    """

    pattern: str

    def __post_init__(self) -> None:
        self._form  # noqa: B018 - parses the pattern

    @cached_property
    def _tokens(self) -> list[tuple[str, bool]]:
        return _tokens(self.pattern)

    @cached_property
    def _letters(self) -> list[str]:
        return [text for text, is_letters in self._tokens if is_letters]

    @cached_property
    def _form(self) -> re.Pattern[str]:
        groups = (f"([0-9]{{{len(text)}}})" if is_letters else re.escape(text) for text, is_letters in self._tokens)
        return re.compile("".join(groups), re.ASCII)

    def format(self, moment: datetime) -> str:
        """The moment formatted by the pattern, in its own zone."""
        parts = (
            _WIDTHS[text].format(moment, moment.year % 100) if is_letters else text for text, is_letters in self._tokens
        )
        return "".join(parts)

    def read(self, text: str) -> datetime | None:
        """The moment in a text of the pattern, else None: the last day of a month or year, the beginning of a day."""
        match = self._form.fullmatch(text)
        numbers = () if match is None else map(int, match.groups())
        parts = dict(zip(self._letters, numbers, strict=False))  # empty without numbers
        if len(parts) < len(self._letters):
            return None  # another text, or a pattern with a repeated part
        year = parts.get("yyyy", parts.get("yy", -1) + 2000 if "yy" in parts else None)
        if year is None or not 0 < year <= 9999:
            return None
        month = parts.get("MM", 12)
        try:
            day = parts.get("dd", monthrange(year, month)[1])
            return datetime(year, month, day, parts.get("HH", 0), parts.get("mm", 0), parts.get("ss", 0))
        except ValueError:  # the 30th of February, and the like
            return None

    @property
    def keeps_order(self) -> bool:
        """Whether later moments give greater strings, so that the greatest of many strings is the latest moment."""
        return self._letters == list(_WIDTHS_IN_ORDER[: len(self._letters)]) and bool(self._letters)


def _tokens(pattern: str) -> list[tuple[str, bool]]:
    """The runs of letters (True) and the texts (False) of a pattern."""
    runs: list[tuple[str, bool]] = []
    position = 0
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        if match is None:
            raise ValueError(f"the quote at character {position + 1} is not closed")
        quoted, letter, other = match.groups()
        if letter is not None:
            run = match[0]
            if run not in _WIDTHS:
                letters = ", ".join(_WIDTHS)
                raise ValueError(f"{run} is none of {letters}; letters that are text stand in quotes: '{run}'")
            runs.append((run, True))
        else:  # '' outside of a quoted text is a quote, too
            runs.append((other if other is not None else quoted.replace("''", "'") or "'", False))
        position = match.end()
    return runs


#: The property that switches it on and off.
SWITCH = "data-expire.enabled"
_MICRO = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY, _HOUR = timedelta(days=1) // _MICRO, timedelta(hours=1) // _MICRO
_RETENTION = re.compile(r"\s*([0-9]+)\s*([a-zµ]*)\s*")
#: Amoro's words for units of time, in nanoseconds; a bare number is milliseconds.
_UNITS = {
    unit: size
    for size, units in (
        (86_400_000_000_000, "d day days"),
        (3_600_000_000_000, "h hour hours"),
        (60_000_000_000, "m min minute minutes"),
        (1_000_000_000, "s sec secs second seconds"),
        (1_000_000, "ms milli millis millisecond milliseconds"),
        (1_000, "µs micro micros microsecond microseconds"),
        (1, "ns nano nanos nanosecond nanoseconds"),
    )
    for unit in units.split()
}
#: Of kinds other than microseconds; nanoseconds are rounded up to the end.
_RESOLUTION = {TimeKind.DATE: _DAY, TimeKind.TIMESTAMP_NS: 0}
_LONGEST = timedelta(days=36525)


class Level(StrEnum):
    """What expires together."""

    PARTITION = "partition"  # all files of a partition, once each of them has expired
    FILE = "file"


class BaseRule(StrEnum):
    """The moment from which retention is counted back."""

    LAST_COMMIT_TIME = "last_commit_time"
    CURRENT_TIME = "current_time"


def _retention(text: str) -> timedelta | None:
    if not text.strip():
        return None
    match = _RETENTION.fullmatch(text.strip().lower())
    size = match and _UNITS.get(match[2] or "ms")
    if not match or not size or len(match[1]) > 18 or not (micros := int(match[1]) * size // 1000):
        raise ValueError("expected a time above 0 with its unit, such as 30d or 12h")
    return min(timedelta(microseconds=min(micros, _LONGEST // _MICRO)), _LONGEST)


@dataclass(frozen=True, slots=True)
class DataExpiryConfig:
    """The properties of a table for data expiry."""

    enabled: bool = declared(SWITCH, "false", boolean)
    column: str = declared("data-expire.field", "", lambda text: name(text) if text else "")
    level: Level = declared("data-expire.level", "partition", one_of({level.value: level for level in Level}))
    retention: timedelta | None = declared("data-expire.retention-time", "", _retention)
    base: BaseRule = declared(
        "data-expire.base-on-rule", "LAST_COMMIT_TIME", one_of({rule.value: rule for rule in BaseRule})
    )
    pattern: DatePattern = declared("data-expire.datetime-string-pattern", "yyyy-MM-dd", DatePattern)
    #: The unit of a column of integers, in microseconds.
    unit: int = declared(
        "data-expire.datetime-number-format", "TIMESTAMP_MS", one_of({"timestamp_ms": 1000, "timestamp_s": 1_000_000})
    )
    #: Whether files expire although some of their rows have no time.
    expires_nulls: bool = declared("maintenance.expire-data.nulls", "keep", one_of({"keep": False, "expire": True}))


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit: rows up to that moment are too old; and how the column is read."""

    column: TimeColumn
    config: DataExpiryConfig
    zone: ZoneInfo  # of strings
    until: int  # microseconds since 1970


@dataclass(frozen=True, slots=True)
class Expired:
    """Data files that contain only rows that are too old, and counts of the others."""

    files: Mapping[PartitionKey, tuple[DataFile, ...]]  # by partition
    total_rows: int  # of all data files, deletes not subtracted
    kept: Mapping[str, int] = field(default_factory=dict)  # numbers of other files, by the reason to keep them

    @property
    def every(self) -> tuple[DataFile, ...]:
        return tuple(file for files in self.files.values() for file in files)

    @property
    def rows(self) -> int:
        """The rows of these files, deletes not subtracted."""
        return sum(file.record_count for file in self.every)

    @property
    def is_most(self) -> bool:
        """Whether more than half of all rows would be deleted."""
        return 2 * self.rows > self.total_rows


def expired(scan: TableScan, limit: Limit) -> Expired:
    """The files of the scan that have expired, by partition; on the level `partition`, whole partitions only."""
    columns = LiveFiles.of(scan.files).columns
    counted = pc.value_counts(columns.paths)
    twice = frozenset(row["values"] for row in counted.filter(pc.greater(counted.field("counts"), 1)).to_pylist())
    # Rows are made again below: those evaluated here would keep all their unpacked metrics in memory.
    reasons = [_reason_to_stay(columns.row(at), limit, twice) for at in range(len(columns))]
    if limit.config.level is Level.PARTITION:
        mixed = {int(columns.place[at]) for at, why in enumerate(reasons) if why}
        for at, why in enumerate(reasons):
            if not why and int(columns.place[at]) in mixed:
                reasons[at] = "other files of its partition stay"
    expired: dict[PartitionKey, list[DataFile]] = {}
    for at in columns.order().tolist():
        if not reasons[at]:
            expired.setdefault(PartitionKey(*columns.places[columns.place[at]]), []).append(columns.row(at))
    counts = dict(sorted(Counter(filter(None, reasons)).items()))
    return Expired({key: tuple(files) for key, files in expired.items()}, int(columns.records.sum()), counts)


def still_expired(planned: Expired, head: TableScan, level: Level) -> tuple[DataFile, ...]:
    """The planned files that the head has unchanged; on level `partition`, without partitions that have other files."""
    columns = LiveFiles.of(head.files).columns
    places = {PartitionKey(*place): at for at, place in enumerate(columns.places)}
    going: list[DataFile] = []
    for key, files in planned.files.items():
        same = {_identity(file) for file in files}
        here = np.flatnonzero(columns.place == places[key]) if key in places else ()
        live = [columns.row(int(at)) for at in here]
        if level is Level.PARTITION and any(_identity(file) not in same for file in live):
            continue
        going += [file for file in live if _identity(file) in same]
    return tuple(sorted(going, key=lambda file: (file.sequence_number, file.path)))


def _identity(file: DataFile) -> tuple[str, int, int, int]:
    return file.path, file.sequence_number, file.record_count, file.size_bytes


def _reason_to_stay(file: DataFile, limit: Limit, twice: Set[str]) -> str:
    """Why the file is kept; "" when all its rows are too old. `twice` are paths that the table has more than once."""
    if file.path in twice:
        return "it is in the table twice"
    if not limit.config.expires_nulls and not _has_no_nulls(file, limit.column):
        return "it has rows without a time, or does not say"
    latest = _latest(file, limit)
    if latest is None:
        return "metadata do not tell its time"
    return "" if latest <= limit.until else "it is not old enough"


def _has_no_nulls(file: DataFile, column: TimeColumn) -> bool:
    if file.metrics.null_value_counts.get(column.field_id) == 0:
        return True
    # Every transform maps null to null: if the partition value is not null, no row's value is.
    return any(file.partition[part.at] is not None for part in column.parts.get(file.spec_id, ()))


def _latest(file: DataFile, limit: Limit) -> int | None:
    """The latest possible time of a row of the file, in microseconds; None: unknown."""
    bound = file.metrics.upper_bounds.get(limit.column.field_id)
    if bound is not None:
        least = file.metrics.lower_bounds.get(limit.column.field_id)
        return _latest_text(bound, least, limit) if limit.column.kind is TimeKind.STRING else _moment(bound, limit)
    parts = ((part, file.partition[part.at]) for part in limit.column.parts.get(file.spec_id, ()))
    ends = [moment for part, value in parts if value is not None and (moment := _end(part, value, limit)) is not None]
    return min(ends, default=None)


def _latest_text(greatest: bytes, least: bytes | None, limit: Limit) -> int | None:
    """The latest time of strings between two bounds; None if the greatest string may not be the latest time."""
    if least is None or (not limit.config.pattern.keeps_order and least != greatest):
        return None
    return None if _moment(least, limit) is None else _moment(greatest, limit)


def _moment(value: bytes, limit: Limit) -> int | None:
    """The time of a value of the column."""
    match limit.column.kind:
        case TimeKind.STRING:
            text = value.decode(errors="replace")
            local = limit.config.pattern.read(text)
            # When clocks are set back an hour occurs twice: take the later one.
            moments = [] if local is None else [local.replace(tzinfo=limit.zone, fold=fold) - _EPOCH for fold in (0, 1)]
            return max(moments) // _MICRO if moments else None
        case TimeKind.DATE:
            return _number(value, 4) * _DAY if len(value) == 4 else None
        case TimeKind.LONG:  # promoted from int in some files
            return _number(value, len(value)) * limit.config.unit if len(value) in (4, 8) else None
        case _ if len(value) == 4:  # written as a date, before the column became a timestamp
            return _number(value, 4) * _DAY
        case TimeKind.TIMESTAMP:
            return _number(value, 8) if len(value) == 8 else None
        case TimeKind.TIMESTAMP_NS:  # rounded up, so that nothing is older than it is
            return -(-_number(value, 8) // 1000) if len(value) == 8 else None


def _end(part: TimePart, value: bytes, limit: Limit) -> int | None:
    """The latest possible time of the rows in partitions with that value; None: unknown."""
    # The time of rows with dates is the beginning of the last day.
    least = _RESOLUTION.get(limit.column.kind, 1)
    match part.transform:
        case "identity":
            return _moment(value, limit)
        case "truncate" if limit.column.kind is TimeKind.LONG and len(value) in (4, 8):
            return (_number(value, len(value)) + part.width - 1) * limit.config.unit
        case "day" | "hour" if len(value) == 4:
            size = _DAY if part.transform == "day" else _HOUR
            return (_number(value, 4) + 1) * size - least
        case "month" | "year" if len(value) == 4:
            return _end_of_months(_number(value, 4), 1 if part.transform == "month" else 12, least)
    return None


def _end_of_months(number: int, months: int, least: int) -> int | None:
    after = (number + 1) * months
    try:
        return (datetime(1970 + after // 12, after % 12 + 1, 1, tzinfo=UTC) - _EPOCH) // _MICRO - least
    except ValueError:  # beyond the year 9999
        return None


def _number(value: bytes, size: int) -> int:
    return int.from_bytes(value[:size], "little", signed=True)


#: Amoro's words for commits that are maintenance, including ours.
_MAINTENANCE = frozenset({"OPTIMIZE", "DATA_EXPIRATION", "CLEAN_DANGLING_DELETE"})
_ADDED = ("added-records", "added-data-files")


def last_data_commit(
    snapshots: Sequence[SnapshotFacts], head_id: int | None, last: DataCommit | None
) -> DataCommit | None:
    """The newest commit on main that added data and is not maintenance; None if unknown.

    `last` is the previous result. It is used when main's history no longer has such a commit, as after an expiry (some
    writers then drop the parent id), but not if its snapshot still exists: main was then rolled back.
    """
    by_id = {snapshot_facts.snapshot_id: snapshot_facts for snapshot_facts in snapshots}
    for snapshot in ancestors(by_id, head_id):
        if _brought_data(snapshot):
            return DataCommit(snapshot.snapshot_id, round((snapshot.committed_at - _EPOCH).total_seconds() * 1000))
    return last if last is not None and last.snapshot_id not in by_id else None


def _brought_data(snapshot: SnapshotFacts) -> bool:
    summary = snapshot.summary
    if PROCESS_ID in summary or summary.get("snapshot.producer") in _MAINTENANCE or snapshot.operation == "replace":
        return False
    return any(summary.get(key, "0").strip("0").isdecimal() for key in _ADDED)


#: The property that switches it on and off.
DANGLING_SWITCH = "clean-dangling-delete-files.enabled"


@dataclass(frozen=True, slots=True)
class DanglingConfig:
    """The properties of a table for the removal of dangling delete files."""

    enabled: bool = declared(DANGLING_SWITCH, "true", boolean)
