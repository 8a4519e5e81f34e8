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
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.types import DoubleType, FloatType, IcebergType, UUIDType

from amoro_cli.query_logs import scans_in_event_logs
from amoro_core.model.clustering import ClusterOptions, LayoutKey
from amoro_core.model.scan_stats import ColumnFilter, Operator
from amoro_core.services.scan_learning import LearningService
from amoro_optimizer.cluster.sort_keys import flat, sort_rows
from tests.model.invariants import require_hidden
from tests.unit.cluster.test_order import CASES, MAKERS, array_of, batch_of, order_of, values_of

from .matching import assert_deletes_match_as_in_java
from .optimizing import Services, cluster_table
from .session import SharedCatalog
from .tables import Rows, spark_rows
from .test_vectors import segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ORDERED_ROWS = 20_000
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
SMALL = "'self-optimizing.target-size' = '16384', 'write.target-file-size-bytes' = '16384'"


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_spark_deletes_while_a_table_is_clustered_are_gone_for_spark(
    spark: SparkSession, catalog: SharedCatalog, services: Services, version: int
) -> None:
    table = segments(catalog, f"meanwhile_{version}", range(0, 600, 100), version, f", {SMALL}")
    spark.sql(f"DELETE FROM {table} WHERE id % 50 = 7")
    deleted: list[int] = []

    def delete() -> None:
        deleted.append(11 + 100 * len(deleted))
        spark.sql(f"DELETE FROM {table} WHERE id % 200 = {deleted[-1]} OR id = 0")

    process_id = cluster_table(services, table, ClusterOptions(columns=("value",)), delete)
    assert deleted
    assert require_hidden(catalog.load(table), process_id) > 0
    assert_deletes_match_as_in_java(catalog, table)
    # Java goes on with the deletes that were carried over to the outputs.
    spark.sql(f"DELETE FROM {table} WHERE id IN (1, 212)")
    gone = {0, 1, 212} | {id_ for id_ in range(600) if id_ % 50 == 7 or id_ % 200 in deleted}
    assert spark_rows(spark, table) == Rows([(id_, "a", f"v{id_}") for id_ in range(600) if id_ not in gone])


QUERIED_ROWS, QUERIED_FILES = 8000, 8
PREFIX = "0123456789" * 4
#: Of every four rows one has it.
HEAVY = Decimal("5000.00")
#: Files of a few KB, so that there are many. Bounds of 16 characters, as Java writes them, are all equal.
PROPERTIES = "'self-optimizing.target-size' = '8192', 'write.target-file-size-bytes' = '8192'"


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


def make_table(catalog: SharedCatalog, name: str) -> str:
    """Files each of which has codes and amounts of the whole range."""
    table, sql = catalog.full_name(name), catalog.spark.sql
    sql(
        f"CREATE TABLE {table} (code STRING, amount DECIMAL(20,2), note STRING) USING iceberg "
        f"TBLPROPERTIES ({PROPERTIES})"
    )
    for turn in range(QUERIED_FILES):
        sql(
            f"INSERT INTO {table} SELECT concat('{PREFIX}', lpad(string((id * 4637) % {QUERIED_ROWS}), 6, '0')), "
            f"IF(id % 4 = 0, {HEAVY}, CAST(pmod(hash(id), 1000000) AS DECIMAL(20,2)) / 100), sha2(string(id), 256) "
            f"FROM range({turn * QUERIED_ROWS // QUERIED_FILES}, {(turn + 1) * QUERIED_ROWS // QUERIED_FILES}, 1, 1)"
        )
    return table


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
    spark: SparkSession, catalog: SharedCatalog, services: Services, tmp_path: Path
) -> None:
    table, asked, world = make_table(catalog, "db.t"), queries(), services.world
    assert len(asked) == 20

    def answers() -> list[list[Any]]:
        return [spark.sql(f"SELECT * FROM {table} WHERE {one} ORDER BY code").collect() for one in asked]

    def read() -> int:
        scans = [catalog.load("db.t").scan(row_filter=one) for one in asked]
        return sum(task.file.file_size_in_bytes for scan in scans for task in scan.plan_files())

    before, bytes_before = answers(), read()
    assert len(before[13]) == QUERIED_ROWS // 4
    assert [len(one) for one in before[:8]] == [1] * 8
    cluster_table(services, table, ClusterOptions(columns=("code", "amount")))
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
