"""The order of our sort keys beside Iceberg's own comparators and transforms, in Java."""

from __future__ import annotations

import json
import math
import uuid
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.types import DoubleType, FloatType, IcebergType, UUIDType

from amoro_core.model.clustering import LayoutKey
from amoro_optimizer.cluster.order import flat
from amoro_optimizer.cluster.values import sort_rows
from tests.unit.cluster.test_order import CASES, MAKERS, array_of, batch_of, order_of, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 20_000
#: Where each value is a call of Java's.
FEW_ROWS = 400


def java_values(spark: SparkSession, kind: IcebergType, values: list[Any]) -> Any:
    """The values as a Java list, in the form that Iceberg's comparators take."""
    jvm: Any = spark._jvm
    if isinstance(kind, FloatType | DoubleType):
        found = jvm.java.util.ArrayList()
        of = jvm.java.lang.Float if isinstance(kind, FloatType) else jvm.java.lang.Double
        for value in values:
            found.add(None if value is None else of.valueOf(_java_float(value)))
        return found
    listed = jvm.org.apache.iceberg.types.Types.ListType.ofOptional(1, java_type(spark, kind))
    return jvm.org.apache.iceberg.SingleValueParser.fromJson(listed, json.dumps([_json(value) for value in values]))


def java_type(spark: SparkSession, kind: IcebergType) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.types.Types.fromPrimitiveString(str(kind))


def _java_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value).replace("inf", "Infinity")


def _json(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex().upper()
        case datetime() | date() | time():
            return value.isoformat()
        case uuid.UUID() | Decimal():
            return str(value)
    return value


def is_ordered(spark: SparkSession, comparator: Any, values: Any, nulls_last: bool) -> bool:
    """Whether each value is at most as great as the next, with nulls first or last."""
    jvm: Any = spark._jvm
    guava: Any = jvm.org.apache.iceberg.relocated.com.google.common.collect
    ordering = getattr(guava.Ordering, "from")(comparator)
    ordering = ordering.nullsLast() if nulls_last else ordering.nullsFirst()
    return bool(ordering.isOrdered(values))


@pytest.mark.parametrize("name", list(MAKERS))
def test_our_order_is_that_of_icebergs_comparators(spark: SparkSession, name: str) -> None:
    jvm: Any = spark._jvm
    kind, _ = MAKERS[name]
    rows = FEW_ROWS if isinstance(kind, FloatType | DoubleType) else ROWS
    # Java knows one NaN, above all; the specification, and we, have that of the negative sign below all.
    values = [math.nan if isinstance(one, float) and math.isnan(one) else one for one in values_of(name, 5, rows)]
    if isinstance(kind, UUIDType):
        # Up to 1.11 Java compares their halves as signed numbers; bytes, as in Parquet's bounds, are without a sign.
        values = [None if one is None else uuid.UUID(int=one.int & ~(1 << 127 | 1 << 63)) for one in values]
    comparator = jvm.org.apache.iceberg.types.Comparators.forType(java_type(spark, kind).asPrimitiveType())
    for descending, nulls_last in ((False, False), (True, True)):
        order = order_of(kind, LayoutKey(1, "identity", descending, nulls_last))
        parts = flat(order.parts(batch_of(order, array_of(kind, values))))
        ordered = [values[row] for row in sort_rows(parts, flat(order.descending))]
        wanted = comparator.reversed() if descending else comparator
        assert is_ordered(spark, wanted, java_values(spark, kind, ordered), nulls_last)
        shown = [one for one in ordered if one is not None]
        swapped = java_values(spark, kind, [shown[-1], *shown[1:-1], shown[0]])
        assert not is_ordered(spark, wanted, swapped, nulls_last), "Java can tell"


@pytest.mark.parametrize(("transform", "name"), [case for case in CASES if case[0] != "identity"], ids=str)
def test_our_order_by_a_transform_is_that_of_icebergs(spark: SparkSession, transform: str, name: str) -> None:
    """Where the least numbers wrap around, too."""
    jvm: Any = spark._jvm
    kind, _ = MAKERS[name]
    java = java_type(spark, kind)
    bound = jvm.org.apache.iceberg.transforms.Transforms.fromString(transform).bind(java)
    made = jvm.org.apache.iceberg.transforms.Transforms.fromString(transform).getResultType(java)
    comparator = jvm.org.apache.iceberg.types.Comparators.forType(made.asPrimitiveType())
    values = values_of(name, 6, ROWS)
    order = order_of(kind, LayoutKey(1, transform))
    parts = flat(order.parts(batch_of(order, array_of(kind, values))))
    ordered = java_values(spark, kind, [values[row] for row in sort_rows(parts, flat(order.descending))])
    results = ordered.stream().map(bound).collect(jvm.java.util.stream.Collectors.toList())
    assert is_ordered(spark, comparator, results, False)
