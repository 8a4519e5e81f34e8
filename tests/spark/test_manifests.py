"""Manifests that our commits write, carry over and merge, as Iceberg's Java runtime reads, filters and merges them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amoro_core.model.tables import OptimizingType

from .catalogs import SharedCatalog
from .java_writer import java_upsert
from .matching import assert_deletes_match_as_in_java
from .notes import delete_notes, make_notes, notes, notes_without, upsert_notes
from .optimizing import Services
from .rows import Rows, spark_rows
from .tables import DATA, EQUALITY_DELETES, MERGE_ON_READ, POSITION_DELETES, file_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINOR, FULL = OptimizingType.MINOR, OptimizingType.FULL
MERGING = "'commit.manifest.min-count-to-merge' = '2'"


def data_manifests(spark: SparkSession, table: str) -> list[int]:
    """How many live files each manifest of data files has, in order."""
    listed = spark.sql(f"SELECT * FROM {table}.manifests WHERE content = 0").collect()
    return sorted(one.added_data_files_count + one.existing_data_files_count for one in listed)


def test_upsert_beside_our_rewrite_outlives_the_commits_of_spark_that_drop_old_deletes(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    """A commit of Java drops deletes below the least sequence number that the manifests of data files state.

    Once the upsert's own rows are gone, that is the number of our outputs, not that of our commit.
    """
    table = make_notes(catalog, properties=f"{MERGE_ON_READ}, {MERGING}")
    process_id = services.begin(table, FULL)
    upsert_notes(catalog, table, [5, 15], "second")
    services.finish(process_id)
    rows = notes_without(30, 5, 15)
    assert spark_rows(spark, table) == rows + notes([5, 15], "second")
    assert_deletes_match_as_in_java(catalog, table)

    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    spark.sql(f"DELETE FROM {table} WHERE note LIKE 'second%'")
    assert spark_rows(spark, table) == rows
    for number in (100, 5):
        spark.sql(f"INSERT INTO {table} VALUES ({number}, 'note {number}')")
    assert data_manifests(spark, table) == [3]  # merged by Spark
    assert file_counts(spark, table) == {(DATA, 0): 3, (EQUALITY_DELETES, 0): 1}
    assert spark_rows(spark, table) == rows + notes([100, 5])
    assert_deletes_match_as_in_java(catalog, table)

    services.optimize(table, FULL)
    assert file_counts(spark, table) == {(DATA, 0): 1}
    assert spark_rows(spark, table) == rows + notes([100, 5])


def test_a_delete_committed_beside_our_rewrite_outlives_a_commit_of_spark_that_opens_its_manifest(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    """All data that is left has come by our commit, after the delete, with the number from before it.

    Spark's removal of partition c opens the manifest of the deletes, which covers a to c, and leaves out what is older
    than the least number of all data manifests: ours must state the number of its entries, not that of its commit.
    """
    table = catalog.full_name("db.parts")
    spark.sql(f"CREATE TABLE {table} (part STRING, id BIGINT) PARTITIONED BY (part) TBLPROPERTIES ({MERGE_ON_READ})")
    for first in (0, 10, 20):
        spark.sql(f"INSERT INTO {table} SELECT 'a', id FROM range({first}, {first + 10})")
    process_id = services.begin(table, FULL)
    deletes = [{"part": "a", "id": 5}, {"part": "c", "id": 1}]
    java_upsert(spark, catalog.name, table.removeprefix(f"{catalog.name}."), ["id"], deletes, [])
    services.finish(process_id)
    spark.sql(f"INSERT INTO {table} VALUES ('c', 100)")
    spark.sql(f"DELETE FROM {table} WHERE part = 'c'")
    assert spark_rows(spark, table) == Rows(("a", number) for number in range(30) if number != 5)
    assert file_counts(spark, table) == {(DATA, 0): 1, (EQUALITY_DELETES, 0): 1}
    assert_deletes_match_as_in_java(catalog, table)


def test_manifests_that_our_commit_merged_are_read_and_written_by_spark(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    """A conversion carries over all data files, with sequence numbers that decide what the deletes apply to."""
    segments = "'self-optimizing.target-size' = '1048576', 'self-optimizing.fragment-ratio' = '1048576'"
    table = make_notes(catalog, files=6, properties=f"{MERGE_ON_READ}, {segments}")
    delete_notes(catalog, table, 5, 15, 25)
    spark.sql(f"INSERT INTO {table} VALUES (5, 'again')")
    spark.sql(f"DELETE FROM {table} WHERE id = 5 AND note = 'again'")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({MERGING})")
    services.optimize(table, MINOR)
    rows = notes_without(60, 5, 15, 25)
    assert data_manifests(spark, table) == [6]
    assert file_counts(spark, table) == {(DATA, 0): 6, (POSITION_DELETES, 0): 3}

    spark.sql(f"DELETE FROM {table} WHERE id IN (6, 16, 59)")
    delete_notes(catalog, table, 7)
    rows = rows - notes([6, 16, 59, 7])
    assert spark_rows(spark, table) == rows
    assert_deletes_match_as_in_java(catalog, table)
    spark.sql(f"CALL {catalog.name}.system.rewrite_manifests('{table.split('.', 1)[1]}')").collect()
    assert spark_rows(spark, table) == rows
    services.optimize(table, FULL)
    assert file_counts(spark, table) == {(DATA, 0): 1}
    assert spark_rows(spark, table) == rows
