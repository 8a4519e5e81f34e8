"""Filters of files by conditions on partitions and columns."""

import re
import struct
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache

from pyiceberg.expressions import And, BooleanExpression, BoundPredicate, Or, UnboundPredicate
from pyiceberg.expressions.literals import Literal, LongLiteral, StringLiteral
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    bind,
    expression_evaluator,
    extract_field_ids,
    inclusive_projection,
    rewrite_not,
)
from pyiceberg.manifest import DataFile as EntryFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, TimestampNanoType, TimestampType, TimestamptzNanoType

from amoro_core.errors import InvalidArgument, misconfigured
from amoro_core.files.schema.schemas import promoted
from amoro_core.iceberg.manifest.reading import partition_types, spec_schema, to_record
from amoro_core.model.files import DataFile, Partition
from amoro_core.model.plans import PartitionKey
from amoro_core.model.text_sanitizing import briefly

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")


def _of_text(literal: StringLiteral, kind: IcebergType) -> Literal[int]:
    match = _MOMENT.fullmatch(literal.value)
    if match is None:
        raise ValueError(f"{literal.value!r} is no moment such as 2026-01-31T00:00:00.000000001")
    if (match[3] is None) is isinstance(kind, TimestamptzNanoType):
        raise ValueError(f"{literal.value!r} has {'no' if match[3] is None else 'a'} zone, unlike a column of {kind}")
    since = datetime.fromisoformat(f"{match[1]}{match[3] or '+00:00'}") - datetime.fromisoformat("1970-01-01T00:00Z")
    return LongLiteral(since // timedelta(seconds=1) * 1_000_000_000 + int((match[2] or "").ljust(9, "0")))


#: The grammar of a condition, as a hint.
GRAMMAR = (
    "Write a condition on top-level columns with =, <>, <, <=, >, >=, BETWEEN, IN, IS NULL, NOT, AND, OR "
    "and constants like 5, 'text', '2026-01-31', '2026-01-31T00:00:00'."
)

# Let pyiceberg compare columns of nanoseconds with ISO 8601 texts of up to nine digits, and with whole numbers. Its own
# conversions are registered in the same way; outside of its classes, by their attribute.
for _kind in (TimestampNanoType, TimestamptzNanoType):
    vars(StringLiteral)["to"].register(_kind, _of_text)
    vars(LongLiteral)["to"].register(_kind, lambda literal, kind: literal)

#: The string constants of a condition; splits it into these and the text between them.
_CONSTANT = re.compile(r"('(?:[^']|'')*')")
_TYPED = re.compile(r"\b(?:date|timestamp|time)\s*$", re.IGNORECASE)


def parse_condition(text: str, schema: Schema) -> BooleanExpression:
    """The condition, unbound. Raises ValueError for one that is malformed, names a column that the schema lacks, or
    compares it with a value of another type."""
    from pyiceberg.expressions.parser import parse  # with pyparsing, for those who have conditions

    # Whatever parser or binding raise (pyparsing's, pydantic's and built-in errors), the condition is at fault.
    try:
        expression = parse(_plain(text))
        if not isinstance(expression, BooleanExpression):
            raise TypeError("it is a value, not a condition")
        bind(schema, expression, case_sensitive=True)
    except Exception as error:
        raise ValueError(_problem(error)) from error
    return expression


def _problem(error: Exception) -> str:
    """What is wrong with a condition; the parser's own messages consist of its grammar."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text, at = getattr(error, "pstr", None), getattr(error, "loc", None)  # pyparsing's
    if isinstance(text, str) and isinstance(at, int):
        rest = text[at:].strip()
        actual = f"'{briefly(rest, 40)}'" if rest else "the end"
        return f"expected a condition, found {actual} at character {at + 1}"
    field = re.match(r"Could not find field with name (.*?)(?:, case_sensitive=\w+)?$", str(error))
    return f"the table has no column {field[1]}" if field else briefly(str(error) or type(error).__name__)


def _plain(text: str) -> str:
    """The condition without syntax of Amoro's parser that pyiceberg's lacks: DATE '…', TIMESTAMP '…', `names`."""
    parts = _CONSTANT.split(text)
    between = [part.replace("`", '"') for part in parts[::2]]
    between[:-1] = [_TYPED.sub("", part) for part in between[:-1]]
    constants = [*parts[1::2], ""]
    return "".join(part + constant for part, constant in zip(between, constants, strict=True))


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
    kinds = {id_: kind for id_ in schema.field_ids if isinstance(kind := schema.find_type(id_), _FROM_DATE)}
    tests = {spec_id: partition_test(metadata, spec, expression) for spec_id, spec in metadata.specs().items()}

    def selects(file: DataFile) -> bool:
        return tests[file.spec_id](file.partition) and _may_hold(metrics, file, kinds)

    return selects


def _parse(text: str, schema: Schema) -> BooleanExpression:
    try:
        return parse_condition(text, schema)
    except ValueError as error:
        raise misconfigured(
            f"property {FILTER_KEY} has the malformed value {briefly(text, 100)!r}: {error}", hint=GRAMMAR
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
    data_file = EntryFile.from_args(
        record_count=file.record_count,
        value_counts=dict(file.metrics.value_counts),
        null_value_counts=dict(file.metrics.null_value_counts),
        nan_value_counts=dict(file.metrics.nan_value_counts),
        lower_bounds=_promoted(file.metrics.lower_bounds, kinds),
        upper_bounds=_promoted(file.metrics.upper_bounds, kinds),
    )
    try:
        return metrics.eval(data_file)
    except (struct.error, ValueError):
        # Bounds that are not values of the column's type, such as those truncated within a character, tell nothing.
        return True


def _promoted(bounds: Mapping[int, bytes], kinds: Mapping[int, IcebergType]) -> dict[int, bytes]:
    """The bounds, those of promoted columns in their present form; left out where that has no such value."""
    result = dict(bounds)
    for field_id, kind in kinds.items():
        if field_id in result:
            bound = promoted(kind, result.pop(field_id))
            if bound is not None:
                result[field_id] = bound
    return result


def chooser(metadata: TableMetadata, text: str, *, widely: bool = False) -> Callable[[PartitionKey], bool]:
    """A predicate of partitions that can contain rows which satisfy the condition.

    Partitions of a spec that can't decide it are not selected, or with `widely` unless what it can decide excludes
    them. Raises InvalidArgument for a condition that is malformed or that no spec can decide: on a column that is not
    partitioned by, or a range over buckets.
    """
    schema = metadata.schema()
    try:
        expression = parse_condition(text, schema)
    except ValueError as error:
        raise InvalidArgument(f"the condition {briefly(text, 100)!r} is malformed: {error}", hint=GRAMMAR) from error
    leaves = _predicates(rewrite_not(expression))
    specs = metadata.specs()
    deciding = [spec_id for spec_id, spec in specs.items() if all(_tells(spec, schema, leaf) for leaf in leaves)]
    if not deciding:
        raise _untold(text, metadata, leaves)
    tests = {item: partition_test(metadata, specs[item], expression) for item in (specs if widely else deciding)}
    return lambda key: tests[key.spec_id](key.partition) if key.spec_id in tests else widely


def _tells(spec: PartitionSpec, schema: Schema, leaf: UnboundPredicate) -> bool:
    """Whether partitions of the spec decide the predicate."""
    fields = [
        field
        for field in spec.fields_by_source_id(_column(schema, leaf))
        if not isinstance(field.transform, VoidTransform)
    ]
    bound = bind(schema, leaf, case_sensitive=True)
    if not isinstance(bound, BoundPredicate):
        return bool(fields)  # constant for every row, such as NOT NULL on a required column
    return any(field.transform.project(field.name, bound) is not None for field in fields)


def _column(schema: Schema, leaf: UnboundPredicate) -> int:
    return leaf.term.bind(schema).ref().field.field_id


def _untold(text: str, metadata: TableMetadata, leaves: list[UnboundPredicate]) -> InvalidArgument:
    schema, spec = metadata.schema(), metadata.spec()
    wrong = next((leaf for leaf in leaves if not _tells(spec, schema, leaf)), leaves[0])
    fields = [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    by = ", ".join(f"{field.transform}({schema.find_column_name(field.source_id)})" for field in fields)
    name = schema.find_column_name(_column(schema, wrong))
    if any(field.source_id == _column(schema, wrong) for field in fields):
        why = f"partitions by {by} can't decide its condition on {name}"
    else:
        how = f"partitioned by {by}" if by else "unpartitioned"
        why = f"{name} is not a partition column of the table, which is {how}"
    return InvalidArgument(
        f"the condition {text!r} does not select whole partitions: {why}",
        hint=f"Name columns that the table is partitioned by: {by}." if by else "Leave the condition out.",
    )


def _predicates(condition: BooleanExpression) -> list[UnboundPredicate]:
    """All comparisons of a condition without NOT, in their order."""
    match condition:
        case And() | Or():
            return _predicates(condition.left) + _predicates(condition.right)
        case UnboundPredicate():
            return [condition]
    return []  # always true or false
