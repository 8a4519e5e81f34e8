"""Deletion vectors in Puffin files: reading, checking, writing."""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

import pyarrow as pa

from amoro_core.errors import UnreadableFile
from amoro_core.files.storage.io import FileAccess, translated
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, DeleteKind, FileFormat
from amoro_core.model.paths import normalise
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.task_payload import PositionMap

__all__ = ["crc32"]

try:
    from zlib_ng.zlib_ng import crc32  # by vector instructions, twelve times as fast
except ImportError:  # there is no build of it for every machine
    from zlib import crc32


_PUFFIN_MAGIC = b"PFA1"
_NO_FLAGS = bytes(4)
#: The footer's end: the size of its JSON, flags, magic number.
_TAIL_BYTES = 12
#: The blob type of a sketch of a column's number of distinct values.
THETA = "apache-datasketches-theta-v1"
#: The property of such a blob with that number, as an integer.
NDV = "ndv"


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob of a Puffin file, about some fields of a snapshot."""

    type: str
    fields: tuple[int, ...]  # ids
    snapshot_id: int
    sequence_number: int  # of the snapshot
    payload: bytes = field(repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)
    is_compressed: bool = True  # deletion vectors must not be


@dataclass(frozen=True, slots=True)
class PuffinFile:
    """The bytes of a Puffin file."""

    content: bytes = field(repr=False)
    footer_bytes: int  # from its first magic to the end of the file
    offsets: tuple[int, ...]  # of the blobs


def puffin_of(blobs: Sequence[Blob], created_by: str) -> PuffinFile:
    """The file with these blobs, in this order, compressed with zstd where they may be."""
    parts: list[bytes] = [_PUFFIN_MAGIC]
    described: list[dict[str, object]] = []
    offsets: list[int] = []
    offset = len(_PUFFIN_MAGIC)
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
    footer = _PUFFIN_MAGIC + payload + struct.pack("<i", len(payload)) + _NO_FLAGS + _PUFFIN_MAGIC
    return PuffinFile(b"".join((*parts, footer)), len(footer), tuple(offsets))


def blobs_in(content: bytes, where: str) -> dict[int, Blob]:
    """The blobs of a Puffin file by their offsets, as stored; `where` is its path. Raises UnreadableFile."""
    try:
        return _blobs_in(content)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise UnreadableFile(f"{where} can't be read as a Puffin file: {error!r}") from error


def _blobs_in(content: bytes) -> dict[int, Blob]:
    size, flags, magic = struct.unpack("<i4s4s", content[-_TAIL_BYTES:])
    start = len(content) - _TAIL_BYTES - size
    if (
        not (content[:4] == content[start - 4 : start] == magic == _PUFFIN_MAGIC)
        or size < 0
        or start < 2 * len(_PUFFIN_MAGIC)
    ):
        raise ValueError("a magic number is missing")
    if flags != _NO_FLAGS:
        raise ValueError(f"its flags are {flags.hex()}")
    result = {}
    for stored in json.loads(content[start:-_TAIL_BYTES])["blobs"]:
        offset, length = int(stored["offset"]), int(stored["length"])
        if not len(_PUFFIN_MAGIC) <= offset <= offset + length <= start - len(_PUFFIN_MAGIC):
            raise ValueError(f"a blob of {length} bytes at {offset} lies outside")
        result[offset] = Blob(
            type=stored["type"],
            fields=tuple(stored["fields"]),
            snapshot_id=stored["snapshot-id"],
            sequence_number=stored["sequence-number"],
            payload=content[offset : offset + length],
            properties=stored.get("properties", {}),
            is_compressed="compression-codec" in stored,
        )
    return result


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

    `record_count`: by its manifest entry. `rows`: of the data file that it names. `where`: for messages. Raises
    UnreadableFile for another length, magic number, checksum or count, and a position beyond the file.
    """
    if len(blob) < 2 * _LENGTH.size + len(_MAGIC) or _LENGTH.unpack_from(blob)[0] != len(blob) - 2 * _LENGTH.size:
        raise UnreadableFile(f"the deletion vector at {where} has {len(blob)} bytes, but tells of another length")
    body = blob[_LENGTH.size : -_LENGTH.size]
    if not body.startswith(_MAGIC):
        raise UnreadableFile(f"the deletion vector at {where} begins with {body[:4].hex()}, not with {_MAGIC.hex()}")
    if _LENGTH.unpack(blob[-_LENGTH.size :])[0] != crc32(body):
        raise UnreadableFile(f"the deletion vector at {where} has another checksum than its content")
    try:
        result = PositionSet.deserialized(body[len(_MAGIC) :])
    except ValueError as error:
        raise UnreadableFile(f"the deletion vector at {where} can't be read: {error}") from error
    if len(result) != record_count:
        raise UnreadableFile(
            f"the deletion vector at {where} has {len(result)} positions, its manifest entry tells of {record_count}"
        )
    if result.last >= rows:
        raise UnreadableFile(f"the deletion vector at {where} deletes row {result.last}, the data file has {rows} rows")
    return result


@dataclass(frozen=True, slots=True)
class BlobLocation:
    """Where a blob lies in its file."""

    offset: int
    size_bytes: int


def vectors_file(vectors: Sequence[tuple[str, PositionSet]]) -> tuple[bytes, tuple[BlobLocation, ...]]:
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
        BlobLocation(offset, len(blob.payload)) for offset, blob in zip(puffin.offsets, blobs, strict=True)
    )


def read_omitted_rows(access: FileAccess, position_map: PositionMap, rows: Sequence[int]) -> Mapping[int, PositionSet]:
    """The rows that are in no output, by the number of the input; inputs that lost none are missing.

    `rows`: of each input. Raises DataFileMissing, and UnreadableFile for a file that is not as the map tells.
    """
    if not position_map.left_out:
        return {}
    content = access.read_bytes(position_map.path)
    if len(content) != position_map.size_bytes:
        size = f"{len(content)} bytes, the map of positions tells of {position_map.size_bytes}"
        raise UnreadableFile(f"{position_map.path} has {size}")
    return {
        deleted_rows.input: positions_in(
            content[deleted_rows.content_offset : deleted_rows.content_offset + deleted_rows.content_size_bytes],
            deleted_rows.record_count,
            rows[deleted_rows.input],
            f"{position_map.path}, byte {deleted_rows.content_offset}",
        )
        for deleted_rows in position_map.left_out
    }


#: The most bytes between two vectors that are read along, so that both need one request.
_GAP_BYTES = 64 << 10
#: The most bytes of one request for several vectors.
_REQUEST_BYTES = 16 << 20
#: Beside a byte per row: no vector is as large as both, one of single bits takes an eighth of a byte per row.
_OVERHEAD_BYTES = 1 << 20


def read_vectors(
    access: FileAccess, vectors: Iterable[DeleteFile], rows: Mapping[str, int], checkpoint: Callable[[], None]
) -> dict[DeleteIdentity, PositionSet]:
    """The positions in the vectors, by identity; those of one file that lie close together are read in one request.

    `rows`: of the data files that they name, by normalised path. `checkpoint` may raise. Raises DataFileMissing, and
    UnreadableFile with path and offset for a vector that is not as its entry says.
    """
    result: dict[DeleteIdentity, PositionSet] = {}
    for run in _runs(vectors, rows):
        checkpoint()
        start = run[0].identity.offset
        end = max(delete.identity.offset + delete.identity.size for delete in run)
        content = access.read_range(run[0].path, start, end - start)
        for delete in run:
            first = delete.identity.offset - start
            blob = content[first : first + delete.identity.size]
            if len(blob) < delete.identity.size:
                raise UnreadableFile(
                    f"the deletion vector at {place_of(delete)} has {len(blob)} of {delete.identity.size} bytes: the "
                    "file ends before"
                )
            result[delete.identity] = positions_in(blob, delete.record_count, _rows_of(delete, rows), place_of(delete))
    return result


def place_of(vector: DeleteFile) -> str:
    """Where the vector lies, for messages: its file and the offset."""
    return f"{vector.path} at {vector.identity.offset}"


def _rows_of(vector: DeleteFile, rows: Mapping[str, int]) -> int:
    return rows[normalise(vector.referenced_data_file or "")]


def _runs(vectors: Iterable[DeleteFile], rows: Mapping[str, int]) -> Iterator[list[DeleteFile]]:
    """The vectors in runs, each of one file and read at once."""
    run: list[DeleteFile] = []
    for delete in sorted(vectors, key=lambda item: item.identity):
        _refuse_size(delete, rows)
        if run and not _joins(run, delete):
            yield run
            run = []
        run.append(delete)
    if run:
        yield run


def _joins(run: list[DeleteFile], delete: DeleteFile) -> bool:
    first, last = run[0].identity, run[-1].identity
    is_near = delete.path == first.path and delete.identity.offset - (last.offset + last.size) <= _GAP_BYTES
    return is_near and delete.identity.offset + delete.identity.size - first.offset <= _REQUEST_BYTES


def _refuse_size(vector: DeleteFile, rows: Mapping[str, int]) -> None:
    """Raise UnreadableFile for a size that no vector of the data file has: so much is not read at all."""
    size, most = vector.identity.size, _rows_of(vector, rows) + _OVERHEAD_BYTES
    if not 0 <= size <= most:
        raise UnreadableFile(
            f"the deletion vector at {place_of(vector)} has {size} bytes, {most} are the most possible"
        )


#: Written at once; between two pieces the attempt may be abandoned.
_PIECE_BYTES = 1 << 20


def write_vectors(
    access: FileAccess,
    path: str,
    vectors: Sequence[tuple[DataFile, PositionSet]],
    sequence_number: int,
    checkpoint: Callable[[], None] | None = None,
) -> tuple[DeleteFile, ...]:
    """Write a Puffin file with a vector for each data file, in this order; on any error it is removed."""
    content, parts = vectors_file([(data.path, positions) for data, positions in vectors])
    output = access.create_output(path)
    with access.deleted_on_failure([path]), translated(path), output as stream:
        for start in range(0, len(content), _PIECE_BYTES):
            if checkpoint is not None:
                checkpoint()
            stream.write(content[start : start + _PIECE_BYTES])
    return tuple(
        DeleteFile(
            path=path,
            kind=DeleteKind.POSITION,
            file_format=FileFormat.PUFFIN,
            spec_id=data.spec_id,
            partition=data.partition,
            record_count=len(positions),
            size_bytes=len(content),
            sequence_number=sequence_number,
            referenced_data_file=data.path,
            content_offset=part.offset,
            content_size_bytes=part.size_bytes,
        )
        for (data, positions), part in zip(vectors, parts, strict=True)
    )
