"""Selection of whole partitions by an SQL condition on their values."""

from collections.abc import Callable

from pyiceberg.expressions import BoundPredicate, UnboundPredicate
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, bind, rewrite_not, visit
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform

from amoro_core.errors import InvalidArgument
from amoro_core.iceberg.conditions import GRAMMAR, parse_condition
from amoro_core.iceberg.filters import PartitionTest, partition_test
from amoro_core.model.plans import PartitionKey
from amoro_core.model.texts import briefly


def chooser(metadata: TableMetadata, text: str) -> Callable[[PartitionKey], bool]:
    """A predicate of partitions that can contain rows which satisfy the condition.

    Partitions of a spec that can't decide it are not selected. Raises InvalidArgument for a condition that is malformed
    or that no spec can decide: on a column that is not partitioned by, or a range over buckets.
    """
    schema = metadata.schema()
    try:
        expression = parse_condition(text, schema)
    except ValueError as error:
        raise InvalidArgument(f"the condition {briefly(text, 100)!r} is malformed: {error}", hint=GRAMMAR) from error
    leaves = visit(rewrite_not(expression), _Leaves())
    tests: dict[int, PartitionTest] = {}
    for spec_id, spec in metadata.specs().items():
        if all(_tells(spec, schema, leaf) for leaf in leaves):
            tests[spec_id] = partition_test(metadata, spec, expression)
    if not tests:
        raise _untold(text, metadata, leaves)
    return lambda key: key.spec_id in tests and tests[key.spec_id](key.partition)


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


class _Leaves(BooleanExpressionVisitor[list[UnboundPredicate]]):
    """All comparisons of a condition without NOT."""

    def visit_true(self) -> list[UnboundPredicate]:
        return []

    def visit_false(self) -> list[UnboundPredicate]:
        return []

    def visit_not(self, child_result: list[UnboundPredicate]) -> list[UnboundPredicate]:
        return child_result

    def visit_and(
        self, left_result: list[UnboundPredicate], right_result: list[UnboundPredicate]
    ) -> list[UnboundPredicate]:
        return left_result + right_result

    def visit_or(
        self, left_result: list[UnboundPredicate], right_result: list[UnboundPredicate]
    ) -> list[UnboundPredicate]:
        return left_result + right_result

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> list[UnboundPredicate]:
        return [predicate]

    def visit_bound_predicate(self, predicate: object) -> list[UnboundPredicate]:
        raise TypeError(f"{predicate} is bound already")
