"""Key columns of equality deletes, as arrays whose values are equal exactly when they are to Iceberg."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from amoro_core.errors import TableRefused
from amoro_core.files.schema import key_path, select_ids

_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def key_schema(schema: Schema, ids: Sequence[int]) -> Schema:
    """The schema with only the key columns. Raises TableRefused(reason="equality-ids") when one cannot be a key."""
    for field_id in ids:
        if key_path(schema.fields, field_id) is None:
            raise TableRefused(
                f"equality deletes by column id {field_id}, which is not a primitive column of the table",
                reason="equality-ids",
            )
    return select_ids(schema, ids)


def key_columns(batch: pa.RecordBatch, schema: Schema, ids: Sequence[int]) -> tuple[pa.Array, ...]:
    """One array for each id, from a batch with the columns of `schema`; null where an enclosing struct is null.

    In these arrays null equals null, NaN equals NaN, and −0.0 differs from 0.0.
    """
    columns = []
    for field_id in ids:
        path = key_path(schema.fields, field_id)
        if path is None:
            raise ValueError(f"no key column {field_id}")
        array = batch.column(path[0])
        for index in path[1:]:
            array = array.flatten()[index]
        columns.append(comparable(array))
    return tuple(columns)


def comparable(array: pa.Array) -> pa.Array:
    """The primitive array as numbers or bytes that are equal exactly when the values are equal to Iceberg."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.bool_())
    if kind in _BITS:
        not_a_number = pa.scalar(float("nan"), kind)
        return pc.if_else(pc.is_nan(array), not_a_number, array).view(_BITS[kind])
    if pa.types.is_decimal(kind):
        return array.view(pa.binary(16))
    if pa.types.is_temporal(kind):
        return array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_string(kind):
        return array.view(pa.binary())
    return array
