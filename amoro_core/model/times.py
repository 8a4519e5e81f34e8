"""A column that tells the age of rows, and its values in data files and partitions."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from amoro_core.records import record


class TimeKind(StrEnum):
    """The type of a column by which rows expire."""

    TIMESTAMP = "timestamp"  # microseconds, with a zone or without
    TIMESTAMP_NS = "timestamp_ns"  # nanoseconds, with a zone or without
    DATE = "date"
    LONG = "long"  # seconds or milliseconds, as configured
    STRING = "string"


@record
class TimePart:
    """A partition field derived from the column."""

    at: int  # among the fields of its spec
    transform: str  # "identity", "year", "month", "day", "hour", "truncate"; "" for one that does not keep the order
    width: int = 0  # of a truncation


@record
class TimeColumn:
    """A top-level column with the partition fields derived from it, by spec."""

    name: str
    field_id: int
    kind: TimeKind
    parts: Mapping[int, tuple[TimePart, ...]] = field(default_factory=dict)


@record
class DataCommit:
    """A commit that added data."""

    snapshot_id: int
    committed_at_ms: int  # since 1970
