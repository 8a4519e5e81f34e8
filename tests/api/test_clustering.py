"""Clustering from Python on a real table: by columns that are named, and by those that queries filter by."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from amoro_core import connect, optimize, plan
from amoro_core.bootstrap.coordinator_app import Coordinator, embedded_optimizer
from amoro_core.errors import IllegalState, InvalidArgument, TableRefused
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row

MEMORY = 512 * 1024 * 1024
#: Small files at the target, so that a few thousand rows make many.
SMALL_FILES = {"write.target-file-size-bytes": "8192", "self-optimizing.target-size": "8192"}


@pytest.fixture
def scattered(catalog: SqlCatalog) -> Table:
    """Twelve files, each of which has ids of the whole range."""
    made = writer.make_table(catalog, "db.t", SCHEMA, properties=SMALL_FILES)
    ids = list(range(3000))
    random.Random(5).shuffle(ids)
    for first in range(0, 3000, 250):
        writer.append(made, [row(number) for number in ids[first : first + 250]])
    return made


def files_of(table: Table, number: int) -> int:
    """How many files pyiceberg plans to read for one id."""
    return len(list(table.refresh().scan(row_filter=EqualTo("id", number)).plan_files()))


def test_a_table_is_clustered_and_readers_skip_files(scattered: Table, home: Path) -> None:
    before = oracle.live_rows(scattered)
    assert min(files_of(scattered, number) for number in (300, 1500, 2700)) >= 10
    planned = plan(scattered, type="cluster", columns=["id"], home=home)
    assert (planned.type, planned.tasks > 0) == ("cluster", True)
    done = optimize(scattered, type="cluster", columns=["id"], home=home)
    assert done.outcome == "success"
    assert done.receipt is not None
    assert done.receipt.rows_before == done.receipt.rows_after == 3000
    oracle.assert_same_rows(before, oracle.live_rows(scattered))
    assert max(files_of(scattered, number) for number in (300, 1500, 2700)) <= 2
    # The order is in the metadata, nobody's default, and claimed by the files.
    metadata = scattered.refresh().metadata
    assert metadata.default_sort_order_id == 0
    orders = {one.order_id for one in metadata.sort_orders if one.fields}
    assert {task.file.sort_order_id for task in scattered.scan().plan_files()} == orders
    again = optimize(scattered, type="cluster", columns=["id"], home=home)
    assert again.outcome == "nothing_to_do"


def test_a_plan_is_stored_and_started_later(scattered: Table, coordinator: Coordinator, home: Path) -> None:
    with connect(home=home) as client, embedded_optimizer(coordinator, 1, MEMORY):
        done = client.optimize("cat.db.t", type="cluster", columns=["id"], schedule_only=True)
        assert done.process is None
        (waiting,) = client.processes()
        assert waiting.status == "requested"
        started = client.start(waiting.process_id)
        assert started.status == "success"
        with pytest.raises(IllegalState, match="is success"):
            client.start(waiting.process_id)
    assert files_of(scattered, 1500) <= 2


def test_what_can_t_be_asked_for_is_refused_with_its_value_and_nothing_is_changed(scattered: Table, home: Path) -> None:
    base = scattered.refresh().metadata.current_snapshot_id
    wrong: tuple[dict[str, Any], ...] = (
        {"columns": ["nothing"]},
        {"columns": ["id"], "partitions": "recent:0"},
        {"columns": ["id"], "where": "id ="},
        {"columns": ["id"], "strategy": "circle"},
    )
    for asked, words in zip(wrong, ("nothing", "recent", "id =", "circle"), strict=True):
        with pytest.raises((InvalidArgument, TableRefused), match=words):
            optimize(scattered, type="cluster", home=home, **asked)
    assert scattered.refresh().metadata.current_snapshot_id == base


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


def files_by(table: Table, column: str) -> float:
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
    with connect(home=home) as client, embedded_optimizer(coordinator, 1, MEMORY):
        waiting = client.plan("cat.db.t", type="cluster")
        assert waiting.reason == "nothing to do yet: auto needs 100 scans in 7 d to choose columns, and knows 0"
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
    assert max(files_by(table, name) for name in ("c3", "c7")) <= 0.5 * files
    assert min(files_by(table, name) for name in NAMES if name not in ("c3", "c7")) >= 0.9 * files
