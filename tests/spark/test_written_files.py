"""What our files hold: Parquet as Java's own reader finds it, and statistics in Puffin files."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import datasketches
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from amoro_core.files.row_groups.checks import compared_columns, open_source, require_consistent_statistics
from amoro_core.files.storage.io import new_location
from amoro_core.model.files import ColumnMetrics
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import writer
from tests.engine.parquet_rows import local_path

from .java import load_java_table
from .optimizing import Services
from .session import SharedCatalog
from .tables import MERGE_ON_READ, make_mixed_table, spark_rows

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
    content, schema = Path(local_path(task.file.file_path)).read_bytes(), loaded.schema()
    one = open_source(lambda at, length: content[at : at + length], len(content), content)
    assert len(one.rows) > 5
    columns = compared_columns(one, schema)
    assert [column.field_id for column in columns] == [*range(1, 10), 19, 20, *range(12, 19)]
    told = ColumnMetrics(
        nan_value_counts=task.file.nan_value_counts,
        lower_bounds=task.file.lower_bounds,
        upper_bounds=task.file.upper_bounds,
    )
    assert {column.field_id for column in columns} <= set(told.lower_bounds)
    require_consistent_statistics(one, columns, schema, told, are_reached=True)


#: All primitive types that Spark has too; it takes UUIDs for texts.
TYPES = [
    LongType(), BooleanType(), IntegerType(), FloatType(), DoubleType(), DecimalType(9, 2), DecimalType(38, 10),
    DateType(), TimestampType(), TimestamptzType(), StringType(), BinaryType(), FixedType(4), UUIDType(),
]  # fmt: skip
ALL = Schema(*(NestedField(at, f"c{at}", kind, required=False) for at, kind in enumerate(TYPES, 1)))
START = datetime(2026, 3, 1)


def row(number: int) -> dict[str, Any]:
    """A row of `ALL`; the values of each column repeat, and some are null, empty or of an odd kind."""
    values: list[Any] = [
        number,
        number % 2 == 0,
        number - 300,
        [0.0, -0.0, 1.5, number / 4][number % 4],
        [0.0, -0.0, float("inf"), -number / 8][number % 4],
        Decimal(f"{number * 37 - 9000}E-2"),
        Decimal(f"{(number - 200) * 10**27}E-10"),
        date(1969, 12, 1) + timedelta(days=number % 90),
        START + timedelta(microseconds=number),
        (START - timedelta(hours=number * 1000)).replace(tzinfo=UTC),
        ["", "ü" * (number % 40), f"name {number}"][number % 3],
        [b"", b"\0" * (number % 30), number.to_bytes(8)][number % 3],
        (number % 50).to_bytes(4),
        UUID(int=number % 70),
    ]
    nulls = number % 11 == 0
    return {f"c{at}": None if nulls and at > 1 else value for at, value in enumerate(values, 1)}


def compute(services: Services, table: str) -> None:
    begun = services.world.maintaining.begin(
        services.world.table(table).table_id, "compute-statistics", trigger="request"
    )
    assert begun.process_id, begun.reason
    status = services.world.committing.commit(begun.process_id)
    assert status in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)


def sketches(path: str) -> dict[int, list[int]]:
    """The hashes of each column in a Puffin file, whoever wrote it."""
    content = Path(local_path(path)).read_bytes()
    found = {}
    for blob in PuffinFile(content).footer.blobs:
        stored = pa.py_buffer(content[blob.offset : blob.offset + blob.length])
        assert blob.compression_codec == "zstd"
        plain = pa.input_stream(stored, compression="zstd").read()
        found[blob.fields[0]] = sorted(datasketches.compact_theta_sketch.deserialize(plain))
    return found


def test_the_hashes_of_every_type_are_those_of_spark(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    made = writer.make_table(catalog.pyiceberg, "db.t", ALL)
    writer.append(made, [row(number) for number in range(700)], files=3)
    writer.upsert(made, [row(5), {**row(7), "c11": "only here"}], ["c1"])
    table = catalog.full_name("db.t")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({MERGE_ON_READ})")
    spark.sql(f"DELETE FROM {table} WHERE c1 BETWEEN 100 AND 150")
    (path,) = spark.sql(f"CALL {catalog.name}.system.compute_table_stats(table => 'db.t')").first()
    theirs = sketches(path)

    head = catalog.load(table).metadata.current_snapshot_id
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE c1 = 1")
    compute(services, table)
    metadata = catalog.load(table).metadata
    (entry,) = [one for one in metadata.statistics if one.snapshot_id != head]
    ours = sketches(entry.statistics_path)
    uuid = len(TYPES)
    assert {at: len(hashes) for at, hashes in ours.items()} == {at: len(hashes) for at, hashes in theirs.items()}
    assert {at: one for at, one in ours.items() if at != uuid} == {at: one for at, one in theirs.items() if at != uuid}

    jvm = spark._jvm
    assert jvm is not None
    configuration = spark._jsc.hadoopConfiguration()
    file = jvm.org.apache.iceberg.hadoop.HadoopFileIO(configuration).newInputFile(entry.statistics_path)
    opened = jvm.org.apache.iceberg.puffin.Puffin.read(file).withFileSize(entry.file_size_in_bytes)
    reader = opened.withFooterSize(entry.file_footer_size_in_bytes).build()
    read = {}
    pairs = reader.readAll(reader.fileMetadata().blobs()).iterator()
    while pairs.hasNext():
        pair = pairs.next()
        blob, payload = pair.first(), jvm.org.apache.iceberg.util.ByteBuffers.toByteArray(pair.second())
        (field_id,) = blob.inputFields()
        assert (blob.type(), blob.snapshotId()) == ("apache-datasketches-theta-v1", metadata.current_snapshot_id)
        read[field_id] = (int(blob.properties()["ndv"]), sorted(datasketches.compact_theta_sketch.deserialize(payload)))
    reader.close()
    assert read == {at: (len(hashes), hashes) for at, hashes in ours.items()}


def partition_rows(path: str) -> list[dict[str, Any]]:
    """All that Iceberg's library tells, too: the number of live rows it leaves open."""
    rows = pq.read_table(local_path(path)).to_pylist()
    return sorted(({**one, "total_record_count": None} for one in rows), key=repr)


def compare_partitions(spark: SparkSession, catalog: SharedCatalog, services: Services, table: str) -> str:
    """Let both compute the statistics of the head; returns the path of ours."""
    name = table.removeprefix(f"{catalog.name}.")
    (theirs,) = spark.sql(f"CALL {catalog.name}.system.compute_partition_stats(table => '{name}')").first()
    expected = partition_rows(theirs)
    compute(services, table)
    metadata = catalog.load(table).metadata
    (entry,) = [one for one in metadata.partition_statistics if one.snapshot_id == metadata.current_snapshot_id]
    assert entry.statistics_path != theirs
    assert partition_rows(entry.statistics_path) == expected
    assert pq.read_schema(local_path(entry.statistics_path)).equals(pq.read_schema(local_path(theirs)))
    return entry.statistics_path


def test_the_rows_of_partitions_are_those_of_iceberg_and_it_goes_on_from_ours(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_mixed_table(catalog)
    compare_partitions(spark, catalog, services, table)
    # Iceberg adds what has changed since to our file.
    spark.sql(f"DELETE FROM {table} WHERE id BETWEEN 45 AND 60")
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id % 3 = 1")
    ours = compare_partitions(spark, catalog, services, table)
    assert len(pq.read_table(local_path(ours))) > 4


def test_partitions_by_every_kind_of_value(spark: SparkSession, catalog: SharedCatalog, services: Services) -> None:
    fields = [  # but FIXED: Java can't read what pyiceberg writes into a manifest of such a partition
        *((at, IdentityTransform()) for at in (2, 6, 7, 8, 11, 12, 14)),
        (3, BucketTransform(3)),
        (9, DayTransform()),
        (11, TruncateTransform(2)),
    ]
    spec = PartitionSpec(*(PartitionField(at, 1000 + n, by, f"p{n}") for n, (at, by) in enumerate(fields)))
    for version in (1, 2):
        made = writer.make_table(catalog.pyiceberg, f"db.v{version}", ALL, spec, version)
        writer.append(made, [row(number) for number in (0, 1, 2, 7, 8, 9, 40)])
        compare_partitions(spark, catalog, services, catalog.full_name(f"db.v{version}"))
