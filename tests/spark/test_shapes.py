"""Tables of every shape that Java leaves, rewritten by each type and clustered by each layout, by both backends."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amoro_core.model.clustered_files import group_of
from amoro_core.model.clustering import ClusterOptions, Strategy
from amoro_core.model.rewrite import RewriteOutput
from amoro_core.model.tables import OptimizingType
from amoro_core.model.work import WorkResult
from amoro_core.services.optimizing import ScheduledTask
from amoro_optimizer.kinds import Run
from amoro_optimizer.running import Backend
from tests.work import rewrite_input, rewriting

from .catalogs import SharedCatalog, java_rest_server, served_catalog
from .java import JavaTable, Lineage, RowsOfFiles, java_upsert, load_java_table, planned_files, read_by_java
from .matching import assert_deletes_match_as_in_java
from .optimizing import Services, cluster_table, rewrite_all, services_on
from .tables import MOMENTS, SHAPES, Shape, frozen, make_equality_table, make_mixed_table, spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TYPES = [OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL]
#: Of a REST catalog whose server is Java's.
SERVED = ("vectors", "three-kinds", "upgraded", "branched", "repartitioned")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A REST server of Java: the directory of its warehouse, and its URI."""
    root = tmp_path_factory.mktemp("server") / "shared"
    with java_rest_server(root) as uri:
        yield root, uri


@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_each_type_by_each_backend_leaves_what_java_reads(
    services: Services, backends: list[Backend], shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_same_rows(services, backends, shape, monkeypatch)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", [one for one in SHAPES if one.name in SERVED], ids=lambda shape: shape.name)
def test_tables_of_a_rest_server_of_java_are_rewritten_as_others_are(
    spark: SparkSession,
    server: tuple[Path, str],
    backends: list[Backend],
    shape: Shape,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, uri = server
    with (
        served_catalog(spark, root, f"served_{shape.name.replace('-', '_')}", uri) as catalog,
        services_on(catalog, tmp_path / "home") as services,
    ):
        require_same_rows(services, backends, shape, monkeypatch)
        catalog.pyiceberg.drop_table("db.t")


def require_same_rows(
    services: Services, backends: list[Backend], shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewrite the table by each type and backend, each time from the same snapshot, and let Java go on at the end."""
    catalog, table = services.catalog, services.catalog.full_name("db.t")
    shape.make(catalog, table)
    before, beside = read(catalog, shape), read(catalog, shape, shape.branch)
    java = load_java_table(catalog.spark, catalog.name, "db.t")
    head = java.table.currentSnapshot().snapshotId()
    assert any(row_id is None for _, row_id, _ in before.values()) is not shape.has_ids
    for number, (kind, backend) in enumerate(itertools.product(TYPES, backends)):
        if number:
            java.table.refresh()
            java.table.manageSnapshots().rollbackTo(head).commit()
        monkeypatch.setattr(services.world, "execute", executed(backend))
        process_id = services.begin(table, kind)
        services.finish(process_id)

        after = read(catalog, shape)
        if shape.has_ids:
            assert after == before
        else:
            assert {key: row for key, (row, *_) in after.items()} == {key: row for key, (row, *_) in before.items()}
            assert_apart(after)
        assert read(catalog, shape, shape.branch) == beside
        assert_deletes_match_as_in_java(catalog, table)
        java.table.refresh()
        assert java.table.currentSnapshot().summary()["amoro.process-id"] == process_id
    go_on(catalog, shape, after)


def executed(backend: Backend) -> Any:
    """What stands for an optimizer with that backend."""

    def execute(handed: ScheduledTask) -> RewriteOutput:
        run = rewriting(backend, 1 << 29)
        return run(rewrite_input(handed.work), {}, handed.attempt, lambda done, total: None, lambda: False)

    return execute


def read(catalog: SharedCatalog, shape: Shape, branch: str = "main") -> Lineage:
    """The rows of the branch as Java reads them, with their ids and last updates; none of no branch."""
    if not branch:
        return {}
    if not shape.is_read_by_spark:
        return read_by_java(load_java_table(catalog.spark, catalog.name, "db.t"))
    rows = catalog.spark.sql(
        f"SELECT *, _row_id, _last_updated_sequence_number FROM {catalog.full_name('db.t')} VERSION AS OF '{branch}'"
    ).collect()
    found = {row.id: (tuple(frozen(value) for value in row[:-2]), row[-2], row[-1]) for row in rows}
    assert len(found) == len(rows)
    return found


def assert_apart(rows: Lineage) -> None:
    ids = Counter(row_id for _, row_id, _ in rows.values())
    assert None not in ids
    assert set(ids.values()) <= {1}


def go_on(catalog: SharedCatalog, shape: Shape, rows: Lineage) -> None:
    """Java deletes a row, updates one and adds one, writes every file anew and expires the snapshots before."""
    (go_on_by_sql if shape.is_read_by_spark else go_on_by_java)(catalog, shape, rows)
    java = load_java_table(catalog.spark, catalog.name, "db.t")
    after = read(catalog, shape)
    java.table.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    assert read(catalog, shape) == after
    assert_deletes_match_as_in_java(catalog, catalog.full_name("db.t"))


def go_on_by_sql(catalog: SharedCatalog, shape: Shape, rows: Lineage) -> None:
    spark, table, keys = catalog.spark, catalog.full_name("db.t"), sorted(rows)
    gone, changed = keys[:2] if keys else (0, 1)
    spark.sql(f"DELETE FROM {table} WHERE id = {gone}")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT explode(array({changed}L, 500L)) AS id) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET value = 'later'"
        " WHEN NOT MATCHED THEN INSERT (id, part, value) VALUES (s.id, 'a', 'late')"
    )
    after = read(catalog, shape)
    written = {changed, 500}
    assert after.keys() == rows.keys() - {gone} | written
    assert without(after, written) == without(rows, written | {gone})
    assert_apart(after)
    if rows:
        assert after[changed][1] == rows[changed][1]
        assert (after[changed][2] or 0) > max(updated or 0 for _, _, updated in rows.values())
    rewrite_all(spark, table)
    assert read(catalog, shape) == after


def go_on_by_java(catalog: SharedCatalog, shape: Shape, rows: Lineage) -> None:
    gone = min(rows)
    keys: dict[str, Any] = {"id": gone}
    if shape.name == "in-nanoseconds":
        keys["at"] = MOMENTS[gone % 2]
    java_upsert(catalog.spark, catalog.name, "db.t", list(keys), [keys], [{**keys, "id": 500, "value": "later"}])
    after = read(catalog, shape)
    assert after.keys() == rows.keys() - {gone} | {500}
    assert without(after, {500}) == without(rows, {gone})
    assert_apart(after)


def without(rows: Lineage, keys: set[int]) -> Lineage:
    return {key: row for key, row in rows.items() if key not in keys}


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
