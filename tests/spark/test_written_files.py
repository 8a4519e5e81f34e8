"""What our Parquet files hold beside rows, as Java's own Parquet reader finds it, and where they lie."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from amoro_core.files.locations import new_location
from amoro_core.model.tables import OptimizingType

from .catalogs import SharedCatalog
from .java_writer import load_java_table
from .optimizing import Services
from .rows import spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTIES = """
    'write.parquet.page-row-limit' = '100',
    'write.parquet.bloom-filter-enabled.column.word' = 'true',
    'write.parquet.bloom-filter-enabled.column.inner.code' = 'true',
    'write.object-storage.enabled' = 'true'
"""


def test_java_reads_ids_page_indexes_and_bloom_filters_of_our_files(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = catalog.full_name("db.written")
    spark.sql(
        f"""CREATE TABLE {table} (id BIGINT, word STRING, inner STRUCT<code: BIGINT>, tags ARRAY<STRING>)
        USING iceberg TBLPROPERTIES ({PROPERTIES})"""
    )
    for start in (0, 1000):
        spark.sql(
            f"""INSERT INTO {table} SELECT id, concat('word ', id * 7), named_struct('code', id * 11), array('a', NULL)
            FROM range({start}, {start + 1000}, 1, 1)"""
        )

    services.optimize(table, OptimizingType.FULL)

    (path,) = (one.file_path for one in spark.sql(f"SELECT file_path FROM {table}.data_files").collect())
    locations = load_java_table(spark, catalog.name, "db.written").table.locationProvider()
    assert path == locations.newDataLocation(path.rpartition("/")[2])
    # Filters that only pages and bloom filters can tell apart.
    for condition, ids in (
        ("word = 'word 7770'", [1110]),
        ("word = 'word 7771'", []),
        ("inner.code = 11000", [1000]),
        ("inner.code = 11001", []),
        ("id BETWEEN 998 AND 1001", [998, 999, 1000, 1001]),
    ):
        assert [row.id for row in spark.sql(f"SELECT id FROM {table} WHERE {condition} ORDER BY id").collect()] == ids

    found = footer(spark, path)
    assert found["ids"] == {"id": 1, "word": 2, "inner": 3, "tags": 4, "inner.code": 5, "tags.list.element": 6}
    assert found["pages"] == {"id": 20, "word": 20, "inner.code": 20, "tags.list.element": 20}
    assert found["blooms"] == {"word": 1, "inner.code": 1}
    assert spark_rows(spark, table).total() == 2000


@pytest.mark.parametrize("data_path", [None, "s3://b/ns/t/elsewhere", "s3://other/shared"])
@pytest.mark.parametrize("hashed", ["true", "false"])
@pytest.mark.parametrize("directory", ["", "day=2024-01-01/kind=a%2Fb"])
def test_files_lie_where_java_would_put_them(
    spark: SparkSession, data_path: str | None, hashed: str, directory: str
) -> None:
    location, name = "s3://b/ns/t", "0197c0de-0000-7000-8000-000000000001-1-1-x.parquet"
    properties = {"write.object-storage.enabled": hashed}
    if data_path is not None:
        properties["write.data.path"] = data_path
    jvm: Any = spark._jvm
    known = jvm.java.util.HashMap()
    for key, value in properties.items():
        known.put(key, value)
    provider = jvm.org.apache.iceberg.LocationProviders.locationsFor(location, known)

    rest = f"{directory}/{name}" if directory else name
    found = new_location(location, data_path or f"{location}/data", directory, name, properties)
    assert found == provider.newDataLocation(rest)


def footer(spark: SparkSession, path: str) -> dict[str, Any]:
    """Field ids by name, pages with indexes by column, and columns with bloom filters, as Java's reader says."""
    jvm: Any = spark._jvm
    hadoop = spark._jsc.hadoopConfiguration()
    file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(jvm.org.apache.hadoop.fs.Path(path), hadoop)
    reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(file)
    try:
        schema = reader.getFileMetaData().getSchema()
        ids: dict[str, int] = {}
        _collect(schema, "", ids)
        pages: Counter[str] = Counter()
        blooms: Counter[str] = Counter()
        blocks = list(reader.getFooter().getBlocks())
        for block in blocks:
            for chunk in block.getColumns():
                name = chunk.getPath().toDotString()
                assert reader.readColumnIndex(chunk) is not None
                pages[name] += reader.readOffsetIndex(chunk).getPageCount()
                if reader.readBloomFilter(chunk) is not None:
                    blooms[name] += 1
        created_by = reader.getFileMetaData().getCreatedBy()
        return {"ids": ids, "pages": pages, "blooms": blooms, "blocks": len(blocks), "created_by": created_by}
    finally:
        reader.close()


def _collect(group: Any, prefix: str, ids: dict[str, int]) -> None:
    for field in group.getFields():
        name = f"{prefix}{field.getName()}"
        if field.getId() is not None:
            ids[name] = field.getId().intValue()
        if not field.isPrimitive():
            _collect(field.asGroupType(), f"{name}.", ids)


def test_java_reads_what_was_copied_from_its_own_files(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = catalog.full_name("db.copied")
    key = "self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes"
    spark.sql(
        f"""CREATE TABLE {table} (id BIGINT NOT NULL, word STRING, inner STRUCT<code: BIGINT>, tags ARRAY<STRING>,
        named MAP<STRING, DOUBLE>, price DECIMAL(12, 2), large DECIMAL(30, 4), day DATE, at TIMESTAMP,
        wall TIMESTAMP_NTZ)
        USING iceberg TBLPROPERTIES ({PROPERTIES}, '{key}' = '0')"""
    )
    for start in (0, 1000):
        spark.sql(
            # Spark writes a column as required where the query can't give null.
            f"""INSERT INTO {table} SELECT id, nullif(concat('word ', id * 7), 'word 35'),
            if(id % 13 = 1, NULL, named_struct('code', nullif(id * 11, 33))), if(id = 4, NULL, array('a', NULL)),
            if(id = 5, NULL, map(string(id), id / 4)), id / 4, nullif(id * 7.125, 7.125),
            nullif(date_add(DATE '2020-01-01', int(id)), DATE '2020-01-02'),
            nullif(timestamp_micros(id * 1000003), timestamp_micros(0)),
            if(id = 6, NULL, timestamp_ntz '2020-01-01 00:00:00') FROM range({start}, {start + 1000}, 1, 1)"""
        )
    before = spark_rows(spark, table)
    services.optimize(table, OptimizingType.FULL)
    assert spark_rows(spark, table) == before

    (path,) = (one.file_path for one in spark.sql(f"SELECT file_path FROM {table}.data_files").collect())
    found = footer(spark, path)
    assert (found["created_by"].split()[0], found["blocks"]) == ("parquet-mr", 2)
    assert (found["pages"]["id"], found["pages"]["inner.code"]) == (20, 20)
    assert found["blooms"] == {"word": 2, "inner.code": 2}
    for condition, ids in (
        ("word = 'word 7770'", [1110]),
        ("word = 'word 7771'", []),
        ("inner.code = 12012", [1092]),
        ("inner.code = 11001", []),
        ("id BETWEEN 998 AND 1001", [998, 999, 1000, 1001]),
    ):
        assert [row.id for row in spark.sql(f"SELECT id FROM {table} WHERE {condition} ORDER BY id").collect()] == ids
