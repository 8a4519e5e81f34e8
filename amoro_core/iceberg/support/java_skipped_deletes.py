"""Equality deletes that apply to a file by the specification but are skipped by Iceberg's Java readers.

Java (1.12) skips a delete when the bounds of a key column rule out a match. It compares UUIDs as signed numbers, so
that bounds on both sides of 80000000-0000-0000-0000-000000000000 seem to be reversed; and it treats a required column
as never null, although an enclosing struct may be null.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.files.schema.projection import promoted
from amoro_core.iceberg.manifest.reading import find_in_history
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile, DeleteIdentity, DeleteKind, ScannedFile

#: Converts a bound from its single-value serialization to numbers that compare like the values; None: no bound.
_Order = Callable[[bytes], tuple[int, ...] | None]

_MOMENTS = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_NUMBERS = (IntegerType, LongType, DateType, TimeType)
_BYTES = (StringType, BinaryType, FixedType, UUIDType)


@dataclass(frozen=True, slots=True)
class _Key:
    """A key column as interpreted by one side. `order` None: its bounds are not compared."""

    field_id: int
    may_be_null: bool
    order: _Order | None


@dataclass(frozen=True, slots=True)
class _Keys:
    specified: tuple[_Key, ...]
    java: tuple[_Key, ...]


def disputed_deletes(metadata: TableMetadata, files: Iterable[ScannedFile]) -> frozenset[DeleteIdentity]:
    """The equality deletes that may delete rows of any of the files and that Java skips there."""
    known: dict[tuple[int, ...], _Keys | None] = {}
    found: set[DeleteIdentity] = set()
    for file in files:
        for delete in file.deletes:
            if delete.kind is not DeleteKind.EQUALITY or delete.identity in found:
                continue
            if delete.equality_ids not in known:
                known[delete.equality_ids] = _keys(metadata, delete.equality_ids)
            keys = known[delete.equality_ids]
            if keys is not None and _is_disputed(keys, file.data, delete):
                found.add(delete.identity)
    return frozenset(found)


def _is_disputed(keys: _Keys, data: DataFile, delete: DeleteFile) -> bool:
    return _may_meet(keys.specified, data.metrics, delete.metrics) and not _may_meet(
        keys.java, data.metrics, delete.metrics
    )


def _keys(metadata: TableMetadata, field_ids: Iterable[int]) -> _Keys | None:
    """The key columns as interpreted by both sides; None if they agree whatever the bounds."""
    specified, java = [], []
    for field_id in field_ids:
        found = find_in_history(metadata, field_id)
        if found is None:
            return None
        field, schema = found
        order = _order(field.field_type)
        specified.append(_Key(field_id, not _is_required(schema, field_id), order))
        java_order = _with_sign if isinstance(field.field_type, UUIDType) else order
        java.append(_Key(field_id, not field.required, java_order))
    return None if specified == java else _Keys(tuple(specified), tuple(java))


def _is_required(schema: Schema, field_id: int | None) -> bool:
    """Whether the column and every struct around it are required."""
    while field_id is not None:
        if not schema.find_field(field_id).required:
            return False
        field_id = schema._lazy_id_to_parent.get(field_id)
    return True


def _may_meet(keys: Iterable[_Key], data: ColumnMetrics, delete: ColumnMetrics) -> bool:
    """Whether the file may contain, in every key column, a value of the delete: by null counts and bounds."""
    for key in keys:
        if _may_hold_null(data, key) and _may_hold_null(delete, key):
            continue
        if _is_all_null(data, key) and not _may_hold_null(delete, key):
            return False
        if _is_all_null(delete, key) and not _may_hold_null(data, key):
            return False
        if key.order is not None and not _overlap(key.field_id, key.order, data, delete):
            return False
    return True


def _overlap(field_id: int, order: _Order, data: ColumnMetrics, delete: ColumnMetrics) -> bool:
    """Whether the ranges overlap; an unknown bound counts as overlapping."""
    low, high = _bound(data.lower_bounds, field_id, order), _bound(data.upper_bounds, field_id, order)
    least, greatest = _bound(delete.lower_bounds, field_id, order), _bound(delete.upper_bounds, field_id, order)
    if low is None or high is None or least is None or greatest is None:
        return True
    return low <= greatest and least <= high


def _bound(bounds: Mapping[int, bytes], field_id: int, order: _Order) -> tuple[int, ...] | None:
    value = bounds.get(field_id)
    return None if value is None else order(value)


def _may_hold_null(metrics: ColumnMetrics, key: _Key) -> bool:
    return key.may_be_null and metrics.null_value_counts.get(key.field_id, 1) > 0


def _is_all_null(metrics: ColumnMetrics, key: _Key) -> bool:
    nulls = metrics.null_value_counts.get(key.field_id)
    return key.may_be_null and nulls is not None and nulls == metrics.value_counts.get(key.field_id)


def _order(kind: IcebergType) -> _Order | None:
    """The order of bounds of that type; those of a promoted column may have fewer bytes, which are a date's of a
    timestamp."""
    if isinstance(kind, _MOMENTS):
        return lambda value: None if (moment := promoted(kind, value)) is None else _little_endian(moment)
    if isinstance(kind, _NUMBERS):
        return _little_endian
    if isinstance(kind, DecimalType):
        return _big_endian
    return tuple if isinstance(kind, _BYTES) else None


def _little_endian(value: bytes) -> tuple[int, ...]:
    return (int.from_bytes(value, "little", signed=True),)


def _big_endian(value: bytes) -> tuple[int, ...]:
    return (int.from_bytes(value, "big", signed=True),)


def _with_sign(value: bytes) -> tuple[int, ...]:
    """The order of `java.util.UUID`: two signed numbers."""
    return tuple(int.from_bytes(half, "big", signed=True) for half in (value[:8], value[8:]))
