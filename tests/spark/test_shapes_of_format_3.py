"""Tables of format 3 as Java leaves them, rewritten by each type and both backends: Java reads the same rows with the
same ids and last updates, and goes on."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amoro_core.model.rewrite import RewriteOutput
from amoro_core.model.tables import OptimizingType
from amoro_core.services.optimizing import ScheduledTask
from amoro_optimizer.running import Backend
from tests.work import rewrite_input, rewriting

from .catalogs import SharedCatalog, served_catalog
from .java_reader import Lineage, read_by_java
from .java_writer import java_upsert, load_java_table
from .matching import assert_deletes_match_as_in_java
from .optimizing import Services, rewrite_all, services_on
from .rest_server import java_rest_server
from .rows import frozen
from .shapes import MOMENTS, SHAPES, Shape

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
