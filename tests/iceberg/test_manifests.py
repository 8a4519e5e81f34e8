"""Manifests and manifest lists as they are written, and as they are read back."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
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
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.errors import DataFileMissing, UnreadableFile
from amoro_core.iceberg.manifest.reading import partition_types, read_list, read_manifest, to_data_file, to_delete_file
from amoro_core.iceberg.manifest.writing import (
    Listing,
    added_entry,
    deleted_entry,
    existing_entry,
    new_header,
    partition_summaries,
    write_list,
    write_manifest,
)
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile, DeleteKind, FileFormat
from tests.engine.parquet_rows import local_path
from tests.engine.writer import EqualityDelete, append, make_catalog, make_table, row_delta
from tests.iceberg.rewriting import current, loaded

OURS = 77
VALUES: dict[Any, Any] = {
    BooleanType(): True,
    IntegerType(): -5,
    LongType(): 2**40,
    FloatType(): 1.5,
    DoubleType(): float("nan"),
    DateType(): 19000,
    TimeType(): 3_600_000_000,
    TimestampType(): -1,
    TimestamptzType(): 1_600_000_000_000_000,
    StringType(): "é/=",
    UUIDType(): uuid.UUID(int=7),
    FixedType(3): b"abc",
    BinaryType(): b"\x00\xff",
    DecimalType(9, 2): Decimal("-12.34"),
    DecimalType(30, 3): Decimal("123456789012345678.901"),
}
METRICS = ColumnMetrics(
    column_sizes={1: 10},
    value_counts={1: 3},
    null_value_counts={1: 1},
    nan_value_counts={1: 0},
    lower_bounds={1: b"\x01"},
    upper_bounds={1: b"\x02"},
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table partitioned by a column of every type."""
    names = [f"c {at}" for at in range(len(VALUES))]
    fields = [NestedField(at, names[at - 1], kind, required=False) for at, kind in enumerate(VALUES, 1)]
    spec = PartitionSpec(
        *(PartitionField(at, 999 + at, IdentityTransform(), f"p {at}") for at in range(1, len(VALUES) + 1))
    )
    return make_table(make_catalog(tmp_path), "db.t", Schema(*fields), spec)


@pytest.fixture
def plain(tmp_path: Path) -> Table:
    return make_table(
        make_catalog(tmp_path / "plain"), "db.t", Schema(NestedField(1, "id", LongType(), required=False))
    )


def partition() -> tuple[bytes | None, ...]:
    return tuple(to_bytes(kind, value) for kind, value in VALUES.items())


def data(path: str = "file:///d", sequence: int = 3, place: tuple[bytes | None, ...] = ()) -> DataFile:
    return DataFile(path, FileFormat.PARQUET, 0, place, 3, 100, sequence, METRICS, 0, (4, 50))


def written(table: Table, entries: list[ManifestEntry], **changes: Any) -> ManifestFile:
    path = f"{table.metadata.location}/metadata/{uuid.uuid4()}.avro"
    given = {
        "format_version": 2,
        "content": ManifestContent.DATA,
        "header": new_header(table.metadata, 0),
        "snapshot_id": OURS,
        **changes,
    }
    return write_manifest(table.io, path, entries=entries, **given)


def avro(manifest_path: str) -> Any:
    return fastavro.reader(BytesIO(Path(local_path(manifest_path)).read_bytes()))


def test_entries_stand_in_blocks_of_500(plain: Table) -> None:
    header = new_header(plain.metadata, 0)

    manifest = written(plain, [added_entry(data(f"file:///{at}"), header, OURS) for at in range(1101)])

    raw = Path(local_path(manifest.manifest_path)).read_bytes()
    assert [block.num_records for block in fastavro.block_reader(BytesIO(raw))] == [500, 500, 101]
    assert manifest.manifest_length == len(raw)


def avro_field(schema: dict[str, Any], *names: str) -> Any:
    for name in names:
        schema = next(field for field in schema["fields"] if field["name"].rpartition(".")[2] == name)["type"]
        schema = next(one for one in schema if one != "null") if isinstance(schema, list) else schema
    return schema


def test_a_data_file_comes_back_with_every_value_and_the_header_says_what_entries_have_in_common(table: Table) -> None:
    header = new_header(table.metadata, 0)
    files = [data("file:///a", 0, partition()), data("file:///b", 3, (None,) * len(VALUES))]

    manifest = written(table, [added_entry(file, header, OURS) for file in files])
    back = read_manifest(table.io, manifest)

    types = partition_types(table.metadata, table.metadata.specs()[0])
    assert [to_data_file(entry, types) for entry in back.entries] == files
    assert [entry.sequence_number for entry in manifest.fetch_manifest_entry(table.io)] == [0, 3]
    stored = avro(manifest.manifest_path)
    assert [(row["data_file"]["file_path"], row["sequence_number"], row["file_sequence_number"]) for row in stored] == [
        ("file:///a", 0, None),
        ("file:///b", 3, None),
    ]
    meta = stored.metadata
    names = ("schema-id", "partition-spec-id", "format-version", "content", "avro.codec")
    assert [meta[key] for key in names] == ["0", "0", "2", "data", "deflate"]
    field = {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "p 1"}
    assert json.loads(meta["partition-spec"])[0] == field
    assert json.loads(meta["schema"])["fields"][0]["name"] == "c 0"


def test_deletes_come_back_with_equality_ids_and_the_file_they_name(plain: Table) -> None:
    header = new_header(plain.metadata, 0)
    equality = DeleteFile(
        "file:///e", DeleteKind.EQUALITY, FileFormat.PARQUET, 0, (), 3, 100, 5, equality_ids=(1, 2), metrics=METRICS
    )
    named = DeleteFile(
        "file:///p", DeleteKind.POSITION, FileFormat.PARQUET, 0, (), 3, 100, 4, referenced_data_file="file:///a"
    )

    entries = [added_entry(one, header, OURS) for one in (equality, named)]
    manifest = written(plain, entries, content=ManifestContent.DELETES)
    back = read_manifest(plain.io, manifest)

    assert [to_delete_file(entry, ()) for entry in back.entries] == [equality, named]
    assert [row["data_file"]["referenced_data_file"] for row in avro(manifest.manifest_path)] == [None, "file:///a"]
    schema = avro(manifest.manifest_path).writer_schema
    assert avro_field(schema, "data_file", "equality_ids") == {"type": "array", "element-id": 136, "items": "int"}
    fields = next(one for one in schema["fields"] if one["name"] == "data_file")["type"]["fields"]
    assert {one["name"]: one["field-id"] for one in fields}["referenced_data_file"] == 143


def test_partition_fields_of_one_type_have_avro_types_of_their_own(tmp_path: Path) -> None:
    kinds = (DecimalType(9, 2), DecimalType(9, 2), UUIDType(), UUIDType(), FixedType(3), FixedType(3))
    fields = [NestedField(at, f"c{at}", kind, required=False) for at, kind in enumerate(kinds, 1)]
    spec = PartitionSpec(
        *(PartitionField(at, 999 + at, IdentityTransform(), f"p{at}") for at in range(1, len(kinds) + 1))
    )
    table = make_table(make_catalog(tmp_path), "db.twins", Schema(*fields), spec)
    place = tuple(to_bytes(kind, VALUES[kind]) for kind in kinds)
    file = data(place=place)

    manifest = written(table, [added_entry(file, new_header(table.metadata, 0), OURS)])

    (row,) = avro(manifest.manifest_path)
    assert list(row["data_file"]["partition"].values()) == [
        *[Decimal("-12.34")] * 2,
        *[uuid.UUID(int=7).bytes] * 2,
        *[b"abc"] * 2,
    ]
    (entry,) = read_manifest(table.io, manifest).entries
    assert to_data_file(entry, kinds) == file


def test_the_list_says_what_readers_need(plain: Table) -> None:
    header = new_header(plain.metadata, 0)
    first = written(plain, [added_entry(data(sequence=0), header, OURS)])
    earlier = written(plain, [added_entry(data(), header, 5)], snapshot_id=5)
    earlier.sequence_number = 3
    gone = written(plain, [deleted_entry(entry, OURS) for entry in read_manifest(plain.io, earlier).live])
    path = f"{plain.metadata.location}/metadata/list.avro"

    write_list(plain.io, path, Listing(2, OURS, 5, 8), [first, gone])

    rows, meta = list(avro(path)), avro(path).metadata
    names = ("content", "sequence_number", "min_sequence_number", "added_snapshot_id", "partitions")
    assert [rows[0][name] for name in names] == [0, 8, 0, OURS, []]
    names = ("snapshot-id", "parent-snapshot-id", "sequence-number", "format-version")
    assert [meta[key] for key in names] == ["77", "5", "8", "2"]
    listed = read_list(plain.io, path)[1]  # one of removed files only takes the snapshot's number
    assert (listed.sequence_number, listed.min_sequence_number, listed.deleted_files_count) == (8, 8, 1)
    assert listed.has_existing_files() is listed.has_added_files() is False


def test_what_no_manifest_or_list_can_be_is_refused(plain: Table) -> None:
    with pytest.raises(ValueError, match="at least one entry"):
        written(plain, [])
    with pytest.raises(ValueError, match=f"snapshot {OURS} of format 3 has no first row id"):
        write_list(plain.io, "file:///x", Listing(3, OURS, 5, 8), [])
    equality = DeleteFile("file:///e", DeleteKind.EQUALITY, FileFormat.PARQUET, 0, (), 3, 100, 5, equality_ids=(1,))
    entry = added_entry(equality, new_header(plain.metadata, 0), OURS)
    deletes = written(plain, [entry], content=ManifestContent.DELETES)
    with pytest.raises(ValueError, match="format 1 has no delete files"):
        write_list(plain.io, f"{plain.location()}/metadata/list.avro", Listing(1, OURS, 5, 0), [deletes])


def test_format_1_has_neither_numbers_nor_content(plain: Table) -> None:
    header = new_header(plain.metadata, 0)
    path = f"{plain.metadata.location}/metadata/list.avro"

    manifest = written(plain, [added_entry(data(sequence=0), header, OURS)], format_version=1)
    write_list(plain.io, path, Listing(1, OURS, 5, 0), [manifest])

    (row,) = avro(manifest.manifest_path)
    assert sorted(row) == ["data_file", "snapshot_id", "status"]
    assert row["data_file"]["block_size_in_bytes"] == 67108864
    assert "content" not in row["data_file"]
    assert "content" not in avro(manifest.manifest_path).metadata
    (listed,) = read_list(plain.io, path)
    (entry,) = read_manifest(plain.io, listed).entries
    assert (entry.sequence_number, entry.data_file.spec_id, listed.content) == (0, 0, ManifestContent.DATA)


def test_entries_of_other_writers_are_carried_unchanged(plain: Table) -> None:
    append(plain, [{"id": 1}, {"id": None}], files=2)
    row_delta(plain, equality_deletes=[EqualityDelete(["id"], [{"id": 1}])])
    fresh = loaded(plain)
    snapshot = current(fresh)
    for file in read_list(fresh.io, snapshot.manifest_list):
        manifest = read_manifest(fresh.io, file)

        carried = written(
            plain, [existing_entry(entry) for entry in manifest.live], content=file.content, header=manifest.header
        )

        before, after = (
            [row["data_file"] for row in avro(path)] for path in (file.manifest_path, carried.manifest_path)
        )
        assert [{"referenced_data_file": None, **row} for row in before] == after


def test_a_spec_whose_column_was_dropped_keeps_its_type(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "at", TimestampType(), required=True)
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, DayTransform(), "day"), PartitionField(1, 1001, VoidTransform(), "gone")
    )
    table = make_table(make_catalog(tmp_path), "db.t", schema, spec)
    with table.update_spec() as change:
        change.remove_field("day")
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("at")

    header = new_header(table.refresh().metadata, 0)

    assert [(one.name, one.field_type, one.required) for one in header.partition_type.fields] == [
        ("day", DateType(), False),
        ("gone", LongType(), False),
    ]
    assert header.schema_id == "0"


def test_summaries_have_bounds_nulls_and_nans() -> None:
    kind = StructType(
        NestedField(1000, "d", DoubleType(), required=False), NestedField(1001, "s", StringType(), required=False)
    )
    rows = [Record(0.0, "b"), Record(-0.0, None), Record(float("nan"), "a")]

    assert partition_summaries(kind, rows) == [
        PartitionFieldSummary(False, True, to_bytes(DoubleType(), -0.0), to_bytes(DoubleType(), 0.0)),
        PartitionFieldSummary(True, False, b"a", b"b"),
    ]


def test_a_missing_or_broken_manifest_says_which(plain: Table) -> None:
    manifest = written(plain, [added_entry(data(), new_header(plain.metadata, 0), OURS)])
    file = Path(local_path(manifest.manifest_path))
    for content in (b"", b"no avro at all", file.read_bytes()[:-20]):
        file.write_bytes(content)
        with pytest.raises(UnreadableFile, match=f"the manifest .*{file.name} can't be read"):
            read_manifest(plain.io, manifest)
    file.unlink()
    with pytest.raises(DataFileMissing, match=f"the manifest .*{file.name} does not exist"):
        read_manifest(plain.io, manifest)
    with pytest.raises(DataFileMissing, match=r"the manifest list .* does not exist"):
        read_list(plain.io, f"{plain.metadata.location}/metadata/none.avro")
