"""How a table was read, told by event logs of Spark and files of queries."""

from __future__ import annotations

import json
from datetime import date

import pytest

from amoro_core.errors import InvalidArgument
from amoro_core.model.scan_stats import (
    ColumnFilter,
    Operator,
    ScanRecord,
    filters_of,
    scans_of_event_log,
    scans_of_queries,
    summed,
)

EQ, RANGE, IN, PREFIX = Operator.EQUAL, Operator.RANGE, Operator.IN, Operator.PREFIX
DAY = date(2026, 11, 22)


@pytest.mark.parametrize(
    ("text", "found"),
    [  # as Spark 4.0 with Iceberg 1.11 wrote them, for the queries behind them
        ("id IS NOT NULL, id = 5", {("id", EQ)}),
        ("id IS NOT NULL, name IS NOT NULL, id > 5, id <= 10, name = 'a, b = 3]'", {("id", RANGE), ("name", EQ)}),
        ("id IN (1, 2, 3)", {("id", IN)}),
        ("name IS NOT NULL, name LIKE 'n1%'", {("name", PREFIX)}),
        ("d IS NOT NULL, place.city IS NOT NULL, d = 20454, place.city = 'x'", {("d", EQ), ("place.city", EQ)}),
        ("(ts >= 1735689600000000 OR price < 2.00)", set()),  # of two columns neither has to fulfil its part
        ("id IS NOT NULL, NOT (id = 3)", set()),
        ("(id IS NOT NULL AND id NOT IN (1, 2))", set()),
        ("", set()),
        # further ones
        ("((id = 1 AND d = 2) OR (id = 3 AND name = 'x'))", {("id", EQ)}),
        ("(id = 1 AND (d = 2 OR d = 3))", {("id", EQ), ("d", EQ)}),
        ("days(ts) = 20454, bucket(16, id) = 3, id < 5", {("id", RANGE)}),
        ("name = 'it is (open', id >= 1", {("name", EQ), ("id", RANGE)}),
    ],
)
def test_filters_are_those_by_which_files_are_skipped(text: str, found: set[tuple[str, Operator]]) -> None:
    assert filters_of(text) == {ColumnFilter(*one) for one in found}


def started(*scans: str, at: int = 1795372118986, kind: str = "SparkListenerSQLExecutionStart") -> str:
    """A line of an event log, with a plan in Spark's formatted way."""
    plan = "== Physical Plan ==\n+- BatchScan cat.db.t (1)\n\n(1) BatchScan cat.db.t\nOutput [1]: [id#9L]\n"
    event = {
        "Event": f"org.apache.spark.sql.execution.ui.{kind}",
        "executionId": 2,
        "physicalPlanDescription": plan + "\n".join(scans),
        "time": at,
    }
    return json.dumps(event)


def scans(*lines: str, table: str = "db.t") -> list[ScanRecord]:
    return list(scans_of_event_log((f"{line}\n" for line in lines), table, "events"))


def test_each_scan_of_an_execution_counts_on_its_day_in_whatever_way_plans_are_written() -> None:
    line = started(
        "cat.db.t (branch=null) [filters=id IS NOT NULL, id = 5, groupedBy=]",
        "cat.db.t (branch=main) [filters=name IS NOT NULL, name = 'n5', id = 5, groupedBy=]",
    )
    assert scans(line) == [
        ScanRecord(DAY, (ColumnFilter("id", EQ),), 1),
        ScanRecord(DAY, (ColumnFilter("id", EQ), ColumnFilter("name", EQ)), 1),
    ]
    line = started(
        "*(1) Filter (id#9L = 5)",
        "+- BatchScan cat.db.t[id#9L] cat.db.t (branch=null) [filters=id = 5, groupedBy=] RuntimeFilters: []",
    )
    assert scans(line) == [ScanRecord(DAY, (ColumnFilter("id", EQ),), 1)]


def test_scans_of_others_are_passed_over() -> None:
    filters = "[filters=id = 5, groupedBy=]"
    others = ("cat.db.t.snapshots", "cat.db.t2", "cat.x.db.t", "cat.xdb.t", "cat.db_t")
    assert scans(*(started(f"{one} (branch=null) {filters}") for one in others)) == []
    assert scans(started(f"cat.db.t (branch=audit) {filters}")) == []
    assert scans(started(f"cat.db.t (branch=null) {filters}", kind="SparkListenerSQLAdaptiveExecutionUpdate")) == []
    assert len(scans(started(f"db.t (branch=null) {filters}"))) == 1  # of the session's catalog
    assert len(scans(started(f"cat.x.db.t (branch=null) {filters}"), table="x.db.t")) == 1


def application(**more: object) -> str:
    return json.dumps({"Event": "SparkListenerApplicationStart", "App Name": "x", **more}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("told", "source"),
    [
        ({"App ID": "app-1"}, "app-1"),
        ({"App ID": "app-1", "App Attempt ID": "2"}, "app-1_2"),
        ({"App ID": "x" * 257}, ""),
        ({"App ID": "\ud800"}, ""),
        ({}, ""),
    ],
)
def test_scans_are_told_by_the_application_of_their_log(told: dict[str, object], source: str) -> None:
    line = started("cat.db.t (branch=null) [filters=id = 5, groupedBy=]")
    assert scans(application(**told), line) == [ScanRecord(DAY, (ColumnFilter("id", EQ),), 1, source=source)]
    lines = [f"{application(**told)}\n", f"{line}\n"]
    assert [one.source for one in scans_of_event_log(lines, "db.t", "events", "events_1_a")] == ["events_1_a"]


def test_a_last_line_that_is_cut_off_is_passed_over() -> None:
    whole = started("cat.db.t (branch=null) [filters=id = 5, groupedBy=]")
    assert list(scans_of_event_log([f"{whole}\n", whole[:-9]], "db.t", "events")) == scans(whole)
    assert list(scans_of_event_log([f"{whole}\n", whole], "db.t", "events")) == [*scans(whole)] * 2
    without_time = json.dumps({**json.loads(whole), "time": None})
    assert scans(without_time) == []


@pytest.mark.parametrize("line", ["SparkListenerSQLExecutionStart db.t (branch=", "[]", "hello", "cut off"])
def test_a_line_that_is_no_event_is_told_with_file_and_line(line: str) -> None:
    whole = started("cat.db.t (branch=null) [filters=id = 5, groupedBy=]")
    with pytest.raises(InvalidArgument) as caught:
        scans(whole, whole[:-9] if line == "cut off" else line, whole)
    assert caught.value.message == "events, line 2 is not a Spark event"


def test_a_file_of_queries_has_columns_operators_and_weights() -> None:
    lines = ['{"columns": ["id"]}', "", '{"columns": ["name", "id", "id"], "operator": "range", "weight": 12}']
    assert list(scans_of_queries(lines, "q")) == [
        ScanRecord(None, (ColumnFilter("id", EQ),), 1, "q, line 1"),
        ScanRecord(None, (ColumnFilter("id", RANGE), ColumnFilter("name", RANGE)), 12, "q, line 3"),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("select 1", "q, line 2 has no columns, a list of names: select 1"),
        ('{"columns": []}', "q, line 2 has no columns"),
        ('{"columns": ["\\ud800"]}', "q, line 2 has no columns"),
        ('{"columns": ["id"], "operator": "like"}', "q, line 2 has an operator that is none of eq, range, in, prefix"),
        ('{"columns": ["id"], "weight": 0}', "q, line 2 has a weight that is not a whole number from 1"),
        ('{"columns": ["id"], "weight": 1e99}', "q, line 2 has a weight"),
    ],
)
def test_a_query_that_is_malformed_is_told_with_its_line(line: str, problem: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        list(scans_of_queries(['{"columns": ["id"]}', line], "q"))
    assert caught.value.message.startswith(problem)
    assert caught.value.hint


def test_equal_scans_of_a_day_are_one() -> None:
    one, other = ScanRecord(DAY, (ColumnFilter("id", EQ),), 1), ScanRecord(DAY, (), 5)
    now = ScanRecord(None, (), 2, "q, line 1")
    assert summed([one, now, other, one, ScanRecord(None, (), 3, "q, line 2")]) == (
        other,
        ScanRecord(DAY, one.filters, 2),
        ScanRecord(None, (), 5, "q, line 1"),
    )
    assert len(summed([ScanRecord(DAY, (), 1, source=source) for source in "aab"])) == 2
