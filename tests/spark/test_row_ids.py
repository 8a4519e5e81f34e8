"""Row ids in metadata of format 3: ours are those of Iceberg's Java runtime, and it goes on from what we wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from amoro_core.iceberg import clustering_manifests, commit
from amoro_core.iceberg.clustering_manifests import Source
from amoro_core.iceberg.manifests import read_list, read_manifest
from amoro_core.model.tables import OptimizingType
from tests.engine.writer3 import upgrade
from tests.iceberg.rewriting import loaded, optimized, rewritten, scanned

from .catalogs import SharedCatalog
from .optimizing import Services
from .test_undoing import undo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COPYING = "'write.delete.mode' = 'copy-on-write', 'write.update.mode' = 'copy-on-write'"


def made(spark: SparkSession, catalog: SharedCatalog, version: int = 3, properties: str = COPYING) -> str:
    """A table by part, in which Spark wrote eight files in four commits and one file anew without a deleted row."""
    table = catalog.full_name("db.ids")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part) "
        f"TBLPROPERTIES ('format-version' = '{version}', {properties})"
    )
    for first in (0, 10, 20, 30):
        spark.sql(f"INSERT INTO {table} SELECT id, if(id % 3 = 0, 'a', 'b') FROM range({first}, {first + 10})")
    spark.sql(f"DELETE FROM {table} WHERE id = 12")
    return table


def java_ids(spark: SparkSession, table: str, branch: str = "main") -> dict[int, int | None]:
    """The id that Iceberg's Java reader gives to each row, by the row's own number."""
    found = spark.sql(f"SELECT id, _row_id FROM {table} VERSION AS OF '{branch}'").collect()
    ids = {one.id: one._row_id for one in found}
    assert len(ids) == len(found)
    return ids


def java_first_ids(spark: SparkSession, table: str) -> dict[str, int | None]:
    """The first row id of each live data file, as Java lists it."""
    return {one.file_path: one.first_row_id for one in spark.sql(f"SELECT * FROM {table}.data_files").collect()}


def our_first_ids(table: Table) -> dict[str, int | None]:
    return {one.data.path: one.data.first_row_id for one in scanned(loaded(table)).files}


def paths(table: Table, count: int) -> list[str]:
    return sorted(our_first_ids(table))[:count]


def assert_apart(ids: Iterable[int | None]) -> None:
    every = list(ids)
    assert None not in every
    assert len(set(every)) == len(every)


def test_we_read_the_ids_of_spark_and_it_reads_ours(spark: SparkSession, catalog: SharedCatalog) -> None:
    name = made(spark, catalog)
    table = catalog.load(name)
    assert our_first_ids(table) == java_first_ids(spark, name)
    before, replaced = java_ids(spark, name), paths(table, 3)
    kept = {path: first for path, first in our_first_ids(table).items() if path not in replaced}

    optimized(table, rewritten(table, only=replaced))

    first_ids = our_first_ids(table)
    assert first_ids == java_first_ids(spark, name)
    assert {path: first for path, first in first_ids.items() if path in kept} == kept
    after = java_ids(spark, name)
    assert after.keys() == before.keys()
    assert_apart(after.values())

    spark.sql(f"INSERT INTO {name} SELECT id, 'a' FROM range(100, 110)")
    spark.sql(f"UPDATE {name} SET part = 'c' WHERE id = 7")
    spark.sql(f"DELETE FROM {name} WHERE id = 30")
    last = java_ids(spark, name)
    assert last == {
        **{key: given for key, given in after.items() if key != 30},
        **{key: last[key] for key in range(100, 110)},
    }
    assert_apart(last.values())
    assert our_first_ids(table) == java_first_ids(spark, name)


def test_merged_and_clustered_manifests_keep_the_ids_that_java_gives(
    spark: SparkSession, catalog: SharedCatalog
) -> None:
    name = made(spark, catalog, properties=f"{COPYING}, 'commit.manifest.min-count-to-merge' = '2'")
    table = catalog.load(name)
    before, (replaced,) = java_ids(spark, name), paths(table, 1)
    of_it = {one.id for one in spark.sql(f"SELECT id FROM {name} WHERE _file = '{replaced}'").collect()}

    optimized(table, rewritten(table, only=[replaced]))

    head = loaded(table).current_snapshot()
    assert head is not None
    assert [one.existing_files_count for one in read_list(table.io, head.manifest_list) if one.added_files_count] != [0]
    merged = java_ids(spark, name)
    assert {key: given for key, given in merged.items() if key not in of_it} == {
        key: given for key, given in before.items() if key not in of_it
    }
    assert_apart(merged.values())

    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '100')")
    for number in (200, 201):
        spark.sql(f"INSERT INTO {name} VALUES ({number}, 'a')")
    before = java_ids(spark, name)

    def source() -> Source:
        return Source(loaded(table), read_manifest, [table.location()])

    done = clustering_manifests.stage(source(), source, None, {})
    commit.send(table.catalog, loaded(table), done.commit.payload)
    assert java_ids(spark, name) == before
    spark.sql(f"CALL {catalog.name}.system.rewrite_manifests('db.ids')").collect()
    assert java_ids(spark, name) == before
    assert our_first_ids(table) == java_first_ids(spark, name)


def test_a_branch_of_spark_beside_our_commits_shares_no_id(spark: SparkSession, catalog: SharedCatalog) -> None:
    name = made(spark, catalog)
    table = catalog.load(name)
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH side")
    spark.sql(f"INSERT INTO {name}.branch_side SELECT id, 'a' FROM range(300, 305)")
    optimized(table, rewritten(table, only=paths(table, 2)))
    spark.sql(f"INSERT INTO {name}.branch_side SELECT id, 'a' FROM range(310, 315)")
    optimized(table, rewritten(table, only=paths(table, 2)))

    main, side = java_ids(spark, name), java_ids(spark, name, "side")
    assert_apart(main.values())
    assert_apart(side.values())
    own = {given for key, given in side.items() if key >= 300}
    assert len(own) == 10
    assert own.isdisjoint(main.values())


def test_the_first_commit_after_an_upgrade_gives_the_ids_that_java_reads(
    spark: SparkSession, catalog: SharedCatalog
) -> None:
    name = made(spark, catalog, version=2)
    table = catalog.load(name)
    upgrade(table)
    assert set(our_first_ids(table).values()) == {None}

    optimized(table, rewritten(table, only=paths(table, 2)))

    assert our_first_ids(table) == java_first_ids(spark, name)
    ids = java_ids(spark, name)
    assert_apart(ids.values())
    spark.sql(f"INSERT INTO {name} VALUES (400, 'a')")
    after = java_ids(spark, name)
    assert {key: given for key, given in after.items() if key != 400} == ids
    assert_apart(after.values())


def test_rows_keep_their_ids_when_they_are_rewritten_and_when_that_is_undone(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    """Java takes the id that an added entry says."""
    name = made(spark, catalog)
    before = java_ids(spark, name)
    process_id = services.begin(name, OptimizingType.FULL)
    services.finish(process_id)
    assert java_ids(spark, name) == before
    spark.sql(f"INSERT INTO {name} VALUES (500, 'a')")
    undo(services, process_id)
    after = java_ids(spark, name)
    assert {key: given for key, given in after.items() if key != 500} == before
    assert_apart(after.values())
    assert our_first_ids(catalog.load(name)) == java_first_ids(spark, name)
    spark.sql(f"INSERT INTO {name} VALUES (501, 'a')")
    assert_apart(java_ids(spark, name).values())
