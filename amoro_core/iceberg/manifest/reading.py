"""Reading manifests and manifest lists."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO

from pyiceberg.avro.reader import DefaultReader, NoneReader, Reader, StructReader
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
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from amoro_core.errors import AccessDenied, AmoroError, CatalogUnavailable, DataFileMissing, UnreadableFile
from amoro_core.files.storage.io import is_denied
from amoro_core.iceberg.catalog.errors import error_text
from amoro_core.iceberg.manifest.avro_schema import (
    DATA_FILE,
    PARTITION,
    RECORD_VERSION,
    data_file_fields,
    inherit_row_ids,
)
from amoro_core.iceberg.manifest.safe_avro import (
    BoundedAvroFile,
    readers_of,
    with_packed_metrics,
)
from amoro_core.model.maintenance import StoredFile

#: Ids of fields of a manifest list.
_SUMMARY, _CONTENT = 508, 517
_OF_LISTS = readers_of(
    MANIFEST_LIST_FILE_SCHEMAS[RECORD_VERSION],
    {-1: ManifestFile, _SUMMARY: PartitionFieldSummary},
    {_CONTENT: ManifestContent},
)
#: The indexes of fields in entries, and in their files.
IN_ENTRY = {field.name: at for at, field in enumerate(MANIFEST_ENTRY_SCHEMAS[RECORD_VERSION].fields)}
FILE_FIELDS = {field.name: at for at, field in enumerate(data_file_fields(MANIFEST_ENTRY_SCHEMAS[RECORD_VERSION]))}
_OF_ENTRIES = readers_of(
    MANIFEST_ENTRY_SCHEMAS[RECORD_VERSION],
    {-1: ManifestEntry, DATA_FILE: EntryFile},
    {0: ManifestEntryStatus, 101: EntryFormat, 134: DataFileContent},
    with_packed_metrics,
)


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
    """The manifests of a manifest list, in its order, each with its first row id.

    Raises DataFileMissing, UnreadableFile, CatalogUnavailable.
    """
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
        header = header_of(reader.header.meta, reader.schema, manifest)
        entries = (_inherit_from_manifest(entry, manifest) for entry in reader)
        return Manifest(manifest, header, tuple(inherit_row_ids(entries, manifest)))


def read_bytes(io: FileIO, manifest: ManifestFile) -> bytes:
    """The manifest as it is stored. Raises like `read_list`."""
    with reading_manifest(manifest), _whole(io, manifest).open() as stream:
        return stream.read()


def _whole(io: FileIO, manifest: ManifestFile) -> InputFile:
    return _WholeFile(io.new_input(manifest.manifest_path), manifest.manifest_length)


def entry_reader(schema: str) -> Reader:
    """What reads entries that are stored by that schema, in JSON, with the metrics packed.

    Raises ValueError, TypeError.
    """
    return _OF_ENTRIES(schema)[1]


def stored_fields(record: Reader) -> list[tuple[int, Reader]]:
    """The fields of a record in the file, with their indexes in our schema; -1: not in ours."""
    if not isinstance(record, StructReader):
        raise ValueError(f"a record is expected, not {record}")
    there = ((at, one) for at, one in record.field_readers if not isinstance(one, NoneReader | DefaultReader))
    return [(-1 if at is None else at, one) for at, one in there]


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


def _translated(error: Exception, what: str, path: str) -> Exception:
    """The error for an exception of reading: the decoder has no errors of its own, so any other means a broken file."""
    if isinstance(error, AmoroError):
        return error
    if isinstance(error, FileNotFoundError):
        hint = "Restore the file, or roll the table back to a snapshot that is whole."
        return DataFileMissing(f"the {what} {path} does not exist", hint=hint)
    if isinstance(error, OSError):
        if is_denied(error):
            return AccessDenied(f"access to the {what} {path} was denied: {error_text(error)}")
        return CatalogUnavailable(f"the {what} {path} can't be read: {error_text(error)}")
    return UnreadableFile(f"the {what} {path} can't be read: {error_text(error)}")


def header_of(meta: Mapping[str, str], schema: Schema, manifest: ManifestFile) -> ManifestHeader:
    """The header of a manifest with that metadata and schema of entries. Raises KeyError, StopIteration, ValueError."""
    # The file's own type: the table's current schema may lack the partition's source column.
    partition = next(field for field in data_file_fields(schema) if field.field_id == PARTITION).field_type
    if not isinstance(partition, StructType):
        raise ValueError(f"the partition has the type {partition}")
    return ManifestHeader(
        spec_id=manifest.partition_spec_id,
        spec_json=meta["partition-spec"],
        schema_json=meta["schema"],
        schema_id=meta.get("schema-id"),
        partition_type=_optional(partition),
        content=meta.get("content"),
        own_spec_id=meta.get("partition-spec-id"),
    )


def _optional(partition: StructType) -> StructType:
    """The type with optional fields, as specified; pyiceberg makes them required if their source is."""
    fields = (NestedField(one.field_id, one.name, one.field_type, required=False) for one in partition.fields)
    return StructType(*fields)


def uncommitted(file_io: FileIO, manifests: Iterable[StoredFile]) -> set[str]:
    """The manifests, and the files that they name.

    Raises CatalogUnavailable for one that has vanished meanwhile: its files may be committed since the table was
    loaded. Raises UnreadableFile for one that can't be read.
    """
    found: set[str] = set()
    for one in manifests:
        file = ManifestFile.from_args(
            manifest_path=one.path,
            manifest_length=one.size_bytes,
            partition_spec_id=0,
            content=ManifestContent.DATA,
            sequence_number=UNASSIGNED_SEQ,
            min_sequence_number=UNASSIGNED_SEQ,
            added_snapshot_id=0,
        )
        try:
            found.update(entry.data_file.file_path for entry in read_manifest(file_io, file).entries)
        except DataFileMissing as error:
            raise CatalogUnavailable(f"Flink has committed or removed {one.path} meanwhile") from error
        found.add(one.path)
    return found
