"""Deletion vectors (Iceberg's Puffin specification, `deletion-vector-v1`): sets of row positions of one data file."""

import struct
from collections.abc import Sequence
from importlib.metadata import version

from amoro_core.errors import UnreadableFile
from amoro_core.files.checksums import crc32
from amoro_core.files.puffin import Blob, puffin_of
from amoro_core.positions import PositionSet
from amoro_core.records import record

#: The blob type of a deletion vector.
VECTOR = "deletion-vector-v1"
#: The reserved field id of row positions, as Iceberg's Java writer names it in the footer.
_ROW_POSITION_FIELD_ID = 2147483645
_MAGIC = b"\xd1\xd3\x39\x64"
_LENGTH = struct.Struct(">I")


def packed(positions: PositionSet) -> bytes:
    """The blob of a deletion vector."""
    body = _MAGIC + positions.serialized()
    return _LENGTH.pack(len(body)) + body + _LENGTH.pack(crc32(body))


def positions_in(blob: bytes, record_count: int, rows: int, where: str) -> PositionSet:
    """The positions in a deletion vector's blob.

    `record_count`: how many its manifest entry tells. `rows`: of the data file that it names. `where`: the path and the
    offset, for messages. Raises UnreadableFile for another length, magic number, checksum or count, and a position
    beyond the file.
    """
    if len(blob) < 2 * _LENGTH.size + len(_MAGIC) or _LENGTH.unpack_from(blob)[0] != len(blob) - 2 * _LENGTH.size:
        raise UnreadableFile(f"the deletion vector at {where} has {len(blob)} bytes, but tells of another length")
    body = blob[_LENGTH.size : -_LENGTH.size]
    if not body.startswith(_MAGIC):
        raise UnreadableFile(f"the deletion vector at {where} begins with {body[:4].hex()}, not with {_MAGIC.hex()}")
    if _LENGTH.unpack(blob[-_LENGTH.size :])[0] != crc32(body):
        raise UnreadableFile(f"the deletion vector at {where} has another checksum than its content")
    try:
        found = PositionSet.deserialized(body[len(_MAGIC) :])
    except ValueError as error:
        raise UnreadableFile(f"the deletion vector at {where} can't be read: {error}") from error
    if len(found) != record_count:
        raise UnreadableFile(
            f"the deletion vector at {where} has {len(found)} positions, its manifest entry tells of {record_count}"
        )
    if found.last >= rows:
        raise UnreadableFile(f"the deletion vector at {where} deletes row {found.last}, the data file has {rows} rows")
    return found


@record
class Part:
    """Where a blob lies in its file."""

    offset: int
    size_bytes: int


def vectors_file(vectors: Sequence[tuple[str, PositionSet]]) -> tuple[bytes, tuple[Part, ...]]:
    """A Puffin file with a deletion vector for each data file, in this order: its bytes, and the place of each."""
    blobs = [
        Blob(
            type=VECTOR,
            fields=(_ROW_POSITION_FIELD_ID,),
            snapshot_id=-1,  # inherited, like the sequence number
            sequence_number=-1,
            payload=packed(positions),
            properties={"referenced-data-file": path, "cardinality": str(len(positions))},
            is_compressed=False,
        )
        for path, positions in vectors
    ]
    puffin = puffin_of(blobs, f"Amoro in Python {version('amoro')}")
    return puffin.content, tuple(
        Part(offset, len(blob.payload)) for offset, blob in zip(puffin.offsets, blobs, strict=True)
    )
