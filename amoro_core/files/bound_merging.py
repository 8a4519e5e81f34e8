"""Bounds and NaN counts of an output that holds row groups of other files: from what manifests say of those files."""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import MetricModeTypes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    StringType,
    UUIDType,
)

from amoro_core.files.bounds import column_bounds
from amoro_core.files.metrics import metrics_mode
from amoro_core.files.options import WriterOptions
from amoro_core.files.projection import leaf_ids
from amoro_core.model.files import ColumnMetrics
from amoro_core.records import record

_BYTES = (StringType, BinaryType, FixedType, UUIDType, BooleanType)


@record
class CopiedFile:
    """A file of which row groups were copied into an output."""

    told: ColumnMetrics  # bounds and NaN counts of its manifest entry
    rows: int


def with_told(  # noqa: C901 - one pass over the columns
    metrics: ColumnMetrics,
    metadata: pq.FileMetaData,
    schema: Schema,
    options: WriterOptions,
    origins: Sequence[CopiedFile | None],
) -> ColumnMetrics:
    """The metrics of an output with bounds and NaN counts that hold for copied rows, too.

    `metrics` are by the output's footer, without bounds, and count NaN values of encoded rows alone. `origins` has for
    each row group the file it was copied from; None: it was encoded. What one input does not tell is not told of the
    output. A column of floating-point numbers whose NaN values were not counted has no bounds: engines that trust
    bounds would take its NaN values to be within them.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    files = _files(groups, origins)
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    nans: dict[int, int] = {}
    for place, (field_id, is_repeated) in enumerate(leaf_ids(metadata.schema.to_arrow_schema())):
        if field_id is None or is_repeated or field_id not in metrics.value_counts:
            continue
        kind, mode = (
            schema.find_type(field_id),
            metrics_mode(str(schema.find_column_name(field_id)), place, options),
        )
        if isinstance(kind, FloatType | DoubleType):
            count = _nan_count(field_id, metrics.nan_value_counts.get(field_id, 0), files)
            if count is None:
                continue
            nans[field_id] = count
        if mode.type in (MetricModeTypes.NONE, MetricModeTypes.COUNTS):
            continue
        ours: list[pq.ColumnChunkMetaData] = []
        told: dict[int, ColumnMetrics] = {}
        has_nulls = metrics.null_value_counts.get(field_id) != 0
        for group, origin in zip(groups, origins, strict=True):
            if has_nulls and _only_nulls(group.column(place)):
                continue
            if origin is None:
                ours.append(group.column(place))
            else:
                told[id(origin)] = origin.told
        own = column_bounds(kind, ours, mode.length) if ours else None
        low = [one.lower_bounds.get(field_id) for one in told.values()] + ([own[0]] if own else [])
        high = [one.upper_bounds.get(field_id) for one in told.values()] + ([own[1]] if own else [])
        for bounds, known, best in ((low, lower, min), (high, upper, max)):
            found = _best(kind, bounds, best)
            if found is not None:
                known[field_id] = found
    return replace(metrics, nan_value_counts=nans, lower_bounds=lower, upper_bounds=upper)


def _files(
    groups: Sequence[pq.RowGroupMetaData], origins: Sequence[CopiedFile | None]
) -> list[tuple[ColumnMetrics, bool]]:
    """What is told of each copied file, and whether the output holds all its rows: others may have been deleted, or be
    in another output."""
    copied: dict[int, int] = {}
    files = {id(origin): origin for origin in origins if origin is not None}
    for group, origin in zip(groups, origins, strict=True):
        copied[id(origin)] = copied.get(id(origin), 0) + int(group.num_rows)
    return [(file.told, copied[key] == file.rows) for key, file in files.items()]


def _nan_count(field_id: int, encoded: int, files: Sequence[tuple[ColumnMetrics, bool]]) -> int | None:
    """The NaN values of encoded rows and of the copied ones; None where it is not known."""
    for metrics, is_whole in files:
        told = metrics.nan_value_counts.get(field_id)
        if told is None or (told and not is_whole):
            return None
        encoded += told
    return encoded


def _only_nulls(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return bool(statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values)


def _best(kind: IcebergType, bounds: Sequence[bytes | None], best: Any) -> bytes | None:
    """The least or greatest of the bounds; None without any, and if one is missing or is none."""
    known = [bound for bound in bounds if bound is not None]
    if not known or len(known) != len(bounds):
        return None
    ranked = [(_rank(kind, bound), bound) for bound in known]
    if any(rank is None for rank, _ in ranked):
        return None
    found: bytes = best(ranked)[1]
    return found


def _rank(kind: IcebergType, bound: bytes) -> Any:
    """What sorts as the values do; None for a NaN, and for bytes that are no value."""
    if isinstance(kind, _BYTES):
        return bound
    if isinstance(kind, FloatType | DoubleType):
        formats: Mapping[int, str] = {4: "<f", 8: "<d"}
        if len(bound) not in formats:
            return None
        (value,) = struct.unpack(formats[len(bound)], bound)
        return None if math.isnan(value) else (value, math.copysign(1, value))
    return int.from_bytes(bound, "big" if isinstance(kind, DecimalType) else "little", signed=True)
