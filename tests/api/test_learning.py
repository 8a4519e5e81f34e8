"""Columns that queries filter by are learned from a file, chosen by `auto`, and files are skipped by them."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from amoro_core import connect
from amoro_core.app import Coordinator, optimizer_beside
from amoro_core.errors import InvalidArgument
from tests.engine import oracle, writer

MEMORY = 512 * 1024 * 1024
NAMES = [f"c{number}" for number in range(10)]
AUTO = {
    "write.target-file-size-bytes": "16384",
    "self-optimizing.target-size": "16384",
    "self-optimizing.cluster.columns": "auto",
}


@pytest.fixture
def wide(catalog: SqlCatalog) -> Table:
    """Files with ten columns, each of which has values of the whole range in each file."""
    schema = Schema(*(NestedField(at, name, LongType(), required=False) for at, name in enumerate(NAMES, 1)))
    made = writer.make_table(catalog, "db.t", schema, properties=AUTO)
    chance = random.Random(3)
    for _ in range(16):
        made.append(pa.table({name: [chance.randrange(10**6) for _ in range(250)] for name in NAMES}))
    return made.refresh()


def files_of(table: Table, column: str) -> float:
    """How many files pyiceberg plans to read for a value of the column, on average."""
    values = range(50_000, 10**6, 100_000)
    scans = [table.scan(row_filter=EqualTo(column, value)).plan_files() for value in values]
    return sum(len(list(one)) for one in scans) / len(values)


def test_auto_takes_the_two_of_ten_columns_that_queries_filter_by(
    wide: Table, coordinator: Coordinator, home: Path, tmp_path: Path
) -> None:
    before = oracle.live_rows(wide)
    queries = tmp_path / "queries.jsonl"
    queries.write_text("".join(json.dumps({"columns": [NAMES[3 + 4 * (at % 2)]]}) + "\n" for at in range(200)))
    with connect(home=home) as client, optimizer_beside(coordinator, 1, MEMORY):
        waiting = client.plan("cat.db.t", type="cluster")
        assert waiting.reason == "nothing to do yet: auto chooses columns by 100 scans in 7 d, 0 are known"
        learned = client.learn("db.t", queries=queries)
        assert (learned.table, learned.scans, learned.recent_scans, learned.enough_scans) == ("cat.db.t", 200, 200, 100)
        assert [(one.column, one.scans) for one in learned.columns] == [("c3", 100), ("c7", 100)]
        suggested = client.suggest("db.t")
        assert {one.column for one in suggested.auto.columns} == {"c3", "c7"}
        assert (suggested.auto.scans, suggested.auto.strategy) == (200, "hilbert")
        assert suggested.files == len(list(wide.scan().plan_files()))
        assert "auto chose c3, c7" in client.plan("cat.db.t", type="cluster").explain()
        done = client.optimize("cat.db.t", type="cluster", timeout=timedelta(minutes=5))
        after = client.plan("cat.db.t", type="cluster")
    assert done.outcome == "success"
    stored = sum(one.file.file_size_in_bytes for one in wide.refresh().scan().plan_files())
    assert [(one.type, one.data_bytes) for one in after.partitions] == [(None, stored)]
    oracle.assert_same_rows(before, oracle.live_rows(wide))
    table = wide.refresh()
    files = len(list(table.scan().plan_files()))
    assert max(files_of(table, name) for name in ("c3", "c7")) <= 0.5 * files
    assert min(files_of(table, name) for name in NAMES if name not in ("c3", "c7")) >= 0.9 * files


def test_a_report_with_a_column_of_another_table_is_named_and_nothing_is_kept(
    wide: Table, coordinator: Coordinator, home: Path, tmp_path: Path
) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"columns": ["c1"], "weight": 200}\n{"columns": ["price"]}\n')
    with connect(home=home) as client:
        with pytest.raises(InvalidArgument, match=r"queries.jsonl, line 2 names column price"):
            client.learn("cat.db.t", queries=queries)
        assert "0 are known" in client.plan("cat.db.t", type="cluster").reason
