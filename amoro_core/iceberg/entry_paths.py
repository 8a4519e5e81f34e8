"""Reading only the file paths of manifest entries, at a quarter of the cost of reading whole entries.

Other fields are skipped in place. Lengths and numbers are checked here too: nothing is read beyond the end of a block.
"""

from collections.abc import Iterator
from typing import Any

from pyiceberg.avro.reader import (
    BinaryReader,
    IntegerReader,
    OptionReader,
    Reader,
    StringReader,
    StructReader,
)
from pyiceberg.avro.resolver import EnumReader
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus, ManifestFile

from amoro_core.iceberg.bounded import BoundedDecoder, number_at
from amoro_core.iceberg.manifests import FILE_FIELDS, IN_ENTRY, open_manifest, reading_manifest, stored_fields
from amoro_core.iceberg.packed import PackedReader
from amoro_core.records import record

_STATUSES = {one.value: one for one in ManifestEntryStatus}
_CONTENTS: dict[int | None, DataFileContent] = {one.value: one for one in DataFileContent}
_CONTENTS[None] = DataFileContent.DATA  # format 1 has no such field
_MORE, _NULL, _VALUE = 0x80, 0, 2
_NUMBER, _BYTES, _OTHER = range(3)


@record
class EntryPath:
    """The file of an entry."""

    is_live: bool
    content: DataFileContent
    path: str
    size_bytes: int


#: A field: kind, whether it may be null, the index at which its value is kept (-1: not kept), and its reader.
_Step = tuple[int, bool, int, Reader]


def read_paths(io: FileIO, manifest: ManifestFile) -> Iterator[EntryPath]:
    """The file of each entry, including removed ones. Raises like `read_manifest`."""
    with reading_manifest(manifest), open_manifest(io, manifest) as reader:
        steps = tuple(_steps(reader.reader))
        for records, data in reader.blocks():
            for status, content, path, size in _scan(data, records, steps):
                is_live = _STATUSES[status] != ManifestEntryStatus.DELETED
                yield EntryPath(is_live, _CONTENTS[content], str(path, "utf-8"), size)


def _steps(entry: Reader) -> Iterator[_Step]:
    """The fields of an entry in stored order, including those of its data file."""
    in_file = {FILE_FIELDS["content"]: 1, FILE_FIELDS["file_path"]: 2, FILE_FIELDS["file_size_in_bytes"]: 3}
    for at, field in stored_fields(entry):
        if at == IN_ENTRY["data_file"]:
            for place, one in stored_fields(field):
                yield from _step(one, in_file.get(place, -1))
        else:
            yield from _step(field, 0 if at == IN_ENTRY["status"] else -1)


def _step(field: Reader, place: int) -> Iterator[_Step]:
    plain, is_optional = (field.option, True) if isinstance(field, OptionReader) else (field, False)
    plain = plain.reader if isinstance(plain, EnumReader) else plain
    if isinstance(plain, IntegerReader):
        yield _NUMBER, is_optional, place, plain
    elif isinstance(plain, StringReader | BinaryReader):
        yield _BYTES, is_optional, place, plain
    elif isinstance(plain, StructReader) and not is_optional:
        for _, inner in stored_fields(plain):
            yield from _step(inner, -1)
    elif isinstance(plain, PackedReader):
        yield _OTHER, plain.is_optional, place, plain.required
    else:
        yield _OTHER, is_optional, place, plain


def _scan(data: bytes, records: int, steps: tuple[_Step, ...]) -> Iterator[list[Any]]:  # noqa: C901, PLR0912 - runs once a field of each entry: calls would cost more
    """The kept values of each record of a block. Raises ValueError or IndexError for data that exceeds the block."""
    at = 0
    for _ in range(records):
        kept: list[Any] = [None, None, None, None]
        for kind, is_optional, place, reader in steps:
            if is_optional:
                which = data[at]
                at += 1
                if which == _NULL:
                    continue
                if which != _VALUE:
                    raise ValueError(f"the union at {at - 1} has no branch {which}")
            if kind == _OTHER:
                at = _skipped(data, at, reader)
                continue
            value = data[at]
            if value < _MORE:  # nearly all are small
                value, at = (value >> 1) ^ -(value & 1), at + 1
            else:
                value, at = number_at(data, at)
            if kind == _BYTES:
                end = at + value
                if not at <= end <= len(data):
                    raise ValueError(f"{value} bytes are announced at {at}, but the data ends before")
                if place >= 0:
                    kept[place] = data[at:end]
                at = end
            elif place >= 0:
                kept[place] = value
        yield kept
    if at != len(data):
        raise ValueError("a block has more bytes than its records")


def _skipped(data: bytes, at: int, reader: Reader) -> int:
    """The offset of the end of the value at that offset."""
    decoder = BoundedDecoder(data, at)
    reader.read(decoder)  # pyiceberg's `skip` is wrong for some types
    return decoder.tell()
