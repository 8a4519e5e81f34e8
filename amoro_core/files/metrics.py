"""Counts and bounds of written columns, as manifests hold them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema, sanitize_column_names

from amoro_core.files.options import WriterOptions
from amoro_core.files.projection import leaf_ids
from amoro_core.model.files import ColumnMetrics

_NONE = MetricsMode(MetricModeTypes.NONE)


def column_metrics(
    metadata: pq.FileMetaData, schema: Schema, options: WriterOptions, nan_counts: Mapping[int, int]
) -> tuple[ColumnMetrics, tuple[int, ...]]:
    """The metrics of a written file, as the table's metrics modes want them, and its split offsets."""
    leaves = leaf_ids(metadata.schema.to_arrow_schema())
    plan = _plan(schema, options, repeated={field_id for field_id, repeated in leaves if repeated})
    statistics = data_file_statistics_from_parquet_metadata(
        metadata, plan, parquet_path_to_id_mapping(sanitize_column_names(schema))
    ).to_serialized_dict()
    unbounded = _without_bounds(metadata, [field_id for field_id, _ in leaves])
    counted = {field_id for field_id, collector in plan.items() if collector.mode != _NONE}
    metrics = ColumnMetrics(
        column_sizes=statistics["column_sizes"],
        value_counts=statistics["value_counts"],
        null_value_counts=statistics["null_value_counts"],
        nan_value_counts={key: count for key, count in nan_counts.items() if key in counted},
        lower_bounds=_except(statistics["lower_bounds"], unbounded),
        upper_bounds=_except(statistics["upper_bounds"], unbounded),
    )
    return metrics, tuple(statistics["split_offsets"])


def nan_counts(batch: pa.RecordBatch) -> dict[int, int]:
    """NaN values of the batch's float columns by field id, those in structs too."""
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


def _plan(schema: Schema, options: WriterOptions, repeated: set[int | None]) -> dict[int, StatisticsCollector]:
    properties = {f"write.metadata.metrics.column.{name}": mode for name, mode in options.metrics_modes.items()}
    if options.metrics_default is not None:
        properties["write.metadata.metrics.default"] = options.metrics_default
    plan = compute_statistics_plan(schema, properties)
    for place, (field_id, collector) in enumerate(plan.items()):
        beyond = options.metrics_default is None and place >= options.metrics_columns
        own = options.metrics_modes.get(collector.column_name)
        if field_id in repeated or (beyond and own is None):
            plan[field_id] = replace(collector, mode=_NONE)
    return plan


def _without_bounds(metadata: pq.FileMetaData, ids: Iterable[int | None]) -> set[int]:
    """Columns of which some chunk does not say its least and greatest value.

    Parquet leaves them out for values above 4,096 bytes; bounds made of the other chunks would be wrong.
    """
    found = set()
    for index, field_id in enumerate(ids):
        for group in range(metadata.num_row_groups):
            chunk = metadata.row_group(group).column(index)
            statistics = chunk.statistics
            if field_id is not None and (
                statistics is None or (not statistics.has_min_max and not _only_nulls(statistics, chunk.num_values))
            ):
                found.add(field_id)
    return found


def _only_nulls(statistics: pq.Statistics, values: int) -> bool:
    return bool(statistics.has_null_count and statistics.null_count == values)


def _except(bounds: Mapping[int, bytes], left_out: set[int]) -> dict[int, bytes]:
    return {field_id: bound for field_id, bound in bounds.items() if field_id not in left_out}
