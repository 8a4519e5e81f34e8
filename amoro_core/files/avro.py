"""Reading Avro data and delete files: slow but exact, from the stored numbers and bytes, not from Python's types."""

import bz2
import decimal
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa

from amoro_core.errors import UnreadableFile
from amoro_core.files.schema.schemas import FIELD_ID
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.text_sanitizing import briefly

_WIDE = decimal.Context(prec=76)
_PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms"),
    ("long", "timestamp-micros"): pa.timestamp("us"),
    ("long", "timestamp-nanos"): pa.timestamp("ns"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}

_Convert = Callable[[Any], Any]


#: Rows of a batch, whatever the writer's block size: records are Python objects until they are in a batch.
_BATCH_ROWS = 4096
#: Encoded bytes of a batch; as Python objects they take several times that memory.
_BATCH_BYTES = 4 << 20
#: The read buffer of a large file.
_BUFFER_BYTES = 1 << 20
_SYNC_BYTES = 16


@dataclass(frozen=True, slots=True)
class AvroInput:
    """An open Avro file."""

    path: str
    file: BinaryIO
    rows: int
    schema: pa.Schema
    stored: Any  # the writer's schema without logical types, parsed
    convert: Mapping[str, _Convert | None]

    def batches(
        self, columns: Sequence[str], row_groups: Sequence[int] | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of only these columns, in file order, each with its first row's position. Raises UnreadableFile."""
        chosen = [field for field in self.schema if field.name in columns]
        kind = pa.schema(chosen)
        position = 0
        with _reading(self.path):
            for records in self._records():
                arrays = [_column(records, field, self.convert[field.name]) for field in chosen]
                if not arrays:  # of no column there are no rows
                    arrays, kind = [pa.nulls(len(records))], pa.schema([("none", pa.null())])
                yield position, pa.RecordBatch.from_arrays(arrays, schema=kind).select([field.name for field in chosen])
                position += len(records)

    def records(self) -> Iterator[Any]:
        """Every record, in file order, with numbers and bytes as they are stored. Raises UnreadableFile."""
        with _reading(self.path):
            for records in self._records():
                yield from records

    def _records(self) -> Iterator[list[Any]]:
        self.file.seek(0)
        codec = _codec(fastavro.block_reader(self.file))
        records: list[Any] = []
        nbytes = 0
        for count, stored in _blocks(self.file):
            stream = io.BytesIO(_decompressed(stored, codec))
            for _ in range(count):
                records.append(fastavro.schemaless_reader(stream, self.stored))
                if len(records) == _BATCH_ROWS or nbytes + stream.tell() >= _BATCH_BYTES:
                    yield records
                    records, nbytes = [], -stream.tell()
            nbytes += stream.tell()
        if records:
            yield records


@contextmanager
def open_avro(access: FileAccess, path: str, content: bytes | None = None) -> Iterator[AvroInput]:
    """The Avro file, open until the block ends; from `content` if given. Raises DataFileMissing, UnreadableFile."""
    with io.BufferedReader(access.open_input(path), _BUFFER_BYTES) if content is None else io.BytesIO(content) as file:
        with _reading(path):
            reader: Any = fastavro.block_reader(file)
            written = reader.writer_schema
            if _codec(reader) not in _CODECS:
                raise ValueError(f"its blocks are compressed by {_codec(reader)}")
            rows = _count_rows(file)
            names: dict[str, Any] = {}
            fields = [_field(item, names) for item in written["fields"]]
            stored = fastavro.parse_schema(_without_logical_types(written))
        schema = pa.schema([field for field, _ in fields])
        yield AvroInput(path, file, rows, schema, stored, {field.name: convert for field, convert in fields})


def _blocks(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Row count and bytes of each block. Raises EOFError or ValueError for a file that is truncated or damaged."""
    first_sync = None
    while (count := _long(file)) is not None:
        size = _long(file) or 0
        stored, sync = file.read(size), file.read(_SYNC_BYTES)
        if len(sync) < _SYNC_BYTES:
            raise EOFError("the file ends within a block")
        first_sync = first_sync or sync
        if sync != first_sync:
            raise ValueError("a block does not end with the file's sync marker")
        yield count, stored


def _decompressed(stored: bytes, codec: str) -> bytes:
    try:
        return _CODECS[codec](stored)
    except (OSError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"a block cannot be decompressed by {codec}: {briefly(str(error))}") from error


def _codec(reader: Any) -> str:
    return str(reader.metadata.get("avro.codec", "null"))


def _from_zstd(stored: bytes) -> bytes:
    """The size of the content is not known: neither the block nor the zstd frame need say it."""
    with pa.CompressedInputStream(pa.BufferReader(stored), "zstd") as stream:
        return bytes(stream.read())


def _from_snappy(stored: bytes) -> bytes:
    """A raw snappy block, which begins with the length of its content, followed by the content's checksum."""
    length = shift = 0
    for byte in stored:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    content = bytes(pa.decompress(stored[:-4], length, "snappy", asbytes=True))
    if zlib.crc32(content) != int.from_bytes(stored[-4:], "big"):
        raise ValueError("a block's checksum does not match its content")
    return content


#: Those of Iceberg's writers first. fastavro would need further packages for them.
_CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda stored: zlib.decompress(stored, -zlib.MAX_WBITS),
    "zstandard": _from_zstd,
    "snappy": _from_snappy,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
}


def _count_rows(file: BinaryIO) -> int:
    """The rows of all blocks, from the block headers alone; `file` is positioned after its header. Raises EOFError."""
    rows = 0
    while (count := _long(file)) is not None:
        size = _long(file)
        if size is None or size < 0 or count < 0:
            raise EOFError("the file ends within a block")
        rows += count
        file.seek(size + _SYNC_BYTES, io.SEEK_CUR)
    return rows


def _long(file: BinaryIO) -> int | None:
    """The next number (zigzag, variable length); None at the end of the file."""
    number = shift = 0
    while byte := file.read(1):
        number |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            return number >> 1 ^ -(number & 1)
    return None


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, EOFError, pa.ArrowException) as error:
        raise UnreadableFile(f"{path} cannot be read as Avro: {briefly(str(error))}") from error


def _column(records: list[Any], field: pa.Field, convert: _Convert | None) -> pa.Array:
    values = [record[field.name] for record in records]
    if convert is not None:
        values = [None if value is None else convert(value) for value in values]
    return pa.array(values, field.type)


def _field(written: Mapping[str, Any], names: dict[str, Any]) -> tuple[pa.Field, _Convert | None]:
    kind, convert, nullable = _typed(written["type"], names)
    return _identified(written["name"], kind, nullable, written.get("field-id")), convert


def _identified(name: str, kind: pa.DataType, nullable: bool, field_id: int | None) -> pa.Field:
    metadata = None if field_id is None else {FIELD_ID: str(field_id).encode()}
    return pa.field(name, kind, nullable=nullable, metadata=metadata)


def _typed(written: Any, names: dict[str, Any]) -> tuple[pa.DataType, _Convert | None, bool]:
    """The Arrow type of an Avro type, the conversion of raw values, and whether they may be null."""
    if isinstance(written, list):
        others = [branch for branch in written if branch != "null"]
        if len(others) != 1:
            raise ValueError(f"a union of {len(others)} types")
        kind, convert, _ = _typed(others[0], names)
        return kind, convert, len(others) < len(written)
    if isinstance(written, str):
        if written in names:
            return _typed(names[written], names)
        return _PRIMITIVES[written], None, False
    if "name" in written:
        names[written["name"]] = written
    kind, convert = _complex(written, names)
    return kind, convert, False


def _complex(written: Mapping[str, Any], names: dict[str, Any]) -> tuple[pa.DataType, _Convert | None]:
    base, logical = written["type"], written.get("logicalType")
    if logical == "decimal":
        scale = int(written.get("scale", 0))
        return pa.decimal128(int(written["precision"]), scale), lambda raw: _decimal(raw, scale)
    match base:
        case "record":
            return _record(written, names)
        case "array" if logical == "map":
            fields = [_field(item, names) for item in written["items"]["fields"]]
            (key, key_convert), (item, item_convert) = fields
            own = (key.name, item.name)
            pairs = _pairs(lambda value: ((pair[own[0]], pair[own[1]]) for pair in value), key_convert, item_convert)
            return pa.map_(key.with_nullable(False), item), pairs
        case "array":
            kind, convert, nullable = _typed(written["items"], names)
            element = _identified("element", kind, nullable, written.get("element-id"))
            return pa.list_(element), None if convert is None else lambda value: [
                _converted(convert, item) for item in value
            ]
        case "map":
            kind, convert, nullable = _typed(written["values"], names)
            key = _identified("key", pa.string(), False, written.get("key-id"))
            item = _identified("value", kind, nullable, written.get("value-id"))
            return pa.map_(key, item), _pairs(lambda value: value.items(), None, convert)
        case "fixed":
            return pa.binary(int(written["size"])), None
        case "enum":
            return pa.string(), None
        case _ if logical is not None and (base, logical) in _LOGICAL:
            return _LOGICAL[base, logical], None
        case _:
            return _typed(base, names)[:2]


def _record(written: Mapping[str, Any], names: dict[str, Any]) -> tuple[pa.DataType, _Convert | None]:
    fields = [_field(item, names) for item in written["fields"]]
    converts = {field.name: convert for field, convert in fields if convert is not None}

    def convert_all(value: Mapping[str, Any]) -> dict[str, Any]:
        changed = {name: _converted(convert, value[name]) for name, convert in converts.items()}
        return {**value, **changed}

    return pa.struct([field for field, _ in fields]), convert_all if converts else None


def _pairs(pairs_of: _Convert, key_convert: _Convert | None, item_convert: _Convert | None) -> _Convert:
    return lambda value: [
        (_converted(key_convert, key), _converted(item_convert, item)) for key, item in pairs_of(value)
    ]


def _converted(convert: _Convert | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _decimal(raw: bytes, scale: int) -> decimal.Decimal:
    return decimal.Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, _WIDE)


def _without_logical_types(written: Any) -> Any:
    if isinstance(written, list):
        return [_without_logical_types(branch) for branch in written]
    if isinstance(written, dict):
        return {key: _without_logical_types(value) for key, value in written.items() if key != "logicalType"}
    return written
