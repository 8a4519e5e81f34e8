"""Format 3: types and defaults that Java has written, ids and last updates of rows, as Spark reads them afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import Table

from amoro_core.iceberg.commit import committing
from amoro_core.iceberg.maintenance import rewrite_manifests
from amoro_core.iceberg.maintenance.rewrite_manifests import ManifestSource
from amoro_core.iceberg.manifest.reading import read_list, read_manifest
from amoro_core.model.tables import OptimizingType
from tests.iceberg.rewriting import loaded, optimized, rewritten, scanned

from .java import at_metadata, evolved, java_with, load_java_table, read_by_java
from .optimizing import Services
from .session import JARS, SharedCatalog
from .tables import SHAPES, Shape, set_property
from .test_commits import undo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_defaults_of_every_type_are_those_of_java(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = catalog.full_name("db.t")
    spark.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    for number in range(3):
        spark.sql(f"INSERT INTO {table} VALUES ({number})")
    evolved(
        catalog,
        (None, "boolean", "boolean", True),
        (None, "int", "int", -(2**31)),
        (None, "long", "long", 2**53 + 1),
        (None, "float", "float", 0.1),
        (None, "double", "double", -1e-300),
        (None, "date", "date", "1582-10-04"),
        (None, "time", "time", "23:59:59.999999"),
        (None, "at", "timestamp", "0001-01-01T00:00:00.000001"),
        (None, "there", "timestamptz", "2026-01-02T03:04:05.000006+02:00"),
        (None, "string", "string", "é\U0001f600'\\"),
        (None, "uuid", "uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        (None, "fixed", "fixed[3]", bytearray(b"\0\xfe\xff")),
        (None, "binary", "binary", bytearray(b"\0\xfe\xff\x01")),
        (None, "decimal", "decimal(38,3)", "-12345678901234567890123456789012345.678"),
    )
    before = read_by_java(load_java_table(spark, catalog.name, "db.t"))
    assert len(before) == 3

    services.finish(services.begin(table, OptimizingType.FULL))

    assert read_by_java(load_java_table(spark, catalog.name, "db.t")) == before


MINOR, MAJOR, FULL = OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_the_lineage_of_many_copied_rows_is_read(services: Services, vectorized: str) -> None:
    spark, rows = services.catalog.spark, 50_000
    table = services.catalog.full_name("db.many")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT) USING iceberg"
        f" TBLPROPERTIES ('format-version' = '3', 'read.parquet.vectorization.enabled' = '{vectorized}')"
    )
    copied = []
    for first in (0, rows, 2 * rows):
        spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ nullif(id, -1) FROM range({first}, {first + rows})")
        if first:
            receipt = services.finish(services.begin(table, MINOR))
            copied.append({one.name: one.value for one in receipt.more}["files_copied"])
    assert copied == [0, 1]  # the output of the first stores the lineage
    told = spark.sql(
        f"SELECT count(*), count_if(_row_id = if(id < 2 * {rows}, id, id + 2 * {rows})),"  # the first rewrite took ids
        f" count_if(_last_updated_sequence_number = if(id < 2 * {rows}, 1 + id DIV {rows}, 4)) FROM {table}"
    ).collect()
    assert [tuple(row) for row in told] == [(3 * rows,) * 3]
    between = spark.sql(f"SELECT id FROM {table} WHERE _row_id BETWEEN {rows - 2} AND {rows + 1} ORDER BY id").collect()
    assert [row[0] for row in between] == [rows - 2, rows - 1, rows, rows + 1]


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

    def source() -> ManifestSource:
        return ManifestSource(loaded(table), read_manifest, [table.location()])

    done = rewrite_manifests.stage(source(), source, None, {})
    committing.send(table.catalog, loaded(table), done.commit.payload)
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


ROWS, PARTS, ROUNDS = 400, 4, 2


VERSIONS = ("1.10.1", "1.12.0")
#: Shapes of tables, and what is done to them one after the other.
DONE = {"three-kinds": (MINOR, FULL), "with-some-ids": (FULL,)}


@pytest.fixture(scope="module")
def others() -> Iterator[dict[str, Any]]:
    """Gateways to a JVM of each version."""
    jars = {version: next((JARS / "other-versions").glob(f"*-{version}.jar"), None) for version in VERSIONS}
    if missing := [version for version, jar in jars.items() if jar is None]:
        reason = f"no library of Iceberg {', '.join(missing)} in build/jars/other-versions: run make test"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with ExitStack() as stack:
        yield {version: stack.enter_context(java_with(jar)) for version, jar in jars.items() if jar is not None}


@pytest.mark.parametrize("shape", [one for one in SHAPES if one.name in DONE], ids=lambda shape: shape.name)
def test_other_versions_read_what_a_conversion_and_a_rewrite_leave(
    services: Services, others: dict[str, Any], shape: Shape
) -> None:
    catalog, table = services.catalog, services.catalog.full_name("db.t")
    shape.make(catalog, table)
    set_property(catalog, table, "self-optimizing.fragment-ratio", "1000000000")  # so that minor converts
    before = read_by_java(load_java_table(catalog.spark, catalog.name, "db.t"))
    for kind in DONE[shape.name]:
        receipt = services.finish(services.begin(table, kind))
        assert (receipt.data_files_after > 0, receipt.delete_files_after > 0) == (kind is FULL, kind is MINOR)
        location = catalog.load("db.t").metadata_location
        for version, gateway in others.items():
            assert version in gateway.jvm.org.apache.iceberg.IcebergBuild.fullVersion()
            assert read_by_java(at_metadata(gateway, location)) == before, version
