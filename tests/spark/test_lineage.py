"""Spark reads the ids and last updates of rows that our services rewrote, and writes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amoro_core.model.tables import OptimizingType

from .catalogs import SharedCatalog
from .optimizing import Services, rewrite_all
from .rows import spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINOR, MAJOR, FULL = OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL


def lineage_of(spark: SparkSession, table: str) -> dict[int, tuple[int, int]]:
    """Id and last update of each row by its key, which is unique, as are the ids."""
    rows = spark.sql(f"SELECT id, _row_id, _last_updated_sequence_number FROM {table}").collect()
    found = {row[0]: (row[1], row[2]) for row in rows}
    assert len({row_id for row_id, _ in found.values()}) == len(rows)
    return found


def make(catalog: SharedCatalog, mode: str, name: str, version: int = 3) -> str:
    """Rows in six files of two partitions, some of which were updated, deleted and merged in that mode."""
    table, sql = catalog.full_name(f"db.{name}"), catalog.spark.sql
    modes = ", ".join(f"'write.{what}.mode' = '{mode}'" for what in ("delete", "update", "merge"))
    sql(
        f"CREATE TABLE {table} (id BIGINT, part STRING, value STRING) USING iceberg PARTITIONED BY (part)"
        f" TBLPROPERTIES ('format-version' = '{version}', {modes})"
    )
    for first in (0, 40, 80):
        sql(
            # As columns that may be null, like the table's: such files are copied.
            f"INSERT INTO {table} SELECT id, nullif(IF(id % 2 = 0, 'even', 'odd'), ''), concat('v', id)"
            f" FROM (SELECT nullif(id, -1) AS id FROM range({first}, {first + 40}, 1, 1))"
        )
    sql(f"UPDATE {table} SET value = 'updated' WHERE id % 10 = 3")
    sql(f"DELETE FROM {table} WHERE id IN (0, 41, 119)")
    sql(
        f"MERGE INTO {table} t USING (SELECT id FROM range(115, 125)) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET value = 'merged'"
        " WHEN NOT MATCHED THEN INSERT (id, part, value) VALUES (s.id, 'even', 'new')"
    )
    return table


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("merge-on-read", MINOR), ("merge-on-read", FULL), ("copy-on-write", MINOR), ("copy-on-write", MAJOR)],
)
def test_rows_keep_ids_and_last_updates_and_spark_writes_on(
    services: Services, mode: str, kind: OptimizingType
) -> None:
    spark = services.catalog.spark
    table = make(services.catalog, mode, "t")
    rows, before = spark_rows(spark, table), lineage_of(spark, table)
    assert len({updated for _, updated in before.values()}) > 3
    receipt = services.finish(services.begin(table, kind))
    if kind is MINOR:
        copied = {one.name: one.value for one in receipt.more}["files_copied"]
        assert copied == (1 if mode == "merge-on-read" else 3)
    assert (spark_rows(spark, table), lineage_of(spark, table)) == (rows, before)

    spark.sql(f"UPDATE {table} SET value = 'later' WHERE id = 7")
    spark.sql(f"DELETE FROM {table} WHERE id = 8")
    after = lineage_of(spark, table)
    number = max(updated for _, updated in before.values()) + 2  # the rewrite took the one between
    assert after == {**{key: one for key, one in before.items() if key != 8}, 7: (before[7][0], number)}
    spark.sql(f"INSERT INTO {table} SELECT id, 'odd', 'late' FROM range(201, 204, 2, 1)")
    after = lineage_of(spark, table)
    services.finish(services.begin(table, FULL))
    assert lineage_of(spark, table) == after
    rewrite_all(spark, table)
    assert lineage_of(spark, table) == after


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_the_lineage_of_many_copied_rows_is_read(services: Services, vectorized: str) -> None:
    spark, rows = services.catalog.spark, 50_000
    table = services.catalog.full_name("db.many")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT) USING iceberg"
        f" TBLPROPERTIES ('format-version' = '3', 'read.parquet.vectorization.enabled' = '{vectorized}')"
    )
    for first in (0, rows):
        spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ nullif(id, -1) FROM range({first}, {first + rows})")
    receipt = services.finish(services.begin(table, MINOR))
    assert {one.name: one.value for one in receipt.more}["files_copied"] == 2
    told = spark.sql(
        f"SELECT count(*), count_if(_row_id = id), count_if(_last_updated_sequence_number = 1 + id DIV {rows})"
        f" FROM {table}"
    ).collect()
    assert [tuple(row) for row in told] == [(2 * rows,) * 3]
    between = spark.sql(f"SELECT id FROM {table} WHERE _row_id BETWEEN {rows - 2} AND {rows + 1} ORDER BY id").collect()
    assert [row[0] for row in between] == [rows - 2, rows - 1, rows, rows + 1]


def test_an_upgraded_table_gives_ids_to_old_rows_with_the_rewrite(services: Services) -> None:
    spark = services.catalog.spark
    table = make(services.catalog, "merge-on-read", "old", version=2)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')")
    rows = spark_rows(spark, table)
    services.finish(services.begin(table, FULL))
    found = lineage_of(spark, table)
    assert spark_rows(spark, table) == rows
    assert None not in {part for one in found.values() for part in one}
    # Rows of the first three commits that nobody changed.
    unchanged = {key: found[key][1] for key in (1, 2, 42, 44, 82, 84)}
    assert unchanged == {1: 1, 2: 1, 42: 2, 44: 2, 82: 3, 84: 3}
