"""Scan reports as engines send them: what is learned of them, and who may send them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amoro_core.errors import InvalidArgument
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.scan_reports import filters_of_report
from amoro_core.model.tokens import Role
from amoro_core.store import table_scans
from tests.dashboard.served import Served, serving
from tests.engine import writer
from tests.engine.builders import SCHEMA

EQ = {"type": "eq", "term": "id", "value": "(hash-1)"}
RANGE = {"type": "gt-eq", "term": "name", "value": "(hash-2)"}
PATH = "/iceberg/v1/cat/namespaces/db/tables/t/metrics"


def report(expression: Any) -> dict[str, Any]:
    return {"report-type": "scan-report", "table-name": "db.t", "snapshot-id": 1, "filter": expression, "metrics": {}}


def read(expression: Any) -> list[tuple[str, str]]:
    return [(one.column, one.operator.value) for one in filters_of_report(report(expression)) or ()]


def test_what_every_row_has_to_fulfil_counts() -> None:
    assert read(True) == []
    assert read(EQ) == [("id", "eq")]
    assert read({"type": "and", "left": EQ, "right": RANGE}) == [("id", "eq"), ("name", "range")]
    assert read({"type": "or", "left": EQ, "right": RANGE}) == []
    assert read({"type": "not", "child": EQ}) == []
    assert read({"type": "in", "term": "id", "values": [1]}) == [("id", "in")]
    assert read({"type": "starts-with", "term": "name", "value": "a"}) == [("name", "prefix")]
    assert read({**EQ, "term": {"type": "transform", "transform": "bucket[4]", "term": "id"}}) == []
    assert filters_of_report({"report-type": "commit-report"}) is None


def test_what_is_no_report_is_refused() -> None:
    deep: Any = EQ
    for _ in range(150):
        deep = {"type": "and", "left": EQ, "right": deep}
    for wrong in ("x", 7, {"left": EQ}, {"type": "and", "left": EQ}, deep):
        with pytest.raises(InvalidArgument, match="the report is malformed"):
            filters_of_report(report(wrong))
    with pytest.raises(InvalidArgument, match="no JSON object"):
        filters_of_report([])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory: Path = tmp_path_factory.mktemp("lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(directory))
        patch.setenv("PYICEBERG_HOME", str(directory))
        catalog = writer.make_catalog(directory)
        writer.make_table(catalog, "db.t", SCHEMA)
        with serving(directory / "home") as made:
            made.coordinator.catalogs.add(CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items())))
            yield made


def test_a_report_is_learned_from(lake: Served) -> None:
    assert lake.ask(PATH, "POST", body=report(EQ)).status == 204
    assert lake.ask(PATH, "POST", body={"report-type": "commit-report"}).status == 204
    store = lake.coordinator._store
    (table,) = lake.coordinator.tables.list_tables()
    (scan,) = store.read(lambda db: table_scans.list_of(db, table.table_id))
    assert ([one.column for one in scan.filters], scan.scans) == (["id"], 1)


def test_reports_are_for_operators(lake: Served) -> None:
    _, viewer = lake.coordinator.tokens.create("reader", Role.VIEWER)
    assert lake.ask(PATH, "POST", token=viewer, body=report(EQ)).status == 403
    assert lake.ask(PATH, "POST", token="amo_wrong", body=report(EQ)).status == 401


def test_wrong_reports_and_tables_are_told(lake: Served) -> None:
    assert lake.ask(PATH, "POST", body=b"{").status == 400
    assert lake.ask(PATH, "POST", body=report("x")).status == 400
    assert lake.ask(PATH.replace("tables/t", "tables/u"), "POST", body=report(EQ)).status == 404
