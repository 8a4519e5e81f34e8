"""Fourteen tables of format 3 as Spark and Iceberg's Java API leave them, each with a unique `id` and a `value`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .catalogs import SharedCatalog
from .java_writer import java_upsert, load_java_table
from .test_types_of_format_3 import evolved

#: What rows with an even and with an odd id have in nanoseconds.
MOMENTS = ("1969-12-31T23:59:59.999999999", "2026-01-02T00:00:00.000000001")


@dataclass(frozen=True, slots=True)
class Shape:
    """How a table is made, and what of it can be asked of Spark."""

    name: str
    make: Callable[[SharedCatalog, str], None]
    #: Spark has no nanoseconds.
    is_read_by_spark: bool = True
    #: Its rows have ids only from the next commit on.
    has_ids: bool = True
    branch: str = ""


def create(
    catalog: SharedCatalog, table: str, version: int = 3, columns: str = "", by: str = "part", more: str = ""
) -> None:
    """A table of ids, parts and values whose rows are deleted by position."""
    modes = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge"))
    catalog.spark.sql(
        f"CREATE TABLE {table} (id BIGINT, part STRING, value STRING{columns}) USING iceberg"
        f" {f'PARTITIONED BY ({by})' if by else ''} TBLPROPERTIES ('format-version' = '{version}', {modes}{more})"
    )


def insert(catalog: SharedCatalog, table: str, first: int, rows: int = 20, more: str = "") -> None:
    """Rows in one file of each of two partitions."""
    catalog.spark.sql(
        f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, IF(id % 2 = 0, 'a', 'b'), concat('v', id){more}"
        f" FROM range({first}, {first + rows}, 1, 1)"
    )


def delete(catalog: SharedCatalog, table: str, *ids: int) -> None:
    catalog.spark.sql(f"DELETE FROM {table} WHERE id IN ({', '.join(map(str, ids))})")


def set_property(catalog: SharedCatalog, table: str, key: str, value: str) -> None:
    catalog.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{key}' = '{value}')")


def vectors(catalog: SharedCatalog, table: str) -> None:
    """A vector that took an earlier one's place, a file without one, rows that were updated."""
    create(catalog, table)
    for first in (0, 20, 40):
        insert(catalog, table, first)
    delete(catalog, table, 2, 21)
    delete(catalog, table, 4, 23)
    catalog.spark.sql(f"UPDATE {table} SET value = 'updated' WHERE id IN (6, 25)")


def one_puffin(catalog: SharedCatalog, table: str) -> None:
    """Vectors of six data files as blobs of one file."""
    create(catalog, table)
    for first in (0, 20, 40):
        insert(catalog, table, first)
    delete(catalog, table, *range(3, 60, 7))


def three_kinds(catalog: SharedCatalog, table: str) -> None:
    """A vector, a position delete file for several data files, and equality deletes on all of them."""
    create(catalog, table, 2, more=", 'write.delete.granularity' = 'partition'")
    for first in (0, 20, 40):
        insert(catalog, table, first)
    delete(catalog, table, 2, 3, 22, 23, 42, 43)
    set_property(catalog, table, "format-version", "3")
    delete(catalog, table, 4, 25)
    keys = [{"id": one, "part": "ab"[one % 2]} for one in (6, 7, 27, 44)]
    java_upsert(catalog.spark, catalog.name, "db.t", ["id"], keys, [{"id": 6, "part": "a", "value": "again"}])


def upgraded(catalog: SharedCatalog, table: str) -> None:
    """Upgraded, with no commit since: no row has an id."""
    create(catalog, table, 2)
    for first in (0, 20):
        insert(catalog, table, first)
    delete(catalog, table, 2, 21)
    set_property(catalog, table, "format-version", "3")


def upgraded_and_written(catalog: SharedCatalog, table: str) -> None:
    """Upgraded, with commits since."""
    upgraded(catalog, table)
    insert(catalog, table, 40)
    delete(catalog, table, 4, 41)


def branched(catalog: SharedCatalog, table: str) -> None:
    """A branch with vectors on files that main has, and main with others."""
    vectors(catalog, table)
    catalog.spark.sql(f"ALTER TABLE {table} CREATE BRANCH other")
    delete(catalog, f"{table}.branch_other", 8, 27, 50)
    insert(catalog, f"{table}.branch_other", 100)
    delete(catalog, table, 10, 27, 52)


def repartitioned(catalog: SharedCatalog, table: str) -> None:
    """Files and deletes of three specs."""
    create(catalog, table)
    for first in (0, 20):
        insert(catalog, table, first)
    delete(catalog, table, 2, 21)
    catalog.spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD bucket(2, id)")
    for first in (40, 60):
        insert(catalog, table, first)
    delete(catalog, table, 4, 41)
    catalog.spark.sql(f"ALTER TABLE {table} DROP PARTITION FIELD part")
    for first in (80, 100):
        insert(catalog, table, first)
    delete(catalog, table, 6, 43, 81)


def defaulted(catalog: SharedCatalog, table: str) -> None:
    """Columns with defaults that the older files lack."""
    create(catalog, table, columns=", s STRUCT<a: BIGINT>")
    for first in (0, 20):
        insert(catalog, table, first, more=", named_struct('a', id)")
    evolved(catalog, (None, "c", "string", "x"), (None, "price", "decimal(9,2)", "1.50"), ("s", "d", "long", 7))
    catalog.spark.sql(f"REFRESH TABLE {table}")
    insert(catalog, table, 40, more=", named_struct('a', id, 'd', NULL), 'y', NULL")
    delete(catalog, table, 2, 41)


def keyed_by_defaults(catalog: SharedCatalog, table: str) -> None:
    """Equality deletes whose keys are defaults that the older files lack."""
    create(catalog, table, by="")
    for first in (0, 20):
        insert(catalog, table, first)
    evolved(catalog, (None, "c", "string", "x"))
    catalog.spark.sql(f"REFRESH TABLE {table}")
    insert(catalog, table, 40, more=", IF(id % 3 = 0, 'x', NULL)")
    keys = [{"id": 2, "c": "x"}, {"id": 3, "c": None}, {"id": 42, "c": "x"}, {"id": 43, "c": "x"}]
    java_upsert(catalog.spark, catalog.name, "db.t", ["id", "c"], keys, [])
    delete(catalog, table, 5, 45)


def in_nanoseconds(catalog: SharedCatalog, table: str) -> None:
    """Times in nanoseconds, as the partition's source and as a key of deletes."""
    create(catalog, table, by="")
    evolved(catalog, (None, "at", "timestamp_ns", None))
    java = load_java_table(catalog.spark, catalog.name, "db.t")
    java.table.updateSpec().addField(java.iceberg.expressions.Expressions.day("at")).commit()
    rows = [{"id": one, "value": f"v{one}", "at": MOMENTS[one % 2]} for one in range(12)]
    for first in range(0, 12, 4):
        java_upsert(catalog.spark, catalog.name, "db.t", ["id", "at"], [], rows[first : first + 4])
    gone = [{"id": 0, "at": MOMENTS[0]}, {"id": 1, "at": MOMENTS[0]}, {"id": 5, "at": MOMENTS[1]}]
    java_upsert(catalog.spark, catalog.name, "db.t", ["id", "at"], gone, [])


def of_unknown_type(catalog: SharedCatalog, table: str) -> None:
    """A column whose type is not known yet."""
    create(catalog, table, by="")
    for first in (0, 20):
        insert(catalog, table, first)
    evolved(catalog, (None, "u", "unknown", None))
    java_upsert(catalog.spark, catalog.name, "db.t", ["id"], [{"id": 2}, {"id": 21}], [{"id": 60, "value": "new"}])


def with_some_ids(catalog: SharedCatalog, table: str) -> None:
    """Files that hold ids of the rows that Spark carried over, and nulls for those that it added."""
    create(catalog, table)
    set_property(catalog, table, "write.merge.mode", "copy-on-write")
    for first in (0, 20):
        insert(catalog, table, first)
    for first in (10, 30):
        catalog.spark.sql(
            f"MERGE INTO {table} t USING (SELECT id FROM range({first}, {first + 5}) UNION ALL SELECT id"
            f" FROM range({first + 100}, {first + 105})) s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET value = 'merged'"
            " WHEN NOT MATCHED THEN INSERT (id, part, value) VALUES (s.id, IF(s.id % 2 = 0, 'a', 'b'), 'added')"
        )
    delete(catalog, table, 12, 111)


def emptied(catalog: SharedCatalog, table: str) -> None:
    """Every row is deleted, every file is there."""
    create(catalog, table)
    for first in (0, 20):
        insert(catalog, table, first)
    catalog.spark.sql(f"DELETE FROM {table} WHERE substring(value, 1, 1) = 'v'")  # no filter of files


def nested(catalog: SharedCatalog, table: str) -> None:
    """Structs, lists and maps, a column that was dropped, one that got another name, one with a wider type."""
    create(
        catalog,
        table,
        columns=", units INT, gone STRING, place STRUCT<x: INT, tags: ARRAY<STRING>>, m MAP<STRING, INT>",
    )
    place = "named_struct('x', IF(id % 3 = 0, NULL, CAST(id AS INT)), 'tags', array('a', NULL))"
    rest = f", {place}, map('k', CAST(id AS INT))"
    insert(catalog, table, 0, more=f", CAST(id AS INT), 'gone'{rest}")
    delete(catalog, table, 2, 3)
    for change in ("ALTER COLUMN units TYPE BIGINT", "DROP COLUMN gone", "RENAME COLUMN place TO spot"):
        catalog.spark.sql(f"ALTER TABLE {table} {change}")
    for first in (20, 40):
        insert(catalog, table, first, more=f", id + 4294967296{rest}")
    delete(catalog, table, 4, 21, 22)


SHAPES = (
    Shape("vectors", vectors),
    Shape("one-puffin", one_puffin),
    Shape("three-kinds", three_kinds),
    Shape("upgraded", upgraded, has_ids=False),
    Shape("upgraded-and-written", upgraded_and_written),
    Shape("branched", branched, branch="other"),
    Shape("repartitioned", repartitioned),
    Shape("defaulted", defaulted),
    Shape("keyed-by-defaults", keyed_by_defaults),
    Shape("in-nanoseconds", in_nanoseconds, is_read_by_spark=False),
    Shape("of-unknown-type", of_unknown_type, is_read_by_spark=False),
    Shape("with-some-ids", with_some_ids),
    Shape("emptied", emptied),
    Shape("nested", nested),
)
