"""How a table is read: the columns that queries filter by, and what these reads took."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any

from amoro_core.errors import InvalidArgument
from amoro_core.model.clustering import Strategy

#: How long reports of scans are kept.
KEEP_SCANS = timedelta(days=30)


class Operator(StrEnum):
    """What a filter asks of a column."""

    EQUAL = "eq"
    RANGE = "range"
    IN = "in"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """A column that a scan filters by."""

    column: str  # with dots between the levels
    operator: Operator


@dataclass(frozen=True, slots=True)
class ScanUse:
    """Scans of one day that filter by the same columns in the same way."""

    day: date
    filters: tuple[ColumnFilter, ...]  # by column; none: whole reads
    scans: int
    files_read: int = 0
    files_skipped: int = 0
    bytes_read: int = 0  # 0: nobody told


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """Columns that were chosen by how the table is read, with the figures for it."""

    columns: tuple[str, ...]
    strategy: Strategy
    chosen_at: datetime
    scans: int  # that it was chosen by
    saved: float  # share of the bytes that these scans need not read, 0 to 1
    evidence: Mapping[str, float] = field(default_factory=dict)  # by column: the share of bytes that it adds


SCAN_REPORT = "scan-report"
#: How deep an expression may be nested: others would exhaust the stack.
MOST_DEEP = 100
_OPERATORS = {
    "eq": Operator.EQUAL,
    "in": Operator.IN,
    "lt": Operator.RANGE,
    "lt-eq": Operator.RANGE,
    "gt": Operator.RANGE,
    "gt-eq": Operator.RANGE,
    "starts-with": Operator.PREFIX,
}


def filters_of_report(report: object) -> tuple[ColumnFilter, ...] | None:
    """The filters of a scan report, by column; None for a report of another kind. Raises InvalidArgument.

    Only what every row has to fulfil counts: parts of `and`, never of `or` or `not`.
    """
    if not isinstance(report, Mapping):
        raise _malformed("it is no JSON object")
    if report.get("report-type") != SCAN_REPORT:
        return None
    found = set(_filters(report.get("filter", True), 0))
    return tuple(sorted(found, key=lambda one: (one.column, one.operator)))


def _filters(expression: Any, depth: int) -> Iterator[ColumnFilter]:
    if isinstance(expression, bool):
        return
    if not isinstance(expression, Mapping) or not isinstance(kind := expression.get("type"), str):
        raise _malformed("its filter is no expression")
    if depth > MOST_DEEP:
        raise _malformed(f"its filter is nested more than {MOST_DEEP} times")
    if kind == "and":
        for side in ("left", "right"):
            yield from _filters(expression.get(side), depth + 1)
    elif kind in _OPERATORS and isinstance(column := expression.get("term"), str):  # else a transform of a column
        yield ColumnFilter(column, _OPERATORS[kind])


def _malformed(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"the report is malformed: {why}", hint="Send a report as Iceberg's REST specification has it."
    )
