"""Other writers between our plan and our commit, after it and after an undo: every row as Spark reads it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import writer
from tests.engine.aging import aged
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.writer import EqualityDelete

from .java import java_upsert
from .matching import assert_deletes_match_as_in_java, java_deletes
from .optimizing import Services, rewrite_all, snapshots
from .session import SharedCatalog
from .tables import (
    DATA,
    EQUALITY_DELETES,
    MERGE_ON_READ,
    POSITION_DELETES,
    Rows,
    delete_notes,
    file_counts,
    make_mixed_table,
    make_notes,
    notes,
    notes_without,
    spark_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MINOR, FULL = OptimizingType.MINOR, OptimizingType.FULL


def test_tasks_of_which_spark_s_copy_on_write_replaced_the_inputs_are_cancelled(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table, world = catalog.full_name("db.halves"), services.world
    spark.sql(f"CREATE TABLE {table} (id BIGINT, part BIGINT) USING iceberg PARTITIONED BY (part)")
    for start in range(0, 120, 10):
        spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, id % 2 FROM range({start}, {start + 10})")
    process_id = world.begin(MINOR, table)
    spark.sql(f"UPDATE {table} SET id = id + 1000 WHERE part = 0")
    expected = spark_rows(spark, table)
    world.refresh(table)
    world.starting.check_files(world.table(table).table_id)
    (given_up,) = (task for task in world.tasks(process_id) if task.status is TaskStatus.CANCELED)
    removing = snapshots(spark, table)[-1]
    assert given_up.partition == "part=0"
    assert f"snapshot {removing.snapshot_id} (overwrite) of spark" in given_up.failure
    world.run_all(process_id)
    assert world.committing.commit(process_id) is ProcessStatus.PARTIAL
    assert spark_rows(spark, table) == expected


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


MERGING = "'commit.manifest.min-count-to-merge' = '2'"


def data_manifests(spark: SparkSession, table: str) -> list[int]:
    """How many live files each manifest of data files has, in order."""
    listed = spark.sql(f"SELECT * FROM {table}.manifests WHERE content = 0").collect()
    return sorted(one.added_data_files_count + one.existing_data_files_count for one in listed)


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


def undo(services: Services, process_id: str) -> None:
    begun = services.world.maintaining.undo(process_id)
    status = services.world.committing.commit(begun.process_id)
    assert status is ProcessStatus.SUCCESS, services.world.optimizing.find_process(begun.process_id).process.failure


def test_a_rewrite_that_was_taken_back_beside_commits_of_spark(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_mixed_table(catalog)
    files = file_counts(spark, table)
    process_id = services.begin(table, OptimizingType.FULL)
    services.finish(process_id)
    assert file_counts(spark, table) != files
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id % 10 = 3")
    added = file_counts(spark, table)
    rows = spark_rows(spark, table)
    undo(services, process_id)
    assert spark_rows(spark, table) == rows
    assert all(file_counts(spark, table)[key] >= count for key, count in files.items())
    assert file_counts(spark, table) != added
    assert_deletes_match_as_in_java(catalog, table)
    # Java goes on from there: it deletes rows, by position, in files that came back.
    spark.sql(f"DELETE FROM {table} WHERE id BETWEEN 20 AND 25")
    assert_deletes_match_as_in_java(catalog, table)
    assert spark.sql(f"SELECT count(*) FROM {table} WHERE id BETWEEN 20 AND 25").first() == (0,)


@pytest.mark.parametrize("version", [1, 2])
def test_expired_snapshots_that_came_back_outlive_the_next_expiry_of_spark(
    spark: SparkSession, catalog: SharedCatalog, services: Services, version: int
) -> None:
    table = catalog.full_name("db.t")
    properties = MERGE_ON_READ if version == 2 else "'format-version' = '1'"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ({properties})")
    for number in range(3):
        spark.sql(f"INSERT INTO {table} VALUES ({number}, 'first'), ({number + 10}, 'second')")
    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    loaded = aged(catalog.load(table), 30)
    rows = {
        one.snapshot_id: sorted(spark.sql(f"SELECT * FROM {table} VERSION AS OF {one.snapshot_id}").collect())
        for one in loaded.metadata.snapshots
    }
    services.world.now = datetime.now(UTC) + timedelta(seconds=1)
    table_id = services.world.table(table).table_id
    begun = services.world.maintaining.begin(table_id, "expire-snapshots", trigger="request")
    services.world.committing.commit(begun.process_id)
    left = {one.snapshot_id for one in catalog.load(table).metadata.snapshots}
    gone = rows.keys() - left
    assert len(gone) == 3
    undo(services, begun.process_id)
    spark.sql(
        f"CALL {catalog.name}.system.expire_snapshots(table => 'db.t', older_than => now(), retain_last => 1)"
    ).collect()
    for snapshot_id in gone:
        found = sorted(spark.sql(f"SELECT * FROM {table} VERSION AS OF 'restored-{snapshot_id}'").collect())
        assert found == rows[snapshot_id]
