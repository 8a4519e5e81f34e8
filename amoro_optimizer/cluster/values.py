"""Values of columns in a form that orders as Iceberg orders them: words of 64 bits, or bytes of any length."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
#: Of rows in their file.
Positions = npt.NDArray[np.int64]
#: One value for each row: words, or an Arrow array of binary values; never null.
Part: TypeAlias = "Words | pa.Array"

_SIGN = np.uint64(1 << 63)
_WORD = 8
#: Decimals of so many digits fit into one word.
_WORD_DIGITS = 18


def value_parts(array: pa.Array) -> tuple[Part, ...]:
    """What orders the values of a primitive column, the first part deciding first. Nulls are as zero, or empty.

    Floats order as −NaN < −∞ < … < −0 < 0 < … < NaN, strings by their UTF-8 bytes, uuid, fixed and binary values by
    their bytes, decimals by value. Raises ValueError for a nested column.
    """
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        stored = array.view(pa.binary())
        return (stored.fill_null(b"") if stored.null_count else stored,)
    if pa.types.is_nested(kind):
        raise ValueError(f"a column of type {kind} has no order")
    parts = _fixed_parts(array)
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        for part in parts:
            part[nulls] = 0
    return parts


def signed_words(numbers: npt.NDArray[np.int64]) -> Words:
    """Signed numbers as words in the same order."""
    return numbers.astype(np.int64).view(np.uint64) ^ _SIGN


def unscaled(array: pa.Array) -> tuple[npt.NDArray[np.int64], Words]:
    """Decimals as whole numbers of 128 bits: the signed upper and the lower half."""
    words = _stored(array, np.dtype("<u8"), 2).reshape(-1, 2)
    return words[:, 1].view(np.int64).copy(), words[:, 0].copy()


def halves(upper: npt.NDArray[np.int64], lower: Words) -> tuple[Words, Words]:
    """What orders whole numbers of 128 bits."""
    return signed_words(upper), lower


def is_narrow(kind: pa.DataType) -> bool:
    """Whether decimals of the type fit into the lower half."""
    return bool(kind.precision <= _WORD_DIGITS)


def _fixed_parts(array: pa.Array) -> tuple[Words, ...]:
    kind = array.type
    if pa.types.is_boolean(kind):
        return (pc.fill_null(array.cast(pa.uint8()), 0).to_numpy().astype(np.uint64),)
    if pa.types.is_decimal(kind):
        upper, lower = unscaled(array)
        return (signed_words(lower.view(np.int64)),) if is_narrow(kind) else halves(upper, lower)
    if pa.types.is_fixed_size_binary(kind):
        return _big_endian(array)
    if pa.types.is_float32(kind):
        return (_float_words(_stored(array, np.dtype("<u4")), 31),)
    if pa.types.is_float64(kind):
        return (_float_words(_stored(array, np.dtype("<u8")), 63),)
    stored = _stored(array, np.dtype("<i4") if kind.bit_width == 32 else np.dtype("<i8"))
    return (signed_words(stored),)


def _float_words(bits: npt.NDArray[np.unsignedinteger], sign_bit: int) -> Words:
    """The IEEE total order: negative values by their complement, the others behind them."""
    sign = bits.dtype.type(1 << sign_bit)
    return np.where(bits & sign, ~bits, bits | sign).astype(np.uint64)


def _big_endian(array: pa.Array) -> tuple[Words, ...]:
    width = array.type.byte_width
    count = max(1, -(-width // _WORD))
    padded = np.zeros((len(array), count * _WORD), np.uint8)
    if width:
        padded[:, :width] = _stored(array, np.dtype(np.uint8), width).reshape(-1, width)
    words = padded.view(">u8").astype(np.uint64)
    return tuple(np.ascontiguousarray(words[:, number]) for number in range(count))


def _stored(array: pa.Array, kind: np.dtype[Any], values: int = 1) -> npt.NDArray[Any]:
    """The array's own buffer, of so many values a row; whatever stands where it is null."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array) * values, kind)
    return np.frombuffer(buffer, kind)[array.offset * values :][: len(array) * values]


def arrow_part(part: Part) -> pa.Array:
    """The part as an Arrow array."""
    return pa.array(part) if isinstance(part, np.ndarray) else part


def part_of(array: pa.Array | pa.ChunkedArray) -> Part:
    """The part that an array or a column of a table holds."""
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks)
    return whole if pa.types.is_binary(whole.type) else np.array(whole.to_numpy(), np.uint64)


def taken(part: Part, rows: npt.NDArray[np.int64]) -> Part:
    """The values of these rows, in their order."""
    return part[rows] if isinstance(part, np.ndarray) else part.take(pa.array(rows))


def sort_rows(parts: Sequence[Part], descending: Sequence[bool]) -> npt.NDArray[np.int64]:
    """The rows in the order of their parts, equal ones as they come. `descending` turns binary parts alone.

    At least one part.
    """
    deciding = [
        part if isinstance(part, np.ndarray) else _codes(part, down)
        for part, down in zip(parts, descending, strict=True)
        if not _is_constant(part)
    ]
    if not deciding:
        return np.arange(len(parts[0]), dtype=np.int64)
    if len(deciding) == 1:
        return np.argsort(deciding[0], kind="stable")
    return np.lexsort(deciding[::-1])


def _is_constant(part: Part) -> bool:
    if len(part) < 2:
        return True
    if isinstance(part, np.ndarray):
        return bool(part[0] == part[-1]) and bool((part == part[0]).all())
    return part[0] == part[-1] and bool(pc.all(pc.equal(part, part[0])).as_py())


def _codes(values: pa.Array, descending: bool) -> npt.NDArray[np.int64]:
    """Numbers in the order of binary values."""
    rows = pc.sort_indices(values).to_numpy()
    ordered = values.take(pa.array(rows))
    steps = pc.not_equal(ordered[1:], ordered[:-1]).to_numpy(zero_copy_only=False)
    codes = np.empty(len(values), np.int64)
    codes[rows] = np.concatenate([[0], np.cumsum(steps)])
    return -codes if descending else codes


#: How the parts of one column are made.
Parts = Callable[[pa.Array], tuple[Part, ...]]
