"""Statistics beside Java's: the same hashes and the same rows of partitions, in files that Java reads."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import datasketches
import pyarrow as pa
import pyarrow.parquet as pq
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

from amoro_core.model.processes import ProcessStatus
from tests.engine import writer
from tests.engine.parquet_rows import local_path

from .catalogs import SharedCatalog
from .optimizing import Services
from .tables import MERGE_ON_READ, make_mixed_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
