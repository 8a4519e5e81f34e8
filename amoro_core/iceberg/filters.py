"""`self-optimizing.filter`: which data files of a table may contain rows that satisfy an SQL condition."""

import struct
from collections.abc import Callable, Mapping
from functools import cache

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    bind,
    expression_evaluator,
    extract_field_ids,
    inclusive_projection,
)
from pyiceberg.manifest import DataFile as EntryFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, TimestampNanoType, TimestampType

from amoro_core.errors import TableRefused
from amoro_core.files.promoting import promoted
from amoro_core.iceberg.conditions import GRAMMAR, parse_condition
from amoro_core.iceberg.entries import partition_types, spec_schema, to_record
from amoro_core.model.files import DataFile, Partition
from amoro_core.model.texts import briefly

FILTER_KEY = "self-optimizing.filter"

#: Types to which dates may have been promoted: pyiceberg takes a date's bounds for damaged ones.
_FROM_DATE = (TimestampType, TimestampNanoType)

PartitionTest = Callable[[Partition], bool]


def selector(metadata: TableMetadata, text: str) -> Callable[[DataFile], bool]:
    """A predicate that is false for data files without rows that satisfy the condition, by partition and bounds.

    It is true when these do not decide. Raises TableRefused("configuration") for a condition that is malformed, names
    a column that the table lacks, or compares it with a value of another type.
    """
    schema = metadata.schema()
    expression = _parse(text, schema)
    metrics = _InclusiveMetricsEvaluator(schema, expression, include_empty_files=True)
    kinds = {one: kind for one in schema.field_ids if isinstance(kind := schema.find_type(one), _FROM_DATE)}
    tests = {spec_id: partition_test(metadata, spec, expression) for spec_id, spec in metadata.specs().items()}

    def selects(file: DataFile) -> bool:
        return tests[file.spec_id](file.partition) and _may_hold(metrics, file, kinds)

    return selects


def _parse(text: str, schema: Schema) -> BooleanExpression:
    try:
        return parse_condition(text, schema)
    except ValueError as error:
        raise TableRefused(
            f"property {FILTER_KEY} has the malformed value {briefly(text, 100)!r}: {error}",
            reason="configuration",
            hint=GRAMMAR,
        ) from error


def columns_of(metadata: TableMetadata, text: str) -> frozenset[str]:
    """The columns that the condition names, with dots between the levels. Raises as `selector`."""
    schema = metadata.schema()
    named = extract_field_ids(bind(schema, _parse(text, schema), case_sensitive=True))
    return frozenset(schema.find_column_name(field_id) or "" for field_id in named)


def partition_test(metadata: TableMetadata, spec: PartitionSpec, expression: BooleanExpression) -> PartitionTest:
    """A predicate that is false for partitions of the spec without rows that satisfy the condition."""
    types = partition_types(metadata, spec)
    projected = inclusive_projection(metadata.schema(), spec)(expression)
    fields = spec.partition_type(spec_schema(metadata, spec)).fields
    evaluate = expression_evaluator(Schema(*fields), projected, case_sensitive=True)

    @cache
    def may_hold(partition: Partition) -> bool:
        return evaluate(to_record(partition, types))

    return may_hold


def _may_hold(metrics: _InclusiveMetricsEvaluator, file: DataFile, kinds: Mapping[int, IcebergType]) -> bool:
    known = EntryFile.from_args(
        record_count=file.record_count,
        value_counts=dict(file.metrics.value_counts),
        null_value_counts=dict(file.metrics.null_value_counts),
        nan_value_counts=dict(file.metrics.nan_value_counts),
        lower_bounds=_promoted(file.metrics.lower_bounds, kinds),
        upper_bounds=_promoted(file.metrics.upper_bounds, kinds),
    )
    try:
        return metrics.eval(known)
    except (struct.error, ValueError):
        # Bounds that are not values of the column's type, such as those truncated within a character, tell nothing.
        return True


def _promoted(bounds: Mapping[int, bytes], kinds: Mapping[int, IcebergType]) -> dict[int, bytes]:
    """The bounds, those of promoted columns in their present form; left out where that has no such value."""
    found = dict(bounds)
    for field_id, kind in kinds.items():
        if field_id in found:
            bound = promoted(kind, found.pop(field_id))
            if bound is not None:
                found[field_id] = bound
    return found
