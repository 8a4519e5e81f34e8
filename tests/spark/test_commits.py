"""Other writers between our plan and our commit, and after it: every row as Spark reads it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, SPECS, row
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


def test_position_deletes_of_spark_between_plan_and_commit_make_the_rewrite_fail(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog)
    process_id = services.begin(table, FULL)
    spark.sql(f"DELETE FROM {table} WHERE id = 11")
    deleted = snapshots(spark, table)
    assert services.world.committing.commit(process_id) is ProcessStatus.FAILED
    assert snapshots(spark, table) == deleted
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


@pytest.mark.timeout(600)
def test_random_tables_have_the_same_deletes_for_each_file_as_in_java(catalog: SharedCatalog) -> None:
    kinds = set()
    for seed in range(20):
        kinds |= make_random_table(catalog, seed)
        assert_deletes_match_as_in_java(catalog, catalog.full_name(f"db.random{seed}"))
    assert kinds == {"append", "upsert", "by-value", "everywhere", "positions", "per-file", "spec"}


def make_random_table(catalog: SharedCatalog, seed: int) -> set[str]:
    """A table of a few commits, all random by the seed; returns which kinds of commits there were."""
    chance = random.Random(seed)
    table = writer.make_table(catalog.pyiceberg, f"db.random{seed}", SCHEMA, chance.choice([*SPECS.values()]))

    def rows() -> list[dict[str, object]]:
        numbers = [chance.choice([None, *range(12)]) for _ in range(chance.randint(1, 4))]
        return [row(one, chance.choice(["a", "b", None]), chance.choice(["v", "w", None])) for one in numbers]

    done = set()
    for _ in range(7):
        kind = chance.choice(["append", "append", "upsert", "by-value", "everywhere", "positions", "per-file", "spec"])
        done.add(kind)
        match kind:
            case "append":
                writer.append(table, rows(), files=chance.randint(1, 2))
            case "upsert":
                writer.upsert(table, rows(), ["id"])
            case "by-value":
                writer.row_delta(table, rows(), [EqualityDelete(["value", "id"], rows())])
            case "everywhere" if 0 in table.specs() and not table.specs()[0].fields:
                writer.row_delta(table, equality_deletes=[EqualityDelete(["id"], rows(), spec_id=0)])
            case "positions" | "per-file":
                odd = chance.randint(0, 1)
                writer.delete_where(table, lambda one: (one["id"] or 0) % 2 == odd, per_file=kind == "per-file")  # noqa: B023
            case "spec" if table.spec().is_unpartitioned():
                with table.update_spec() as update:
                    update.add_identity("part")
    return done
