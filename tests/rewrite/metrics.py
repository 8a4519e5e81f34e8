"""What a manifest entry says of a written file, checked against the file's values one by one."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.model.files import DataFile
from tests.engine.files import stored
from tests.engine.parquet_rows import read_parquet

#: The longest value of which Parquet writers tell the bounds.
TOLD_BYTES = 4096
_SHORTENED = (StringType, BinaryType)


def assert_true_metrics(file: DataFile, schema: Schema, properties: Mapping[str, str]) -> None:
    """Fail unless counts and bounds of each column outside lists and maps are those of the file's own values.

    Bounds have to be there wherever the mode wants them and a value exists that has one.
    """
    records = read_parquet(file.path, None, {}).records(schema.as_struct())
    for path, field, repeated in _leaves(schema.fields, (), False):
        known = file.metrics
        mode = _mode(".".join(path), properties)
        if repeated or mode == "none":
            assert field.field_id not in known.lower_bounds
            assert field.field_id not in known.upper_bounds
            continue
        values = [_at(record, path) for record in records]
        assert known.value_counts[field.field_id] == len(values), path
        assert known.null_value_counts[field.field_id] == values.count(None), path
        is_float = isinstance(field.field_type, FloatType | DoubleType)
        nans = sum(1 for value in values if is_float and value is not None and math.isnan(value))
        assert known.nan_value_counts.get(field.field_id) == (nans if is_float else None), path
        _assert_bounds(file, field, mode, [one for one in values if one is not None])


def _leaves(
    fields: tuple[NestedField, ...], path: tuple[str, ...], repeated: bool
) -> Iterator[tuple[tuple[str, ...], NestedField, bool]]:
    for field in fields:
        own = (*path, field.name)
        match field.field_type:
            case StructType(fields=inner):
                yield from _leaves(inner, own, repeated)
            case ListType() as kind:
                yield from _leaves((kind.element_field,), own, True)
            case MapType() as kind:
                yield from _leaves((kind.key_field, kind.value_field), own, True)
            case _:
                yield own, field, repeated


def _at(record: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if record is None:
            return None
        record = record[name]
    return record


def _mode(name: str, properties: Mapping[str, str]) -> str:
    default = properties.get("write.metadata.metrics.default", "truncate(16)")
    return properties.get(f"write.metadata.metrics.column.{name}", default)


def _assert_bounds(file: DataFile, field: NestedField, mode: str, values: list[Any]) -> None:
    kind = field.field_type
    lower = file.metrics.lower_bounds.get(field.field_id)
    upper = file.metrics.upper_bounds.get(field.field_id)
    ordered = [_order(kind, value) for value in values if not (isinstance(value, float) and math.isnan(value))]
    if mode == "counts" or not ordered:
        assert (lower, upper) == (None, None), field
        return
    least, greatest = min(ordered), max(ordered)
    # A row group of NaN alone tells no bounds, nor does one with a huge value.
    told = all(_size(value) <= TOLD_BYTES for value in values) and len(ordered) == len(values)
    if lower is None:
        assert not told, f"{field.name} has no lower bound"
    else:
        found = _order(kind, _decoded(kind, lower))
        assert found <= least, field
        assert isinstance(kind, _SHORTENED) or found == least, field
    if upper is None:
        assert not told or isinstance(kind, _SHORTENED), f"{field.name} has no upper bound"
    else:
        found = _order(kind, _decoded(kind, upper))
        assert found >= greatest, field
        assert isinstance(kind, _SHORTENED) or found == greatest, field
    if mode == "full" and told and isinstance(kind, _SHORTENED):
        assert (_decoded(kind, lower), _decoded(kind, upper)) == (min(values, key=_text), max(values, key=_text))
    if mode.startswith("truncate"):
        limit = int(mode[9:-1])
        for bound in (lower, upper):
            assert bound is None or not isinstance(kind, _SHORTENED) or len(_decoded(kind, bound)) <= limit, field


def _decoded(kind: IcebergType, bound: bytes | None) -> Any:
    assert bound is not None
    assert isinstance(kind, PrimitiveType)
    return uuid.UUID(bytes=bound) if isinstance(kind, UUIDType) else from_bytes(kind, bound)


def _order(kind: IcebergType, value: Any) -> Any:
    """Something that orders as Iceberg orders the values; zeros are one, since bounds widen to both of them."""
    if isinstance(kind, UUIDType | FixedType | StringType | BinaryType):
        return _text(value)
    if isinstance(kind, DateType | TimeType | TimestampType | TimestamptzType):
        return stored(value)
    return value


def _text(value: Any) -> bytes:
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value.encode() if isinstance(value, str) else bytes(value)


def _size(value: Any) -> int:
    return len(_text(value)) if isinstance(value, str | bytes) else 16


def assert_holding_metrics(file: DataFile, schema: Schema) -> None:
    """Fail unless counts are those of the file's own values and the bounds, where there are any, contain them.

    A column of floating-point numbers has bounds only where its NaN values are counted.
    """
    records = read_parquet(file.path, None, {}).records(schema.as_struct())
    for path, field, repeated in _leaves(schema.fields, (), False):
        known, field_id, kind = file.metrics, field.field_id, field.field_type
        if repeated:
            assert field_id not in known.lower_bounds.keys() | known.upper_bounds.keys() | known.value_counts.keys()
            continue
        values = [_at(record, path) for record in records]
        assert known.value_counts.get(field_id, len(values)) == len(values), path
        assert known.null_value_counts.get(field_id, values.count(None)) == values.count(None), path
        nans = [value for value in values if isinstance(value, float) and math.isnan(value)]
        assert known.nan_value_counts.get(field_id, len(nans)) == len(nans), path
        if isinstance(kind, FloatType | DoubleType) and field_id not in known.nan_value_counts:
            assert field_id not in known.lower_bounds.keys() | known.upper_bounds.keys()
        ordered = [_order(kind, value) for value in values if value is not None and value not in nans]
        lower, upper = known.lower_bounds.get(field_id), known.upper_bounds.get(field_id)
        if ordered:
            assert lower is None or _order(kind, _decoded(kind, lower)) <= min(ordered), path
            assert upper is None or _order(kind, _decoded(kind, upper)) >= max(ordered), path
