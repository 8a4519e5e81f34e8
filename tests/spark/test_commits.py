"""Other writers between our plan and our commit, and after it: every row as Spark reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.writer import EqualityDelete

from .catalogs import SharedCatalog
from .matching import assert_deletes_match_as_in_java, java_deletes
from .notes import delete_notes, make_notes, notes, notes_without
from .optimizing import Services, rewrite_all, snapshots
from .rows import Rows, spark_rows
from .tables import DATA, EQUALITY_DELETES, POSITION_DELETES, file_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINOR, FULL = OptimizingType.MINOR, OptimizingType.FULL


def test_equality_deletes_committed_after_the_plan_go_on_covering_our_outputs(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog)
    delete_notes(catalog, table, 4)
    process_id = services.begin(table, MINOR)
    delete_notes(catalog, table, 5, 15, 99)
    services.finish(process_id)
    assert spark_rows(spark, table) == notes_without(30, 4, 5, 15)
    assert file_counts(spark, table) == {(DATA, 0): 1, (EQUALITY_DELETES, 0): 1}
    assert_deletes_match_as_in_java(catalog, table)

    delete_in_one_manifest(spark, table, 20, 21)
    assert spark_rows(spark, table) == notes_without(30, 4, 5, 15, 20, 21)
    spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (100, 'note 100'), (5, 'note 5')")
    expected = notes_without(30, 4, 5, 15, 20, 21) + notes([100, 5])
    assert spark_rows(spark, table) == expected
    assert file_counts(spark, table) == {(DATA, 0): 2, (EQUALITY_DELETES, 0): 1, (POSITION_DELETES, 0): 1}

    services.optimize(table, MINOR)
    assert file_counts(spark, table) == {(DATA, 0): 1}
    assert spark_rows(spark, table) == expected


def test_java_drops_deletes_that_are_older_than_all_data_with_those_that_it_replaces(
    spark: SparkSession, catalog: SharedCatalog
) -> None:
    """What the test before relies on: with too high a sequence number in our manifests it would bring rows back."""
    table = make_notes(catalog, 1)
    delete_notes(catalog, table, 4)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    spark.sql(f"DELETE FROM {table} WHERE id = 7")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    assert file_counts(spark, table) == {(DATA, 0): 1, (EQUALITY_DELETES, 0): 1}
    delete_in_one_manifest(spark, table, 8, 9)
    assert file_counts(spark, table) == {(DATA, 0): 1, (POSITION_DELETES, 0): 1}


def delete_in_one_manifest(spark: SparkSession, table: str, *ids: int) -> None:
    """Delete one after the other by position; each commit merges the manifests of deletes and replaces the last one.

    A commit of Java that opens a manifest of deletes drops from it what is older than the least sequence number that
    the manifests of data give.
    """
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '1')")
    for number in ids:
        spark.sql(f"DELETE FROM {table} WHERE id = {number}")


def test_deletes_that_java_left_without_a_file_go_with_our_next_commit(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    made = writer.make_table(
        catalog.pyiceberg, "db.parts", SCHEMA, BY_PART, properties={"write.delete.mode": "copy-on-write"}
    )
    writer.append(made, [row(number, part) for part in ("a", "b") for number in range(3)])
    writer.row_delta(made, equality_deletes=[EqualityDelete(["id"], [row(1, "b")])])
    table = catalog.full_name("db.parts")
    spark.sql(f"DELETE FROM {table} WHERE part = 'b' AND id = 2")
    assert file_counts(spark, table) == {(DATA, 0): 2, (EQUALITY_DELETES, 0): 1}
    assert set(java_deletes(catalog, table).values()) == {frozenset()}

    services.optimize(table, FULL)
    assert file_counts(spark, table) == {(DATA, 0): 2}
    assert spark_rows(spark, table) == Rows([(0, "a", "v"), (1, "a", "v"), (2, "a", "v"), (0, "b", "v")])
    assert services.has_nothing_to_do(table, FULL)


def test_appends_of_spark_between_plan_and_commit_are_kept(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog)
    process_id = services.begin(table, FULL)
    spark.sql(f"INSERT INTO {table} VALUES (100, 'note 100')")
    services.finish(process_id)
    assert spark_rows(spark, table) == notes_without(30) + notes([100])
    assert [one.operation for one in snapshots(spark, table)] == ["append"] * 4 + ["replace"]


def test_position_deletes_of_spark_between_plan_and_commit_are_carried_over(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog)
    process_id = services.begin(table, FULL)
    spark.sql(f"DELETE FROM {table} WHERE id = 11")
    assert services.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert spark_rows(spark, table) == notes_without(30, 11)

    services.optimize(table, FULL)
    assert file_counts(spark, table) == {(DATA, 0): 1}
    assert spark_rows(spark, table) == notes_without(30, 11)


def test_a_rewrite_by_spark_between_plan_and_commit_wins(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog)
    delete_notes(catalog, table, 4)
    process_id = services.begin(table, FULL)
    rewrite_all(spark, table)
    theirs = snapshots(spark, table)
    assert services.world.committing.commit(process_id) is ProcessStatus.FAILED
    assert snapshots(spark, table) == theirs
    assert spark_rows(spark, table) == notes_without(30, 4)
