"""Deletion vectors (Iceberg's Puffin specification, `deletion-vector-v1`): sets of row positions of one data file."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from amoro_core.errors import UnreadableFile
from amoro_core.files.puffin import Blob, puffin_of

#: The blob type of a deletion vector.
VECTOR = "deletion-vector-v1"
#: The reserved field id of row positions, as Iceberg's Java writer names it in the footer.
_ROW_POSITION_FIELD_ID = 2147483645
_MAGIC = b"\xd1\xd3\x39\x64"
_LENGTH = struct.Struct(">I")
#: Positions that are taken out at once.
_AT_ONCE = 1 << 22


class PositionSet:
    """A set of row positions of one file, each from 0 to below its number of rows; never changed in place."""

    __slots__ = ("_bitmap",)

    def __init__(self, bitmap: BitMap64) -> None:
        self._bitmap = bitmap

    @classmethod
    def of(cls, positions: Iterable[int] | NDArray[np.integer]) -> "PositionSet":
        """The set of these, in any order, repeated or not."""
        return cls(BitMap64(positions))

    @classmethod
    def first(cls, count: int) -> "PositionSet":
        """All positions below `count`."""
        bitmap = BitMap64()
        bitmap.add_range(0, count)
        return cls(bitmap)

    def array(self) -> NDArray[np.int64]:
        """The positions in ascending order; shape (len,)."""
        return np.frombuffer(self._bitmap.to_array(), dtype=np.uint64).astype(np.int64)

    def mask(self, rows: int) -> NDArray[np.bool_]:
        """Whether each row of a file with that many rows is in the set; shape (rows,).

        Positions are taken out piece by piece: one takes eight bytes.
        """
        found = np.zeros(rows, np.bool_)
        if len(self) <= _AT_ONCE:
            found[self.array()] = True
            return found
        for start in range(0, rows, _AT_ONCE):
            piece = BitMap64()
            piece.add_range(start, start + _AT_ONCE)
            found[PositionSet(self._bitmap & piece).array()] = True
        return found

    def __len__(self) -> int:
        return len(self._bitmap)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositionSet) and self._bitmap == other._bitmap

    def __hash__(self) -> int:
        return hash((len(self), self.last))

    def __or__(self, other: "PositionSet") -> "PositionSet":
        return PositionSet(self._bitmap | other._bitmap)

    def __sub__(self, other: "PositionSet") -> "PositionSet":
        return PositionSet(self._bitmap - other._bitmap)

    def __le__(self, other: "PositionSet") -> bool:
        return bool(self._bitmap.issubset(other._bitmap))

    def __repr__(self) -> str:
        return f"PositionSet({len(self)}, last {self.last})"

    @property
    def last(self) -> int:
        """The greatest position; −1 of an empty set."""
        return int(self._bitmap.max()) if len(self._bitmap) else -1

    def packed(self) -> bytes:
        """The blob of a deletion vector."""
        compact = self._bitmap.copy()
        compact.run_optimize()
        body = _MAGIC + compact.serialize()
        return _LENGTH.pack(len(body)) + body + _LENGTH.pack(crc32(body))


NO_POSITIONS = PositionSet.of(())


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
        found = PositionSet(BitMap64.deserialize(body[len(_MAGIC) :]))
    except Exception as error:  # the library's own kinds
        raise UnreadableFile(f"the deletion vector at {where} can't be read: {error}") from error
    if len(found) != record_count:
        raise UnreadableFile(
            f"the deletion vector at {where} has {len(found)} positions, its manifest entry tells of {record_count}"
        )
    if found.last >= rows:
        raise UnreadableFile(f"the deletion vector at {where} deletes row {found.last}, the data file has {rows} rows")
    return found


@dataclass(frozen=True, slots=True)
class Part:
    """Where a blob lies in its file."""

    offset: int
    size_bytes: int


def vectors_file(vectors: Sequence[tuple[str, PositionSet]], created_by: str) -> tuple[bytes, tuple[Part, ...]]:
    """A Puffin file with a deletion vector for each data file, in this order: its bytes, and the place of each."""
    blobs = [
        Blob(
            type=VECTOR,
            fields=(_ROW_POSITION_FIELD_ID,),
            snapshot_id=-1,  # inherited, like the sequence number
            sequence_number=-1,
            payload=positions.packed(),
            properties={"referenced-data-file": path, "cardinality": str(len(positions))},
            is_compressed=False,
        )
        for path, positions in vectors
    ]
    puffin = puffin_of(blobs, created_by)
    return puffin.content, tuple(
        Part(offset, len(blob.payload)) for offset, blob in zip(puffin.offsets, blobs, strict=True)
    )
