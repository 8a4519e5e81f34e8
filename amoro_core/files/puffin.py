"""Puffin files (Iceberg's Puffin specification): blobs, compressed one by one, and a footer that describes them."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from amoro_core.errors import UnreadableFile
from amoro_core.records import record

_MAGIC = b"PFA1"
_NO_FLAGS = bytes(4)
#: The footer's end: the size of its JSON, flags, magic number.
_TAIL_BYTES = 12
#: The blob type of a sketch of a column's number of distinct values.
THETA = "apache-datasketches-theta-v1"
#: The property of such a blob with that number, as an integer.
NDV = "ndv"


@record
class Blob:
    """A blob of a Puffin file, about some fields of a snapshot."""

    type: str
    fields: tuple[int, ...]  # ids
    snapshot_id: int
    sequence_number: int  # of the snapshot
    payload: bytes = field(repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)
    is_compressed: bool = True  # deletion vectors must not be


@record
class PuffinFile:
    """The bytes of a Puffin file."""

    content: bytes = field(repr=False)
    footer_bytes: int  # from its first magic to the end of the file
    offsets: tuple[int, ...]  # of the blobs


def puffin_of(blobs: Sequence[Blob], created_by: str) -> PuffinFile:
    """The file with these blobs, in this order, compressed with zstd where they may be."""
    parts: list[bytes] = [_MAGIC]
    described: list[dict[str, object]] = []
    offsets: list[int] = []
    offset = len(_MAGIC)
    for blob in blobs:
        stored = pa.compress(blob.payload, codec="zstd", asbytes=True) if blob.is_compressed else blob.payload
        parts.append(stored)
        offsets.append(offset)
        described.append(
            {
                "type": blob.type,
                "fields": list(blob.fields),
                "snapshot-id": blob.snapshot_id,
                "sequence-number": blob.sequence_number,
                "offset": offset,
                "length": len(stored),
                **({"compression-codec": "zstd"} if blob.is_compressed else {}),
                "properties": dict(blob.properties),
            }
        )
        offset += len(stored)
    payload = json.dumps({"blobs": described, "properties": {"created-by": created_by}}).encode()
    footer = _MAGIC + payload + struct.pack("<i", len(payload)) + _NO_FLAGS + _MAGIC
    return PuffinFile(b"".join((*parts, footer)), len(footer), tuple(offsets))


def blobs_in(content: bytes, where: str) -> dict[int, Blob]:
    """The blobs of a Puffin file by their offsets, payloads as they are stored; `where` is its path, for messages.

    Raises UnreadableFile for bytes that are no Puffin file, and for a footer that is compressed or damaged.
    """
    try:
        return _blobs_in(content)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise UnreadableFile(f"{where} can't be read as a Puffin file: {error!r}") from error


def _blobs_in(content: bytes) -> dict[int, Blob]:
    size, flags, magic = struct.unpack("<i4s4s", content[-_TAIL_BYTES:])
    start = len(content) - _TAIL_BYTES - size
    if not (content[:4] == content[start - 4 : start] == magic == _MAGIC) or size < 0 or start < 2 * len(_MAGIC):
        raise ValueError("a magic number is missing")
    if flags != _NO_FLAGS:
        raise ValueError(f"its flags are {flags.hex()}")
    found = {}
    for told in json.loads(content[start:-_TAIL_BYTES])["blobs"]:
        offset, length = int(told["offset"]), int(told["length"])
        if not len(_MAGIC) <= offset <= offset + length <= start - len(_MAGIC):
            raise ValueError(f"a blob of {length} bytes at {offset} lies outside")
        found[offset] = Blob(
            type=told["type"],
            fields=tuple(told["fields"]),
            snapshot_id=told["snapshot-id"],
            sequence_number=told["sequence-number"],
            payload=content[offset : offset + length],
            properties=told.get("properties", {}),
            is_compressed="compression-codec" in told,
        )
    return found
