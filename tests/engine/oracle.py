"""The slow reader: what rows a table holds, by the letter of the specification, in plain loops."""

from __future__ import annotations

import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType
from pyroaring import BitMap64

from tests.engine.parquet_rows import NAME_MAPPING, Rows, local_path, once, open_input, read_parquet
from tests.engine.row_files import read_avro_rows, read_orc_rows
from tests.engine.values import Row, canonical, path_in_history

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
ADDED, DELETED = 1, 2
PATH_ID, POSITION_ID = 2147483546, 2147483545
_READERS = {"parquet": read_parquet, "avro": read_avro_rows, "orc": read_orc_rows}


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that a snapshot refers to; `partition` holds canonical values in the order of its spec's fields."""

    content: int
    path: str
    file_format: str
    spec_id: int
    partition: Row
    data_sequence: int
    file_sequence: int
    equality_ids: tuple[int, ...]
    record_count: int
    file_size_bytes: int
    first_row_id: int | None = None
    referenced: str | None = None  # the data file of a deletion vector
    offset: int = 0  # where it begins in its file
    size_bytes: int = 0

    @property
    def is_vector(self) -> bool:
        """Whether it is a deletion vector."""
        return self.file_format == "puffin"


@dataclass(frozen=True, slots=True)
class LiveRow:
    """A row that no delete removes, where it stands, and its values by the current names."""

    path: str
    position: int
    row: Row
    record: Mapping[str, Any]


def live_rows(table: Table, snapshot_id: int | None = None) -> Counter[Row]:
    """The multiset of rows under the table's current schema; of main's head, loaded anew, or of a snapshot."""
    return Counter(live.row for live in live_rows_with_positions(table, snapshot_id))


def live_rows_with_positions(table: Table, snapshot_id: int | None = None) -> list[LiveRow]:
    """All live rows by file (oldest first) and position; main's head is loaded anew."""
    return rows_in(_loaded(table), snapshot_id)


def live_files(table: Table, snapshot_id: int | None = None) -> list[LiveFile]:
    """All files of the snapshot, or of main's head loaded anew, ordered by sequence, content and path."""
    return files_in(_loaded(table), snapshot_id)


def assert_same_rows(before: Counter[Row], after: Counter[Row]) -> None:
    """Fail with the first rows that are missing or too many."""
    missing, extra = before - after, after - before
    if not missing and not extra:
        return
    lines = [f"rows differ: {before.total()} before, {after.total()} after"]
    for title, rows in (("missing", missing), ("unexpected", extra)):
        shown = sorted(rows.items(), key=repr)[:5]
        lines += [f"  {title}: {rows.total()} rows", *(f"    {count} x {row!r}" for row, count in shown)]
    raise AssertionError("\n".join(lines))


def _loaded(table: Table) -> TableMetadata:
    return table.catalog.load_table(table.name()).metadata


def rows_in(metadata: TableMetadata, snapshot_id: int | None = None) -> list[LiveRow]:
    """The live rows of one snapshot of the given metadata, main's head by default."""
    files = files_in(metadata, snapshot_id)
    positions = positions_in_files(metadata, files)
    keys = [(file, _deleted_keys(metadata, file)) for file in files if file.content == EQUALITY_DELETES]
    kind, found = metadata.schema().as_struct(), []
    vectors = {file.referenced: file for file in files if file.is_vector}
    for file in files:
        if file.content != DATA:
            continue
        rows = _read(metadata, file)
        gone = {position for sequence, position in positions[file.path] if sequence >= file.data_sequence}
        if (vector := vectors.get(file.path)) is not None and vector.data_sequence >= file.data_sequence:
            if (vector.spec_id, vector.partition) != (file.spec_id, file.partition):
                raise ValueError(f"the vector of {file.path} lies in another partition")
            gone = set(vector_positions(vector))
        applying = [(delete.equality_ids, deleted) for delete, deleted in keys if _applies(metadata, delete, file)]
        own_keys = {ids: _keys(metadata, rows, ids) for ids, _ in applying}
        for ids, deleted in applying:
            gone.update(position for position, key in enumerate(own_keys[ids]) if key in deleted)
        for position, record in enumerate(rows.records(kind)):
            if position not in gone:
                found.append(LiveRow(file.path, position, canonical(kind, record), record))
    return found


def _applies(metadata: TableMetadata, delete: LiveFile, data: LiveFile) -> bool:
    """Whether an equality delete file has to be applied to a data file."""
    if delete.data_sequence <= data.data_sequence:
        return False
    if is_unpartitioned(metadata.specs()[delete.spec_id]):
        return True
    return (delete.spec_id, delete.partition) == (data.spec_id, data.partition)


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether the spec has no fields or void ones only, so that its equality deletes are global."""
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def positions_in_files(metadata: TableMetadata, files: Iterable[LiveFile]) -> defaultdict[str, list[tuple[int, int]]]:
    """By data file: the data sequence numbers of position delete files with the positions."""
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for file in files:
        if file.content != POSITION_DELETES or file.is_vector:
            continue
        rows = _read(metadata, file)
        path_node, position_node = rows.root.child(PATH_ID), rows.root.child(POSITION_ID)
        if path_node is None or position_node is None:
            raise ValueError(f"{file.path} is not a position delete file")
        for path, position in zip(rows.columns[path_node.name], rows.columns[position_node.name], strict=True):
            found[path].append((file.data_sequence, position))
    return found


def vector_positions(vector: LiveFile) -> list[int]:
    """The positions in a deletion vector: the 64-bit extension of Roaring bitmaps between a head and a checksum."""
    with open_input(vector.path) as stream:
        blob = stream.read()[vector.offset : vector.offset + vector.size_bytes]
    length, magic = struct.unpack(">I4s", blob[:8])
    if (length, magic) != (vector.size_bytes - 8, b"\xd1\xd3\x39\x64"):
        raise ValueError(f"{vector.path} has no vector of {vector.size_bytes} bytes at {vector.offset}")
    if struct.unpack(">I", blob[-4:])[0] != zlib.crc32(blob[4:-4]):
        raise ValueError(f"the vector at {vector.offset} of {vector.path} is damaged")
    found = list(BitMap64.deserialize(blob[8:-4]))
    if len(found) != vector.record_count:
        raise ValueError(f"the vector at {vector.offset} of {vector.path} has {len(found)} positions")
    return found


def _deleted_keys(metadata: TableMetadata, file: LiveFile) -> set[Row]:
    return set(_keys(metadata, _read(metadata, file), file.equality_ids))


def _keys(metadata: TableMetadata, rows: Rows, field_ids: Iterable[int]) -> list[Row]:
    """The canonical key of each row, null equal to null, in the order of the ids."""
    columns = []
    for field_id in sorted(field_ids):
        path = path_in_history(metadata, field_id)
        columns.append([canonical(path[-1].field_type, value) for value in rows.leaves(path)])
    return list(zip(*columns, strict=True))


def _read(metadata: TableMetadata, file: LiveFile) -> Rows:
    identities = _identities(metadata, file) if file.content == DATA else {}
    return _READERS[file.file_format](file.path, metadata.properties.get(NAME_MAPPING), identities)


def _identities(metadata: TableMetadata, file: LiveFile) -> dict[int, Any]:
    """The values of identity-partitioned columns by source field id, as a reader takes them where a file lacks them."""
    done = {}
    for field, value in zip(metadata.specs()[file.spec_id].fields, file.partition, strict=True):
        if isinstance(field.transform, IdentityTransform):
            kind = path_in_history(metadata, field.source_id)[-1].field_type
            is_float = isinstance(kind, FloatType | DoubleType) and value is not None
            done[field.source_id] = float.fromhex(value) if is_float else value
    return done


def files_in(metadata: TableMetadata, snapshot_id: int | None = None) -> list[LiveFile]:
    """The live files of one snapshot of the given metadata, main's head by default; none for an empty table."""
    wanted = metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    if wanted is None:
        return []
    snapshot = next((one for one in metadata.snapshots if one.snapshot_id == wanted), None)
    if snapshot is None:
        raise ValueError(f"the table has no snapshot {wanted}")
    files = [file for manifest in read_avro(snapshot.manifest_list)[1] for file in _files_of(metadata, manifest)]
    paths = Counter(file.path if not file.is_vector else f"{file.path} at {file.offset}" for file in files)
    paths += Counter(f"the vector of {file.referenced}" for file in files if file.is_vector)
    if twice := [path for path, count in paths.items() if count > 1]:
        raise ValueError(f"the snapshot {wanted} lists files twice: {twice}")
    return sorted(files, key=lambda file: (file.data_sequence, file.content, file.path))


def _files_of(metadata: TableMetadata, manifest: Mapping[str, Any]) -> Iterator[LiveFile]:
    schema, entries = read_avro(manifest["manifest_path"])
    names = _partition_names(schema)
    spec = metadata.specs()[manifest["partition_spec_id"]]
    upcoming = manifest.get("first_row_id")
    for entry in entries:
        if entry["status"] == DELETED:
            continue
        file = entry["data_file"]
        row_id = None if upcoming is None else file.get("first_row_id")
        if upcoming is not None and row_id is None:
            row_id, upcoming = upcoming, upcoming + file["record_count"]
        yield LiveFile(
            content=file.get("content") or DATA,
            path=file["file_path"],
            file_format=file["file_format"].lower(),
            spec_id=spec.spec_id,
            partition=_partition(metadata, spec, file["partition"], names),
            data_sequence=_inherited(entry, "sequence_number", manifest),
            file_sequence=_inherited(entry, "file_sequence_number", manifest),
            equality_ids=tuple(file.get("equality_ids") or ()),
            record_count=file["record_count"],
            file_size_bytes=file["file_size_in_bytes"],
            first_row_id=row_id,
            referenced=file.get("referenced_data_file"),
            offset=file.get("content_offset") or 0,
            size_bytes=file.get("content_size_in_bytes") or 0,
        )


def _inherited(entry: Mapping[str, Any], name: str, manifest: Mapping[str, Any]) -> int:
    """The entry's own number; null in an added entry, or in format 1, means the manifest's."""
    if (own := entry.get(name)) is not None:
        return int(own)
    number = int(manifest.get("sequence_number") or 0)
    if entry["status"] != ADDED and number != 0:
        raise ValueError(f"{entry['data_file']['file_path']}: an existing entry lacks its {name}")
    return number


def _partition(
    metadata: TableMetadata, spec: PartitionSpec, values: Mapping[str, Any], names: Mapping[int, str]
) -> Row:
    done = []
    for field in spec.fields:
        value = values[names[field.field_id]] if field.field_id in names else None
        if value is None or isinstance(field.transform, VoidTransform):
            done.append(None)
            continue
        source = path_in_history(metadata, field.source_id)[-1].field_type
        done.append(canonical(field.transform.result_type(source), value))
    return tuple(done)


def _partition_names(schema: Mapping[str, Any]) -> dict[int, str]:
    """The Avro names of the partition's fields by their ids, from a manifest's own schema."""
    data_file = next(field["type"] for field in schema["fields"] if field["name"] == "data_file")
    partition = next(field["type"] for field in data_file["fields"] if field["name"] == "partition")
    return {field["field-id"]: field["name"] for field in partition["fields"]}


@once
def read_avro(location: str) -> tuple[Any, list[Any]]:
    """The writer's schema and all records of an Avro file."""
    with open_input(location) as file:
        reader = fastavro.reader(file)
        return reader.writer_schema, list(reader)


def reached(metadata: TableMetadata, snapshot_ids: Iterable[int] | None = None) -> set[str]:
    """Manifest lists, manifests, live data and delete files of the snapshots, all by default, and their statistics."""
    ids = {one.snapshot_id for one in metadata.snapshots} if snapshot_ids is None else set(snapshot_ids)
    found = {one.manifest_list for one in metadata.snapshots if one.snapshot_id in ids}
    manifests = {one["manifest_path"] for path in found for one in read_avro(path)[1]}
    entries = (entry for path in manifests for entry in read_avro(path)[1])
    files = {entry["data_file"]["file_path"] for entry in entries if entry["status"] != DELETED}
    every = (*metadata.statistics, *metadata.partition_statistics)
    return found | manifests | files | {one.statistics_path for one in every if one.snapshot_id in ids}


ROW_ID, LAST_UPDATED = 2147483540, 2147483539
#: Id, and the sequence number of the last update.
Lineage = tuple[int | None, int | None]


def lineage_of(table: Table) -> dict[Any, Lineage]:
    """The lineage of each live row of main's head by its `id`, which is unique."""
    files = {file.path: file for file in live_files(table)}
    stored: dict[str, Mapping[int, list[int | None]]] = {}
    found: dict[Any, Lineage] = {}
    for row in live_rows_with_positions(table):
        file, key = files[row.path], row.record["id"]
        if row.path not in stored:
            stored[row.path] = _stored(row.path)
        row_id, updated = (
            stored[row.path][field_id][row.position] if field_id in stored[row.path] else None
            for field_id in (ROW_ID, LAST_UPDATED)
        )
        if row_id is None and file.first_row_id is not None:
            row_id = file.first_row_id + row.position
        if key in found:
            raise ValueError(f"two live rows have the key {key}")
        found[key] = (row_id, file.data_sequence if updated is None else updated)
    return found


def _stored(path: str) -> Mapping[int, list[int | None]]:
    """The columns of lineage that a Parquet file stores, by field id."""
    read = pq.ParquetFile(local_path(path))
    columns = {int((field.metadata or {}).get(b"PARQUET:field_id", 0)): field.name for field in read.schema_arrow}
    chosen = {field_id: columns[field_id] for field_id in (ROW_ID, LAST_UPDATED) if field_id in columns}
    content = read.read(list(chosen.values()))
    return {field_id: content.column(name).to_pylist() for field_id, name in chosen.items()}
