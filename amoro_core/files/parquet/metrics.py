"""Metrics of written and copied files: counts of nulls and NaN values, and bounds as manifests hold them.

Bounds come from the raw statistics of Parquet chunks, without Python's dates or decimals, whose ranges are smaller than
Iceberg's. If any chunk lacks statistics the column has no bounds: those of the other chunks would be wrong.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode, match_metrics_mode
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    PrimitiveType,
    StringType,
    UUIDType,
)

from amoro_core.files.schema.schemas import leaf_ids
from amoro_core.files.schema.write_options import INFERRED_MODE, WriterOptions
from amoro_core.model.files import LINEAGE_IDS, ColumnMetrics

Bound = bytes | None

_SURROGATES = range(0xD800, 0xE000)
_LAST_CODE_POINT = 0x10FFFF


def column_bounds(
    kind: IcebergType, chunks: Sequence[pq.ColumnChunkMetaData], length: int | None
) -> tuple[Bound, Bound]:
    """The bounds of a column's chunks in single-value serialization; strings and binary truncated to `length` if given.

    None without statistics, as of values above 4,096 bytes and NaN alone; a truncated upper bound is raised, or None.
    """
    least, greatest = [], []
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is not None and statistics.has_min_max:
            least.append(_number(kind, statistics.min_raw))
            greatest.append(_number(kind, statistics.max_raw))
        elif not _only_nulls(chunk):
            return None, None
    if not least:
        return None, None
    lower, upper = min(least), max(greatest)
    if isinstance(kind, StringType):
        return _string_bounds(lower, upper, length)
    if isinstance(kind, BinaryType):
        return lower if length is None else lower[:length], raised_bytes(upper, length)
    if isinstance(kind, DecimalType):
        return _unscaled(lower), _unscaled(upper)
    primitive = cast(PrimitiveType, kind)  # others have no statistics
    return to_bytes(primitive, lower), to_bytes(primitive, upper)


def _only_nulls(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return bool(statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values)


def null_count(chunks: Sequence[pq.ColumnChunkMetaData]) -> int | None:
    """How many nulls the chunks of a column have; None unless each tells it."""
    statistics = [chunk.statistics for chunk in chunks]
    is_counted = all(statistic is not None and statistic.has_null_count for statistic in statistics)
    return sum(statistic.null_count for statistic in statistics) if is_counted else None


def _number(kind: IcebergType, raw: Any) -> Any:
    """The raw value in a form that sorts as the values do: decimals of any width as integers."""
    if isinstance(kind, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _string_bounds(lower: bytes, upper: bytes, length: int | None) -> tuple[Bound, Bound]:
    """Truncated between characters; none for invalid UTF-8, which readers treat differently."""
    try:
        first, last = lower.decode(), upper.decode()
    except UnicodeDecodeError:
        return None, None
    return first[:length].encode(), raised_text(last, length)


def raised_text(text: str, length: int | None) -> Bound:
    """The least text of at most `length` characters above all that begin as this one; itself if it is not longer."""
    if length is None or len(text) <= length:
        return text.encode()
    for end in range(length, 0, -1):
        following = ord(text[end - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST_CODE_POINT:
            return (text[: end - 1] + chr(following)).encode()
    return None


def raised_bytes(value: bytes, length: int | None) -> Bound:
    """The least bytes of that length above all that begin as these; themselves if they are no longer."""
    if length is None or len(value) <= length:
        return value
    for end in range(length, 0, -1):
        if value[end - 1] < 0xFF:
            return value[: end - 1] + bytes([value[end - 1] + 1])
    return None


def _unscaled(value: int) -> bytes:
    """The integer in the fewest bytes that hold it, big-endian two's complement."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def column_metrics(
    metadata: pq.FileMetaData,
    schema: Schema,
    options: WriterOptions,
    nan_counts: Mapping[int, int],
    *,
    with_bounds: bool = True,
) -> tuple[ColumnMetrics, tuple[int, ...]]:
    """The metrics of a written file, according to the table's metrics modes, and its split offsets.

    Columns in lists and maps have only a size: readers disagree about their other counts. Lineage has none at all.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes: dict[int, int] = {}
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    bounds: tuple[dict[int, bytes], dict[int, bytes]] = {}, {}
    for place, (field_id, is_repeated) in enumerate(leaf_ids(metadata.schema.to_arrow_schema()) if groups else ()):
        if field_id is None:
            raise ValueError(f"the written column {metadata.schema.column(place).path} has no field id")
        if field_id in LINEAGE_IDS:
            continue
        chunks = [group.column(place) for group in groups]
        sizes[field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        mode = metrics_mode(str(schema.find_column_name(field_id)), place, options)
        if is_repeated or mode.type is MetricModeTypes.NONE:
            continue
        values[field_id] = sum(chunk.num_values for chunk in chunks)
        if (count := null_count(chunks)) is not None:
            nulls[field_id] = count
        if with_bounds and mode.type is not MetricModeTypes.COUNTS:
            result = column_bounds(schema.find_type(field_id), chunks, mode.length)
            for target, bound in zip(bounds, result, strict=True):
                if bound is not None:
                    target[field_id] = bound
    nans = {field_id: count for field_id, count in nan_counts.items() if field_id in values}
    return ColumnMetrics(sizes, values, nulls, nans, *bounds), tuple(sorted(_start(group) for group in groups))


def nan_counts(batch: pa.RecordBatch) -> dict[int, int]:
    """The number of NaN values of the batch's float columns by field id, including those in structs."""
    counts: dict[int, int] = {}
    open_columns = list(zip(batch.schema, batch.columns, strict=True))
    while open_columns:
        column, array = open_columns.pop()
        if pa.types.is_floating(column.type):
            (field_id, _), *_ = leaf_ids(pa.schema([column]))
            if field_id is not None:
                counts[field_id] = int(pc.sum(pc.is_nan(array), min_count=0).as_py())
        elif pa.types.is_struct(column.type):
            open_columns.extend(zip(column.type, array.flatten(), strict=True))
    return counts


def metrics_mode(name: str, place: int, options: WriterOptions) -> MetricsMode:
    """The column's own mode, else the table's default, else Iceberg's default for the first columns."""
    own = options.metrics_modes.get(name) or options.metrics_default
    return match_metrics_mode(own or (INFERRED_MODE if place < options.metrics_columns else "none"))


def _start(group: pq.RowGroupMetaData) -> int:
    """The offset of the row group: at the first column's dictionary page, if it has one."""
    first = group.column(0)
    return int(first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset)


_BYTES = (StringType, BinaryType, FixedType, UUIDType, BooleanType)


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of which row groups were copied into an output."""

    metrics: ColumnMetrics  # bounds and NaN counts of its manifest entry
    rows: int


def merged_metrics(  # noqa: C901 - one pass over the columns
    metrics: ColumnMetrics,
    metadata: pq.FileMetaData,
    schema: Schema,
    options: WriterOptions,
    origins: Sequence[CopiedFile | None],
) -> ColumnMetrics:
    """The metrics of an output with bounds and NaN counts that hold for copied rows, too.

    `metrics` are by the output's footer, without bounds, and count NaN values of encoded rows alone. `origins` has for
    each row group the file it was copied from; None: it was encoded. A float column whose NaN values were not counted
    has no bounds: engines would take its NaN values to be within them.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    files = _files(groups, origins)
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    nans: dict[int, int] = {}
    for place, (field_id, is_repeated) in enumerate(leaf_ids(metadata.schema.to_arrow_schema())):
        if field_id is None or is_repeated or field_id not in metrics.value_counts:
            continue
        kind = schema.find_type(field_id)
        mode = metrics_mode(str(schema.find_column_name(field_id)), place, options)
        if isinstance(kind, FloatType | DoubleType):
            count = _nan_count(field_id, metrics.nan_value_counts.get(field_id, 0), files)
            if count is None:
                continue
            nans[field_id] = count
        if mode.type in (MetricModeTypes.NONE, MetricModeTypes.COUNTS):
            continue
        ours: list[pq.ColumnChunkMetaData] = []
        stored: dict[int, ColumnMetrics] = {}
        has_nulls = metrics.null_value_counts.get(field_id) != 0
        for group, origin in zip(groups, origins, strict=True):
            if has_nulls and _only_nulls(group.column(place)):
                continue
            if origin is None:
                ours.append(group.column(place))
            else:
                stored[id(origin)] = origin.metrics
        own = column_bounds(kind, ours, mode.length) if ours else None
        low = [part.lower_bounds.get(field_id) for part in stored.values()] + ([own[0]] if own else [])
        high = [part.upper_bounds.get(field_id) for part in stored.values()] + ([own[1]] if own else [])
        for bounds, target, best in ((low, lower, min), (high, upper, max)):
            result = _best(kind, bounds, best)
            if result is not None:
                target[field_id] = result
    return replace(metrics, nan_value_counts=nans, lower_bounds=lower, upper_bounds=upper)


def _files(
    groups: Sequence[pq.RowGroupMetaData], origins: Sequence[CopiedFile | None]
) -> list[tuple[ColumnMetrics, bool]]:
    """The metrics of each copied file, and whether the output holds all its rows: others may have been deleted, or be
    in another output."""
    copied: dict[int, int] = {}
    files = {id(origin): origin for origin in origins if origin is not None}
    for group, origin in zip(groups, origins, strict=True):
        copied[id(origin)] = copied.get(id(origin), 0) + int(group.num_rows)
    return [(file.metrics, copied[key] == file.rows) for key, file in files.items()]


def _nan_count(field_id: int, encoded: int, files: Sequence[tuple[ColumnMetrics, bool]]) -> int | None:
    """The NaN values of encoded rows and of the copied ones; None where it is not known."""
    for metrics, is_whole in files:
        stored = metrics.nan_value_counts.get(field_id)
        if stored is None or (stored and not is_whole):
            return None
        encoded += stored
    return encoded


def _best(kind: IcebergType, bounds: Sequence[bytes | None], best: Any) -> bytes | None:
    """The least or greatest of the bounds; None without any, and if one is missing or is none."""
    present = [bound for bound in bounds if bound is not None]
    if not present or len(present) != len(bounds):
        return None
    ranked = [(_rank(kind, bound), bound) for bound in present]
    if any(rank is None for rank, _ in ranked):
        return None
    result: bytes = best(ranked)[1]
    return result


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
