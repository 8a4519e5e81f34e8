"""Random histories, and another reader of the manifests that commits write."""

from __future__ import annotations

import json
import random
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import datafusion
import pytest
from pyiceberg.avro.file import MAGIC
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.iceberg.manifest.reading import read_list, read_manifest
from amoro_core.iceberg.manifest.writing import MIN_COUNT_KEY
from tests.engine import oracle
from tests.engine.chance import seed_ids
from tests.engine.oracle import assert_same_rows, live_files, live_rows
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, delete_where, make_catalog, make_table, upsert
from tests.iceberg.histories import CHANGES, random_lake
from tests.iceberg.looking import watched
from tests.iceberg.rewriting import loaded, optimized, rewritten
from tests.tiers import seeds

COMMITS, MOST = 12, 80
#: What histories must have met. Some take about ten of them.
WANTED = {
    *CHANGES,
    *(f"rewrite × format {version}" for version in (1, 2, 3)),
    *("conversions", "merged", "looks at the branch", "known", "read"),
}


def test_random_tables_are_seen_as_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """History after history until all that is wanted was met. `make prove` goes on with other seeds."""
    [seed] = seeds(1, 1)
    chance = random.Random(seed)
    seed_ids(monkeypatch, chance)
    seen: Counter[str] = Counter()
    for number in range(MOST):
        (place := tmp_path / str(number)).mkdir()
        seen += watched(random_lake(place, chance), chance, COMMITS)
        close_catalogs()
        if seen.keys() >= WANTED:
            break
    assert WANTED - seen.keys() == set(), seen


# DataFusion's Avro reader, another reader of ours, on the manifests that commits write


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "a b", StringType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
)
PARTITIONED = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "a b"), PartitionField(3, 1001, DayTransform(), "day")
)


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": one, "a b": "é/=", "at": None} for one in ids]


def read_by_datafusion(path: Path) -> list[dict[str, Any]]:
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    return [row for batch in context.read_avro(str(path)).collect() for row in batch.to_pylist()]


def without_empty_partition(path: Path, target: Path) -> Path:
    """A copy whose header leaves out the partition, a record without fields: DataFusion has no such thing.

    Such a record takes no bytes, so that the rest of the file stays as it is.
    """
    raw = path.read_bytes()
    meta, rest = _header(raw)
    schema = json.loads(meta[b"avro.schema"])
    data_file = next(field["type"] for field in schema["fields"] if field["name"] == "data_file")
    partition = next(field for field in data_file["fields"] if field["name"] == "partition")
    assert partition["type"]["fields"] == []
    data_file["fields"].remove(partition)
    meta[b"avro.schema"] = json.dumps(schema).encode()
    target.write_bytes(MAGIC + _long(len(meta)) + b"".join(_text(k) + _text(v) for k, v in meta.items()) + b"\0" + rest)
    return target


def _header(raw: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """The metadata of an Avro file, and all that follows it."""
    source = BytesIO(raw)
    assert source.read(len(MAGIC)) == MAGIC
    meta: dict[bytes, bytes] = {}
    while count := _read_long(source):
        assert count > 0
        for _ in range(count):
            key = source.read(_read_long(source))
            meta[key] = source.read(_read_long(source))
    return meta, source.read()


def _read_long(source: BytesIO) -> int:
    value = shift = 0
    while (byte := source.read(1)[0]) & 0x80:
        value, shift = value | (byte & 0x7F) << shift, shift + 7
    value |= byte << shift
    return (value >> 1) ^ -(value & 1)


def _long(value: int) -> bytes:
    done, rest = b"", value << 1
    while rest > 0x7F:
        done, rest = done + bytes([rest & 0x7F | 0x80]), rest >> 7
    return done + bytes([rest])


def _text(value: bytes) -> bytes:
    return _long(len(value)) + value


def ours(table: Table) -> list[ManifestFile]:
    snapshot = loaded(table).current_snapshot()
    assert snapshot is not None
    found = read_list(table.io, snapshot.manifest_list)
    return [one for one in found if one.added_snapshot_id == snapshot.snapshot_id]


def assert_read_alike(table: Table, manifest: ManifestFile, target: Path) -> None:
    path = Path(local_path(manifest.manifest_path))
    if manifest.partition_spec_id == 0 and not table.metadata.specs()[0].fields:
        path = without_empty_partition(path, target)
    read = read_by_datafusion(path)
    expected = read_manifest(table.io, manifest).entries
    assert [row["status"] for row in read] == [entry.status.value for entry in expected]
    assert [row["snapshot_id"] for row in read] == [entry.snapshot_id for entry in expected]
    assert [row["sequence_number"] for row in read] == [entry.sequence_number for entry in expected]
    assert [row["data_file"]["file_path"] for row in read] == [entry.data_file.file_path for entry in expected]
    assert [row["data_file"]["record_count"] for row in read] == [entry.data_file.record_count for entry in expected]
    assert [row["data_file"]["equality_ids"] for row in read] == [entry.data_file.equality_ids for entry in expected]
    assert [{pair["key"]: pair["value"] for pair in row["data_file"]["lower_bounds"] or ()} for row in read] == [
        dict(entry.data_file.lower_bounds or {}) for entry in expected
    ]
    if path == Path(local_path(manifest.manifest_path)):
        places = [list(row["data_file"]["partition"].values()) for row in read]
        assert places == [[entry.data_file.partition[0], entry.data_file.partition[1]] for entry in expected]


@pytest.mark.parametrize(("least", "count"), [("2", 2), ("100", 6)], ids=["merged", "ordinary"])
@pytest.mark.parametrize("spec", [UNPARTITIONED_PARTITION_SPEC, PARTITIONED], ids=["unpartitioned", "partitioned"])
def test_manifests_of_a_commit_are_read_alike(tmp_path: Path, spec: PartitionSpec, least: str, count: int) -> None:
    table = make_table(make_catalog(tmp_path), "db.t", SCHEMA, spec, properties={MIN_COUNT_KEY: least})
    for one in range(3):
        append(table, rows(one, one + 10))
    upsert(table, rows(1), ["id"])
    delete_where(table, lambda row: row["id"] == 12)
    paths = [file.path for file in live_files(table) if file.content == oracle.DATA]
    plan = rewritten(table, only=paths[:2], converted=[paths[2]])
    upsert(table, rows(0), ["id"])
    before = live_rows(table)

    optimized(table, plan)

    written = ours(table)
    assert len(written) == count
    for at, manifest in enumerate(written):
        assert_read_alike(table, manifest, tmp_path / f"patched-{at}.avro")
    assert_same_rows(before, live_rows(table))
