"""Counts and bounds of written columns, as manifests hold them."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode, match_metrics_mode
from pyiceberg.schema import Schema

from amoro_core.files.bounds import column_bounds
from amoro_core.files.options import INFERRED_MODE, WriterOptions
from amoro_core.files.projection import leaf_ids
from amoro_core.model.files import ColumnMetrics
from amoro_core.model.lineage import LINEAGE_IDS


def column_metrics(
    metadata: pq.FileMetaData,
    schema: Schema,
    options: WriterOptions,
    nan_counts: Mapping[int, int],
    *,
    with_bounds: bool = True,
) -> tuple[ColumnMetrics, tuple[int, ...]]:
    """The metrics of a written file, according to the table's metrics modes, and its split offsets.

    Columns in lists and maps have only a size: readers disagree about their other counts. Lineage has none at all: it
    is no column of the table.
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
        statistics = [chunk.statistics for chunk in chunks]
        if all(one is not None and one.has_null_count for one in statistics):
            nulls[field_id] = sum(one.null_count for one in statistics)
        if with_bounds and mode.type is not MetricModeTypes.COUNTS:
            found = column_bounds(schema.find_type(field_id), chunks, mode.length)
            for known, bound in zip(bounds, found, strict=True):
                if bound is not None:
                    known[field_id] = bound
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
