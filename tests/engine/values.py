"""Python values of Iceberg types: canonical, hashable forms, fields by id, and rows as multisets."""

from __future__ import annotations

import math
import struct
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

Row = tuple[Any, ...]
EPOCH = datetime(1970, 1, 1)
_WIDE = Context(prec=60)


def canonical(kind: IcebergType, value: Any) -> Any:
    """The hashable form of one value, equal exactly where Iceberg's values are equal.

    Floats become hexadecimal text, so that NaN equals NaN and -0.0 differs from 0.0. Dates and times may come as
    the numbers that Iceberg stores. Maps become pairs in a fixed order, since their order has no meaning.
    Raises TypeError where the value does not belong to the type.
    """
    if value is None or isinstance(kind, UnknownType):
        return None
    match kind:
        case StructType():
            return tuple(canonical(field.field_type, value.get(field.name)) for field in kind.fields)
        case ListType():
            return tuple(canonical(kind.element_type, item) for item in value)
        case MapType():
            pairs = value.items() if isinstance(value, Mapping) else value
            done = ((canonical(kind.key_type, key), canonical(kind.value_type, item)) for key, item in pairs)
            return tuple(sorted(done, key=repr))
        case _:
            return _canonical_primitive(kind, value)


def _canonical_primitive(kind: IcebergType, value: Any) -> Any:
    match kind, value:
        case FloatType(), int() | float():
            number = float(value)
            return "nan" if math.isnan(number) else struct.unpack("<f", struct.pack("<f", number))[0].hex()
        case DoubleType(), int() | float():
            return "nan" if math.isnan(value) else float(value).hex()
        case BooleanType(), bool():
            return value
        case IntegerType() | LongType(), int() if not isinstance(value, bool):
            return value
        case DecimalType(), Decimal() | int():
            return Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=_WIDE)
        case StringType(), str():
            return value
        case BinaryType() | FixedType(), bytes() | bytearray():
            return bytes(value)
        case UUIDType(), uuid.UUID():
            return value
        case UUIDType(), bytes():
            return uuid.UUID(bytes=value)
        case UUIDType(), str():
            return uuid.UUID(value)
        case _:
            return _canonical_moment(kind, value)


def _canonical_moment(kind: IcebergType, value: Any) -> Any:
    match kind, value:
        case DateType(), int():
            return date(1970, 1, 1) + timedelta(days=value)
        case DateType(), date() if not isinstance(value, datetime):
            return value
        case TimeType(), int():
            return (EPOCH + timedelta(microseconds=value)).time()
        case TimeType(), time():
            return value
        case TimestampType(), int():
            return EPOCH + timedelta(microseconds=value)
        case TimestampNanoType() | TimestamptzNanoType(), int():
            return value
        case TimestampNanoType(), date():  # the column was a date before
            return (canonical(TimestampType(), value) - EPOCH) // timedelta(microseconds=1) * 1000
        case TimestampType(), date() if not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day)
        case TimestampType(), datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC)).replace(tzinfo=None)
        case TimestamptzType(), int():
            return (EPOCH + timedelta(microseconds=value)).replace(tzinfo=UTC)
        case TimestamptzType(), datetime():
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    raise TypeError(f"{value!r} is not a value of the type {kind}")


def rows_of(schema: Schema, records: Iterable[Mapping[str, Any]]) -> Counter[Row]:
    """The multiset of canonical rows of the records, for comparing with `oracle.live_rows`; absent keys are null."""
    kind = schema.as_struct()
    for record in (records := list(records)):
        if unknown := set(record) - {field.name for field in kind.fields}:
            raise ValueError(f"the record names unknown columns {sorted(unknown)}")
    return Counter(canonical(kind, record) for record in records)


def field_path(schema: Schema, field_id: int) -> tuple[NestedField, ...] | None:
    """The fields from the top of the schema to the field, through structs only; None where there is no such."""
    return _path_below(schema.fields, field_id)


def _path_below(fields: Iterable[NestedField], field_id: int) -> tuple[NestedField, ...] | None:
    for field in fields:
        if field.field_id == field_id:
            return (field,)
        if isinstance(field.field_type, StructType) and (rest := _path_below(field.field_type.fields, field_id)):
            return (field, *rest)
    return None


def schemas_newest_first(metadata: TableMetadata) -> list[Schema]:
    """The current schema, then all others from the newest to the oldest."""
    others = [schema for schema in metadata.schemas if schema.schema_id != metadata.current_schema_id]
    return [metadata.schema(), *sorted(others, key=lambda schema: -schema.schema_id)]


def path_in_history(metadata: TableMetadata, field_id: int) -> tuple[NestedField, ...]:
    """The field's path in the newest schema that has it, the current one first; raises ValueError if none has."""
    for schema in schemas_newest_first(metadata):
        if path := field_path(schema, field_id):
            return path
    raise ValueError(f"no schema of the table has the field {field_id}")


def value_at(record: Mapping[str, Any] | None, path: Iterable[NestedField]) -> Any:
    """The value in nested dictionaries at the path; None as soon as one level is None."""
    value: Any = record
    for field in path:
        if value is None:
            return None
        value = value.get(field.name)
    return value
