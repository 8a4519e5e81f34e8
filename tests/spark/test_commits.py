"""Other writers between our plan and our commit, and after it: every row as Spark reads it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import writer
from tests.engine.builders import SCHEMA, SPECS, row
from tests.engine.writer import EqualityDelete

from .catalogs import SharedCatalog
from .java_writer import java_upsert
from .matching import assert_deletes_match_as_in_java, java_deletes
from .optimizing import Services, snapshots
from .rows import Rows, spark_rows
from .tables import DATA, EQUALITY_DELETES, MERGE_ON_READ, POSITION_DELETES, file_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINOR, MAJOR, FULL = OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL


def make_notes(catalog: SharedCatalog, files: int = 3, partitioning: str = "") -> str:
    """A table with ten rows in each of its files: (number, 'note number')."""
    table = catalog.full_name("db.notes")
    catalog.spark.sql(
        f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg {partitioning} TBLPROPERTIES ({MERGE_ON_READ})"
    )
    loaded = catalog.load(table)
    for start in range(0, files * 10, 10):
        ids = range(start, start + 10)
        loaded.append(pa.table({"id": list(ids), "note": [f"note {number}" for number in ids]}))
    return table


def notes(*ids: int) -> Rows:
    return Rows((number, f"note {number}") for number in ids)


def without(count: int, *gone: int) -> Rows:
    return notes(*(number for number in range(count) if number not in gone))


def delete_ids(catalog: SharedCatalog, table: str, *ids: int) -> None:
    """Equality deletes of these ids by Java, without new rows."""
    java_upsert(
        catalog.spark, catalog.name, table.removeprefix(f"{catalog.name}."), ["id"], [{"id": i} for i in ids], []
    )


def test_equality_deletes_committed_after_the_plan_go_on_covering_our_outputs(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog)
    delete_ids(catalog, table, 4)
    process_id = services.begin(table, MINOR)
    delete_ids(catalog, table, 5, 15, 99)
    services.finish(process_id)

    expected = without(30, 4, 5, 15)
    assert spark_rows(spark, table) == expected
    assert file_counts(spark, table) == {(DATA, 0): 1, (EQUALITY_DELETES, 0): 1}
    assert_deletes_match_as_in_java(catalog, table)

    # A merge-append drops delete files below the least sequence number that the manifests of data give.
    spark.sql(f"INSERT INTO {table} VALUES (100, 'note 100'), (5, 'note 5')")
    assert spark_rows(spark, table) == expected + notes(100, 5)
    assert file_counts(spark, table) == {(DATA, 0): 3, (EQUALITY_DELETES, 0): 1}

    services.optimize(table, MINOR)
    assert file_counts(spark, table) == {(DATA, 0): 1}
    assert spark_rows(spark, table) == expected + notes(100, 5)


def test_a_commit_of_java_drops_deletes_that_are_older_than_every_data_file(
    spark: SparkSession, catalog: SharedCatalog
) -> None:
    table = make_notes(catalog, 1)
    delete_ids(catalog, table, 4)
    assert file_counts(spark, table) == {(DATA, 0): 1, (EQUALITY_DELETES, 0): 1}
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    spark.sql(f"DELETE FROM {table} WHERE id = 7")
    assert file_counts(spark, table) == {(DATA, 0): 1}


def test_deletes_that_java_left_without_a_file_go_with_our_next_commit(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog, partitioning="PARTITIONED BY (truncate(10, id))")
    delete_ids(catalog, table, 14)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    spark.sql(f"DELETE FROM {table} WHERE id = 17")
    assert file_counts(spark, table) == {(DATA, 0): 3, (EQUALITY_DELETES, 0): 1}
    assert set(java_deletes(catalog, table).values()) == {frozenset()}

    services.optimize(table, FULL)
    assert file_counts(spark, table) == {(DATA, 0): 3}
    assert spark_rows(spark, table) == without(30, 14, 17)
    assert services.has_nothing_to_do(table, FULL)


def test_appends_of_spark_between_plan_and_commit_are_kept(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog)
    process_id = services.begin(table, FULL)
    spark.sql(f"INSERT INTO {table} VALUES (100, 'note 100')")
    services.finish(process_id)
    assert spark_rows(spark, table) == without(30) + notes(100)
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
    assert spark_rows(spark, table) == without(30, 11)

    services.optimize(table, FULL)
    assert file_counts(spark, table) == {(DATA, 0): 1}
    assert spark_rows(spark, table) == without(30, 11)


def test_a_rewrite_by_spark_between_plan_and_commit_wins(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog)
    delete_ids(catalog, table, 4)
    process_id = services.begin(table, FULL)
    rewrite_all(spark, table)
    theirs = snapshots(spark, table)
    assert services.world.committing.commit(process_id) is ProcessStatus.FAILED
    assert snapshots(spark, table) == theirs
    assert spark_rows(spark, table) == without(30, 4)


def rewrite_all(spark: SparkSession, table: str) -> None:
    catalog, name = table.split(".", 1)
    spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    ).collect()


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
