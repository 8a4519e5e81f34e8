"""Partition values: from single-value bytes to paths, and to columns that files omit."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import HourTransform, IdentityTransform
from pyiceberg.types import (
    IcebergType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimestamptzType,
    UnknownType,
    UUIDType,
)

from amoro_core.files.schema import arrow_type
from amoro_core.model.files import Partition

#: Values of columns known from a file's partition: one-value Arrow arrays of the column's type, by field id.
Constants = Mapping[int, pa.Array]


def partition_path(spec: PartitionSpec, partition: Partition, schema: Schema) -> str:
    """The partition as Iceberg writes it in paths; "" when unpartitioned."""
    return path_of_values(spec, [field.field_type for field in spec.partition_type(schema).fields], partition)


def path_of_values(spec: PartitionSpec, types: Sequence[IcebergType], partition: Partition) -> str:
    """The partition as Iceberg writes it in paths, its fields having these types; "" when unpartitioned."""
    parts = []
    for field, kind, value in zip(spec.fields, types, partition, strict=True):
        shown = _shown(field.transform, kind, value)
        parts.append(f"{quote_plus(field.name, safe='')}={quote_plus(shown, safe='')}")
    return "/".join(parts)


def identity_constants(spec: PartitionSpec, partition: Partition, schema: Schema) -> Constants:
    """The values of identity-partitioned columns, for files that lack these columns."""
    constants = {}
    for field, value in zip(spec.fields, partition, strict=True):
        if isinstance(field.transform, IdentityTransform) and field.source_id in schema.field_ids:
            kind = schema.find_type(field.source_id)
            if isinstance(kind, PrimitiveType):
                constants[field.source_id] = values_array(kind, [value])
    return constants


def _shown(transform: Any, kind: Any, value: bytes | None) -> str:
    if value is None:
        return "null"
    if isinstance(kind, UnknownType):
        return value.hex()  # the source column was dropped, so the value's type is unknown
    decoded = _decoded(kind, value)
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):  # pyiceberg shows the mere number
        return _moment(transform, kind, decoded)
    try:
        return str(transform.to_human_string(kind, decoded))
    except OverflowError:  # outside the years 1 to 9999, the range of Python's dates but not of Iceberg's
        return _moment(transform, kind, decoded)


def _moment(transform: Any, kind: Any, value: int) -> str:
    unit: Literal["D", "h", "us", "ns"]
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):
        unit = "ns"
    else:
        unit = "h" if isinstance(transform, HourTransform) else "us" if "time" in str(kind) else "D"
    shown = str(np.datetime64(value, unit))
    if unit == "h":
        return shown.replace("T", "-")
    return f"{shown}+00:00" if isinstance(kind, TimestamptzType | TimestamptzNanoType) else shown


def _decoded(kind: PrimitiveType, value: bytes) -> Any:
    if isinstance(kind, UUIDType):
        return uuid.UUID(bytes=value)
    return from_bytes(kind, value)


def values_array(kind: PrimitiveType, values: Sequence[bytes | None]) -> pa.Array:
    """The serialized values of one partition field as an array of its type."""
    wanted = arrow_type(kind)
    if isinstance(kind, UUIDType):
        return pa.ExtensionArray.from_storage(wanted, pa.array(values, pa.binary(16)))
    if isinstance(kind, StringType):
        return pa.array(values, pa.binary()).cast(wanted)
    decoded = [None if value is None else from_bytes(kind, value) for value in values]
    if pa.types.is_temporal(wanted):
        stored = pa.int32() if wanted.bit_width == 32 else pa.int64()
        return pa.array(decoded, stored).view(wanted)
    return pa.array(decoded, wanted)
