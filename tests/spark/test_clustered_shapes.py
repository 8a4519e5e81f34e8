"""Tables of every shape that Java leaves, clustered by each layout and both backends: Spark and `verify` find the same
rows, with the same ids in format 3; deletes are applied; sort orders that files claim are true in Java's comparison.

Each backend takes one layout of each shape, another one for the next; AMORO_CLUSTERED_SHAPES=every: all three.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from amoro_core.model.clustered_files import group_of
from amoro_core.model.clustering import ClusterOptions, Strategy
from amoro_core.model.work import WorkResult
from amoro_core.services.optimizing import ScheduledTask
from amoro_optimizer.kinds import Run
from amoro_optimizer.running import Backend

from .catalogs import SharedCatalog
from .clustering import cluster_table
from .java_order import RowsOfFiles, planned_files
from .java_writer import JavaTable, load_java_table
from .matching import assert_deletes_match_as_in_java
from .optimizing import Services
from .rows import spark_rows
from .shapes import SHAPES, Shape
from .tables import make_equality_table, make_mixed_table
from .test_shapes_of_format_3 import assert_apart, read

EVERY = os.environ.get("AMORO_CLUSTERED_SHAPES") == "every"
TABLE = "db.t"
#: Other formats than Parquet are read alone.
PROPERTIES = {
    "self-optimizing.write-format": "parquet",
    "self-optimizing.cluster.partial-progress": "false",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A shape, and by which of its columns it is clustered."""

    shape: Shape
    columns: tuple[str, ...]
    is_of_format_3: bool = True
    target_bytes: int = 2000  # of files of a few KB, so that many groups become several


def of_format_2(make: Callable[[SharedCatalog, str, str], str], file_format: str, *columns: str) -> Case:
    """A table of the Java suite with files of that format."""
    name = make.__name__.removeprefix("make_").removesuffix("_table")

    def made(catalog: SharedCatalog, table: str) -> None:
        assert make(catalog, TABLE.removeprefix("db."), file_format) == table

    shape = Shape(f"{name}-{file_format}", made)
    return Case(shape, columns, is_of_format_3=False, target_bytes=8000)


#: The columns that are asked for, of those of a shape; none: the table's own sort order, which has transforms.
COLUMNS_OF: Mapping[Strategy, Callable[[tuple[str, ...]], tuple[str, ...]]] = {
    Strategy.LINEAR: lambda columns: (),
    Strategy.ZORDER: lambda columns: columns[:2],
    Strategy.HILBERT: lambda columns: columns,
}
#: Where not by the values and ids: the columns that are the shape's own.
COLUMNS = {
    "defaulted": ("c", "price", "s.d", "id"),
    "keyed-by-defaults": ("c", "id"),
    "in-nanoseconds": ("id", "at"),
    "nested": ("spot.x", "units"),
}
CASES = [
    of_format_2(make_mixed_table, "parquet", "label", "ratio", "at"),
    of_format_2(make_mixed_table, "avro", "amount", "place.point.x", "payload"),
    of_format_2(make_equality_table, "parquet", "note", "price", "day"),
    of_format_2(make_equality_table, "orc", "code", "id"),
    *(Case(shape, COLUMNS.get(shape.name, ("value", "id"))) for shape in SHAPES),
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.shape.name)
def test_clustered_tables_have_the_same_rows_in_the_order_that_their_files_claim(
    services: Services, backends: list[Backend], case: Case
) -> None:
    catalog, table = services.catalog, services.catalog.full_name(TABLE)
    case.shape.make(catalog, table)
    java = load_java_table(catalog.spark, catalog.name, TABLE)
    set_order(java, case)
    before, head = rows_of(catalog, case), java.table.currentSnapshot().snapshotId()
    for strategy, backend in runs_of(case, backends):
        asked = ClusterOptions(columns=COLUMNS_OF[strategy](case.columns), strategy=strategy, full=True)
        process_id = cluster_table(services, table, asked, work=worked(backend, table))
        java.table.refresh()
        made = java.table.currentSnapshot()
        assert (made.operation(), made.summary()["amoro.process-id"]) == ("replace", process_id)
        require_same(catalog, case, before)
        assert_deletes_match_as_in_java(catalog, table)
        world = services.world
        identifier = world.table(table).identifier
        assert world.verifying.verify(identifier, head, made.snapshotId(), lambda: False).is_sound
        require_claims(java, case, strategy)
        java.table.manageSnapshots().rollbackTo(head).commit()


def runs_of(case: Case, backends: list[Backend]) -> list[tuple[Strategy, Backend]]:
    """Each backend with one of the layouts, another one for the next shape; by EVERY each with all of them."""
    if EVERY:
        return list(itertools.product(Strategy, backends))
    turn = CASES.index(case)
    return [(list(Strategy)[(turn + at) % len(Strategy)], backend) for at, backend in enumerate(backends)]


def set_order(java: JavaTable, case: Case) -> None:
    """The table's own sort order: by a transform of one column, downwards, and by the others, nulls last."""
    *others, last = case.columns
    expressions, last_nulls = java.iceberg.expressions.Expressions, java.iceberg.NullOrder.NULLS_LAST
    order = java.table.replaceSortOrder().desc(expressions.bucket(last, 3), last_nulls)
    for name in others:
        order = order.asc(expressions.ref(name), last_nulls)
    order.desc(expressions.ref(last), java.iceberg.NullOrder.NULLS_FIRST).commit()
    update = java.table.updateProperties()
    for key, value in {**PROPERTIES, "self-optimizing.target-size": str(case.target_bytes)}.items():
        update.set(key, value)
    update.commit()


def worked(backend: Backend, table: str) -> Callable[[ScheduledTask], WorkResult]:
    """What stands for an optimizer with that backend."""

    def work(handed: ScheduledTask) -> WorkResult:
        run = Run(handed.attempt, {}, 1 << 29, lambda done, total: None, lambda: False)
        return backend.execute(handed.work, table, run)

    return work


def rows_of(catalog: SharedCatalog, case: Case) -> tuple[Any, Any]:
    """The rows of main and of the shape's branch; with ids and last updates where the format has them."""
    if not case.is_of_format_3:
        return spark_rows(catalog.spark, catalog.full_name(TABLE)), None
    return read(catalog, case.shape), read(catalog, case.shape, case.shape.branch)


def require_same(catalog: SharedCatalog, case: Case, before: tuple[Any, Any]) -> None:
    rows, beside = rows_of(catalog, case)
    assert beside == before[1]
    if case.shape.has_ids:
        assert rows == before[0]
    else:
        assert {key: row for key, (row, *_) in rows.items()} == {key: row for key, (row, *_) in before[0].items()}
        assert_apart(rows)


def require_claims(java: JavaTable, case: Case, strategy: Strategy) -> None:
    """No delete applies to an output; one of the linear layout claims the table's order, and is in it."""
    outputs = {path: file for path, file in planned_files(java).items() if group_of(path)}
    assert all(not file.deletes for file in outputs.values())
    claimed = java.table.sortOrder().orderId() if strategy is Strategy.LINEAR else 0
    assert {file.sort_order_id for file in outputs.values()} <= {claimed}
    if case.shape.name == "emptied":
        assert not outputs
        return
    assert outputs
    if not claimed:
        return
    rows = RowsOfFiles(java)
    for path in outputs:
        here = rows.of(path)
        assert len(here) > 0
        assert rows.is_ordered(here, claimed)
    longest = max(map(rows.of, outputs), key=len)
    assert not rows.is_ordered(longest[::-1], claimed), "Java can tell"
