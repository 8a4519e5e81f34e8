"""What Java's manifests tell of its files, as the statistics of these files have it: else nothing would be copied."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from amoro_core.files.copy_bounds import compared_columns, require_told
from amoro_core.model.files import ColumnMetrics
from tests.engine.parquet_rows import local_path
from tests.unit.files.copies import source

from .catalogs import SharedCatalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = """
    SELECT id - 500 AS id,
    int(id * 7 % 1000 - 500) AS number,
    IF(id % 3 = 0, NULL, concat('Grüße, die länger als sechzehn Zeichen sind: ', id)) AS word,
    IF(id % 2 = 0, concat('a', id), repeat('\\uD83D\\uDE00', 20)) AS face,
    float(IF(id = 7, 'NaN', (id - 500) / 3)) AS part,
    IF(id % 2 = 0, double(0.0), double(-0.0)) AS nothing,
    double(id) / 7 AS ratio,
    unhex(concat('ff', hex(id))) AS raw,
    id % 2 = 0 AS flag,
    named_struct('code', id * 11, 'name', IF(id < 900, NULL, string(id))) AS inner,
    array(id) AS tags,
    decimal((id - 500) / 4) AS small,
    decimal((id - 500) * 1000000.25) AS price,
    CAST((id - 500) * 12345678901234.5 AS DECIMAL(30, 4)) AS large,
    date_add(DATE '1970-01-01', int(id - 500)) AS day,
    timestamp_micros((id - 500) * 86400000001) AS at,
    timestamp_ntz '1969-12-31 23:59:59.999999' AS wall,
    IF(id < 900, NULL, id) AS late
    FROM range(0, 1000, 1, 1)
"""


def test_statistics_of_java_are_within_the_bounds_of_its_manifests(spark: SparkSession, catalog: SharedCatalog) -> None:
    table = catalog.full_name("db.told")
    spark.sql(
        f"""CREATE TABLE {table} (id BIGINT, number INT, word STRING, face STRING, part FLOAT, nothing DOUBLE,
        ratio DOUBLE, raw BINARY, flag BOOLEAN, inner STRUCT<code: BIGINT, name: STRING>, tags ARRAY<BIGINT>,
        small DECIMAL(9, 2), price DECIMAL(18, 2), large DECIMAL(30, 4), day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ,
        late BIGINT) USING iceberg TBLPROPERTIES ('write.parquet.row-group-size-bytes' = '1000')"""
    )
    spark.sql(f"INSERT INTO {table} {ROWS}")
    loaded = catalog.load("db.told")
    (task,) = loaded.scan().plan_files()
    one, schema = source(Path(local_path(task.file.file_path))), loaded.schema()
    assert len(one.rows) > 5
    columns = compared_columns(one.schema, schema)
    assert [column.field_id for column in columns] == [*range(1, 10), 19, 20, *range(12, 19)]
    told = ColumnMetrics(
        nan_value_counts=task.file.nan_value_counts,
        lower_bounds=task.file.lower_bounds,
        upper_bounds=task.file.upper_bounds,
    )
    assert {column.field_id for column in columns} <= set(told.lower_bounds)
    require_told(one, columns, schema, told, are_reached=True)
