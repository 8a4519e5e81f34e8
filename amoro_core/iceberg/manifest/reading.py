"""Reading manifests and manifest lists, and conversion of their entries to data and delete files."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from pyiceberg.avro.reader import DefaultReader, NoneReader, Reader, StructReader
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.manifest import DataFile as EntryFile
from pyiceberg.manifest import FileFormat as EntryFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, UpdateMetrics
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, PrimitiveType, StructType, UnknownType

from amoro_core.errors import (
    AccessDenied,
    AmoroError,
    CatalogUnavailable,
    DataFileMissing,
    TableRefused,
    UnreadableFile,
)
from amoro_core.files.schema.schemas import path_of_values
from amoro_core.files.storage.io import is_denied
from amoro_core.iceberg.catalog.errors import error_text
from amoro_core.iceberg.manifest.avro import (
    DATA_FILE,
    PARTITION,
    RECORD_VERSION,
    BoundedAvroFile,
    data_file_fields,
    inherit_row_ids,
    readers_of,
    with_packed_metrics,
)
from amoro_core.model.files import (
    ColumnMetrics,
    DataFile,
    DeleteFile,
    DeleteIdentity,
    DeleteKind,
    FileFormat,
    Partition,
)
from amoro_core.model.maintenance import StoredFile
from amoro_core.model.plans import PartitionKey
from amoro_core.scan.columns import PackedMetrics, pack_map

#: Ids of fields of a manifest list.
_SUMMARY, _CONTENT = 508, 517
_OF_LISTS = readers_of(
    MANIFEST_LIST_FILE_SCHEMAS[RECORD_VERSION],
    {-1: ManifestFile, _SUMMARY: PartitionFieldSummary},
    {_CONTENT: ManifestContent},
)
#: The indexes of fields in entries, and in their files: they are read in the form of format 3, which has all of them.
IN_ENTRY = {field.name: at for at, field in enumerate(MANIFEST_ENTRY_SCHEMAS[RECORD_VERSION].fields)}
FILE_FIELDS = {field.name: at for at, field in enumerate(data_file_fields(MANIFEST_ENTRY_SCHEMAS[RECORD_VERSION]))}
_OF_ENTRIES = readers_of(
    MANIFEST_ENTRY_SCHEMAS[RECORD_VERSION],
    {-1: ManifestEntry, DATA_FILE: EntryFile},
    {0: ManifestEntryStatus, 101: EntryFormat, 134: DataFileContent},
    with_packed_metrics,
)


#: The names of a file's metrics, in entries and in our values, in the order in which they are packed.
METRICS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


@dataclass(frozen=True, slots=True)
class ManifestHeader:
    """What all entries of a manifest have in common, from its file header."""

    spec_id: int
    spec_json: str  # the partition fields only
    schema_json: str
    schema_id: str | None
    partition_type: StructType
    content: str | None = None  # "data" or "deletes", if in the header
    own_spec_id: str | None = None  # from the header itself


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that was read, with inherited sequence numbers and row ids filled in."""

    file: ManifestFile
    header: ManifestHeader
    entries: tuple[ManifestEntry, ...]

    @property
    def live(self) -> tuple[ManifestEntry, ...]:
        """The entries of files that are still part of the table."""
        return tuple(entry for entry in self.entries if entry.status != ManifestEntryStatus.DELETED)


def read_list(io: FileIO, path: str) -> list[ManifestFile]:
    """The manifests of a manifest list, in its order, with their first row ids. Raises DataFileMissing, UnreadableFile,
    CatalogUnavailable."""
    try:
        # pyiceberg's own method caches objects that are shared between threads.
        source = io.new_input(path)
        with BoundedAvroFile[ManifestFile](_WholeFile(source, len(source)), _OF_LISTS) as reader:
            return list(reader)
    except Exception as error:
        raise _translated(error, "manifest list", path) from error


def read_manifest(io: FileIO, manifest: ManifestFile) -> Manifest:
    """The manifest with all its entries, including deleted ones. Raises like `read_list`."""
    with reading_manifest(manifest), BoundedAvroFile[ManifestEntry](_whole(io, manifest), _OF_ENTRIES) as reader:
        header = _header_of(reader.header.meta, reader.schema, manifest)
        entries = (_inherit_from_manifest(entry, manifest) for entry in reader)
        return Manifest(manifest, header, tuple(inherit_row_ids(entries, manifest)))


def read_bytes(io: FileIO, manifest: ManifestFile) -> bytes:
    """The manifest as it is stored. Raises like `read_list`."""
    with reading_manifest(manifest), _whole(io, manifest).open() as stream:
        return stream.read()


def _whole(io: FileIO, manifest: ManifestFile) -> InputFile:
    return _WholeFile(io.new_input(manifest.manifest_path), manifest.manifest_length)


def entry_reader(schema: str) -> Reader:
    """The reader of entries stored by that schema, in JSON, with packed metrics. Raises ValueError, TypeError."""
    return _OF_ENTRIES(schema)[1]


def stored_fields(record: Reader) -> list[tuple[int, Reader]]:
    """The fields of a record in the file, with their indexes in our schema; -1: not in ours."""
    if not isinstance(record, StructReader):
        raise ValueError(f"a record is expected, not {record}")
    there = ((at, inner) for at, inner in record.field_readers if not isinstance(inner, NoneReader | DefaultReader))
    return [(-1 if at is None else at, reader) for at, reader in there]


@contextmanager
def reading_manifest(manifest: ManifestFile) -> Iterator[None]:
    """Translate whatever a decoder raises about the manifest into the errors of `read_list`."""
    try:
        yield
    except Exception as error:
        raise _translated(error, "manifest", manifest.manifest_path) from error


class _WholeFile(InputFile):
    """A file that is read whole, at once: pyiceberg's decoder takes the end of a short read for the file's end."""

    def __init__(self, source: InputFile, size: int) -> None:
        super().__init__(source.location)
        self._source, self._size = source, size

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self._source.exists()

    def open(self, seekable: bool = True) -> InputStream:
        """Raises ValueError when fewer bytes are read than the file has."""
        with self._source.open(seekable) as stream:
            data = stream.read()
        if len(data) < self._size:
            raise ValueError(f"only {len(data)} of {self._size} bytes were read")
        return BytesIO(data)


def _translated(error: Exception, noun: str, path: str) -> Exception:
    """The error for an exception of reading: the decoder has no errors of its own, so any other means a broken file."""
    if isinstance(error, AmoroError):
        return error
    if isinstance(error, FileNotFoundError):
        hint = "Restore the file, or roll the table back to a snapshot that is whole."
        return DataFileMissing(f"the {noun} {path} does not exist", hint=hint)
    if isinstance(error, OSError):
        if is_denied(error):
            return AccessDenied(f"access to the {noun} {path} was denied: {error_text(error)}")
        return CatalogUnavailable(f"the {noun} {path} can't be read: {error_text(error)}")
    return UnreadableFile(f"the {noun} {path} can't be read: {error_text(error)}")


def _header_of(meta: Mapping[str, str], schema: Schema, manifest: ManifestFile) -> ManifestHeader:
    """The header of a manifest with that metadata and schema of entries. Raises KeyError, StopIteration, ValueError."""
    # The file's own type: the table's current schema may lack the partition's source column.
    partition = next(field for field in data_file_fields(schema) if field.field_id == PARTITION).field_type
    if not isinstance(partition, StructType):
        raise ValueError(f"the partition has the type {partition}")
    # Optional fields, as specified; pyiceberg makes them required if their source is.
    fields = (NestedField(field.field_id, field.name, field.field_type, required=False) for field in partition.fields)
    return ManifestHeader(
        spec_id=manifest.partition_spec_id,
        spec_json=meta["partition-spec"],
        schema_json=meta["schema"],
        schema_id=meta.get("schema-id"),
        partition_type=StructType(*fields),
        content=meta.get("content"),
        own_spec_id=meta.get("partition-spec-id"),
    )


def uncommitted(file_io: FileIO, manifests: Iterable[StoredFile]) -> set[str]:
    """The manifests, and the files that they name. Raises UnreadableFile, and CatalogUnavailable for one that has
    vanished meanwhile: its files may be committed since the table was loaded."""
    result: set[str] = set()
    for manifest in manifests:
        file = ManifestFile.from_args(
            manifest_path=manifest.path,
            manifest_length=manifest.size_bytes,
            partition_spec_id=0,
            content=ManifestContent.DATA,
            sequence_number=UNASSIGNED_SEQ,
            min_sequence_number=UNASSIGNED_SEQ,
            added_snapshot_id=0,
        )
        try:
            result.update(entry.data_file.file_path for entry in read_manifest(file_io, file).entries)
        except DataFileMissing as error:
            raise CatalogUnavailable(f"Flink has committed or removed {manifest.path} meanwhile") from error
        result.add(manifest.path)
    return result


PartitionTypes = tuple[PrimitiveType, ...]

_FIRST_ROW_ID, _REFERENCED_DATA_FILE = FILE_FIELDS["first_row_id"], FILE_FIELDS["referenced_data_file"]
_CONTENT_OFFSET, _CONTENT_SIZE = FILE_FIELDS["content_offset"], FILE_FIELDS["content_size_in_bytes"]


def schemas_newest_first(metadata: TableMetadata) -> list[Schema]:
    """The current schema, then the others from the newest to the oldest."""
    others = [schema for schema in metadata.schemas if schema.schema_id != metadata.current_schema_id]
    return [metadata.schema(), *sorted(others, key=lambda schema: -schema.schema_id)]


def find_in_history(metadata: TableMetadata, field_id: int) -> tuple[NestedField, Schema] | None:
    """The field in the newest schema that has it, the current one first, and that schema."""
    for schema in schemas_newest_first(metadata):
        if field_id in schema.field_ids:
            return schema.find_field(field_id), schema
    return None


def live_files(manifest: ManifestFile) -> int | None:
    """The number of live files by the manifest list; None if it does not say."""
    counts = (manifest.added_files_count, manifest.existing_files_count)
    return None if None in counts else sum(count or 0 for count in counts)


def parents_of(schema: Schema, field_id: int) -> Iterator[int]:
    """The structs, lists and maps around the column, from the inside out."""
    while (parent := schema._lazy_id_to_parent.get(field_id)) is not None:
        yield parent
        field_id = parent


def history_from(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[Snapshot]:
    """The snapshot and its ancestors, newest first, as far as the metadata has them; a cycle of parents ends it."""
    rest = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    while snapshot_id is not None and (snapshot := rest.pop(snapshot_id, None)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """The snapshot's summary without its operation, empty if it has none."""
    return snapshot.summary.additional_properties if snapshot.summary else {}


def spec_schema(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """The source columns of the spec's partitions, dropped ones included; for types only, since their names are made of
    their ids: leaves of different structs may share a name."""
    sources = {field.source_id: find_in_history(metadata, field.source_id) for field in spec.fields}
    leaves = (pair[0] for pair in sources.values() if pair is not None)
    return Schema(*(NestedField(leaf.field_id, f"source-{leaf.field_id}", leaf.field_type) for leaf in leaves))


def partition_types(metadata: TableMetadata, spec: PartitionSpec) -> PartitionTypes:
    """The types of the spec's partition fields, dropped columns included; unknown if no schema has the column."""
    fields = spec.partition_type(spec_schema(metadata, spec)).fields
    return tuple(field.field_type for field in fields if isinstance(field.field_type, PrimitiveType))


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether the spec has no fields or only void ones, so that its equality deletes are global."""
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def to_partition(record: Record, types: PartitionTypes, path: str = "a file") -> Partition:
    """The partition's values in single-value serialization, NaNs normalised; `path` is its file, for messages. Raises
    TableRefused("metadata") for values of a wrong type, ("partition-source") for those of an unknown type."""
    return tuple(_to_bytes(kind, record[at], path) for at, kind in enumerate(types))


def _to_bytes(kind: PrimitiveType, value: Any, path: str) -> bytes | None:
    if value is None:
        return None
    if isinstance(kind, UnknownType):
        raise TableRefused(
            "a partition has a value of a column that no schema of the table has", reason="partition-source"
        )
    try:
        return to_bytes(kind, float("nan") if isinstance(value, float) and value != value else value)
    except Exception as error:  # whatever the encoder raises for a value of a wrong type
        raise TableRefused(
            f"{path} has the value {value!r} in its partition, which is no {kind}: {error}", reason="metadata"
        ) from error


def to_record(partition: Partition, types: PartitionTypes) -> Record:
    """The partition as pyiceberg takes it."""
    return Record(
        *(None if value is None else from_bytes(kind, value) for kind, value in zip(types, partition, strict=True))
    )


def to_data_file(entry: ManifestEntry, types: PartitionTypes) -> DataFile:
    """The entry's data file. Raises TableRefused("encryption", "format" or "metadata")."""
    file = _readable(entry)
    return DataFile(
        path=file.file_path,
        file_format=_format(file),
        spec_id=file.spec_id,
        partition=to_partition(file.partition, types, file.file_path),
        record_count=file.record_count,
        size_bytes=file.file_size_in_bytes,
        sequence_number=_sequence_number(entry),
        metrics=_metrics(file),
        sort_order_id=file.sort_order_id,
        first_row_id=file[_FIRST_ROW_ID],
        split_offsets=tuple(file.split_offsets or ()),
    )


def to_delete_file(entry: ManifestEntry, types: PartitionTypes) -> DeleteFile:
    """The entry's delete file. Raises TableRefused("encryption", "deletion-vector", "format" or "metadata")."""
    file = _readable(entry)
    is_position = file.content == DataFileContent.POSITION_DELETES
    return DeleteFile(
        path=file.file_path,
        kind=DeleteKind.POSITION if is_position else DeleteKind.EQUALITY,
        file_format=_format(file),
        spec_id=file.spec_id,
        partition=to_partition(file.partition, types, file.file_path),
        record_count=file.record_count,
        size_bytes=file.file_size_in_bytes,
        sequence_number=_sequence_number(entry),
        equality_ids=() if is_position else tuple(sorted(file.equality_ids or ())),
        referenced_data_file=file[_REFERENCED_DATA_FILE] if is_position else None,
        metrics=_metrics(file),
        split_offsets=tuple(file.split_offsets or ()),
        content_offset=file[_CONTENT_OFFSET] if is_position else None,
        content_size_bytes=file[_CONTENT_SIZE] if is_position else None,
    )


def identity_of(file: EntryFile) -> DeleteIdentity:
    """The identity of the delete file, like `DeleteFile.identity`."""
    offset, size = file[_CONTENT_OFFSET], file[_CONTENT_SIZE]
    return DeleteIdentity(file.file_path, offset or 0, file.file_size_in_bytes if size is None else size)


def _readable(entry: ManifestEntry) -> EntryFile:
    if entry.data_file.key_metadata is not None:
        raise TableRefused(
            f"{entry.data_file.file_path} is encrypted",
            reason="encryption",
            hint="Encrypted tables can't be optimized yet.",
        )
    return entry.data_file


def _format(file: EntryFile) -> FileFormat:
    if file.file_format == EntryFormat.PUFFIN:
        _refuse_odd_vector(file)
    try:
        return FileFormat(file.file_format.value.lower())
    except ValueError as error:
        raise TableRefused(
            f"{file.file_path} has the unknown format {file.file_format.value}", reason="format"
        ) from error


def _refuse_odd_vector(file: EntryFile) -> None:
    """Refuse a Puffin file that is not a position delete, or lacks its blob's place or its data file."""
    needed = ("referenced_data_file", "content_offset", "content_size_in_bytes")
    lacking = [name for name in needed if file[FILE_FIELDS[name]] is None]
    if file.content != DataFileContent.POSITION_DELETES:
        raise TableRefused(f"{file.file_path} is a Puffin file, but no deletion vector", reason="deletion-vector")
    if lacking:
        raise TableRefused(
            f"the manifest entry of the deletion vector in {file.file_path} lacks {', '.join(lacking)}",
            reason="deletion-vector",
        )


def _sequence_number(entry: ManifestEntry) -> int:
    if entry.sequence_number is None:
        raise TableRefused(
            f"the manifest entry of {entry.data_file.file_path} lacks its sequence number", reason="metadata"
        )
    return entry.sequence_number


def _metrics(file: EntryFile) -> ColumnMetrics:
    return PackedMetrics(b"".join(pack_map(getattr(file, name)) for name in METRICS))


class PartitionPaths:
    """A table's partitions as Iceberg writes them in paths. The types of a spec's fields are cached."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._types: dict[int, PartitionTypes] = {}

    def path_of(self, key: PartitionKey) -> str:
        """The partition's path, "" when unpartitioned."""
        spec = self._metadata.specs()[key.spec_id]
        if is_unpartitioned(spec):
            return ""
        if key.spec_id not in self._types:
            self._types[key.spec_id] = partition_types(self._metadata, spec)
        return path_of_values(spec, self._types[key.spec_id], key.partition)


class ChangeCounts(UpdateMetrics):
    """The counts of pyiceberg, and those of deletion vectors, whose bytes are those of their part of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.added_vectors = self.removed_vectors = 0

    def add_file(self, data_file: EntryFile) -> None:
        super().add_file(data_file)
        if data_file.file_format == EntryFormat.PUFFIN:
            self.added_vectors += 1
            self.added_pos_delete_files -= 1
            self.added_file_size -= data_file.file_size_in_bytes - identity_of(data_file).size

    def remove_file(self, data_file: EntryFile) -> None:
        super().remove_file(data_file)
        if data_file.file_format == EntryFormat.PUFFIN:
            self.removed_vectors += 1
            self.removed_pos_delete_files -= 1
            self.removed_file_size -= data_file.file_size_in_bytes - identity_of(data_file).size

    def to_dict(self) -> dict[str, str]:
        """The entries of the summary that are not 0."""
        counts = {"added-dvs": self.added_vectors, "removed-dvs": self.removed_vectors}
        return {**super().to_dict(), **{name: str(count) for name, count in counts.items() if count}}
