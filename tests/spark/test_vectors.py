"""Deletion vectors: those of Java are ours byte for byte, and Java reads and goes on with those that we write."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amoro_core.files.deletes.vectors import packed, positions_in
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.model.files import TableScan
from amoro_core.model.paths import normalise
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.tables import OptimizingType, parse_table
from tests.tiers import seeds

from .java import java_upsert
from .matching import assert_deletes_match_as_in_java
from .optimizing import Services, snapshots
from .session import SharedCatalog
from .tables import create, insert, spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINOR, FULL = OptimizingType.MINOR, OptimizingType.FULL
SETS = 8
#: Spark has a writer for each partition open.
SETS_OF_A_TABLE = 50
ONE_DELETE_FILE = ", 'write.delete.granularity' = 'partition'"
MODES = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge"))


def scan_of(catalog: SharedCatalog, table: str) -> TableScan:
    config = CatalogConfig(catalog.name, tuple(catalog.properties.items()))
    found = IcebergFormat().load(config, parse_table(table)).scan()
    assert found is not None
    return found


def segments(catalog: SharedCatalog, name: str, starts: range, version: int, more: str = "") -> str:
    """A table of one partition whose files of `starts.step` rows are segments, so that minor converts."""
    table = catalog.full_name(f"db.{name}")
    create(catalog, table, version, more=f", 'self-optimizing.fragment-ratio' = '1000000000'{more}")
    for first in starts:
        insert(catalog, table, first, starts.step, part="'a'")
    return table


def random_set(chance: random.Random, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Positions of up to that many rows: single ones, a share, runs, almost all, at the edges of containers."""
    pick = np.random.default_rng(chance.getrandbits(32))
    match chance.randrange(6):
        case 0:
            found = pick.integers(0, rows, chance.randint(1, 20))
        case 1:
            found = np.flatnonzero(pick.random(rows) < chance.choice([0.001, 0.05, 0.5, 0.95]))
        case 2:
            starts = pick.integers(0, rows, chance.randint(1, 8))
            found = np.concatenate([np.arange(at, min(rows, at + chance.choice([2, 300, 70_000]))) for at in starts])
        case 3:
            found = np.arange(rows - 1)
        case 4:
            found = np.array([at for at in (0, 65_535, 65_536, 131_071, 131_072, rows - 1) if at < rows])
        case _:
            found = np.arange(0, rows, chance.choice([2, 3, 16]))
    return np.unique(found) if len(found) else np.array([0])


def test_vectors_of_java_are_ours_byte_for_byte(catalog: SharedCatalog, tmp_path: Path) -> None:
    (seed,) = seeds(1, 1)
    compare_vectors(catalog, tmp_path, random.Random(seed), SETS, "sets")


def compare_vectors(catalog: SharedCatalog, tmp_path: Path, chance: random.Random, count: int, name: str) -> None:
    """Let Spark delete random sets of positions from so many files, and compare its vectors with ours."""
    spark, table = catalog.spark, catalog.full_name(f"db.{name}")
    spark.sql(
        f"CREATE TABLE {table} (place INT, pos INT) USING iceberg PARTITIONED BY (place)"
        f" TBLPROPERTIES ('format-version' = '3', {MODES}, 'write.distribution-mode' = 'none')"
    )
    sizes = [chance.choice([5, 100, 1000, 66_000]) for _ in range(count)]
    frame = spark.createDataFrame(list(enumerate(sizes)), "place INT, rows INT")
    frame.repartition(4, "place").createOrReplaceTempView("sizes")
    # One file for each place, its rows in their order.
    spark.sql(f"INSERT INTO {table} SELECT place, explode(sequence(0, rows - 1)) FROM sizes")
    sets = [random_set(chance, rows) for rows in sizes]
    places = np.repeat(np.arange(count, dtype=np.int32), [len(found) for found in sets])
    gone = pa.table({"place": places, "pos": np.concatenate(sets).astype(np.int32)})
    pq.write_table(gone, tmp_path / f"{name}.parquet")
    spark.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView("gone")
    spark.sql(f"MERGE INTO {table} t USING gone g ON t.place = g.place AND t.pos = g.pos WHEN MATCHED THEN DELETE")

    scan = scan_of(catalog, table)
    for file in scan.files:
        (place,) = (int.from_bytes(value or b"", "little") for value in file.data.partition)
        (vector,) = file.deletes
        assert file.data.record_count == sizes[place]
        start = vector.identity.offset
        blob = Path(normalise(vector.path)).read_bytes()[start : start + vector.identity.size]
        positions = positions_in(blob, vector.record_count, file.data.record_count, vector.path)
        assert positions == PositionSet.of(sets[place])
        assert packed(PositionSet.of(sets[place])) == blob
    assert len(scan.files) == count
    live = sum(sizes) - sum(map(len, sets))
    assert spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0] == live
    assert len({delete.path for file in scan.files for delete in file.deletes}) < count


def vectors_by_file(scan: TableScan) -> dict[str, list[int]]:
    """For each data file the counts of its vectors; no position delete file applies to any."""
    deletes = {file.data.path: [one for one in file.deletes if not one.equality_ids] for file in scan.files}
    assert all(one.is_vector for some in deletes.values() for one in some)
    return {path: [one.record_count for one in some] for path, some in deletes.items()}


def spark_and_java_agree(services: Services, table: str, rows: object) -> None:
    assert spark_rows(services.catalog.spark, table) == rows
    assert_deletes_match_as_in_java(services.catalog, table)


def totals_of(spark: SparkSession, table: str) -> tuple[int, int]:
    """Deletes of the head as the metadata table counts them: entries, and positions in them."""
    found = spark.sql(f"SELECT count(*), coalesce(sum(record_count), 0) FROM {table}.delete_files").collect()[0]
    return found[0], found[1]


def test_all_deletes_of_an_upgraded_table_become_vectors_that_spark_reads_and_replaces(services: Services) -> None:
    catalog, spark = services.catalog, services.catalog.spark
    table = segments(catalog, "upgraded", range(0, 120, 20), 2, ONE_DELETE_FILE)
    spark.sql(f"DELETE FROM {table} WHERE id IN (3, 4, 25, 47)")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')")
    spark.sql(f"DELETE FROM {table} WHERE id IN (5, 61, 62)")  # the first file's vector takes the older positions along
    java_upsert(spark, catalog.name, "db.upgraded", ["id"], [{"id": 81, "part": "a"}, {"id": 6, "part": "a"}], [])
    rows = spark_rows(spark, table)
    assert len(rows) == 120 - 9
    spark_and_java_agree(services, table, rows)

    receipt = services.finish(services.begin(table, MINOR))
    spark_and_java_agree(services, table, rows)
    found = vectors_by_file(scan_of(catalog, table))
    assert sorted(counts_of(found.values())) == [1, 1, 1, 2, 4]
    assert scan_of(catalog, table).dangling == ()
    assert services.has_nothing_to_do(table, MINOR)
    made = snapshots(spark, table)[-1].summary
    assert totals_of(spark, table) == (5, 9)
    assert (made["total-delete-files"], made["total-position-deletes"], made["added-dvs"]) == ("5", "9", "5")
    assert (receipt.data_files_before, receipt.delete_files_after) == (0, 5)

    spark.sql(f"DELETE FROM {table} WHERE id IN (7, 26, 101)")  # Spark replaces two of our vectors
    spark.sql(f"UPDATE {table} SET value = 'later' WHERE id = 60")
    again = spark_rows(spark, table)
    assert set(rows) - set(again) == {row for row in rows if row[0] in (7, 26, 60, 101)}
    spark_and_java_agree(services, table, again)
    services.finish(services.begin(table, FULL))
    spark_and_java_agree(services, table, again)
    assert totals_of(spark, table) == (0, 0)


def counts_of(found: Iterable[list[int]]) -> list[int]:
    return [count for some in found for count in some]


@pytest.mark.parametrize("kind", [MINOR, FULL])
def test_rows_that_spark_deletes_while_files_are_rewritten_or_converted_stay_deleted(
    services: Services, kind: OptimizingType
) -> None:
    catalog, spark = services.catalog, services.catalog.spark
    table = segments(catalog, "beside", range(0, 80, 20), 3)
    spark.sql(f"DELETE FROM {table} WHERE id IN (3, 25)")
    java_upsert(spark, catalog.name, "db.beside", ["id"], [{"id": 41, "part": "a"}, {"id": 6, "part": "a"}], [])
    process_id = services.begin(table, kind)
    spark.sql(f"DELETE FROM {table} WHERE id IN (7, 26, 61)")
    spark.sql(f"UPDATE {table} SET value = 'later' WHERE id = 8")
    rows = spark_rows(spark, table)
    services.finish(process_id)
    spark_and_java_agree(services, table, rows)
    found = scan_of(catalog, table)
    assert all(len([one for one in file.deletes if one.is_vector]) <= 1 for file in found.files)
    spark.sql(f"DELETE FROM {table} WHERE id IN (9, 27, 62)")
    rows = spark_rows(spark, table)
    services.finish(services.begin(table, FULL))
    spark_and_java_agree(services, table, rows)


@pytest.fixture
def shared_delete(services: Services) -> str:
    """A table of format 3 with one position delete file that names the first and the last of five files."""
    table = segments(services.catalog, "marks", range(0, 100, 20), 2, ONE_DELETE_FILE)
    services.catalog.spark.sql(f"DELETE FROM {table} WHERE id IN (3, 83)")
    for key, value in (("format-version", "3"), ("self-optimizing.max-file-count", "2")):
        services.catalog.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{key}' = '{value}')")
    return table


def test_java_reads_vectors_without_positions(services: Services, shared_delete: str) -> None:
    """One file at a time is converted: those without a deleted row get an empty vector while the old file stays."""
    spark, empty = services.catalog.spark, 0
    rows = spark_rows(spark, shared_delete)
    for _ in range(8):
        table_id = services.world.table(shared_delete).table_id
        process_id = services.world.planning.begin(table_id, trigger="request", requested=MINOR).process_id
        if process_id is None:
            break
        services.world.run_all(process_id)
        services.finish(process_id)
        spark_and_java_agree(services, shared_delete, rows)
        scan = scan_of(services.catalog, shared_delete)
        empty += [one.record_count for file in scan.files for one in file.deletes if one.is_vector].count(0)
    assert empty > 0
    scan = scan_of(services.catalog, shared_delete)
    assert sorted(counts_of(vectors_by_file(scan).values())) == [1, 1]
    assert totals_of(spark, shared_delete) == (2, 2)
