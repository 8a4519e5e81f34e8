"""What our files hold: Parquet as Java's own reader finds it, and statistics in Puffin files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import datasketches
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.typedef import TableVersion
from pyiceberg.types import NestedField
from pyspark.sql import SparkSession

from amoro_core.files.storage.io import new_location
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import writer
from tests.engine.parquet_rows import local_path

from .java import load_java_table
from .optimizing import Services
from .tables import MERGE_ON_READ, make_mixed_table

PROPERTIES = """
    'write.parquet.page-row-limit' = '100',
    'write.parquet.bloom-filter-enabled.column.word' = 'true',
    'write.parquet.bloom-filter-enabled.column.inner.code' = 'true',
    'write.object-storage.enabled' = 'true'
"""
COPIES = ", 'self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes' = '0'"
#: Spark writes a column as required where the query can't give null.
ROWS = """
    SELECT nullif(id, -1) AS id,
    nullif(concat('Grüße, die länger als sechzehn Zeichen sind: ', id * 7), '') AS word,
    IF(id % 13 = 1, NULL, named_struct('code', nullif(id * 11, 33))) AS inner,
    IF(id = 4, NULL, array('a', NULL)) AS tags,
    IF(id = 5, NULL, map(string(id), id / 4)) AS named,
    nullif(int(id * 7 % 1000 - 500), 3) AS number,
    nullif(IF(id % 2 = 0, concat('a', id), repeat('\\uD83D\\uDE00', 20)), 'a0') AS face,
    float(IF(id = 7, 'NaN', nullif((id - 500) / 3, 0))) AS part,
    IF(id = 8, NULL, IF(id % 2 = 0, double(0.0), double(-0.0))) AS nothing,
    IF(id = 9, NULL, unhex(concat('ff', hex(id)))) AS raw,
    IF(id = 10, NULL, id % 2 = 0) AS flag,
    nullif(CAST((id - 500) / 4 AS DECIMAL(9, 2)), 1) AS small,
    nullif(CAST((id - 500) * 1000000.25 AS DECIMAL(18, 2)), 0) AS price,
    nullif(CAST((id - 500) * 12345678901234.5 AS DECIMAL(30, 4)), 0) AS large,
    nullif(date_add(DATE '1970-01-01', int(id - 500)), DATE '1970-01-01') AS day,
    nullif(timestamp_micros((id - 500) * 86400000001), timestamp_micros(0)) AS at,
    IF(id = 6, NULL, timestamp_ntz '1969-12-31 23:59:59.999999') AS wall,
    IF(id < 900, NULL, id) AS late
    FROM range({start}, {end}, 1, 1)
"""


@pytest.mark.parametrize(("more", "is_copied"), [("", False), (COPIES, True)], ids=["encoded", "copied"])
def test_java_reads_ids_page_indexes_and_bloom_filters_of_our_files(
    services: Services, more: str, is_copied: bool
) -> None:
    """Files of Java are copied where the statistics of each column reach the bounds of its manifest."""
    spark, table = services.spark, services.table
    first = ROWS.format(start=0, end=1000)
    services.sql(f"CREATE TABLE {table} USING iceberg TBLPROPERTIES ({PROPERTIES}{more}) AS {first}")
    services.sql(f"INSERT INTO {table} {ROWS.format(start=1000, end=2000)}")
    services.optimize(OptimizingType.FULL)

    (path,) = services.paths()
    locations = load_java_table(spark, table).table.locationProvider()
    assert path == locations.newDataLocation(path.rpartition("/")[2])
    # Filters that only pages and bloom filters can tell apart.
    for condition, ids in (
        ("word = 'Grüße, die länger als sechzehn Zeichen sind: 7770'", [1110]),
        ("word = 'Grüße, die länger als sechzehn Zeichen sind: 7771'", []),
        ("inner.code = 12012", [1092]),
        ("inner.code = 11001", []),
        ("id BETWEEN 998 AND 1001", [998, 999, 1000, 1001]),
    ):
        assert [row.id for row in services.sql(f"SELECT id FROM {table} WHERE {condition} ORDER BY id")] == ids
    found, blocks = footer(spark, path), 1 + is_copied
    assert (found["created_by"].startswith("parquet-mr"), found["blocks"]) == (is_copied, blocks)
    top = {field.name: field.field_id for field in services.catalog.load(table).schema().fields}
    nested = ("inner.code", "tags.list.element", "named.key_value.key", "named.key_value.value")
    assert found["ids"] == top | {name: number for number, name in enumerate(nested, len(top) + 1)}
    assert (found["pages"]["id"], found["pages"]["word"], found["pages"]["inner.code"]) == (20, 20, 20)
    assert found["blooms"] == {"word": blocks, "inner.code": blocks}


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
    provider = jvm.org.apache.iceberg.LocationProviders.locationsFor(location, properties)

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
        pages, blooms = Counter[str](), Counter[str]()
        blocks = list(reader.getFooter().getBlocks())
        for block in blocks:
            for chunk in block.getColumns():
                name = chunk.getPath().toDotString()
                if name == "part":  # Java writes no index of a column with NaN
                    continue
                assert reader.readColumnIndex(chunk) is not None
                pages[name] += reader.readOffsetIndex(chunk).getPageCount()
                if reader.readBloomFilter(chunk) is not None:
                    blooms[name] += 1
        found = {"ids": dict(_ids(schema, "")), "pages": pages, "blooms": blooms, "blocks": len(blocks)}
        return {**found, "created_by": reader.getFileMetaData().getCreatedBy()}
    finally:
        reader.close()


def _ids(group: Any, prefix: str) -> Iterator[tuple[str, int]]:
    for field in group.getFields():
        name = f"{prefix}{field.getName()}"
        if field.getId() is not None:
            yield name, field.getId().intValue()
        if not field.isPrimitive():
            yield from _ids(field.asGroupType(), f"{name}.")


#: All primitive types that Spark has too; it takes UUIDs for texts.
TYPES = [
    "long", "boolean", "int", "float", "double", "decimal(9, 2)", "decimal(38, 10)",
    "date", "timestamp", "timestamptz", "string", "binary", "fixed[4]", "uuid",
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


def compute(services: Services) -> TableMetadata:
    """Compute the statistics of the head; the metadata afterwards."""
    done = services.world.run("compute-statistics", services.table)
    assert done in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)
    return services.catalog.load(services.table).metadata


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


def test_the_hashes_of_every_type_are_those_of_spark(services: Services) -> None:
    table = services.table
    made = writer.make_table(services.catalog.pyiceberg, "db.t", ALL)
    writer.append(made, [row(number) for number in range(700)], files=3)
    writer.upsert(made, [row(5), {**row(7), "c11": "only here"}], ["c1"])
    services.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({MERGE_ON_READ})")
    services.sql(f"DELETE FROM {table} WHERE c1 BETWEEN 100 AND 150")
    ((path,),) = services.call("compute_table_stats")
    theirs, head = sketches(path), services.snapshots()[-1].snapshot_id

    services.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE c1 = 1")
    metadata = compute(services)
    (entry,) = [one for one in metadata.statistics if one.snapshot_id != head]
    ours, uuid = sketches(entry.statistics_path), len(TYPES)
    assert {at: len(hashes) for at, hashes in ours.items()} == {at: len(hashes) for at, hashes in theirs.items()}
    assert {at: one for at, one in ours.items() if at != uuid} == {at: one for at, one in theirs.items() if at != uuid}

    java, read = load_java_table(services.spark, table), {}
    opened = java.iceberg.puffin.Puffin.read(java.table.io().newInputFile(entry.statistics_path))
    opened = opened.withFileSize(entry.file_size_in_bytes).withFooterSize(entry.file_footer_size_in_bytes)
    with closing(opened.build()) as reader:
        lists = java.iceberg.relocated.com.google.common.collect.Lists
        for pair in lists.newArrayList(reader.readAll(reader.fileMetadata().blobs())):
            blob, payload = pair.first(), java.iceberg.util.ByteBuffers.toByteArray(pair.second())
            (field_id,) = blob.inputFields()
            assert (blob.type(), blob.snapshotId()) == ("apache-datasketches-theta-v1", metadata.current_snapshot_id)
            hashes = sorted(datasketches.compact_theta_sketch.deserialize(payload))
            read[field_id] = (int(blob.properties()["ndv"]), hashes)
    assert read == {at: (len(hashes), hashes) for at, hashes in ours.items()}


def compare_partitions(services: Services) -> str:
    """Let both compute the statistics of the head; returns the path of ours."""

    def rows(path: str) -> list[dict[str, Any]]:
        # All that Iceberg's library tells, too: the number of live rows it leaves open.
        found = pq.read_table(local_path(path)).to_pylist()
        return sorted(({**one, "total_record_count": None} for one in found), key=repr)

    ((theirs,),) = services.call("compute_partition_stats")
    expected, metadata = rows(theirs), compute(services)
    (entry,) = [one for one in metadata.partition_statistics if one.snapshot_id == metadata.current_snapshot_id]
    assert entry.statistics_path != theirs
    assert rows(entry.statistics_path) == expected
    assert pq.read_schema(local_path(entry.statistics_path)).equals(pq.read_schema(local_path(theirs)))
    return entry.statistics_path


def test_the_rows_of_partitions_are_those_of_iceberg_and_it_goes_on_from_ours(services: Services) -> None:
    table = services.table
    make_mixed_table(services.spark, table)
    compare_partitions(services)
    # Iceberg adds what has changed since to our file.
    services.sql(f"DELETE FROM {table} WHERE id BETWEEN 45 AND 60")
    services.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id % 3 = 1")
    assert len(pq.read_table(local_path(compare_partitions(services)))) > 4


@pytest.mark.parametrize("version", [1, 2])
def test_partitions_by_every_kind_of_value(services: Services, version: TableVersion) -> None:
    fields = [  # but FIXED: Java can't read what pyiceberg writes into a manifest of such a partition
        *((at, "identity") for at in (2, 6, 7, 8, 11, 12, 14)),
        *((3, "bucket[3]"), (9, "day"), (11, "truncate[2]")),
    ]
    spec = PartitionSpec(*(PartitionField(at, 1000 + n, by, f"p{n}") for n, (at, by) in enumerate(fields)))
    made = writer.make_table(services.catalog.pyiceberg, "db.t", ALL, spec, version)
    writer.append(made, [row(number) for number in (0, 1, 2, 7, 8, 9, 40)])
    compare_partitions(services)
