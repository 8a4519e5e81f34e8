"""Pruning of row groups that can't contain a deleted key, by their statistics; those without are always read."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.files.opening import RowSource
from amoro_core.files.parquet import ParquetInput
from amoro_core.files.projection import Projection, held_columns
from amoro_core.model.files import ColumnMetrics

#: Arrow types whose stored numbers are those of keys, with no conversion between the two.
_EXACT = (
    pa.int32(),
    pa.int64(),
    pa.date32(),
    pa.time64("us"),
    *(pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")),
)


def groups_within(
    source: RowSource,
    projection: Projection,
    ranges: Mapping[int, tuple[int, int] | None],
    listed: ColumnMetrics,
) -> tuple[int, ...] | None:
    """The row groups that may have a key within the ranges of all columns (by id); None for all of them.

    Only top-level columns of integers, dates and times are compared, those that were promoted to another unit left out:
    their bounds are exact, whatever the writer. A
    group is pruned only if it has bounds; keys with a null have no range. Since footers have no checksum, a column is
    compared only if the bounds of all its groups together are those `listed` in the manifest.
    """
    known = {field_id: bounds for field_id, bounds in ranges.items() if bounds is not None}
    if not known or not isinstance(source, ParquetInput):
        return None
    metadata = source.file.metadata
    leaves = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    compared = [
        (leaves[name], known[field_id])
        for name, field_id in held_columns(projection, source.schema)
        if field_id in known and name in leaves and "." not in name
        if _is_exact(source.schema.field(name).type, projection.kind_of(field_id))
        if _agrees(metadata, leaves[name], listed, field_id)
    ]
    groups = range(metadata.num_row_groups)
    chosen = tuple(
        group
        for group in groups
        if not any(_is_outside(metadata.row_group(group).column(at), least, most) for at, (least, most) in compared)
    )
    return None if len(chosen) == len(groups) else chosen


def _is_exact(stored: pa.DataType, wanted: pa.DataType | None) -> bool:
    """Whether the stored numbers are those of keys: a date is one of days in a file, and of units as a timestamp."""
    if stored not in _EXACT or wanted is None:
        return False
    if pa.types.is_timestamp(stored):
        return bool(pa.types.is_timestamp(wanted) and wanted.unit == stored.unit)
    return stored == wanted or bool(pa.types.is_integer(stored) and pa.types.is_integer(wanted))


def _agrees(metadata: pq.FileMetaData, at: int, listed: ColumnMetrics, field_id: int) -> bool:
    least, most = listed.lower_bounds.get(field_id), listed.upper_bounds.get(field_id)
    if least is None or most is None:
        return False
    groups = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
    told = [(one.min_raw, one.max_raw) for one in groups if one is not None and one.has_min_max]
    in_order = all(low <= high for low, high in told)
    lows, highs = {low for low, _ in told}, {high for _, high in told}
    return in_order and min(lows, default=None) == _number(least) and max(highs, default=None) == _number(most)


def _number(bound: bytes) -> int:
    """The serialized integer, date or time (Iceberg specification, appendix D)."""
    return int.from_bytes(bound, "little", signed=True)


def _is_outside(chunk: pq.ColumnChunkMetaData, least: int, most: int) -> bool:
    statistics = chunk.statistics
    if statistics is None or chunk.physical_type not in ("INT32", "INT64"):
        return False
    if not statistics.has_min_max:
        return bool(statistics.has_null_count and statistics.null_count == chunk.num_values)
    return bool(statistics.max_raw < least or statistics.min_raw > most)
