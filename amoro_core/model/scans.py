"""How a table is read: the columns that queries filter by, and what these reads took."""

from collections.abc import Mapping
from dataclasses import field
from datetime import date, datetime, timedelta
from enum import StrEnum

from amoro_core.model.clustering import Strategy
from amoro_core.records import record

#: How long reports of scans are kept.
KEEP_SCANS = timedelta(days=30)


class Operator(StrEnum):
    """What a filter asks of a column."""

    EQUAL = "eq"
    RANGE = "range"
    IN = "in"
    PREFIX = "prefix"


@record
class ColumnFilter:
    """A column that a scan filters by."""

    column: str  # with dots between the levels
    operator: Operator


@record
class ScanUse:
    """Scans of one day that filter by the same columns in the same way."""

    day: date
    filters: tuple[ColumnFilter, ...]  # by column; none: whole reads
    scans: int
    files_read: int = 0
    files_skipped: int = 0
    bytes_read: int = 0  # 0: nobody told


@record
class ColumnChoice:
    """Columns that were chosen by how the table is read, with the figures for it."""

    columns: tuple[str, ...]
    strategy: Strategy
    chosen_at: datetime
    scans: int  # that it was chosen by
    saved: float  # share of the bytes that these scans need not read, 0 to 1
    evidence: Mapping[str, float] = field(default_factory=dict)  # by column: the share of bytes that it adds
