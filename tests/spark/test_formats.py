"""Avro and ORC files of Iceberg's Java runtime, data and deletes: read exactly, written anew as Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fastavro
import pytest

from amoro_core.errors import TableRefused
from amoro_core.model.tables import OptimizingType
from tests.engine.parquet_rows import local_path

from .catalogs import SharedCatalog
from .optimizing import Services
from .rows import spark_rows
from .tables import (
    AFTER,
    DATA,
    EQUALITY_DELETES,
    MIXED_ROWS,
    POSITION_DELETES,
    SEGMENTS,
    make_equality_table,
    make_mixed_table,
    written_as,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def formats(spark: SparkSession, table: str) -> set[tuple[int, str]]:
    """Content and format of the live files."""
    files = spark.sql(f"SELECT DISTINCT content, file_format FROM {table}.files").collect()
    return {(file.content, file.file_format.lower()) for file in files}


def avro_codecs(spark: SparkSession, table: str) -> set[str]:
    """How Java has compressed the table's Avro files."""
    found = set()
    for file in spark.sql(f"SELECT file_path FROM {table}.files WHERE file_format = 'AVRO'").collect():
        with open(local_path(file.file_path), "rb") as source:
            found.add(fastavro.block_reader(source).metadata["avro.codec"])
    return found


def want_parquet(spark: SparkSession, table: str) -> None:
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({written_as('parquet')})")


@pytest.mark.parametrize("file_format", ["avro", "orc"])
def test_a_mixed_table_in_another_format_becomes_parquet_with_the_same_rows(
    spark: SparkSession, catalog: SharedCatalog, services: Services, file_format: str
) -> None:
    table = make_mixed_table(catalog, file_format=file_format)
    assert formats(spark, table) == {(DATA, file_format), (POSITION_DELETES, file_format)}
    with pytest.raises(TableRefused, match=f"write.format.default is '{file_format}'"):
        services.begin(table, OptimizingType.FULL)

    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('self-optimizing.write-format' = 'parquet')")
    assert services.optimize(table, OptimizingType.FULL).delete_files_before > 0

    assert formats(spark, table) == {(DATA, "parquet")}


@pytest.mark.parametrize("file_format", ["avro", "orc"])
def test_equality_deletes_in_another_format_delete_the_same_rows(
    spark: SparkSession, catalog: SharedCatalog, services: Services, file_format: str
) -> None:
    table = make_equality_table(catalog, file_format=file_format)
    kinds = {(kind, file_format) for kind in (DATA, POSITION_DELETES, EQUALITY_DELETES)}
    assert formats(spark, table) == kinds

    want_parquet(spark, table)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({SEGMENTS})")
    services.optimize(table, OptimizingType.MINOR)
    services.optimize(table, OptimizingType.FULL)

    assert formats(spark, table) == {(DATA, "parquet")}


def test_files_of_all_formats_in_one_table_are_merged(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_mixed_table(catalog, file_format="orc")
    codecs = "'write.avro.compression-codec' = 'zstd', 'write.delete.avro.compression-codec' = 'snappy'"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({codecs})")
    for start, file_format in ((200, "avro"), (210, "parquet")):
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({written_as(file_format)})")
        spark.sql(f"INSERT INTO {table} BY NAME {MIXED_ROWS.format(start=start, end=start + 9, **AFTER)}")
        spark.sql(f"DELETE FROM {table} WHERE id = {start} OR id = {start - 100}")
    assert {kind for _, kind in formats(spark, table)} == {"avro", "orc", "parquet"}
    assert avro_codecs(spark, table) == {"zstandard", "snappy"}
    rows = spark_rows(spark, table)

    services.optimize(table, OptimizingType.FULL)

    assert formats(spark, table) == {(DATA, "parquet")}
    assert spark_rows(spark, table) == rows
