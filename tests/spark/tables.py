"""Tables as Java leaves them: what our optimizer must read, rewrite and leave with the same rows."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

from .catalogs import SharedCatalog
from .java_writer import java_upsert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2

MERGE_ON_READ = """
    'format-version' = '2',
    'write.delete.mode' = 'merge-on-read',
    'write.update.mode' = 'merge-on-read',
    'write.merge.mode' = 'merge-on-read'
"""

#: Every file of these tests is larger than a fragment and smaller than the target.
SEGMENTS = "'self-optimizing.target-size' = '1048576', 'self-optimizing.fragment-ratio' = '1048576'"

# Each row differs from the next in what is null, empty, negative or not a number.
MIXED_ROWS = """
    SELECT
      id,
      element_at(array('alpha', 'beta/γ x', CAST(NULL AS STRING)), CAST(id % 3 AS INT) + 1) AS category,
      CAST((id - 40) * 1.25 AS DECIMAL({precision}, 2)) AS amount,
      CAST(IF(id % 5 = 0, NULL, id * 3) AS {integer}) AS units,
      CAST(CASE id % 6 WHEN 0 THEN 'NaN' WHEN 1 THEN '-0.0' WHEN 2 THEN '0.0' ELSE id / 8 END AS {real}) AS ratio,
      date_add(DATE'1969-12-25', CAST(id AS INT)) AS day,
      timestamp_micros(id * 3600123456 - 7200000001) AS at,
      CAST(timestamp_micros(id * 86400000007) AS TIMESTAMP_NTZ) AS at_local,
      concat('name ', id, ' ü') AS {label},
      id % 2 = 0 AS flag,
      CAST(concat('bytes', id) AS BINARY) AS payload,
      {gone}
      IF(id % 7 = 0, NULL, named_struct(
        'city', IF(id % 4 = 0, NULL, concat('city ', id)),
        'point', named_struct('x', id / 4, 'y', -id / 4),
        'codes', IF(id % 3 = 0, NULL, array(CAST(id AS INT), NULL)){place}
      )) AS place,
      CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN array() ELSE array('a', NULL, concat('tag ', id)) END AS tags,
      IF(id % 5 = 1, NULL, map('one', CAST(id AS INT), 'none', NULL)) AS marks,
      array(named_struct('kind', 'made', 'cost', CAST(id / 3 AS DECIMAL(20, 5)))) AS events
      {note}
    FROM range({start}, {end}, 1, 1)
"""
BEFORE = {
    "precision": "12",
    "integer": "INT",
    "real": "FLOAT",
    "label": "old_label",
    "gone": "concat('gone ', id) AS gone,",
    "place": "",
    "note": "",
}
AFTER = {
    "precision": "16",
    "integer": "BIGINT",
    "real": "DOUBLE",
    "label": "label",
    "gone": "",
    "place": ", 'zip', CAST(10000 + id AS STRING)",
    "note": ", IF(id % 2 = 0, NULL, concat('note ', id)) AS note",
}


def file_counts(spark: SparkSession, table: str) -> Counter[tuple[int, int]]:
    """How many live files of each content and spec id the head has, from Iceberg's metadata table."""
    files = spark.sql(f"SELECT content, spec_id FROM {table}.files").collect()
    return Counter((file.content, file.spec_id) for file in files)


def written_as(file_format: str) -> str:
    """Properties with which Java writes data and delete files in that format."""
    return f"'write.format.default' = '{file_format}', 'write.delete.format.default' = '{file_format}'"


def make_mixed_table(catalog: SharedCatalog, name: str = "mixed", file_format: str = "parquet") -> str:
    """Make a table by Spark's SQL alone and return its full name.

    Appends, DELETE, UPDATE and MERGE in merge-on-read under two specs, (category) and (category, bucket(2, id)).
    Between them a column was added in front, one renamed, one dropped, a nested one added, and int, float and decimal
    were promoted.
    Its columns hold structs, lists, maps, decimals, dates, times and binary, with nulls on every level.
    """
    table, sql = catalog.full_name(f"db.{name}"), catalog.spark.sql
    first = MIXED_ROWS.format(start=0, end=40, **BEFORE)
    properties = f"{MERGE_ON_READ}, {written_as(file_format)}"
    sql(f"CREATE TABLE {table} USING iceberg PARTITIONED BY (category) TBLPROPERTIES ({properties}) AS {first}")
    sql(f"INSERT INTO {table} BY NAME {MIXED_ROWS.format(start=40, end=70, **BEFORE)}")
    sql(f"DELETE FROM {table} WHERE id % 7 = 3")
    for change in (
        "ADD COLUMN note STRING FIRST",
        "RENAME COLUMN old_label TO label",
        "DROP COLUMN gone",
        "ADD COLUMN place.zip STRING",
        "ALTER COLUMN units TYPE BIGINT",
        "ALTER COLUMN ratio TYPE DOUBLE",
        "ALTER COLUMN amount TYPE DECIMAL(16, 2)",
        "ADD PARTITION FIELD bucket(2, id)",
    ):
        sql(f"ALTER TABLE {table} {change}")
    sql(f"INSERT INTO {table} BY NAME {MIXED_ROWS.format(start=70, end=100, **AFTER)}")
    sql(f"INSERT INTO {table} BY NAME {MIXED_ROWS.format(start=100, end=120, **AFTER)}")
    sql(
        f"""MERGE INTO {table} AS target USING ({MIXED_ROWS.format(start=30, end=130, **AFTER)}) AS source
        ON target.id = source.id AND source.id % 3 = 0
        WHEN MATCHED AND source.id % 2 = 0 THEN DELETE
        WHEN MATCHED THEN UPDATE SET amount = source.amount * 2, note = 'merged'
        WHEN NOT MATCHED AND source.id >= 120 THEN INSERT *"""
    )
    sql(f"UPDATE {table} SET tags = array('updated'), units = 3000000000 WHERE id % 10 = 8")
    sql(f"DELETE FROM {table} WHERE id % 11 = 5")
    return table


def make_equality_table(catalog: SharedCatalog, name: str = "upserted", file_format: str = "parquet") -> str:
    """Make a table with equality deletes of three key sets by Iceberg's Java API and return its full name.

    It was unpartitioned, now its spec is (region); Spark appended under both, and deleted rows of both. Upserts came by
    (id), by (region, code) with null keys, and by (day, price) in the old spec: these apply to every partition.
    Some of the deletes meet no row; some rows were deleted and came back.
    """
    identifier = f"db.{name}"
    table, sql = catalog.full_name(identifier), catalog.spark.sql

    def append(start: int, end: int) -> None:
        sql(
            f"""INSERT INTO {table} SELECT id, element_at(array('north', 'south', 'west'), CAST(id % 3 AS INT) + 1),
            IF(id % 9 = 4, NULL, CAST(id % 10 AS INT)), date_add(DATE'2024-01-01', CAST(id AS INT)),
            CAST(id / 4 AS DECIMAL(9, 2)), concat('version 1 of ', id) FROM range({start}, {end}, 1, 1)"""
        )

    sql(
        f"""CREATE TABLE {table} (id BIGINT, region STRING, code INT, day DATE, price DECIMAL(9, 2), note STRING)
        USING iceberg TBLPROPERTIES ({MERGE_ON_READ}, {written_as(file_format)})"""
    )
    append(0, 30)
    _upsert_by_id(catalog, identifier, [1, 2, 3, 999], version=2)
    sql(f"ALTER TABLE {table} ADD PARTITION FIELD region")
    append(30, 60)
    _upsert_by_id(catalog, identifier, [30, 31, 32, 33], version=2)
    sql(f"DELETE FROM {table} WHERE id % 8 = 7")
    # Each delete is in its region's partition, so the rows of the old spec stay.
    java_upsert(
        catalog.spark,
        catalog.name,
        identifier,
        ["region", "code"],
        rows_to_delete=[{"region": "north", "code": 6}, {"region": "south", "code": None}],
        rows_to_append=[{"id": 36, "region": "north", "code": 6, "note": "version 2 of 36"}],
    )
    java_upsert(
        catalog.spark,
        catalog.name,
        identifier,
        ["day", "price"],
        rows_to_delete=[
            {"day": date(2024, 1, 1 + 10), "price": Decimal("2.5")},
            {"day": date(2024, 2, 1 + 10), "price": Decimal("10.25")},
        ],
        rows_to_append=[],
        spec_id=0,
    )
    _upsert_by_id(catalog, identifier, [30, 33, 57], version=3)
    return table


def _upsert_by_id(catalog: SharedCatalog, identifier: str, ids: list[int], version: int) -> int:
    regions = ("north", "south", "west")
    rows = [
        {
            "id": key,
            "region": regions[key % 3],
            "code": key % 10,
            "day": date(2025, 1, 1),
            "price": Decimal(version),
            "note": f"version {version} of {key}",
        }
        for key in ids
    ]
    return java_upsert(catalog.spark, catalog.name, identifier, ["id"], rows_to_delete=rows, rows_to_append=rows)
