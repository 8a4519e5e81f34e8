"""Manifest lists, most of whose records the list of the snapshot before has, too."""

from collections.abc import Iterator, Mapping

from pyiceberg.avro.reader import Reader
from pyiceberg.io import InputFile
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestContent, ManifestFile, PartitionFieldSummary

from amoro_core.iceberg.avro import RECORD_VERSION
from amoro_core.iceberg.bounded import BoundedAvroFile, BoundedDecoder, number_at, readers_of

#: Ids of fields of a manifest list.
_SUMMARY, _CONTENT = 508, 517
_OF_LISTS = readers_of(
    MANIFEST_LIST_FILE_SCHEMAS[RECORD_VERSION],
    {-1: ManifestFile, _SUMMARY: PartitionFieldSummary},
    {_CONTENT: ManifestContent},
)
#: About how much memory a record takes, as stored and decoded.
_BYTES_OF_RECORD = 2_000
#: The most bytes by which a record is looked up: what it begins with may be another number than its path's length.
_LONGEST_BEGINNING = 1_024
#: A record as it is stored, and what it says.
_Record = tuple[bytes, ManifestFile]


class ManifestLists:
    """Reads lists of one table. A record that the list read before has, byte for byte, is not decoded again.

    For several threads. What it returns is shared: nobody may change it.
    """

    def __init__(self) -> None:
        self._known: tuple[object, Mapping[bytes, _Record]] = None, {}  # of a schema, by what records begin with

    def read(self, source: InputFile) -> list[ManifestFile]:
        """The manifests that a list names, each with its first row id. Raises ValueError and what codecs raise."""
        with BoundedAvroFile[ManifestFile](source, _OF_LISTS) as reader:
            schema, (of, known) = reader.header.meta["avro.schema"], self._known
            before, now = known if of == schema else {}, dict[bytes, _Record]()
            blocks = (_read(reader.reader, *block, before, now) for block in reader.blocks())
            found = [one for block in blocks for one in block]
        self._known = schema, now
        return found

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return len(self._known[1]) * _BYTES_OF_RECORD


def _read(
    reader: Reader, records: int, content: bytes, before: Mapping[bytes, _Record], now: dict[bytes, _Record]
) -> Iterator[ManifestFile]:
    """So many records of a block; `now` gets them."""
    decoder = BoundedDecoder(content)
    for _ in range(records):
        start = decoder.tell()
        begin = _beginning(content, start)
        found = before.get(begin)
        if found is not None and content.startswith(found[0], start):
            decoder.skip(len(found[0]))
        else:
            listed: ManifestFile = reader.read(decoder)
            found = content[start : decoder.tell()], listed
        now[begin] = found
        yield found[1]
    if not decoder.is_at_end:
        raise ValueError("a block has more bytes than its records")


def _beginning(content: bytes, start: int) -> bytes:
    """What a record begins with, in all usual lists its path; whatever it is, records are the same by all of it."""
    try:
        size, at = number_at(content, start)
    except ValueError:
        return b""
    return content[start : min(at + size, start + _LONGEST_BEGINNING)]
