"""Which rows have a key that is among the deleted ones: exact, vectorised, for any set of key columns."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
_Codes = npt.NDArray[np.int64]
_Columns = Sequence[pa.ChunkedArray]


def rows_with_keys(rows: _Columns, keys: _Columns) -> Mask:
    """For each row whether its key is one of `keys`; columns are those of `amoro_core.files.keys`.

    Null equals null. Each column of `rows` has the type of the same column of `keys`.
    """
    kept = _keys_that_may_match(rows, keys)
    if len(kept[0]) == 0:
        return np.zeros(len(rows[0]), np.bool_)
    if len(rows) == 1:
        return _mask(pc.is_in(rows[0], value_set=_values(kept[0])))
    row_codes, key_codes = _column_codes(rows[0], kept[0])
    for row_column, key_column in zip(rows[1:], kept[1:], strict=True):
        next_rows, next_keys = _column_codes(row_column, key_column)
        row_codes, key_codes = _combined((row_codes, key_codes), (next_rows, next_keys))
    found: Mask = np.isin(row_codes, key_codes)
    return found


def _keys_that_may_match(rows: _Columns, keys: _Columns) -> _Columns:
    """Fewer keys: a hash table of a few rows is cheaper than one of many keys for each few rows."""
    if len(keys[0]) <= len(rows[0]):
        return keys
    for index in range(len(rows)):
        chosen = pc.is_in(keys[index], value_set=_values(rows[index]))
        keys = [column.filter(chosen) for column in keys]
    return keys


def _values(column: pa.ChunkedArray) -> pa.Array:
    return pc.unique(column)


def _mask(column: pa.ChunkedArray) -> Mask:
    mask: Mask = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return mask.astype(np.bool_)


def _column_codes(rows: pa.ChunkedArray, keys: pa.ChunkedArray) -> tuple[_Codes, _Codes]:
    """Both columns as numbers from 0 that are equal where the values are; −1 for rows without such a key."""
    values = _values(keys)
    return _codes(rows, values), _codes(keys, values)


def _codes(column: pa.ChunkedArray, values: pa.Array) -> _Codes:
    codes: _Codes = pc.fill_null(pc.index_in(column, value_set=values), -1).to_numpy().astype(np.int64)
    return codes


def _combined(left: tuple[_Codes, _Codes], right: tuple[_Codes, _Codes]) -> tuple[_Codes, _Codes]:
    """Codes of pairs, made dense again so that no number of columns overflows them."""
    width = int(right[1].max()) + 1
    pairs = left[1] * width + right[1]
    distinct = np.unique(pairs)
    row_pairs = left[0] * width + right[0]
    row_pairs[(left[0] < 0) | (right[0] < 0)] = -1
    places = np.minimum(np.searchsorted(distinct, row_pairs), len(distinct) - 1)
    row_codes = np.where(distinct[places] == row_pairs, places, -1)
    return row_codes.astype(np.int64), np.searchsorted(distinct, pairs).astype(np.int64)
