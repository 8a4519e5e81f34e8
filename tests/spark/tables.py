"""Tables as Java leaves them, and their rows as multisets that compare exactly, whichever engine read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from .java import evolved, java_upsert, load_java_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Rows = Counter[tuple[Hashable, ...]]
T = TypeVar("T")


def frozen(value: Any) -> Hashable:
    """Return a hashable equal exactly to that of every equal Iceberg value.

    Floats compare as Iceberg's equality does: NaN is NaN, and 0.0 is not -0.0. A time with a zone becomes the same
    time in UTC, as Spark gives it under the session's settings. Structs and maps lose the order of their parts.
    """
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return frozenset((frozen(key), frozen(part)) for key, part in value.items())
    if hasattr(value, "__fields__"):  # Spark's Row
        return frozenset((name, frozen(part)) for name, part in zip(value.__fields__, value, strict=True))
    if isinstance(value, list | tuple):
        return tuple(frozen(part) for part in value)
    if not isinstance(value, Hashable):
        raise ValueError(f"no multiset for values of {type(value).__name__}")
    return value


def without(rows: Mapping[int, T], keys: Collection[int]) -> dict[int, T]:
    """The rows, by their keys, but for these keys."""
    return {key: row for key, row in rows.items() if key not in keys}


DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2

MODES = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge"))
MERGE_ON_READ = f"'format-version' = '2', {MODES}"

#: Every file of these tests is larger than a fragment and smaller than the target, so that minor converts.
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


def written_as(file_format: str) -> str:
    """Properties with which Java writes data and delete files in that format, and we write Parquet."""
    by_java = f"'write.format.default' = '{file_format}', 'write.delete.format.default' = '{file_format}'"
    return f"{by_java}, 'self-optimizing.write-format' = 'parquet'"


def make_mixed_table(spark: SparkSession, table: str, file_format: str = "parquet") -> None:
    """Make a table by Spark's SQL alone.

    Appends, DELETE, UPDATE and MERGE in merge-on-read under two specs, (category) and (category, bucket(2, id)).
    Between them a column was added in front, one renamed, one dropped, a nested one added, and int, float and decimal
    were promoted.
    Its columns hold structs, lists, maps, decimals, dates, times and binary, with nulls on every level.
    """
    changes = (
        "ADD COLUMN note STRING FIRST",
        "RENAME COLUMN old_label TO label",
        "DROP COLUMN gone",
        "ADD COLUMN place.zip STRING",
        "ALTER COLUMN units TYPE BIGINT",
        "ALTER COLUMN ratio TYPE DOUBLE",
        "ALTER COLUMN amount TYPE DECIMAL(16, 2)",
        "ADD PARTITION FIELD bucket(2, id)",
    )
    first = MIXED_ROWS.format(start=0, end=40, **BEFORE)
    properties = f"{MERGE_ON_READ}, {written_as(file_format)}"
    for statement in (
        f"CREATE TABLE {table} USING iceberg PARTITIONED BY (category) TBLPROPERTIES ({properties}) AS {first}",
        f"INSERT INTO {table} BY NAME {MIXED_ROWS.format(start=40, end=70, **BEFORE)}",
        f"DELETE FROM {table} WHERE id % 7 = 3",
        *(f"ALTER TABLE {table} {change}" for change in changes),
        f"INSERT INTO {table} BY NAME {MIXED_ROWS.format(start=70, end=100, **AFTER)}",
        f"INSERT INTO {table} BY NAME {MIXED_ROWS.format(start=100, end=120, **AFTER)}",
        f"""MERGE INTO {table} AS target USING ({MIXED_ROWS.format(start=30, end=130, **AFTER)}) AS source
        ON target.id = source.id AND source.id % 3 = 0
        WHEN MATCHED AND source.id % 2 = 0 THEN DELETE
        WHEN MATCHED THEN UPDATE SET amount = source.amount * 2, note = 'merged'
        WHEN NOT MATCHED AND source.id >= 120 THEN INSERT *""",
        f"UPDATE {table} SET tags = array('updated'), units = 3000000000 WHERE id % 10 = 8",
        f"DELETE FROM {table} WHERE id % 11 = 5",
    ):
        spark.sql(statement)


def make_equality_table(spark: SparkSession, table: str, file_format: str = "parquet") -> None:
    """Make a table with equality deletes of three key sets by Iceberg's Java API.

    It was unpartitioned, now its spec is (region); Spark appended under both, and deleted rows of both. Upserts came by
    (id), by (region, code) with null keys, and by (day, price) in the old spec: these apply to every partition.
    Some of the deletes meet no row; some rows were deleted and came back.
    """

    def append(start: int, end: int) -> None:
        spark.sql(
            f"""INSERT INTO {table} SELECT id, element_at(array('north', 'south', 'west'), CAST(id % 3 AS INT) + 1),
            IF(id % 9 = 4, NULL, CAST(id % 10 AS INT)), date_add(DATE'2024-01-01', CAST(id AS INT)),
            CAST(id / 4 AS DECIMAL(9, 2)), concat('version 1 of ', id) FROM range({start}, {end}, 1, 1)"""
        )

    def upsert(version: int, *ids: int) -> None:
        same = {"day": date(2025, 1, 1), "price": Decimal(version)}
        rows = [{"id": key, "region": ("north", "south", "west")[key % 3], "code": key % 10, **same} for key in ids]
        noted = [{**row, "note": f"version {version} of {row['id']}"} for row in rows]
        java_upsert(spark, table, ["id"], rows, noted)

    spark.sql(
        f"""CREATE TABLE {table} (id BIGINT, region STRING, code INT, day DATE, price DECIMAL(9, 2), note STRING)
        USING iceberg TBLPROPERTIES ({MERGE_ON_READ}, {SEGMENTS}, {written_as(file_format)})"""
    )
    append(0, 30)
    upsert(2, 1, 2, 3, 999)
    spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD region")
    append(30, 60)
    upsert(2, 30, 31, 32, 33)
    spark.sql(f"DELETE FROM {table} WHERE id % 8 = 7")
    # Each delete is in its region's partition, so the rows of the old spec stay.
    keys = [{"region": "north", "code": 6}, {"region": "south", "code": None}]
    again = {"id": 36, "region": "north", "code": 6, "note": "version 2 of 36"}
    java_upsert(spark, table, ["region", "code"], keys, [again])
    sold = [{"day": date(2024, month, 11), "price": Decimal(price)} for month, price in ((1, "2.5"), (2, "10.25"))]
    java_upsert(spark, table, ["day", "price"], sold, [], spec_id=0)
    upsert(3, 30, 33, 57)


def make_notes(
    spark: SparkSession, table: str, files: int = 3, rows_per_file: int = 10, properties: str = MERGE_ON_READ
) -> None:
    """Make a table of (id, 'note id'), its ids ascending from 0 through the files."""
    spark.sql(f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ({properties})")
    for start in range(0, files * rows_per_file, rows_per_file):
        append_notes(spark, table, start, start + rows_per_file)


def append_notes(spark: SparkSession, table: str, start: int, end: int) -> None:
    """One file of the rows of these ids, whose columns are as optional in the file as in the table."""
    columns = "nullif(id, -1), nullif(concat('note ', id), '')"
    spark.sql(f"INSERT INTO {table} SELECT {columns} FROM range({start}, {end}, 1, 1)")


def notes(ids: Iterable[int], word: str = "note") -> Rows:
    """The rows of these ids."""
    return Rows((number, f"{word} {number}") for number in ids)


def notes_without(count: int, *gone: int) -> Rows:
    """The rows of the ids below the count, but for those that are gone."""
    return notes(number for number in range(count) if number not in gone)


def upsert_notes(spark: SparkSession, table: str, ids: Iterable[int], word: str) -> None:
    """Write the rows of these ids and delete by equality what was there, by Java and in one snapshot."""
    rows = [{"id": number, "note": f"{word} {number}"} for number in ids]
    java_upsert(spark, table, ["id"], rows, rows)


def delete_notes(spark: SparkSession, table: str, *ids: int) -> None:
    """Delete these ids by equality, by Java; the snapshot has no new rows."""
    java_upsert(spark, table, ["id"], [{"id": number} for number in ids], [])


#: What rows with an even and with an odd id have in nanoseconds.
MOMENTS = ("1969-12-31T23:59:59.999999999", "2026-01-02T00:00:00.000000001")


@dataclass(frozen=True, slots=True)
class Shape:
    """How a table is made, and what of it can be asked of Spark."""

    name: str
    make: Callable[[SparkSession, str], None]
    #: By which it is clustered.
    columns: tuple[str, ...] = ("value", "id")
    #: Rows of format 3 have ids, parts and values.
    version: int = 3
    #: Spark has no nanoseconds.
    is_read_by_spark: bool = True
    #: Its rows have ids only from the next commit on.
    has_ids: bool = True
    branch: str = ""


def create(
    spark: SparkSession,
    table: str,
    *starts: int,
    version: int = 3,
    columns: str = "",
    values: str = "",
    by: str = "part",
    more: str = "",
) -> None:
    """A table of ids, parts and values whose rows are deleted by position, with rows from each of the starts."""
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, part STRING, value STRING{columns}) USING iceberg"
        f" {f'PARTITIONED BY ({by})' if by else ''} TBLPROPERTIES ('format-version' = '{version}', {MODES}{more})"
    )
    insert(spark, table, *starts, values=values)


def insert(
    spark: SparkSession,
    table: str,
    *starts: int,
    rows: int = 20,
    values: str = "",
    part: str = "IF(id % 2 = 0, 'a', 'b')",
) -> None:
    """Of each start rows in one file of each of two partitions, or of the given one."""
    for first in starts:
        spark.sql(
            f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, {part}, concat('v', id){values}"
            f" FROM range({first}, {first + rows}, 1, 1)"
        )


def delete(spark: SparkSession, table: str, *ids: int) -> None:
    spark.sql(f"DELETE FROM {table} WHERE id IN ({', '.join(map(str, ids))})")


def set_property(spark: SparkSession, table: str, key: str, value: str) -> None:
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{key}' = '{value}')")


def vectors(spark: SparkSession, table: str) -> None:
    """A vector that took an earlier one's place, a file without one, rows that were updated."""
    create(spark, table, 0, 20, 40)
    delete(spark, table, 2, 21)
    delete(spark, table, 4, 23)
    spark.sql(f"UPDATE {table} SET value = 'updated' WHERE id IN (6, 25)")


def one_puffin(spark: SparkSession, table: str) -> None:
    """Vectors of six data files as blobs of one file."""
    create(spark, table, 0, 20, 40)
    delete(spark, table, *range(3, 60, 7))


def three_kinds(spark: SparkSession, table: str) -> None:
    """A vector, a position delete file for several data files, and equality deletes on all of them."""
    create(spark, table, 0, 20, 40, version=2, more=", 'write.delete.granularity' = 'partition'")
    delete(spark, table, 2, 3, 22, 23, 42, 43)
    set_property(spark, table, "format-version", "3")
    delete(spark, table, 4, 25)
    keys = [{"id": one, "part": "ab"[one % 2]} for one in (6, 7, 27, 44)]
    java_upsert(spark, table, ["id"], keys, [{"id": 6, "part": "a", "value": "again"}])


def upgraded(spark: SparkSession, table: str) -> None:
    """Upgraded, with no commit since: no row has an id."""
    create(spark, table, 0, 20, version=2)
    delete(spark, table, 2, 21)
    set_property(spark, table, "format-version", "3")


def upgraded_and_written(spark: SparkSession, table: str) -> None:
    """Upgraded, with commits since."""
    upgraded(spark, table)
    insert(spark, table, 40)
    delete(spark, table, 4, 41)


def branched(spark: SparkSession, table: str) -> None:
    """A branch with vectors on files that main has, and main with others."""
    vectors(spark, table)
    spark.sql(f"ALTER TABLE {table} CREATE BRANCH other")
    delete(spark, f"{table}.branch_other", 8, 27, 50)
    insert(spark, f"{table}.branch_other", 100)
    delete(spark, table, 10, 27, 52)


def repartitioned(spark: SparkSession, table: str) -> None:
    """Files and deletes of three specs."""
    create(spark, table, 0, 20)
    delete(spark, table, 2, 21)
    spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD bucket(2, id)")
    insert(spark, table, 40, 60)
    delete(spark, table, 4, 41)
    spark.sql(f"ALTER TABLE {table} DROP PARTITION FIELD part")
    insert(spark, table, 80, 100)
    delete(spark, table, 6, 43, 81)


def defaulted(spark: SparkSession, table: str) -> None:
    """Columns with defaults that the older files lack."""
    create(spark, table, 0, 20, columns=", s STRUCT<a: BIGINT>", values=", named_struct('a', id)")
    evolved(spark, table, (None, "c", "string", "x"), (None, "price", "decimal(9,2)", "1.50"), ("s", "d", "long", 7))
    spark.sql(f"REFRESH TABLE {table}")
    insert(spark, table, 40, values=", named_struct('a', id, 'd', NULL), 'y', NULL")
    delete(spark, table, 2, 41)


def keyed_by_defaults(spark: SparkSession, table: str) -> None:
    """Equality deletes whose keys are defaults that the older files lack."""
    create(spark, table, 0, 20, by="")
    evolved(spark, table, (None, "c", "string", "x"))
    spark.sql(f"REFRESH TABLE {table}")
    insert(spark, table, 40, values=", IF(id % 3 = 0, 'x', NULL)")
    keys = [{"id": 2, "c": "x"}, {"id": 3, "c": None}, {"id": 42, "c": "x"}, {"id": 43, "c": "x"}]
    java_upsert(spark, table, ["id", "c"], keys, [])
    delete(spark, table, 5, 45)


def in_nanoseconds(spark: SparkSession, table: str) -> None:
    """Times in nanoseconds, as the partition's source and as a key of deletes."""
    create(spark, table, by="")
    evolved(spark, table, (None, "at", "timestamp_ns", None))
    java = load_java_table(spark, table)
    java.table.updateSpec().addField(java.iceberg.expressions.Expressions.day("at")).commit()
    rows = [{"id": one, "value": f"v{one}", "at": MOMENTS[one % 2]} for one in range(12)]
    for first in range(0, 12, 4):
        java_upsert(spark, table, ["id", "at"], [], rows[first : first + 4])
    gone = [{"id": 0, "at": MOMENTS[0]}, {"id": 1, "at": MOMENTS[0]}, {"id": 5, "at": MOMENTS[1]}]
    java_upsert(spark, table, ["id", "at"], gone, [])


def of_unknown_type(spark: SparkSession, table: str) -> None:
    """A column whose type is not known yet."""
    create(spark, table, 0, 20, by="")
    evolved(spark, table, (None, "u", "unknown", None))
    java_upsert(spark, table, ["id"], [{"id": 2}, {"id": 21}], [{"id": 60, "value": "new"}])


def with_some_ids(spark: SparkSession, table: str) -> None:
    """Files that hold ids of the rows that Spark carried over, and nulls for those that it added."""
    create(spark, table)
    set_property(spark, table, "write.merge.mode", "copy-on-write")
    insert(spark, table, 0, 20)
    for first in (10, 30):
        spark.sql(
            f"MERGE INTO {table} t USING (SELECT id FROM range({first}, {first + 5}) UNION ALL SELECT id"
            f" FROM range({first + 100}, {first + 105})) s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET value = 'merged'"
            " WHEN NOT MATCHED THEN INSERT (id, part, value) VALUES (s.id, IF(s.id % 2 = 0, 'a', 'b'), 'added')"
        )
    delete(spark, table, 12, 111)


def emptied(spark: SparkSession, table: str) -> None:
    """Every row is deleted, every file is there."""
    create(spark, table, 0, 20)
    spark.sql(f"DELETE FROM {table} WHERE substring(value, 1, 1) = 'v'")  # no filter of files


def nested(spark: SparkSession, table: str) -> None:
    """Structs, lists and maps, a column that was dropped, one that got another name, one with a wider type."""
    columns = ", units INT, gone STRING, place STRUCT<x: INT, tags: ARRAY<STRING>>, m MAP<STRING, INT>"
    place = "named_struct('x', IF(id % 3 = 0, NULL, CAST(id AS INT)), 'tags', array('a', NULL))"
    rest = f", {place}, map('k', CAST(id AS INT))"
    create(spark, table, 0, columns=columns, values=f", CAST(id AS INT), 'gone'{rest}")
    delete(spark, table, 2, 3)
    for change in ("ALTER COLUMN units TYPE BIGINT", "DROP COLUMN gone", "RENAME COLUMN place TO spot"):
        spark.sql(f"ALTER TABLE {table} {change}")
    insert(spark, table, 20, 40, values=f", id + 4294967296{rest}")
    delete(spark, table, 4, 21, 22)


def of_format_2(make: Callable[[SparkSession, str, str], None], file_format: str, *columns: str) -> Shape:
    name = make.__name__.removeprefix("make_").removesuffix("_table")
    return Shape(f"{name}-{file_format}", partial(make, file_format=file_format), columns, version=2)


SHAPES = (
    of_format_2(make_mixed_table, "parquet", "label", "ratio", "at"),
    of_format_2(make_mixed_table, "avro", "amount", "place.point.x", "payload"),
    of_format_2(make_mixed_table, "orc", "label", "id"),
    of_format_2(make_equality_table, "parquet", "note", "price", "day"),
    of_format_2(make_equality_table, "avro", "day", "code"),
    of_format_2(make_equality_table, "orc", "code", "id"),
    Shape("vectors", vectors),
    Shape("one-puffin", one_puffin),
    Shape("three-kinds", three_kinds),
    Shape("upgraded", upgraded, has_ids=False),
    Shape("upgraded-and-written", upgraded_and_written),
    Shape("branched", branched, branch="other"),
    Shape("repartitioned", repartitioned),
    Shape("defaulted", defaulted, ("c", "price", "s.d", "id")),
    Shape("keyed-by-defaults", keyed_by_defaults, ("c", "id")),
    Shape("in-nanoseconds", in_nanoseconds, ("id", "at"), is_read_by_spark=False),
    Shape("of-unknown-type", of_unknown_type, is_read_by_spark=False),
    Shape("with-some-ids", with_some_ids),
    Shape("emptied", emptied),
    Shape("nested", nested, ("spot.x", "units")),
)
