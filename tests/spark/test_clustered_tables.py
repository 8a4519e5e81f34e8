"""Tables of Spark with deletes of both kinds, clustered by us: Spark reads the same rows, Java plans fewer files."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from amoro_core.model.clustering import ClusterOptions
from tests.model.hidden import require_hidden

from .catalogs import SharedCatalog
from .clustering import cluster_table
from .java_writer import java_upsert, load_java_table
from .matching import assert_deletes_match_as_in_java
from .optimizing import Services
from .rows import Rows, spark_rows
from .tables import MERGE_ON_READ
from .test_vectors import insert, make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, APPENDS = 4000, 8
POINTS = range(50, ROWS, 333)
#: Files of a few KB, so that a few thousand rows make many.
SMALL = "'self-optimizing.target-size' = '16384', 'write.target-file-size-bytes' = '16384'"


def make_scattered_table(catalog: SharedCatalog, strategy: str) -> str:
    """Two regions of eight files each, which have `id` and `code` of the whole range, and deletes of both kinds."""
    identifier = f"db.{strategy}"
    table, sql = catalog.full_name(identifier), catalog.spark.sql
    sql(
        f"CREATE TABLE {table} (id BIGINT, code BIGINT, region STRING, note STRING) USING iceberg "
        f"PARTITIONED BY (region) TBLPROPERTIES ({MERGE_ON_READ}, {SMALL})"
    )
    for turn in range(APPENDS):
        sql(
            f"INSERT INTO {table} SELECT id, (id * 7919) % {ROWS}, IF(id % 3 = 0, 'north', 'south'), "
            "sha2(string(id), 256) "
            f"FROM range(0, {ROWS}, 1, 1) WHERE (id * 31) % {APPENDS * 5} DIV 5 = {turn}"
        )
    sql(f"DELETE FROM {table} WHERE id % 37 = 5")
    for region, first in (("north", 300), ("south", 301)):
        gone = [{"id": first + 3 * number} for number in range(20)]
        back = [{"id": first, "code": 1, "region": region, "note": "newer"}]
        java_upsert(catalog.spark, catalog.name, identifier, ["id"], gone, back, {"region": region})
    return table


def files_by_java(catalog: SharedCatalog, table: str, column: str) -> float:
    """How many data files Java plans to read for a point of the column, on average."""
    java = load_java_table(catalog.spark, catalog.name, table.removeprefix(f"{catalog.name}."))
    lists: Any = java.gateway.jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
    equal = java.iceberg.expressions.Expressions.equal
    counts = []
    for point in POINTS:
        planned = java.table.newScan().filter(equal(column, point)).planFiles()
        counts.append(int(lists.newArrayList(planned).size()))
        planned.close()
    return fmean(counts)


@pytest.mark.parametrize(("strategy", "columns"), [("linear", ("id",)), ("hilbert", ("id", "code"))])
def test_spark_reads_the_same_rows_of_a_clustered_table_and_java_plans_fewer_files(
    spark: SparkSession, catalog: SharedCatalog, services: Services, strategy: str, columns: tuple[str, ...]
) -> None:
    table = make_scattered_table(catalog, strategy)
    rows = spark_rows(spark, table)
    count = spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0]
    assert 3000 < count == rows.total() < ROWS
    contents = {one.content for one in spark.sql(f"SELECT content FROM {table}.files").collect()}
    assert contents == {0, 1, 2}
    before = {column: files_by_java(catalog, table, column) for column in columns}
    cluster_table(services, table, ClusterOptions(columns=columns, strategy=strategy))
    assert spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0] == count
    assert spark_rows(spark, table) == rows
    assert_deletes_match_as_in_java(catalog, table)
    after = {column: files_by_java(catalog, table, column) for column in columns}
    most = 0.25 if strategy == "linear" else 0.5
    assert all(after[column] <= most * before[column] for column in columns), (before, after)
    # Spark writes on, and its own deletes hold for clustered files.
    spark.sql(f"DELETE FROM {table} WHERE id = {POINTS[3]}")
    left = spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0]
    assert left == count - sum(found for row, found in rows.items() if row[0] == POINTS[3])


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_spark_deletes_while_a_table_is_clustered_are_gone_for_spark(
    spark: SparkSession, catalog: SharedCatalog, services: Services, version: int
) -> None:
    table = make(catalog, f"meanwhile_{version}", version, f", {SMALL}")
    for first in range(0, 600, 100):
        insert(catalog, table, first, 100)
    spark.sql(f"DELETE FROM {table} WHERE id % 50 = 7")
    deleted: list[int] = []

    def delete() -> None:
        deleted.append(11 + 100 * len(deleted))
        spark.sql(f"DELETE FROM {table} WHERE id % 200 = {deleted[-1]} OR id = 0")

    process_id = cluster_table(services, table, ClusterOptions(columns=("value",)), delete)
    assert deleted
    assert require_hidden(catalog.load(table), process_id) > 0
    assert_deletes_match_as_in_java(catalog, table)
    # Java goes on with the deletes that were carried over to the outputs.
    spark.sql(f"DELETE FROM {table} WHERE id IN (1, 212)")
    gone = {0, 1, 212} | {id_ for id_ in range(600) if id_ % 50 == 7 or id_ % 200 in deleted}
    assert spark_rows(spark, table) == Rows([(id_, "a", f"v{id_}") for id_ in range(600) if id_ not in gone])
