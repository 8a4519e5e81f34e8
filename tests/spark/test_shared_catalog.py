"""One SQLite file serves Java's JdbcCatalog in Spark and pyiceberg's SqlCatalog, and both read what either wrote."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from .catalogs import SharedCatalog
from .java import java_upsert
from .tables import (
    DATA,
    EQUALITY_DELETES,
    MERGE_ON_READ,
    POSITION_DELETES,
    arrow_rows,
    file_counts,
    make_equality_table,
    make_mixed_table,
    spark_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_people(spark: SparkSession, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ({MERGE_ON_READ})")
    spark.sql(
        f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'Ada'), (2, 'Bo'), (3, 'Cy'), (4, NULL)"
    )


def test_rows_appended_by_either_side_are_read_by_the_other(spark: SparkSession, catalog: SharedCatalog) -> None:
    table = catalog.full_name("db.people")
    make_people(spark, table)
    assert arrow_rows(catalog.load("db.people").scan().to_arrow()) == Counter(
        [(1, "Ada"), (2, "Bo"), (3, "Cy"), (4, None)]
    )

    catalog.load("db.people").append(pa.table({"id": [5, 5], "name": ["Di", "Di"]}))
    assert spark_rows(spark, table) == Counter({(1, "Ada"): 1, (2, "Bo"): 1, (3, "Cy"): 1, (4, None): 1, (5, "Di"): 2})

    spark.sql(f"INSERT INTO {table} VALUES (6, 'Ed')")
    both = arrow_rows(catalog.load("db.people").scan().to_arrow())
    assert both == spark_rows(spark, table)
    assert both.total() == 7


def test_a_table_created_by_pyiceberg_is_listed_and_written_by_spark(
    spark: SparkSession, catalog: SharedCatalog
) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
    catalog.pyiceberg.create_table("db.made", schema)
    listed = spark.sql(f"SHOW TABLES IN {catalog.name}.db").collect()
    assert [row.tableName for row in listed] == ["made"]

    spark.sql(f"INSERT INTO {catalog.full_name('db.made')} VALUES (1, 'Ada')")
    assert arrow_rows(catalog.load("db.made").scan().to_arrow()) == Counter([(1, "Ada")])


def test_a_further_process_opens_the_catalog_by_its_properties(spark: SparkSession, catalog: SharedCatalog) -> None:
    make_people(spark, catalog.full_name("db.people"))
    other = SqlCatalog(catalog.name, **catalog.properties)
    try:
        assert other.load_table("db.people").scan().to_arrow().num_rows == 4
    finally:
        other.close()


def test_delete_and_merge_in_merge_on_read_leave_position_deletes(spark: SparkSession, catalog: SharedCatalog) -> None:
    table = catalog.full_name("db.people")
    make_people(spark, table)
    spark.sql(f"DELETE FROM {table} WHERE id = 2")
    assert file_counts(spark, table) == {(DATA, 0): 1, (POSITION_DELETES, 0): 1}

    spark.sql(
        f"""MERGE INTO {table} AS target
        USING (SELECT * FROM VALUES (3, 'Cyd'), (4, 'gone'), (7, 'Flo') AS s(id, name)) AS source
        ON target.id = source.id
        WHEN MATCHED AND source.name = 'gone' THEN DELETE
        WHEN MATCHED THEN UPDATE SET name = source.name
        WHEN NOT MATCHED THEN INSERT *"""
    )
    deletes = spark.sql(f"SELECT content, record_count FROM {table}.delete_files").collect()
    assert {row.content for row in deletes} == {POSITION_DELETES}
    assert spark_rows(spark, table) == Counter([(1, "Ada"), (3, "Cyd"), (7, "Flo")])
    assert arrow_rows(catalog.load("db.people").scan().to_arrow()) == spark_rows(spark, table)


def test_an_upsert_by_java_commits_rows_and_equality_deletes_in_one_snapshot(
    spark: SparkSession, catalog: SharedCatalog
) -> None:
    table = catalog.full_name("db.people")
    make_people(spark, table)
    before = spark_rows(spark, table)
    first = catalog.load("db.people").current_snapshot()
    snapshot_id = java_upsert(
        spark,
        catalog.name,
        "db.people",
        ["id"],
        rows_to_delete=[{"id": 1}, {"id": 3}, {"id": 99}],
        rows_to_append=[{"id": 1, "name": "Ada Lovelace"}, {"id": 8}],
    )

    head = catalog.load("db.people").current_snapshot()
    assert first is not None
    assert head is not None
    assert (head.snapshot_id, head.parent_snapshot_id) == (snapshot_id, first.snapshot_id)
    assert file_counts(spark, table) == {(DATA, 0): 2, (EQUALITY_DELETES, 0): 1}
    assert spark_rows(spark, table) == Counter([(1, "Ada Lovelace"), (2, "Bo"), (4, None), (8, None)])
    assert spark_rows(spark, table, first.snapshot_id) == before


def test_an_upsert_by_java_writes_every_simple_type(spark: SparkSession, catalog: SharedCatalog) -> None:
    table = catalog.full_name("db.typed")
    spark.sql(
        f"""CREATE TABLE {table} (i INT, l BIGINT, f FLOAT, d DOUBLE, b BOOLEAN, p DECIMAL(20, 3), s STRING, x BINARY,
        day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, items ARRAY<INT>, place STRUCT<x: BIGINT>,
        marks MAP<STRING, BIGINT>)
        USING iceberg PARTITIONED BY (days(at), day)"""
    )
    row = {
        "i": -1,
        "l": 1,
        "f": 1.5,
        "d": float("nan"),
        "b": False,
        "p": Decimal("1.5"),
        "s": "ü",
        "x": b"\x00\xff",
        "day": date(1969, 12, 31),
        "at": datetime(2024, 2, 29, 23, 59, 59, 123456, UTC),
        "local": datetime(2024, 2, 29, 23, 59, 59, 123456),
        "items": [1, None],
        "place": {"x": 1},
        "marks": {"k": 2},
    }
    java_upsert(spark, catalog.name, "db.typed", ["l"], rows_to_delete=[], rows_to_append=[row])
    written = spark_rows(spark, table)
    spark.sql(f"DELETE FROM {table}")
    spark.sql(
        f"""INSERT INTO {table} VALUES (-1, 1, 1.5, double('NaN'), false, 1.5, 'ü', X'00FF', DATE'1969-12-31',
        TIMESTAMP'2024-02-29 23:59:59.123456', TIMESTAMP_NTZ'2024-02-29 23:59:59.123456', array(1, NULL),
        named_struct('x', 1), map('k', 2))"""
    )
    assert written == spark_rows(spark, table)

    # No key of the type float: NaN as a key is the double.s part.
    keys = ["i", "l", "d", "b", "p", "s", "x", "day", "at", "local"]
    java_upsert(spark, catalog.name, "db.typed", keys, rows_to_delete=[row], rows_to_append=[])
    assert spark_rows(spark, table) == Counter()


def test_an_upsert_by_java_deletes_in_the_partition_that_is_named(spark: SparkSession, catalog: SharedCatalog) -> None:
    table = catalog.full_name("db.regions")
    spark.sql(f"CREATE TABLE {table} (id BIGINT, region STRING) USING iceberg PARTITIONED BY (region)")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'north'), (1, 'south'), (2, 'south'), (1, NULL)")

    def delete(partition: dict[str, str | None] | None) -> None:
        java_upsert(spark, catalog.name, "db.regions", ["id"], [{"id": 1}], [], partition=partition)

    with pytest.raises(ValueError, match="does not say its partition"):
        delete(None)
    with pytest.raises(ValueError, match="the table has no columns \\['size'\\]"):
        java_upsert(spark, catalog.name, "db.regions", ["id"], [], [{"id": 1, "size": 2}])
    delete({"region": "south"})
    assert spark_rows(spark, table) == Counter([(1, "north"), (2, "south"), (1, None)])
    delete({"region": None})
    assert spark_rows(spark, table) == Counter([(1, "north"), (2, "south")])


def test_the_mixed_table_has_position_deletes_under_both_specs_and_rows_of_both_schemas(
    spark: SparkSession, catalog: SharedCatalog
) -> None:
    table = make_mixed_table(catalog)
    counts = file_counts(spark, table)
    assert set(counts) == {(DATA, 0), (DATA, 1), (POSITION_DELETES, 0), (POSITION_DELETES, 1)}
    assert counts[DATA, 0] == 6
    assert catalog.load(table).schema().column_names[:5] == ["note", "id", "category", "amount", "units"]
    ids = [row.id for row in spark.sql(f"SELECT id FROM {table} ORDER BY id").collect()]
    assert ids == [number for number in range(130) if survives_mixed_history(number)]
    # A column added later is null in old files, a promoted one holds what an int could not.
    changed = spark.sql(f"SELECT id, note, units FROM {table} WHERE id IN (1, 8, 33, 73) ORDER BY id").collect()
    assert [tuple(row) for row in changed] == [
        (1, None, 3),
        (8, None, 3_000_000_000),
        (33, "merged", 99),
        (73, "note 73", 219),
    ]


def survives_mixed_history(number: int) -> bool:
    deleted_early = number < 70 and number % 7 == 3
    merged_away = 30 <= number < 120 and number % 6 == 0
    return not (deleted_early or merged_away or number % 11 == 5)


def test_the_equality_table_has_three_key_sets_and_global_deletes(spark: SparkSession, catalog: SharedCatalog) -> None:
    table = make_equality_table(catalog)
    keys = spark.sql(f"SELECT DISTINCT spec_id, equality_ids FROM {table}.delete_files WHERE content = 2").collect()
    assert {(row.spec_id, tuple(row.equality_ids)) for row in keys} == {
        (0, (1,)),
        (0, (4, 5)),
        (1, (1,)),
        (1, (2, 3)),
    }
    counts = file_counts(spark, table)
    assert counts[POSITION_DELETES, 0] > 0
    assert counts[POSITION_DELETES, 1] > 0
    ids = [row.id for row in spark.sql(f"SELECT id FROM {table} ORDER BY id").collect()]
    # By (day, price) in the unpartitioned spec 10 of an old and 41 of a new file; by (region, code) 40, 49 and 58, the
    # rows of south with a null code in a new file but for 31, which had been upserted; by Spark's DELETE the others.
    gone = {10, 41, 40, 49, 58} | {number for number in range(60) if number % 8 == 7}
    assert ids == [number for number in range(60) if number not in gone]
    versions = spark.sql(f"SELECT id, note FROM {table} WHERE note NOT LIKE 'version 1%' ORDER BY id").collect()
    assert [(row.id, row.note) for row in versions] == [
        (1, "version 2 of 1"),
        (2, "version 2 of 2"),
        (3, "version 2 of 3"),
        (30, "version 3 of 30"),
        (32, "version 2 of 32"),
        (33, "version 3 of 33"),
        (36, "version 2 of 36"),
        (57, "version 3 of 57"),
    ]
