"""Avro files of manifests and manifest lists: schemas, row ids, and bounded reading.

pyiceberg's codecs, with their errors corrected: its decoder trusts the lengths that a file states, ours checks each one
against the end of the data.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from enum import Enum
from functools import lru_cache
from typing import Any, Literal, Self, TypeVar

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFile, AvroFileHeader, AvroOutputFile, Block
from pyiceberg.avro.reader import BinaryReader, IntegerReader, MapReader, OptionReader, Reader, StructReader
from pyiceberg.avro.resolver import construct_reader, construct_writer, resolve_reader
from pyiceberg.io import InputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.manifest import DataFile as EntryFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import StructProtocol, TableVersion
from pyiceberg.types import (
    IcebergType,
    IntegerType,
    ListType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from amoro_core.errors import TableRefused
from amoro_core.scan.columns import PackedMap, read_bytes, read_number

CODEC: AvroCompressionCodec = "deflate"
DATA_FILE, PARTITION = 2, 102
#: pyiceberg keeps its records in this form; it has the field 143 only for format 3.
RECORD_VERSION: Literal[3] = 3

_EQUALITY_IDS, _REFERENCED_DATA_FILE = 135, 143
#: The first format version with the field 143; pyiceberg writes it only from the next one on.
_REFERENCES_SINCE = 2


def entry_schema(version: TableVersion, partition_type: StructType) -> Schema:
    """The entries' schema of a format version, with equality ids as int and, from format 2, the field 143."""
    base = MANIFEST_ENTRY_SCHEMAS[version]
    fields = [_entry_field(field, partition_type) for field in data_file_fields(base)]
    if version == _REFERENCES_SINCE:
        nested_fields = data_file_fields(MANIFEST_ENTRY_SCHEMAS[RECORD_VERSION])
        fields.append(next(field for field in nested_fields if field.field_id == _REFERENCED_DATA_FILE))
    data_file = NestedField(DATA_FILE, "data_file", StructType(*fields), required=True)
    return Schema(*(data_file if field.field_id == DATA_FILE else field for field in base.fields))


def _entry_field(field: NestedField, partition_type: StructType) -> NestedField:
    if field.field_id == PARTITION:
        return NestedField(field.field_id, field.name, partition_type, required=True, doc=field.doc)
    if field.field_id == _EQUALITY_IDS:
        ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
        return NestedField(field.field_id, field.name, ids, required=False, doc=field.doc)
    return field


def data_file_fields(entries: Schema) -> tuple[NestedField, ...]:
    """The fields of the data file within a manifest entry."""
    data_file = entries.find_type(DATA_FILE)
    if not isinstance(data_file, StructType):
        raise ValueError(f"the data file has the type {data_file}")
    return data_file.fields


class EntryOutput(AvroOutputFile[ManifestEntry]):
    """A manifest being written, whose schema has a unique name for each named type.

    pyiceberg gives two partition fields of the same decimal or uuid type the same name, which no Avro reader accepts.
    """

    def _write_header(self) -> None:
        schema = AvroSchemaConversion().iceberg_to_avro(self.file_schema, schema_name=self.schema_name)
        meta = {**self.metadata, "avro.schema": json.dumps(_named_once(schema, set())), "avro.codec": CODEC}
        construct_writer(META_SCHEMA).write(self.encoder, AvroFileHeader(MAGIC, meta, self.sync_bytes))


def _named_once(schema: Any, used: set[str]) -> Any:
    """The Avro schema with a number appended to repeated type names."""
    if isinstance(schema, list):
        return [_named_once(branch, used) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    done = dict(schema)
    if done.get("type") in ("record", "fixed", "enum"):
        numbered = (f"{done['name']}_{at}" for at in range(2, len(used) + 3))
        done["name"] = next(name for name in (done["name"], *numbered) if name not in used)
        used.add(done["name"])
    if "fields" in done:
        done["fields"] = [{**field, "type": _named_once(field["type"], used)} for field in done["fields"]]
    for part in ("type", "items", "values"):
        if isinstance(done.get(part), dict | list):
            done[part] = _named_once(done[part], used)
    return done


#: The first format whose rows have ids.
ROW_IDS_SINCE = 3

#: The indexes of the fields 520 in entries of manifest lists, and 142 in data files.
_IN_LIST = [field.field_id for field in MANIFEST_LIST_FILE_SCHEMAS[RECORD_VERSION].fields].index(520)
_IN_FILE = [field.field_id for field in DATA_FILE_TYPE[RECORD_VERSION].fields].index(142)


def first_row_id_of(manifest: ManifestFile) -> int | None:
    """The first row id of a data manifest, which its entries without one inherit; None: its rows have none, or the
    record is pyiceberg's own."""
    values = manifest._data
    result: int | None = values[_IN_LIST] if len(values) > _IN_LIST else None
    return result


def with_first_row_id(manifest: ManifestFile, first_row_id: int | None) -> ManifestFile:
    """A copy of the manifest with that first row id."""
    done = copy(manifest)
    done._data = [*manifest._data[:_IN_LIST], first_row_id]
    return done


def has_no_row_id(entry: ManifestEntry) -> bool:
    """Whether the entry's file has no first row id."""
    return entry.data_file[_IN_FILE] is None


def inherit_row_ids(entries: Iterable[ManifestEntry], manifest: ManifestFile) -> Iterator[ManifestEntry]:
    """All entries of the manifest, in its order, each changed to have its file's first row id.

    Files that are not deleted and have no id take the next one, which begins with the manifest's and grows by their
    rows. In a manifest without an id no file has one, whatever its entry says.
    """
    upcoming = first_row_id_of(manifest)
    for entry in entries:
        file = entry.data_file
        if upcoming is None:
            if file[_IN_FILE] is not None:
                file[_IN_FILE] = None
        elif entry.status != ManifestEntryStatus.DELETED and file[_IN_FILE] is None:
            file[_IN_FILE] = upcoming
            upcoming += file.record_count
        yield entry


def first_new_row_id(metadata: TableMetadata) -> int | None:
    """The first row id of the table's next snapshot; None before format 3. Raises TableRefused("metadata")."""
    if not isinstance(metadata, TableMetadataV3):
        return None
    row_id: int | None = metadata.next_row_id
    if row_id is None:
        raise TableRefused(
            f"the table's metadata of format {metadata.format_version} lacks next-row-id", reason="metadata"
        )
    return row_id


def assign_row_ids(manifests: Sequence[ManifestFile], first_row_id: int) -> tuple[list[int | None], int]:
    """The first row ids of the manifests of a new list, the table's next one being `first_row_id`, and how many ids are
    assigned.

    Data manifests keep theirs; those without one take the next, which grows by their added and existing rows. Delete
    manifests have none. It may skip ids, never give one twice. Raises ValueError for a data manifest without an id of
    which the number of rows is not known.
    """
    upcoming, given = first_row_id, list[int | None]()
    for manifest_file in manifests:
        first = first_row_id_of(manifest_file)
        if manifest_file.content != ManifestContent.DATA:
            given.append(None)
        elif first is not None:
            given.append(first)
        else:
            if manifest_file.added_rows_count is None or manifest_file.existing_rows_count is None:
                raise ValueError(f"the number of rows of the manifest {manifest_file.manifest_path} is not known")
            given.append(upcoming)
            upcoming += manifest_file.added_rows_count + manifest_file.existing_rows_count
    return given, upcoming - first_row_id


D = TypeVar("D", bound=StructProtocol)

#: The continuation bit of a number's bytes, and the most bytes that a number has.
_MORE, _LONG_BYTES = 0x80, 10


class BoundedDecoder(BinaryDecoder):
    """Reads from bytes; beyond their end it raises ValueError."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def tell(self) -> int:
        return self._at

    def read(self, n: int) -> bytes:
        start = self._at
        result = self._data[start : start + n] if n >= 0 else b""
        if len(result) != n:
            raise _too_many(n, start)
        self._at = start + n
        return result

    def skip(self, n: int) -> None:
        if n < 0 or n > len(self._data) - self._at:
            raise _too_many(n, self._at)
        self._at += n

    def read_int(self) -> int:
        data, at = self._data, self._at
        if at < len(data) and (byte := data[at]) < _MORE:  # nearly all are small
            self._at = at + 1
            return (byte >> 1) ^ -(byte & 1)
        value, self._at = number_at(data, at)
        return value

    def skip_int(self) -> None:
        self.read_int()

    def read_ints(self, n: int) -> tuple[int, ...]:
        # A huge count allocates nothing: each number takes at least a byte, and reading beyond the end raises.
        data, at = self._data, self._at
        result = []
        for _ in range(n):
            value, at = number_at(data, at)
            result.append(value)
        self._at = at
        return tuple(result)

    def read_int_bytes_dict(self, n: int, dest: dict[int, bytes]) -> None:
        # Bounds of columns are most of a manifest.
        data, at = self._data, self._at
        for _ in range(n):
            key, at = number_at(data, at)
            size, at = number_at(data, at)
            end = at + size
            if not at <= end <= len(data):
                raise _too_many(size, at)
            dest[key] = data[at:end]
            at = end
        self._at = at

    def read_bytes(self) -> bytes:
        return self.read(self.read_int())

    def read_map(self, *, of_numbers: bool) -> bytes:
        """The bytes of a map from numbers to numbers or bytes, checked to be complete."""
        data, start = self._data, self._at
        self._at = end_of_blocks(data, start, end_of_number_pairs if of_numbers else end_of_pairs)
        return data[start : self._at]


def number_at(data: bytes, start: int) -> tuple[int, int]:
    """The number at that offset, and the offset of its end. Raises ValueError."""
    byte = data[start] if start < len(data) else _MORE
    if byte < _MORE:  # nearly all are small
        return (byte >> 1) ^ -(byte & 1), start + 1
    value = shift = 0
    for at in range(start, min(start + _LONG_BYTES, len(data))):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
    raise ValueError(f"a number begins at {start} and does not end")


def end_of_numbers(data: bytes, start: int, count: int) -> int:
    """The offset behind `count` numbers. Raises ValueError."""
    # Each takes at least one byte.
    match = _numbers(count).match(data, start) if count <= len(data) - start else None
    if match is None:
        raise ValueError(f"{count} numbers begin at {start} and do not end")
    return match.end()


@lru_cache(256)
def _numbers(count: int) -> re.Pattern[bytes]:
    return re.compile(rb"(?>[\x80-\xff]{0,%d}[\x00-\x7f]){%d}" % (_LONG_BYTES - 1, count))


def end_of_number_pairs(data: bytes, at: int, count: int) -> int:
    """The offset behind `count` pairs of numbers. Raises ValueError."""
    return end_of_numbers(data, at, 2 * count)


def end_of_blocks(data: bytes, at: int, end_of_items: Callable[[bytes, int, int], int]) -> int:
    """The offset behind a map or list; `end_of_items` tells the offset behind so many items. Raises ValueError."""
    while True:
        count, at = number_at(data, at)
        if count == 0:
            return at
        if count < 0:  # the size of the block follows
            count = -count
            _, at = number_at(data, at)
        at = end_of_items(data, at, count)


def end_of_pairs(data: bytes, at: int, count: int) -> int:
    """The offset behind `count` pairs of a number and bytes; it may lie beyond the data. Raises ValueError."""
    last = len(data) - 1
    for _ in range(count):
        if at < last and data[at] < _MORE and data[at + 1] < _MORE and not data[at + 1] & 1:  # nearly all are small
            at += 2 + (data[at + 1] >> 1)
            continue
        _, at = number_at(data, at)
        size, at = number_at(data, at)
        if size < 0:
            raise _too_many(size, at)
        at += size
    return at


def _too_many(announced: int, at: int) -> ValueError:
    return ValueError(f"{announced} bytes are announced at {at}, but the data ends before")


class _Conversion(AvroSchemaConversion):
    """Avro schemas with nanoseconds, too, which pyiceberg writes and does not read."""

    def _convert_logical_type(self, avro_logical_type: dict[str, Any]) -> IcebergType:
        if avro_logical_type["logicalType"] != "timestamp-nanos":
            return super()._convert_logical_type(avro_logical_type)
        return TimestamptzNanoType() if avro_logical_type.get("adjust-to-utc") is True else TimestampNanoType()


def avro_schema(avro: Mapping[str, Any]) -> Schema:
    """The schema of an Avro file, from its JSON. Raises ValueError, TypeError."""
    return _Conversion().avro_to_iceberg(dict(avro))


def next_block(decoder: BoundedDecoder, header: AvroFileHeader) -> tuple[int, bytes]:
    """The number of records of the next block, and their bytes. Raises ValueError and what codecs raise."""
    records, content = decoder.read_int(), decoder.read_bytes()
    if records < 0 or decoder.read(SYNC_SIZE) != header.sync:
        raise ValueError(f"a block of {records} records does not end with the file's sync marker")
    codec = header.compression_codec()
    return records, codec.decompress(content) if codec else content


#: The schema that records are stored by and what reads them, by that schema's JSON. Raises ValueError, TypeError.
Readers = Callable[[str], tuple[Schema, Reader]]
#: Schemas cached for each kind of file: all files of a writer's version have the same few.
_REMEMBERED = 64


def readers_of(
    wanted: Schema,
    types: dict[int, Callable[..., StructProtocol]],
    enums: dict[int, Callable[..., Enum]],
    changed: Callable[[Reader], Reader] = lambda reader: reader,
) -> Readers:
    """Reads records of a schema from files of any, whose readers are made once. `changed` replaces a reader."""

    @lru_cache(_REMEMBERED)
    def reader_of(schema: str) -> tuple[Schema, Reader]:
        stored = avro_schema(json.loads(schema))
        return stored, changed(resolve_reader(stored, wanted, types, enums))

    return reader_of


_HEADER = construct_reader(META_SCHEMA, {-1: AvroFileHeader})


def read_header(decoder: BoundedDecoder) -> AvroFileHeader:
    """The header of an Avro file. Raises ValueError."""
    header: AvroFileHeader = _HEADER.read(decoder)
    if header.magic != MAGIC:
        raise ValueError("it is not an Avro file")
    return header


class BoundedAvroFile(AvroFile[D]):
    """An Avro file: every record is read, or ValueError is raised."""

    __slots__ = ("_blocks", "_readers", "_records")

    _blocks: BoundedDecoder
    _records: BoundedDecoder

    def __init__(self, source: InputFile, readers: Readers) -> None:
        super().__init__(source)
        self._readers = readers

    def __enter__(self) -> Self:
        with self.input_file.open() as stream:
            self.decoder = self._blocks = BoundedDecoder(stream.read())
        self.header = read_header(self._blocks)
        self.schema, self.reader = self._readers(self.header.meta["avro.schema"])
        return self

    def __next__(self) -> D:
        while self.block is None or not self.block.has_next():
            if self.block is not None and not self._records.is_at_end:
                raise ValueError("a block has more bytes than its records")
            if self._blocks.is_at_end:
                raise StopIteration
            records, content = next_block(self._blocks, self.header)
            self._records = BoundedDecoder(content)
            self.block = Block(reader=self.reader, block_records=records, block_decoder=self._records)
        return next(self.block)


class PackedReader(Reader):
    """Reads a map of numbers or bytes by field id without decoding it."""

    def __init__(self, plain: MapReader, *, is_optional: bool) -> None:
        self._plain = plain
        self.is_optional = is_optional
        self.of_numbers = isinstance(plain.value, IntegerReader)

    def read(self, decoder: BinaryDecoder) -> PackedMap | None:
        """The map in its encoded form; None if absent. Raises ValueError, and TypeError for another decoder."""
        if not isinstance(decoder, BoundedDecoder):
            raise TypeError("metrics are packed as the bounded decoder finds them")
        if self.is_optional and decoder.read_int() <= 0:
            return None
        return PackedMap(decoder.read_map(of_numbers=self.of_numbers), read_number if self.of_numbers else read_bytes)

    def skip(self, decoder: BinaryDecoder) -> None:
        """As `read`."""
        self.read(decoder)

    @property
    def required(self) -> "PackedReader":
        """The same reader for a map that is not optional."""
        return PackedReader(self._plain, is_optional=False)


def with_packed_metrics(reader: Reader) -> Reader:
    """The reader of manifest entries, changed to leave the maps of their files packed."""
    if not isinstance(reader, StructReader):
        return reader
    pack = _packed if reader.create_struct is EntryFile else with_packed_metrics
    fields = tuple((at, pack(item)) for at, item in reader.field_readers)
    return StructReader(fields, reader.create_struct, reader.struct)


def _packed(reader: Reader) -> Reader:
    plain = reader.option if isinstance(reader, OptionReader) else reader
    if not isinstance(plain, MapReader) or not isinstance(plain.key, IntegerReader):
        return reader
    if not isinstance(plain.value, IntegerReader | BinaryReader):
        return reader
    return PackedReader(plain, is_optional=plain is not reader)
