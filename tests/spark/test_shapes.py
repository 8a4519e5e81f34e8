"""Tables of every shape that Java leaves, rewritten and clustered: types, layouts and backends take turns.

Spark, Java and `verify` find the same rows, in format 3 with the same ids and last updates; deletes are applied; sort
orders that files claim are true in Java's comparison; and Java goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from amoro_core.model.clustering import ClusterOptions, Strategy, group_of
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import WorkResult
from amoro_core.services.task_lifecycle import ScheduledTask
from amoro_optimizer.execution import Backend
from amoro_optimizer.work_kinds import Run
from tests.tiers import current_tier

from .java import JavaTable, Lineage, java_upsert, load_java_table, planned_files, read_by_java, require_ordered
from .matching import assert_deletes_match_as_in_java
from .optimizing import Services, services_on
from .session import java_rest_server, served_catalog
from .tables import DATA, MOMENTS, SHAPES, Shape, delete, frozen, without

MINOR, MAJOR, FULL = OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL
#: Of a REST catalog whose server is Java's.
SERVED = ("three-kinds", "branched")
#: Below `make test-all`.
OF_TEST = ("equality-orc", "three-kinds", "with-some-ids")
#: The columns that are asked for, of those of a shape; none: the table's own sort order, which has transforms.
COLUMNS_OF: Mapping[Strategy, Callable[[tuple[str, ...]], tuple[str, ...]]] = {
    Strategy.LINEAR: lambda columns: (),
    Strategy.ZORDER: lambda columns: columns[:2],
    Strategy.HILBERT: lambda columns: columns,
}


def rewrites_of(shape: Shape, backends: list[Backend]) -> list[tuple[OptimizingType, Backend]]:
    """Minor or, for every other shape of format 3, major, and full: in turn by the backends."""
    turn = SHAPES.index(shape)
    first = MAJOR if shape.version == 3 and turn % 2 else MINOR
    return list(zip((first, FULL), backends[:: -1 if turn % 4 > 1 else 1], strict=True))


@pytest.mark.parametrize(
    "shape", [one for one in SHAPES if current_tier() == "all" or one.name in OF_TEST], ids=lambda shape: shape.name
)
def test_rewritten_and_clustered_tables_have_the_same_rows_and_java_goes_on(
    services: Services, backends: list[Backend], shape: Shape
) -> None:
    made = Made.of(services, shape)
    first, last = rewrites_of(shape, backends)
    made.rewrite(*first)
    made.roll_back()
    with ordered(made.java, shape):
        turn = SHAPES.index(shape)  # another layout for the next shape
        made.cluster(list(Strategy)[turn % len(Strategy)], backends[turn % len(backends)])
        made.roll_back()
    made.rewrite(*last)
    if shape.version == 3:
        made.go_on()
    else:
        assert services.formats() == {(DATA, "parquet")}
        made.go_on_in_format_2()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A REST server of Java: the directory of its warehouse, and its URI."""
    root = tmp_path_factory.mktemp("server") / "shared"
    with java_rest_server(root) as uri:
        yield root, uri


@pytest.mark.parametrize("shape", [one for one in SHAPES if one.name in SERVED], ids=lambda shape: shape.name)
def test_tables_of_a_rest_server_of_java_are_rewritten_as_others_are(
    spark: SparkSession, server: tuple[Path, str], backends: list[Backend], shape: Shape, tmp_path: Path
) -> None:
    root, uri = server
    with (
        served_catalog(spark, root, f"served_{shape.name.replace('-', '_')}", uri) as catalog,
        services_on(catalog, tmp_path / "home") as services,
    ):
        made = Made.of(services, shape)
        first, last = rewrites_of(shape, backends)
        made.rewrite(*first)
        made.roll_back()
        made.rewrite(*last)
        made.go_on()
        catalog.pyiceberg.drop_table("db.t")


@dataclass(frozen=True, slots=True)
class Made:
    """A table of a shape that was made, and what Java read of it then."""

    services: Services
    shape: Shape
    java: JavaTable
    head: int
    rows: Any
    beside: Lineage  # of the shape's branch

    @classmethod
    def of(cls, services: Services, shape: Shape) -> Made:
        shape.make(services.spark, services.table)
        java, rows = load_java_table(services.spark, services.table), rows_of(services, shape)
        if shape.version == 3:
            assert any(row_id is None for _, row_id, _ in rows.values()) is not shape.has_ids
        beside = read(services, shape, shape.branch)
        return cls(services, shape, java, java.table.currentSnapshot().snapshotId(), rows, beside)

    def rewrite(self, kind: OptimizingType, backend: Backend) -> None:
        """Optimize the table by that backend."""
        world, work = self.services.world, worked(backend, self.services.table)
        process_id, optimizer = world.begin(kind, self.services.table), world.optimizer()
        while world.status(process_id) is ProcessStatus.RUNNING:
            handed = world.take(optimizer)
            assert world.optimizing.complete(optimizer, handed.attempt, work(handed))
        self.services.finish(process_id)
        self._require_same(process_id)

    def cluster(self, strategy: Strategy, backend: Backend) -> None:
        """Cluster the table by that backend; what its files claim is true."""
        asked = ClusterOptions(columns=COLUMNS_OF[strategy](self.shape.columns), strategy=strategy, full=True)
        self._require_same(self.services.cluster(asked, work=worked(backend, self.services.table)))
        world, made = self.services.world, self.java.table.currentSnapshot().snapshotId()
        identifier = world.table(self.services.table).identifier
        assert world.verifying.verify(identifier, self.head, made, lambda: False).is_sound
        require_claims(self.java, self.shape, strategy)

    def roll_back(self) -> None:
        """To the table as it was made."""
        self.java.table.refresh()
        self.java.table.manageSnapshots().rollbackTo(self.head).commit()

    def _require_same(self, process_id: str) -> None:
        shape = self.shape
        self.java.table.refresh()
        snapshot = self.java.table.currentSnapshot()
        assert (snapshot.operation(), snapshot.summary()["amoro.process-id"]) == ("replace", process_id)
        rows = rows_of(self.services, shape)
        if shape.has_ids:
            assert rows == self.rows
        else:
            assert {key: row for key, (row, *_) in rows.items()} == {key: row for key, (row, *_) in self.rows.items()}
            assert_apart(rows)
        assert read(self.services, shape, shape.branch) == self.beside
        assert_deletes_match_as_in_java(self.services.catalog, self.services.table)

    def go_on(self) -> None:
        """Java deletes a row, updates one and adds one, writes every file anew and expires the snapshots before."""
        services, shape = self.services, self.shape
        (go_on_by_sql if shape.is_read_by_spark else go_on_by_java)(services, shape, read(services, shape))
        after = read(services, shape)
        self.java.table.refresh()
        self.java.table.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
        assert read(services, shape) == after
        assert_deletes_match_as_in_java(services.catalog, services.table)

    def go_on_in_format_2(self) -> None:
        """Spark deletes rows by position; major drops the deletes, and Java writes every file anew."""
        services, rows = self.services, self.services.rows()
        services.sql(f"DELETE FROM {services.table} WHERE id % 5 = 4")
        at = services.spark.table(services.table).columns.index("id")
        after = {row: count for row, count in rows.items() if row[at] % 5 != 4}
        assert services.rows() == after
        services.optimize(MAJOR)
        services.rewrite_by_spark()
        assert services.rows() == after


def worked(backend: Backend, table: str) -> Callable[[ScheduledTask], WorkResult]:
    """What stands for an optimizer with that backend."""
    run = ({}, 1 << 29, lambda done, total: None, lambda: False)
    return lambda handed: backend.execute(handed.work, table, Run(handed.attempt, *run))


def rows_of(services: Services, shape: Shape) -> Any:
    """The rows of main, with ids and last updates where the format has them."""
    return read(services, shape) if shape.version == 3 else services.rows()


@contextmanager
def ordered(java: JavaTable, shape: Shape) -> Iterator[None]:
    """The table's own sort order, for the time of the block, and files of a few KB.

    By a transform of one column, downwards, and by the others, nulls last.
    """
    *others, last = shape.columns
    expressions, last_nulls = java.iceberg.expressions.Expressions, java.iceberg.NullOrder.NULLS_LAST
    order = java.table.replaceSortOrder().desc(expressions.bucket(last, 3), last_nulls)
    for name in others:
        order = order.asc(expressions.ref(name), last_nulls)
    order.desc(expressions.ref(last), java.iceberg.NullOrder.NULLS_FIRST).commit()
    key, size = "self-optimizing.target-size", java.table.properties().get("self-optimizing.target-size")
    update = java.table.updateProperties().set(key, "2000" if shape.version == 3 else "8000")
    update.set("self-optimizing.cluster.partial-progress", "false").commit()
    yield
    update = java.table.updateProperties()
    (update.set(key, size) if size else update.remove(key)).commit()
    java.table.replaceSortOrder().commit()


def read(services: Services, shape: Shape, branch: str = "main") -> Lineage:
    """The rows of the branch as Java reads them, with their ids and last updates; none of no branch."""
    if not branch:
        return {}
    if not shape.is_read_by_spark:
        return read_by_java(load_java_table(services.spark, services.table))
    rows = services.sql(
        f"SELECT *, _row_id, _last_updated_sequence_number FROM {services.table} VERSION AS OF '{branch}'"
    )
    found = {row.id: (tuple(frozen(value) for value in row[:-2]), row[-2], row[-1]) for row in rows}
    assert len(found) == len(rows)
    return found


def assert_apart(rows: Lineage) -> None:
    ids = Counter(row_id for _, row_id, _ in rows.values())
    assert None not in ids
    assert set(ids.values()) <= {1}


def go_on_by_sql(services: Services, shape: Shape, rows: Lineage) -> None:
    keys = sorted(rows)
    gone, changed = keys[:2] if keys else (0, 1)
    delete(services.spark, services.table, gone)
    services.sql(
        f"MERGE INTO {services.table} t USING (SELECT explode(array({changed}L, 500L)) AS id) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET value = 'later'"
        " WHEN NOT MATCHED THEN INSERT (id, part, value) VALUES (s.id, 'a', 'late')"
    )
    after = read(services, shape)
    written = {changed, 500}
    assert after.keys() == rows.keys() - {gone} | written
    assert without(after, written) == without(rows, written | {gone})
    assert_apart(after)
    if rows:
        assert after[changed][1] == rows[changed][1]
        assert (after[changed][2] or 0) > max(updated or 0 for _, _, updated in rows.values())
    services.rewrite_by_spark()
    assert read(services, shape) == after


def go_on_by_java(services: Services, shape: Shape, rows: Lineage) -> None:
    gone = min(rows)
    keys: dict[str, Any] = {"id": gone}
    if shape.name == "in-nanoseconds":
        keys["at"] = MOMENTS[gone % 2]
    java_upsert(services.spark, services.table, list(keys), [keys], [{**keys, "id": 500, "value": "later"}])
    after = read(services, shape)
    assert after.keys() == rows.keys() - {gone} | {500}
    assert without(after, {500}) == without(rows, {gone})
    assert_apart(after)


def require_claims(java: JavaTable, shape: Shape, strategy: Strategy) -> None:
    """No delete applies to an output; one of the linear layout claims the table's order, and is in it."""
    outputs = {path: file for path, file in planned_files(java).items() if group_of(path)}
    claimed = java.table.sortOrder().orderId() if strategy is Strategy.LINEAR else 0
    assert all(file == (claimed, []) for file in outputs.values())
    assert bool(outputs) is (shape.name != "emptied")
    if claimed and outputs:
        require_ordered(java, outputs, claimed)
