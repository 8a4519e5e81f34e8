"""The column that tells the age of a table's rows, and the partition fields derived from it."""

from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    IcebergType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from amoro_core.errors import TableRefused
from amoro_core.model.times import TimeColumn, TimeKind, TimePart

_KINDS: dict[type[IcebergType], TimeKind] = {
    TimestampType: TimeKind.TIMESTAMP,
    TimestamptzType: TimeKind.TIMESTAMP,
    TimestampNanoType: TimeKind.TIMESTAMP_NS,
    TimestamptzNanoType: TimeKind.TIMESTAMP_NS,
    DateType: TimeKind.DATE,
    LongType: TimeKind.LONG,
    StringType: TimeKind.STRING,
}
_IN_ORDER: dict[type[Transform[Any, Any]], str] = {
    IdentityTransform: "identity",
    YearTransform: "year",
    MonthTransform: "month",
    DayTransform: "day",
    HourTransform: "hour",
    TruncateTransform: "truncate",
}


def time_column(metadata: TableMetadata, name: str) -> TimeColumn:
    """The top-level column of that name in the current schema.

    Raises TableRefused("configuration") if there is none, and for a type that is not a time.
    """
    found = next((one for one in metadata.schema().fields if one.name == name), None)
    if found is None:
        columns = ", ".join(one.name for one in metadata.schema().fields if type(one.field_type) in _KINDS)
        raise TableRefused(
            f"the table has no column {name!r} at its top level",
            reason="configuration",
            hint=f"Set data-expire.field to one of: {columns or 'none of its columns tells a time'}.",
        )
    kind = _KINDS.get(type(found.field_type))
    if kind is None:
        raise TableRefused(
            f"column {name!r} is of type {found.field_type}, which tells no time",
            reason="configuration",
            hint="Set data-expire.field to a column of type date, timestamp, timestamptz, timestamp_ns, timestamptz_ns,"
            " long or string.",
        )
    parts = {spec_id: _parts(spec, found.field_id) for spec_id, spec in metadata.specs().items()}
    return TimeColumn(name, found.field_id, kind, {spec_id: made for spec_id, made in parts.items() if made})


def _parts(spec: PartitionSpec, field_id: int) -> tuple[TimePart, ...]:
    return tuple(
        TimePart(at, _IN_ORDER.get(type(one.transform), ""), getattr(one.transform, "width", 0))
        for at, one in enumerate(spec.fields)
        if one.source_id == field_id
    )
