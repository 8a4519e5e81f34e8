"""How a table is read: the columns that queries filter by, from reports of readers and from query logs."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any

from amoro_core.errors import InvalidArgument
from amoro_core.model.clustering import Strategy
from amoro_core.model.text_sanitizing import briefly

#: How long reports of scans are kept.
KEEP_SCANS = timedelta(days=30)


class Operator(StrEnum):
    """The operators of filters on a column."""

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
    bytes_read: int = 0  # 0: unknown


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
        raise _malformed("it is not a JSON object")
    if report.get("report-type") != SCAN_REPORT:
        return None
    filters = set(_filters(report.get("filter", True), 0))
    return tuple(sorted(filters, key=lambda item: (item.column, item.operator)))


def _filters(expression: Any, depth: int) -> Iterator[ColumnFilter]:
    if isinstance(expression, bool):
        return
    if not isinstance(expression, Mapping) or not isinstance(kind := expression.get("type"), str):
        raise _malformed("its filter is not an expression")
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


_STARTED = "SparkListenerSQLExecutionStart"
_APPLICATION = '"SparkListenerApplicationStart"'
#: The branches whose scans count: main goes by no name.
_MAIN = ("null", "main")
_LITERAL = re.compile(r"'(?:[^'])*'")
_COMPARED = re.compile(r"(?P<column>[^()]+?) (?P<operator><=|>=|=|<|>|IN|LIKE) ?(?P<rest>.*)")
_SQL_OPERATORS = {
    "=": Operator.EQUAL,
    "<": Operator.RANGE,
    ">": Operator.RANGE,
    "<=": Operator.RANGE,
    ">=": Operator.RANGE,
    "IN": Operator.IN,
    "LIKE": Operator.PREFIX,
}
_MOST_WEIGHT = 10**9
#: Characters of a source at most.
MOST_OF_SOURCE = 256

Filters = frozenset[ColumnFilter]


@dataclass(frozen=True, slots=True)
class ScanRecord:
    """Reported scans that filter by the same columns in the same way."""

    day: date | None  # None: as of now
    filters: tuple[ColumnFilter, ...]  # by column; none: whole reads
    scans: int
    place: str = ""  # file and line that tell it first, where each of its columns has to be the table's; "": none has
    source: str = ""  # what told it: told again, it takes the place of what it told before; "": it is added to that


def scans_of_event_log(lines: Iterable[str], table: str, file: str, source: str = "") -> Iterator[ScanRecord]:
    """The table's scans of main in an event log of Spark 3.5 or 4.0, in the order of their start.

    `table` is namespace and name with dots, whatever Spark calls the catalog. A last line that is cut off, as that of
    an application that runs, is passed over. The source is the one that is given, else the application with its
    attempt, as the log tells them. Raises InvalidArgument with file and line for another one that is no event.
    """
    scan = re.compile(
        rf"(?:^|\s)(?:[^\s.]+\.)?{re.escape(table)} \(branch=(?P<branch>[^()]*)\) \[filters=(?P<filters>.*), groupedBy="
    )
    for number, line in enumerate(lines, start=1):
        is_cut_off = not line.endswith("\n")
        if not line.startswith("{") and line.strip() and not is_cut_off:
            raise _no_event(file, number)
        if not source and _APPLICATION in line:
            source = _application(_json(line) or {})
        if _STARTED not in line or f"{table} (branch=" not in line:
            continue
        event = _json(line)
        if event is None and not is_cut_off:
            raise _no_event(file, number)
        plan, began = (event or {}).get("physicalPlanDescription"), (event or {}).get("time")
        if not isinstance(plan, str) or not isinstance(began, int):
            continue
        plan = plan.encode("utf-8", "replace").decode()
        for match in scan.finditer(plan) if "\n" not in plan else map(scan.search, plan.splitlines()):
            if match is not None and match["branch"] in _MAIN:
                filters = filters_of(match["filters"])
                ordered = tuple(sorted(filters, key=lambda item: (item.column, item.operator)))
                yield ScanRecord(_day(began), ordered, 1, source=source)


def filters_of(text: str) -> Filters:
    """Candidates for columns by which files may be skipped, from the filters in Iceberg's scan reports.

    What is negated skips next to nothing, and what one of several columns has to fulfil is no filter by either.
    """
    parts = (_filter(part) for part in _conjuncts(_LITERAL.sub("''", text)))
    return frozenset[ColumnFilter]().union(*parts)


def scans_of_queries(lines: Iterable[str], file: str) -> Iterator[ScanRecord]:
    """The scans of a file of queries, a JSON object per line: `columns` (names), `operator`, `weight`.

    The operator is `eq` and the weight 1 unless they are given. Raises InvalidArgument with file and line.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
        query = _json(line) or {}
        names = query.get("columns")
        are_texts = isinstance(names, list) and all(isinstance(name, str) and _is_text(name) for name in names)
        if not names or not are_texts:
            raise _wrong(place, line, "has no columns, a list of names")
        words = [operator.value for operator in Operator]
        if query.get("operator", Operator.EQUAL.value) not in words:
            raise _wrong(place, line, f"has an operator that is none of {', '.join(words)}")
        weight = query.get("weight", 1)
        if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= _MOST_WEIGHT:
            raise _wrong(place, line, f"has a weight that is not a whole number from 1 to {_MOST_WEIGHT:,}")
        operator = Operator(query.get("operator", Operator.EQUAL.value))
        yield ScanRecord(None, tuple(ColumnFilter(name, operator) for name in sorted(set(names))), weight, place)


def summed(scans: Iterable[ScanRecord]) -> tuple[ScanRecord, ...]:
    """The scans with equal days, filters and sources as one, at the place of the first, in that order."""
    merged: dict[tuple[date, tuple[ColumnFilter, ...], str], ScanRecord] = {}
    for scan in scans:
        key = (scan.day or date.max, scan.filters, scan.source)
        before = merged.get(key)
        merged[key] = scan if before is None else replace(before, scans=before.scans + scan.scans)
    return tuple(
        merged[key]
        for key in sorted(merged, key=lambda key: (key[0], [(item.column, item.operator) for item in key[1]], key[2]))
    )


def _json(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _application(event: dict[str, Any]) -> str:
    """The application of a log and its attempt; empty where it has no name that can be sent."""
    named = [event.get("App ID"), event.get("App Attempt ID")]
    name = "_".join(part for part in named if isinstance(part, str) and part)
    return name if _is_text(name) and len(name) <= MOST_OF_SOURCE else ""


def _day(milliseconds: int) -> date:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).date()
    except (ValueError, OverflowError, OSError):
        return date.min


def _is_text(name: str) -> bool:
    """Whether it may be a name: half of a surrogate pair can't be sent."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _no_event(file: str, number: int) -> InvalidArgument:
    return InvalidArgument(
        f"{file}, line {number} is not a Spark event",
        hint="Name a file that Spark wrote by spark.eventLog.enabled, or a directory with nothing but these.",
    )


def _wrong(place: str, line: str, problem: str) -> InvalidArgument:
    return InvalidArgument(
        f"{place} {problem}: {briefly(line.strip(), 100)}",
        hint='Write a JSON object a line: {"columns": ["customer_id"], "operator": "eq", "weight": 12}',
    )


def _conjuncts(text: str) -> Iterator[str]:
    """What has to hold at once: parts between commas and ANDs that no parentheses are around."""
    text = text.strip()
    parts = _split(text, (", ", " AND "))
    if len(parts) > 1:
        for part in parts:
            yield from _conjuncts(part)
    elif _is_wrapped(text):
        yield from _conjuncts(text[1:-1])
    elif text:
        yield text


def _split(text: str, separators: Collection[str]) -> list[str]:
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        depth += (text[at] == "(") - (text[at] == ")")
        match = next((separator for separator in separators if depth == 0 and text.startswith(separator, at)), "")
        if match:
            parts.append(text[start:at])
            start = at + len(match)
        at += len(match) or 1
    return [*parts, text[start:]]


def _is_wrapped(text: str) -> bool:
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return at == len(text) - 1
    return False


def _filter(text: str) -> Filters:
    parts = _split(text, (" OR ",))
    if len(parts) == 1:
        return _comparison(text)
    filters = [frozenset[ColumnFilter]().union(*(_filter(conjunct) for conjunct in _conjuncts(part))) for part in parts]
    names = frozenset.intersection(*(frozenset(item.column for item in some) for some in filters))
    return frozenset(item for some in filters for item in some if item.column in names)


def _comparison(text: str) -> Filters:
    match = _COMPARED.fullmatch(text.strip())
    if match is None or match["column"].endswith(" NOT"):
        return frozenset()
    return frozenset((ColumnFilter(match["column"], _SQL_OPERATORS[match["operator"]]),))
