"""Metrics of files packed as in a manifest, and unpacked on access.

Maps are encoded like Avro arrays of pairs: blocks of a count and that many pairs, ended by an empty block.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from amoro_core.model.files import ColumnMetrics

#: Reads the number or bytes at an offset, and returns it with the offset of its end.
Read = Callable[[bytes, int], tuple[Any, int]]

_NONE = b"\x00"
#: The continuation bit: set in all bytes of a number but the last.
_MORE = 0x80


class PackedMap(Mapping[int, Any]):
    """Numbers or bytes by field id, unpacked on each access."""

    __slots__ = ("_read", "packed")

    def __init__(self, packed: bytes, read: Read) -> None:
        self.packed = packed
        self._read = read

    def __getitem__(self, key: int) -> Any:
        return self._unpacked()[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._unpacked())

    def __len__(self) -> int:
        return len(self._unpacked())

    def __repr__(self) -> str:
        return repr(self._unpacked())

    def items(self) -> Any:
        """The pairs, unpacked once."""
        return self._unpacked().items()

    def _unpacked(self) -> dict[int, Any]:
        return _read_map(self.packed, 0, self._read)[0]


class PackedMetrics(ColumnMetrics):
    """Metrics that are unpacked all at once on first access."""

    __slots__ = ("packed",)
    packed: bytes

    def __init__(self, packed: bytes) -> None:
        object.__setattr__(self, "packed", packed)

    def __getattr__(self, name: str) -> Any:
        # Called while the fields are still slots without a value.
        if name not in _FIELDS:
            raise AttributeError(name)
        at = 0
        for field, read in _FIELDS.items():
            found, at = _read_map(self.packed, at, read)
            object.__setattr__(self, field, found)
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ColumnMetrics):
            return NotImplemented
        return all(getattr(self, field) == getattr(other, field) for field in _FIELDS)

    __hash__ = ColumnMetrics.__hash__


def pack_metrics(metrics: ColumnMetrics) -> bytes:
    """The metrics in the form that `PackedMetrics` takes."""
    if isinstance(metrics, PackedMetrics):
        return metrics.packed
    return b"".join(pack_map(getattr(metrics, field)) for field in _FIELDS)


def pack_map(found: Mapping[int, Any] | None) -> bytes:
    """The map in the form that `PackedMap` takes; None is packed as an empty one."""
    if isinstance(found, PackedMap):
        return found.packed
    if not found:
        return _NONE
    pairs = (_number(key) + _value(value) for key, value in found.items())
    return b"".join((_number(len(found)), *pairs, _NONE))


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """The numbers, packed one after the other."""
    return b"".join(map(_number, numbers))


def unpack_numbers(packed: bytes) -> tuple[int, ...]:
    """What `pack_numbers` packed."""
    if packed.isascii():  # each in one byte
        return tuple([(one >> 1) ^ -(one & 1) for one in packed])
    found, at = [], 0
    while at < len(packed):
        number, at = read_number(packed, at)
        found.append(number)
    return tuple(found)


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """The number at that offset, in Avro's encoding, and the offset of its end."""
    value = shift = 0
    while data[at] >= _MORE:
        value |= (data[at] & ~_MORE) << shift
        shift += 7
        at += 1
    value |= data[at] << shift
    return (value >> 1) ^ -(value & 1), at + 1


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """The length-prefixed bytes at that offset, and the offset of their end."""
    size, at = read_number(data, at)
    return data[at : at + size], at + size


def _read_map(data: bytes, at: int, read: Read) -> tuple[dict[int, Any], int]:
    found: dict[int, Any] = {}
    while True:
        count, at = read_number(data, at)
        if count == 0:
            return found, at
        if count < 0:  # the size of the block follows
            count = -count
            _, at = read_number(data, at)
        for _ in range(count):
            key, at = read_number(data, at)
            found[key], at = read(data, at)


def _value(value: int | bytes) -> bytes:
    return _number(value) if isinstance(value, int) else _number(len(value)) + value


def _number(value: int) -> bytes:
    rest = value << 1 if value >= 0 else ~value << 1 | 1
    done = bytearray()
    while rest >= _MORE:
        done.append(rest & ~_MORE & 0xFF | _MORE)
        rest >>= 7
    done.append(rest)
    return bytes(done)


#: The metrics in the order in which they are packed.
_FIELDS: dict[str, Read] = {
    "column_sizes": read_number,
    "value_counts": read_number,
    "null_value_counts": read_number,
    "nan_value_counts": read_number,
    "lower_bounds": read_bytes,
    "upper_bounds": read_bytes,
}
