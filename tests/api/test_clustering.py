"""Clustering from Python on a real table: through the coordinator, its wire, and an optimizer that orders rows."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from amoro_cli.client import AdminClient
from amoro_cli.launcher import Endpoint
from amoro_cli.views.clustering import clustering_document
from amoro_core import connect, optimize, plan
from amoro_core.app import Coordinator, optimizer_beside
from amoro_core.errors import AmoroError, IllegalState, InvalidArgument, TableRefused
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


def test_the_receipt_says_how_many_files_a_point_query_meets(scattered: Table, home: Path) -> None:
    """Of a linear order the first column alone tells files apart."""
    done = optimize(scattered, type="cluster", columns=["id", "value"], strategy="linear", home=home)
    assert done.outcome == "success"
    assert done.receipt is not None
    queries = {one.name: one.value for one in done.receipt.figures if "point_query" in one.name}
    assert list(queries) == ["files_per_point_query_on_id_before", "files_per_point_query_on_id_after"]
    before, after = queries.values()
    assert before >= 5 > 2 >= after


def test_a_plan_is_stored_and_started_later(scattered: Table, coordinator: Coordinator, home: Path) -> None:
    with connect(home=home) as client, optimizer_beside(coordinator, 1, MEMORY):
        done = client.optimize("cat.db.t", type="cluster", columns=["id"], schedule_only=True)
        assert done.process is None
        (waiting,) = client.processes()
        assert waiting.status == "requested"
        started = client.start(waiting.process_id)
        assert started.status == "success"
        with pytest.raises(IllegalState, match="is success"):
            client.start(waiting.process_id)
    assert files_of(scattered, 1500) <= 2


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"columns": ["nothing"]}, TableRefused, "nothing"),
        ({"columns": ["id"], "partitions": "recent:0"}, InvalidArgument, "recent"),
        ({"columns": ["id"], "where": "id ="}, InvalidArgument, "id ="),
        ({"columns": ["id"], "strategy": "circle"}, InvalidArgument, "circle"),
    ],
)
def test_what_can_t_be_asked_for_is_refused_with_its_value_and_nothing_is_changed(
    scattered: Table, home: Path, asked: dict[str, object], error: type[Exception], words: str
) -> None:
    base = scattered.refresh().metadata.current_snapshot_id
    with pytest.raises((error, InvalidArgument, TableRefused), match=words):
        optimize(scattered, type="cluster", home=home, **asked)
    assert scattered.refresh().metadata.current_snapshot_id == base


def test_a_table_is_shown_as_it_was_clustered_where_no_columns_are_set(
    scattered: Table, coordinator: Coordinator, home: Path
) -> None:
    with closing(AdminClient(Endpoint(coordinator.address, coordinator.admin_token))) as admin:
        with pytest.raises(AmoroError, match="names no columns"):
            admin.show_clustering("cat.db.t")
        with connect(home=home) as client, optimizer_beside(coordinator, 1, MEMORY):
            assert client.optimize("cat.db.t", type="cluster", columns=["id"]).outcome == "success"
        shown = admin.show_clustering("cat.db.t")
        assert (shown.layout, shown.sealed_groups + shown.open_groups, shown.unclustered_files) == ("linear(id)", 1, 0)
        assert (shown.next.type, shown.next.tasks) == ("", 0)
        said = [block for block in clustering_document(shown).blocks if isinstance(block, str)]
    assert "linear(id)" in said[0]
    note, nothing = said[-2:]
    assert note.startswith(
        "  no columns are set: shown is the layout of the newest group; set self-optimizing.cluster."
    )
    assert nothing == "  Nothing to do for cat.db.t: no columns are set"
