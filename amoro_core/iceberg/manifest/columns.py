"""Data manifests as columns, at a fraction of the cost of entries as objects; and the paths of all entries.

Fields are located as bytes, and only those needed are decoded. Entries of one manifest are alike: a regular expression
made from one (such as the keys of its maps) locates the fields of the next; what differs is located field by field.
Every length is checked, and nothing is read beyond the end of a block. A manifest that a check would refuse gives None:
it is then read entry by entry, which reports what is wrong with it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.avro.file import AvroFileHeader
from pyiceberg.avro.reader import (
    BinaryReader,
    BooleanReader,
    DecimalReader,
    DoubleReader,
    FixedReader,
    FloatReader,
    IntegerReader,
    ListReader,
    OptionReader,
    Reader,
    StringReader,
    StructReader,
    UUIDReader,
)
from pyiceberg.avro.resolver import EnumReader
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus, ManifestFile

from amoro_core.iceberg.manifest.avro import (
    BoundedDecoder,
    PackedReader,
    end_of_blocks,
    end_of_number_pairs,
    end_of_numbers,
    end_of_pairs,
    first_row_id_of,
    next_block,
    number_at,
    read_header,
)
from amoro_core.iceberg.manifest.reading import (
    FILE_FIELDS,
    IN_ENTRY,
    METRICS,
    PartitionTypes,
    entry_reader,
    live_files,
    read_bytes,
    read_manifest,
    reading_manifest,
    stored_fields,
    to_partition,
)
from amoro_core.iceberg.table_support import MOST
from amoro_core.model.files import FileFormat
from amoro_core.scan.columns import NONE, ColumnPart, OpenPart, format_code, pack_numbers

#: What stands instead of the value of an optional field, and before it.
NULL, VALUE = b"\x00", b"\x02"
_NUMBER = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_NOTHING = rb"((?!))"  # never matches
#: What reads values of one length.
_FIXED = (BooleanReader, FloatReader, DoubleReader, FixedReader, DecimalReader, UUIDReader)
#: Of each run of a manifest: an expectation costs as much as reading dozens of entries.
_EXPECTATIONS = 3
#: The fields of an entry in the order in which every writer stores them.
_ENTRY_FIELDS = ("status", "snapshot_id", "sequence_number", "file_sequence_number")

#: The bytes of an entry's fields in stored order, those of texts without their length; None: null. A None at the end.
Raw = list[bytes | None]
_Match = Callable[[bytes, int], re.Match[bytes] | None]


class _Kind(Enum):
    NUMBER, BYTES, LIST, MAP_OF_NUMBERS, MAP_OF_BYTES, RECORD, OTHER = (auto() for _ in range(7))


_ENDS = {_Kind.LIST: end_of_numbers, _Kind.MAP_OF_NUMBERS: end_of_number_pairs, _Kind.MAP_OF_BYTES: end_of_pairs}


@dataclass(frozen=True, slots=True)
class _Field:
    kind: _Kind
    is_optional: bool
    reader: Reader
    fields: tuple["_Field", ...] = ()  # of a record


#: Fields that are expected together; the first one is alone where its length differs from entry to entry.
_Run = tuple[int, tuple[_Field, ...]]


@dataclass(frozen=True, slots=True)
class Layout:
    """How entries of one schema are stored."""

    at: Mapping[str, int]  # the place of each field in the values of an entry, -1 where it is not stored
    runs: tuple[_Run, ...]
    partition: Reader
    partition_fields: int


def opened(data: bytes) -> tuple[AvroFileHeader, Iterator[tuple[int, bytes]]]:
    """The header of an Avro file, and of each block the number of records and their bytes. Raises ValueError."""
    decoder = BoundedDecoder(data)
    header = read_header(decoder)

    def blocks() -> Iterator[tuple[int, bytes]]:
        while not decoder.is_at_end:
            yield next_block(decoder, header)

    return header, blocks()


@lru_cache(64)
def layout_of(avro_schema: str) -> Layout:
    """The layout of entries of that schema. Raises ValueError for one whose entries are stored in another order."""
    entry = entry_reader(avro_schema)
    fields = stored_fields(entry)
    if [at for at, _ in fields] != [*(IN_ENTRY[name] for name in _ENTRY_FIELDS), IN_ENTRY["data_file"]]:
        raise ValueError("the fields of entries are in another order")
    inner = stored_fields(fields[-1][1])
    names = {at: name for name, at in FILE_FIELDS.items()}
    stored = [*_ENTRY_FIELDS, *(names.get(at, "") for at, _ in inner)]
    own = [_field(reader) for _, reader in fields[:-1]]
    partition = inner[stored.index("partition") - len(own)][1]
    return Layout(
        dict.fromkeys((*_ENTRY_FIELDS, *FILE_FIELDS), -1) | {name: at for at, name in enumerate(stored)},
        ((0, tuple(own)), *_runs([_field(reader) for _, reader in inner], len(own))),
        partition,
        len(stored_fields(partition)),
    )


def _runs(fields: list[_Field], first: int) -> Iterator[_Run]:
    """The fields in runs; the second one is the path, the lengths of bounds differ, too."""
    run: list[_Field] = []
    for at, field in enumerate(fields, first):
        is_alone = field.kind is _Kind.MAP_OF_BYTES or at == first + 1
        if is_alone and run:
            yield at - len(run), tuple(run)
            run = []
        run.append(field)
        if is_alone:
            yield at, tuple(run)
            run = []
    if run:
        yield first + len(fields) - len(run), tuple(run)


def _field(reader: Reader) -> _Field:
    plain, is_optional = (reader.option, True) if isinstance(reader, OptionReader) else (reader, False)
    plain = plain.reader if isinstance(plain, EnumReader) else plain
    if isinstance(plain, PackedReader):
        kind = _Kind.MAP_OF_NUMBERS if plain.of_numbers else _Kind.MAP_OF_BYTES
        return _Field(kind, plain.is_optional, plain.required)
    if isinstance(plain, IntegerReader):
        return _Field(_Kind.NUMBER, is_optional, plain)
    if isinstance(plain, StringReader | BinaryReader):
        return _Field(_Kind.BYTES, is_optional, plain)
    if isinstance(plain, ListReader) and isinstance(plain.element, IntegerReader):
        return _Field(_Kind.LIST, is_optional, plain)
    if isinstance(plain, StructReader):
        return _Field(_Kind.RECORD, is_optional, plain, tuple(_field(inner) for _, inner in stored_fields(plain)))
    return _Field(_Kind.OTHER, is_optional, plain)


class RawEntries:
    """Reads the entries of one manifest's blocks."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._expected: dict[int, _Match] = {}  # by the place of a run
        self._room = {place: _EXPECTATIONS for place, _ in layout.runs}

    def of(self, records: int, data: bytes) -> Iterator[Raw]:
        """The entries of a block. Raises ValueError or IndexError unless the data are exactly that many entries."""
        (_, own), *runs = self._layout.runs
        texts = {
            place for place, (first, *more) in runs if first.kind is _Kind.BYTES and not (more or first.is_optional)
        }
        expected = self._expected
        at = 0
        for _ in range(records):
            values: Raw = []
            at = self._take(0, own, data, at, values)
            for place, fields in runs:
                if place in texts:
                    size, begin = number_at(data, at)
                    at = begin + size
                    values.append(_checked(data, begin, at))
                elif (match := expected.get(place)) is not None and (field := match(data, at)) is not None:
                    values += field.groups()
                    at = field.end()
                else:
                    at = self._take(place, fields, data, at, values)
            values.append(None)
            yield values
        if at != len(data):
            raise ValueError("a block has other bytes than its records")

    def _take(self, place: int, fields: tuple[_Field, ...], data: bytes, at: int, values: Raw) -> int:
        """Add the values of a run, field by field; the next ones are expected to be alike. The offset of its end."""
        expected = self._expected.get(place)
        if expected is not None and (match := expected(data, at)) is not None:
            values += match.groups()
            return match.end()
        before = len(values)
        for field in fields:
            at, raw = _value(field, data, at)
            values.append(raw)
        if self._room[place]:
            self._room[place] -= 1
            self._expected[place] = _compiled(b"".join(map(_pattern, fields, values[before:])))
        return at


def _value(field: _Field, data: bytes, at: int) -> tuple[int, bytes | None]:
    """The offset of the field's end, and its bytes."""
    if field.is_optional:
        if data[at] == NULL[0]:
            return at + 1, None
        if data[at] != VALUE[0]:
            raise ValueError(f"the union at {at} has no branch {data[at]}")
        at += 1
    start = at
    match field.kind:
        case _Kind.NUMBER:
            _, at = number_at(data, at)
        case _Kind.BYTES:
            size, start = number_at(data, at)
            at = start + size
        case _Kind.RECORD:
            for item in field.fields:
                at, _ = _value(item, data, at)
        case _Kind.OTHER:
            decoder = BoundedDecoder(data, at)
            field.reader.read(decoder)
            at = decoder.tell()
        case _:
            at = end_of_blocks(data, at, _ENDS[field.kind])
    return at, _checked(data, start, at)


def _checked(data: bytes, start: int, end: int) -> bytes:
    if not start <= end <= len(data):
        raise ValueError(f"a field begins at {start} and does not end")
    return data[start:end]


@lru_cache(1024)
def _compiled(pattern: bytes) -> _Match:
    return re.compile(pattern, re.DOTALL).match


def _pattern(field: _Field, raw: bytes | None, group: bytes = b"(") -> bytes:
    """Matches fields like the one with those bytes, which the group has. Numbers may be null or not."""
    begin = VALUE if field.is_optional else b""
    if field.kind is _Kind.NUMBER:
        number = group + _NUMBER + b")"
        return b"(?:\x00|" + begin + number + b")" if field.is_optional else number
    if raw is None:
        return NULL + _NOTHING + b"?"
    if field.kind is _Kind.BYTES:
        return begin + re.escape(pack_numbers((len(raw),))) + group + b".{%d})" % len(raw)
    if field.kind is _Kind.RECORD:
        return begin + group + b"".join(_patterns_of_record(field.fields, raw)) + b")"
    if field.kind is _Kind.OTHER:
        fixed = isinstance(field.reader, _FIXED)
        return begin + group + b".{%d})" % len(raw) if fixed else _NOTHING
    return begin + group + _pattern_of_block(field.kind, raw) + b")"


def _patterns_of_record(fields: tuple[_Field, ...], raw: bytes) -> Iterator[bytes]:
    at = 0
    for field in fields:
        at, value = _value(field, raw, at)
        yield NULL if value is None and field.kind is not _Kind.NUMBER else _pattern(field, value, b"(?:")


def _pattern_of_block(kind: _Kind, raw: bytes) -> bytes:
    """Matches lists and maps as long as this one, of the same keys, and with bounds of the same lengths."""
    if raw == NULL:
        return NULL
    count, at = number_at(raw, 0)
    parts = [re.escape(raw[:at])]
    for _ in range(count):
        start = at
        _, at = number_at(raw, at)
        if kind is _Kind.LIST:
            parts.append(_NUMBER)
            continue
        size, behind = number_at(raw, at)
        if kind is _Kind.MAP_OF_BYTES:
            parts.append(re.escape(raw[start:behind]) + b".{%d}" % size)
            at = behind + size
        else:
            parts.append(re.escape(raw[start:at]) + _NUMBER)
            at = behind
    # Of several blocks nothing is expected.
    return b"".join((*parts, NULL)) if raw[at:] == NULL else _NOTHING


@dataclass(frozen=True, slots=True)
class EntryPath:
    """The file of an entry."""

    is_live: bool
    content: DataFileContent
    path: str
    size_bytes: int


def read_paths(io: FileIO, manifest: ManifestFile) -> Iterator[EntryPath]:
    """The file of each entry, including removed ones. Raises like `read_manifest`."""
    data = read_bytes(io, manifest)
    with reading_manifest(manifest):
        header, blocks = opened(data)
        try:
            layout = layout_of(header.meta["avro.schema"])
        except ValueError:  # as in format 1, whose entries lack sequence numbers
            for entry in read_manifest(io, manifest).entries:
                file, is_live = entry.data_file, entry.status != ManifestEntryStatus.DELETED
                yield EntryPath(is_live, file.content, file.file_path, file.file_size_in_bytes)
            return
        names = ("status", "content", "file_path", "file_size_in_bytes")
        status, content, path, size = (layout.at[name] for name in names)
        entries = RawEntries(layout)
        for records, block in blocks:
            for values in entries.of(records, block):
                is_live = ManifestEntryStatus(_number(values[status])) != ManifestEntryStatus.DELETED
                kind = DataFileContent.DATA if values[content] is None else DataFileContent(_number(values[content]))
                yield EntryPath(is_live, kind, str(_required(values[path]), "utf-8"), _number(values[size]))


def _required(raw: bytes | None) -> bytes:
    if raw is None:
        raise ValueError("an entry lacks a required field")
    return raw


def _number(raw: bytes | None) -> int:
    return number_at(_required(raw), 0)[0]


_EXISTING, _ADDED, _DELETED = (bytes([status << 1]) for status in range(3))
_FORMATS = {item.value.upper().encode(): format_code(item) for item in FileFormat if item is not FileFormat.PUFFIN}
_DATA = b"\x00"


#: Reads the live files of a data manifest, given the types of its partitions; None: it must be read entry by entry.
ColumnReader = Callable[[FileIO, ManifestFile, PartitionTypes], ColumnPart | None]


def read_columns(io: FileIO, manifest: ManifestFile, types: PartitionTypes) -> ColumnPart | None:
    """The live files of a data manifest, as reading it entry by entry gives them. Raises like `read_list`.

    None for a manifest that must be read so: it is damaged, contradicts itself or its list, has files that are refused,
    or entries in another order of fields.
    """
    return decode_columns(read_bytes(io, manifest), manifest, types)


def decode_columns(data: bytes, manifest: ManifestFile, types: PartitionTypes) -> ColumnPart | None:
    """Like `read_columns`, from the manifest's bytes."""
    try:
        header, blocks = opened(data)
        layout = layout_of(header.meta["avro.schema"])
        _require_header(header.meta, layout, manifest, types)
        entries, reading = RawEntries(layout), _Reading(layout, manifest, types)
        for records, block in blocks:
            reading.add(list(entries.of(records, block)))
        return reading.ended()
    except Exception:  # whatever a decoder raises
        return None


class _Odd(ValueError):
    """The manifest is to be read entry by entry."""


def _require_header(meta: dict[str, str], layout: Layout, manifest: ManifestFile, types: PartitionTypes) -> None:
    spec_id = str(manifest.partition_spec_id)
    described = (meta.get("content", "data"), meta.get("partition-spec-id", spec_id), layout.partition_fields)
    # Both are required of every manifest, and read by the other reader.
    if described != ("data", spec_id, len(types)) or not {"schema", "partition-spec"} <= meta.keys():
        raise _Odd


class _Reading:
    """The live files of one manifest, gathered."""

    def __init__(self, layout: Layout, manifest: ManifestFile, types: PartitionTypes) -> None:
        self._layout, self._manifest, self._types = layout, manifest, types
        self._part = OpenPart()
        self._places, self._numbers, self._offsets = cache(self._place), cache(_number), cache(_offsets)
        self._upcoming = first_row_id_of(manifest)

    def add(self, entries: list[Raw]) -> None:
        """Add the live files of a block's entries."""
        at, part = self._layout.at, self._part
        status = at["status"]
        live = [values for values in entries if values[status] != _DELETED]
        if not live:
            return
        columns: list[tuple[Any, ...]] = list(zip(*live, strict=True))
        if {*columns[status]} - {_EXISTING, _ADDED} or {*columns[at["content"]]} != {_DATA}:
            raise _Odd
        if any(columns[at["key_metadata"]]):
            raise _Odd
        records = list(map(self._numbers, columns[at["record_count"]]))
        part.paths += [str(raw, "utf-8") for raw in columns[at["file_path"]]]
        part.place += map(self._places, columns[at["partition"]])
        part.records += records
        part.sizes += map(self._numbers, columns[at["file_size_in_bytes"]])
        part.numbers += map(self._sequence_number, columns[at["sequence_number"]], columns[status])
        part.formats += map(_FORMATS.__getitem__, columns[at["file_format"]])
        orders = (_NONE if raw is None else raw for raw in columns[at["sort_order_id"]])
        offsets = map(self._offsets, columns[at["split_offsets"]])
        row_ids = self._row_ids(columns[at["first_row_id"]], records)
        part.layouts += map(b"".join, zip(orders, row_ids, offsets, strict=True))
        maps = ([raw or NULL for raw in columns[at[name]]] for name in METRICS)
        part.metrics += map(b"".join, zip(*maps, strict=True))

    def ended(self) -> ColumnPart:
        """The columns. Raises for what is not to be read so."""
        manifest, part = self._manifest, self._part.ended()
        records, sizes, numbers = (part.batch.column(name).to_numpy() for name in ("records", "sizes", "numbers"))
        if live_files(manifest) not in (None, len(records)):
            raise _Odd
        if not (_within(numbers, manifest.sequence_number + 1) and _within(records, MOST) and _within(sizes, MOST)):
            raise _Odd
        if np.any((records > 0) & (sizes == 0)):
            raise _Odd
        return part

    def _place(self, raw: bytes) -> int:
        decoder = BoundedDecoder(raw)
        record = self._layout.partition.read(decoder)
        if not decoder.is_at_end:
            raise _Odd
        codes, partition = self._part.codes, to_partition(record, self._types)
        return codes.setdefault((self._manifest.partition_spec_id, partition), len(codes))

    def _sequence_number(self, raw: bytes | None, status: bytes) -> int:
        """The file's sequence number, inherited by new files, and by all in a table that was of format 1."""
        if raw is not None:
            return self._numbers(raw)
        if status != _ADDED and self._manifest.sequence_number != 0:
            raise _Odd
        return self._manifest.sequence_number

    def _row_ids(self, raws: Iterable[bytes | None], records: Iterable[int]) -> Iterator[bytes]:
        """The files' first row ids, inherited as `inherit_row_ids` does."""
        for raw, rows in zip(raws, records, strict=True):
            if self._upcoming is None:
                yield _NONE
            elif raw is not None:
                yield raw
            else:
                yield pack_numbers((self._upcoming,))
                self._upcoming += rows


_NONE = pack_numbers((NONE,))


def _within(numbers: npt.NDArray[np.int64], end: int) -> bool:
    return bool(np.all((numbers >= 0) & (numbers < end)))


def _offsets(raw: bytes | None) -> bytes:
    """The numbers of a list that is stored in one block."""
    if raw is None or raw == NULL:
        return b""
    count, at = number_at(raw, 0)
    if count < 0 or end_of_numbers(raw, at, count) != len(raw) - 1:
        raise _Odd
    return raw[at:-1]
