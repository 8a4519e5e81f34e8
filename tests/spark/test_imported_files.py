"""Files that Spark and Hive wrote before there was a table: legacy layouts, int96, no field ids, columns in paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from amoro_core.model.tables import OptimizingType

from .catalogs import SharedCatalog
from .optimizing import Services
from .rows import spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(600)
def test_imported_files_of_legacy_writers_keep_their_rows(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    source = catalog.root / "warehouse" / "imported"  # what lies elsewhere is not read
    settings = {"spark.sql.parquet.writeLegacyFormat": "true", "spark.sql.parquet.outputTimestampType": "INT96"}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        for start in (0, 20):
            spark.sql(
                f"""SELECT id,
                IF(id % 4 = 0, NULL, IF(id % 4 = 1, array(), array('a', NULL, concat('tag ', id)))) AS tags,
                IF(id % 3 = 0, NULL, map('one', id, 'none', NULL)) AS marks,
                timestamp_micros(id * 3600123456 - 7200000001) AS at,
                IF(id % 2 = 0, 'even ü', 'odd') AS kind FROM range({start}, {start + 20}, 1, 1)"""
            ).write.mode("append").partitionBy("kind").parquet(source.as_uri())
    finally:
        for key in settings:
            spark.conf.unset(key)
    table = catalog.full_name("db.imported")
    spark.sql(
        f"""CREATE TABLE {table} (id BIGINT, tags ARRAY<STRING>, marks MAP<STRING, BIGINT>, at TIMESTAMP, kind STRING)
        USING iceberg PARTITIONED BY (kind) TBLPROPERTIES ('format-version' = '2')"""
    )
    spark.sql(
        f"CALL {catalog.name}.system.add_files(table => 'db.imported', source_table => '`parquet`.`{source}`')"
    ).collect()
    files = list(source.rglob("*.parquet"))
    repeated = {chunk.split(".")[1] for file in files for chunk in _leaves(file) if chunk.startswith("tags")}
    assert repeated == {"bag"}  # not "list", as the specification has it now
    assert "schema.name-mapping.default" in catalog.load("db.imported").properties
    rows = spark_rows(spark, table)
    assert rows.total() == 40

    assert services.optimize(table, OptimizingType.FULL).data_files_before == len(files)

    assert spark_rows(spark, table) == rows
    assert spark.sql(f"SELECT count(*) FROM {table}.data_files").collect()[0][0] == 2


def _leaves(file: Path) -> list[str]:
    schema = pq.read_metadata(file).schema
    return [schema.column(at).path for at in range(len(schema))]
