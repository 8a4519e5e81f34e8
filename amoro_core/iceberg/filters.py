"""`self-optimizing.filter`: which data files of a table may hold rows that an SQL condition names."""

import re
import struct
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    bind,
    expression_evaluator,
    inclusive_projection,
)
from pyiceberg.manifest import DataFile as EntryFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from amoro_core.errors import TableRefused
from amoro_core.iceberg.entries import PartitionTypes, partition_types, spec_schema, to_record
from amoro_core.model.files import DataFile, Partition

FILTER_KEY = "self-optimizing.filter"

#: A condition's text constants, and what lies between them.
_CONSTANT = re.compile(r"('(?:[^']|'')*')")
_TYPED = re.compile(r"\b(?:date|timestamp|time)\s*$", re.IGNORECASE)

_PartitionTest = Callable[[Partition], bool]


def selector(metadata: TableMetadata, text: str) -> Callable[[DataFile], bool]:
    """A test that says no for data files that hold no row the condition names, as partition and bounds tell.

    A file of which neither tells enough is taken. Raises TableRefused("configuration") for a condition that is
    malformed, names a column that the table lacks, or compares it with a value of another type.
    """
    schema = metadata.schema()
    expression = _parse(text, schema)
    metrics = _InclusiveMetricsEvaluator(schema, expression, include_empty_files=True)
    tests = _partition_tests(metadata, schema, expression)

    def selects(file: DataFile) -> bool:
        return tests[file.spec_id](file.partition) and _may_hold(metrics, file)

    return selects


def _parse(text: str, schema: Schema) -> BooleanExpression:
    # Whatever the parser or the binding raises (pyparsing's, pydantic's and plain errors), the condition is at fault.
    try:
        expression = parse(_plain(text))
        if not isinstance(expression, BooleanExpression):
            raise TypeError("it is a value, not a condition")
        bind(schema, expression, case_sensitive=True)
    except Exception as error:
        raise TableRefused(
            f"property {FILTER_KEY} has the malformed value {text!r}: {str(error) or type(error).__name__}",
            reason="configuration",
            hint="Write a condition on top-level columns with =, <>, <, <=, >, >=, BETWEEN, IN, IS NULL, NOT, AND, OR "
            "and constants like 5, 'text', '2026-01-31', '2026-01-31T00:00:00'.",
        ) from error
    return expression


def _plain(text: str) -> str:
    """The condition without what Amoro's parser knows and pyiceberg's does not: DATE '…', TIMESTAMP '…', `names`."""
    parts = _CONSTANT.split(text)
    between = [part.replace("`", '"') for part in parts[::2]]
    between[:-1] = [_TYPED.sub("", part) for part in between[:-1]]
    constants = [*parts[1::2], ""]
    return "".join(part + constant for part, constant in zip(between, constants, strict=True))


def _partition_tests(
    metadata: TableMetadata, schema: Schema, expression: BooleanExpression
) -> Mapping[int, _PartitionTest]:
    tests = {}
    for spec_id, spec in metadata.specs().items():
        source = spec_schema(metadata, spec)
        projected = inclusive_projection(schema, spec)(expression)
        evaluate = expression_evaluator(Schema(*spec.partition_type(source).fields), projected, case_sensitive=True)
        tests[spec_id] = _partition_test(evaluate, partition_types(metadata, spec))
    return MappingProxyType(tests)


def _partition_test(evaluate: Callable[..., bool], types: PartitionTypes) -> _PartitionTest:
    @cache
    def may_hold(partition: Partition) -> bool:
        return evaluate(to_record(partition, types))

    return may_hold


def _may_hold(metrics: _InclusiveMetricsEvaluator, file: DataFile) -> bool:
    known = EntryFile.from_args(
        record_count=file.record_count,
        value_counts=dict(file.metrics.value_counts),
        null_value_counts=dict(file.metrics.null_value_counts),
        nan_value_counts=dict(file.metrics.nan_value_counts),
        lower_bounds=dict(file.metrics.lower_bounds),
        upper_bounds=dict(file.metrics.upper_bounds),
    )
    try:
        return metrics.eval(known)
    except (struct.error, ValueError):
        # Bounds that are no values of the column's type, as those cut off within a character, tell nothing.
        return True
