"""Clustered tables: Java's comparators agree with our order, Spark reads the same rows of fewer files."""

from __future__ import annotations

import json
import math
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import DoubleType, FloatType, IcebergType, UUIDType
from pyspark.sql import SparkSession

from amoro_cli.query_logs import scans_in_event_logs
from amoro_core.model.clustering import ClusterOptions, LayoutKey
from amoro_core.model.scan_stats import ColumnFilter, Operator
from amoro_core.services.scan_learning import LearningService
from amoro_optimizer.cluster.sort_keys import flat, sort_rows
from tests.model.invariants import require_hidden
from tests.unit.cluster.test_order import CASES, MAKERS, array_of, batch_of, order_of, values_of

from .matching import assert_deletes_match_as_in_java
from .optimizing import Services
from .tables import Rows, create, delete, insert

ORDERED_ROWS = 20_000
#: Where each value is a call of Java's.
FEW_ROWS = 400


def java_values(spark: SparkSession, kind: IcebergType, values: list[Any]) -> Any:
    """The values as a Java list, in the form that Iceberg's comparators take."""
    jvm: Any = spark._jvm
    if isinstance(kind, FloatType | DoubleType):
        of = jvm.java.lang.Float if isinstance(kind, FloatType) else jvm.java.lang.Double
        texts = [None if one is None else repr(one).replace("inf", "Infinity").replace("nan", "NaN") for one in values]
        found = jvm.java.util.ArrayList()
        for text in texts:
            found.add(None if text is None else of.valueOf(text))
        return found
    listed = jvm.org.apache.iceberg.types.Types.ListType.ofOptional(1, java_type(spark, kind))
    return jvm.org.apache.iceberg.SingleValueParser.fromJson(listed, json.dumps(values, default=_json))


def java_type(spark: SparkSession, kind: IcebergType) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.types.Types.fromPrimitiveString(str(kind))


def _json(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex().upper()
    return value.isoformat() if isinstance(value, date | time) else str(value)


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
    rows = FEW_ROWS if isinstance(kind, FloatType | DoubleType) else ORDERED_ROWS
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
    values = values_of(name, 6, ORDERED_ROWS)
    order = order_of(kind, LayoutKey(1, transform))
    parts = flat(order.parts(batch_of(order, array_of(kind, values))))
    ordered = java_values(spark, kind, [values[row] for row in sort_rows(parts, flat(order.descending))])
    results = ordered.stream().map(bound).collect(jvm.java.util.stream.Collectors.toList())
    assert is_ordered(spark, comparator, results, False)


#: Files of a few KB, so that a few thousand rows make many.
SMALL = ", ".join(f"'{key}' = '{{0}}'" for key in ("self-optimizing.target-size", "write.target-file-size-bytes"))


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_spark_deletes_while_a_table_is_clustered_are_gone_for_spark(
    services: Services, version: int
) -> None:
    spark, table = services.spark, services.table
    create(spark, table, by="", version=version, more=f", {SMALL.format(16384)}")
    insert(spark, table, *range(0, 600, 100), rows=100)
    services.sql(f"DELETE FROM {table} WHERE id % 50 = 7")
    deleted: list[int] = []

    def delete_more() -> None:
        deleted.append(11 + 100 * len(deleted))
        services.sql(f"DELETE FROM {table} WHERE id % 200 = {deleted[-1]} OR id = 0")

    process_id = services.cluster(ClusterOptions(columns=("value",)), delete_more)
    assert deleted
    assert require_hidden(services.catalog.load(table), process_id) > 0
    assert_deletes_match_as_in_java(services.catalog, table)
    # Java goes on with the deletes that were carried over to the outputs.
    delete(spark, table, 1, 212)
    gone = {0, 1, 212} | {id_ for id_ in range(600) if id_ % 50 == 7 or id_ % 200 in deleted}
    assert services.rows() == Rows([(id_, "ab"[id_ % 2], f"v{id_}") for id_ in range(600) if id_ not in gone])


QUERIED_ROWS, QUERIED_FILES = 8000, 8
#: Bounds of 16 characters, as Java writes them, are all equal.
PREFIX = "0123456789" * 4
#: Of every four rows one has it.
HEAVY = Decimal("5000.00")


def code(number: int) -> str:
    return f"{PREFIX}{number:06d}"


def queries() -> list[str]:
    """Twenty: codes, amounts, the amount of a quarter of the rows, and both within a twentieth of their values."""
    chance = random.Random(5)
    found = [f"code = '{code(one)}'" for one in chance.sample(range(QUERIED_ROWS), 8)]
    found += [f"amount = {one:.2f}" for one in (*(one / 100 for one in chance.sample(range(10**6), 5)), HEAVY)]
    for _ in range(6):
        low, amount = chance.randrange(QUERIED_ROWS * 19 // 20), chance.randrange(9500)
        codes = f"code BETWEEN '{code(low)}' AND '{code(low + QUERIED_ROWS // 20)}'"
        found.append(f"{codes} AND amount BETWEEN {amount}.00 AND {amount + 500}.00")
    return found


@contextmanager
def logged(spark: SparkSession, directory: Path) -> Iterator[None]:
    """What Spark's own listener writes down meanwhile, as with spark.eventLog.enabled."""
    directory.mkdir()
    context: Any = spark.sparkContext._jsc.sc()
    jvm: Any = spark._jvm
    conf = context.getConf().set("spark.eventLog.enabled", "true").set("spark.eventLog.compress", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        context.applicationId(), context.applicationAttemptId(), jvm.java.net.URI(directory.as_uri()), conf
    )
    listener.start()
    context.addSparkListener(listener)
    try:
        yield
        context.listenerBus().waitUntilEmpty()
    finally:
        context.removeSparkListener(listener)
        listener.stop()


def test_twenty_queries_find_the_same_rows_in_a_third_of_the_bytes_and_their_log_tells_the_columns(
    services: Services, tmp_path: Path
) -> None:
    """The files have codes and amounts of the whole range before."""
    spark, table, world, asked = services.spark, services.table, services.world, queries()
    assert len(asked) == 20
    columns = "code STRING, amount DECIMAL(20,2), note STRING"
    services.sql(f"CREATE TABLE {table} ({columns}) USING iceberg TBLPROPERTIES ({SMALL.format(8192)})")
    for first in range(0, QUERIED_ROWS, QUERIED_ROWS // QUERIED_FILES):
        services.sql(
            f"INSERT INTO {table} SELECT concat('{PREFIX}', lpad(string((id * 4637) % {QUERIED_ROWS}), 6, '0')), "
            f"IF(id % 4 = 0, {HEAVY}, CAST(pmod(hash(id), 1000000) AS DECIMAL(20,2)) / 100), sha2(string(id), 256) "
            f"FROM range({first}, {first + QUERIED_ROWS // QUERIED_FILES}, 1, 1)"
        )

    def answers() -> list[list[Any]]:
        return [services.sql(f"SELECT * FROM {table} WHERE {one} ORDER BY code") for one in asked]

    def read() -> int:
        scans = [services.catalog.load(table).scan(row_filter=one) for one in asked]
        return sum(task.file.file_size_in_bytes for scan in scans for task in scan.plan_files())

    before, bytes_before = answers(), read()
    assert len(before[13]) == QUERIED_ROWS // 4
    assert [len(one) for one in before[:8]] == [1] * 8
    services.cluster(ClusterOptions(columns=("code", "amount")))
    with logged(spark, tmp_path / "events"):
        after = answers()
    assert after == before
    assert read() * 3 <= bytes_before

    told = scans_in_event_logs(tmp_path / "events", "cat.db.t")
    by_code, by_codes = (ColumnFilter("code", one) for one in (Operator.EQUAL, Operator.RANGE))
    by_amount, by_amounts = (ColumnFilter("amount", one) for one in (Operator.EQUAL, Operator.RANGE))
    scans = Counter[tuple[ColumnFilter, ...]]()
    for one in told:  # an entry for each day: a run across midnight has two
        scans[one.filters] += one.scans
    assert scans == {(by_code,): 8, (by_amount,): 6, (by_amounts, by_codes): 6}
    assert {one.source for one in told} == {f"events_1_{spark.sparkContext.applicationId}"}
    learning = LearningService(world.store, world.tables_of, lambda: world.now)
    for _ in range(2):  # the log counts once
        learned = learning.learn(world.table(table), [replace(one, day=None) for one in told])
        assert learned.recent_scans == 20
