"""Queries of Spark on a table before and after it is clustered: the same rows from fewer bytes, and its own event log
tells which columns they filter by."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amoro_cli.reports import told_by_event_logs
from amoro_core.model.clustering import ClusterOptions
from amoro_core.model.scans import ColumnFilter, Operator
from amoro_core.services.learning import LearningService

from .catalogs import SharedCatalog
from .clustering import cluster_table
from .java_writer import JavaTable, load_java_table
from .optimizing import Services

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, FILES = 8000, 8
PREFIX = "0123456789" * 4
#: Of every four rows one has it.
HEAVY = Decimal("5000.00")
#: Whole bounds: those of 16 characters are all equal. Files of a few KB, so that there are many.
PROPERTIES = (
    "'write.metadata.metrics.column.code' = 'full', 'self-optimizing.target-size' = '8192', "
    "'write.target-file-size-bytes' = '8192'"
)


@dataclass(frozen=True, slots=True)
class Query:
    """What a query filters by: a code, or amounts from one to another, or both."""

    codes: tuple[str, str] | None = None
    amounts: tuple[Decimal, Decimal] | None = None

    @property
    def text(self) -> str:
        parts = []
        if self.codes is not None:
            low, high = self.codes
            parts.append(f"code = '{low}'" if low == high else f"code BETWEEN '{low}' AND '{high}'")
        if self.amounts is not None:
            low_amount, high_amount = self.amounts
            is_point = low_amount == high_amount
            parts.append(f"amount = {low_amount}" if is_point else f"amount BETWEEN {low_amount} AND {high_amount}")
        return " AND ".join(parts)

    def bytes_by_java(self, java: JavaTable) -> int:
        """Bytes of the data files that Java plans to read."""
        made: Any = java.iceberg.expressions.Expressions
        found = made.alwaysTrue()
        decimal = java.gateway.jvm.java.math.BigDecimal
        for column, ends in (
            ("code", self.codes),
            ("amount", self.amounts and [decimal(str(one)) for one in self.amounts]),
        ):
            if ends:
                within = getattr(made, "and")(
                    made.greaterThanOrEqual(column, ends[0]), made.lessThanOrEqual(column, ends[1])
                )
                found = getattr(made, "and")(found, within)
        planned = java.table.newScan().filter(found).planFiles()
        lists = java.gateway.jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
        read = sum(int(task.file().fileSizeInBytes()) for task in lists.newArrayList(planned))
        planned.close()
        return read


def code(number: int) -> str:
    return f"{PREFIX}{number:06d}"


def queries() -> list[Query]:
    """Twenty: codes, amounts, the amount of a quarter of the rows, and both within a twentieth of their values."""
    chance = random.Random(5)
    found = [Query(codes=(code(one), code(one))) for one in chance.sample(range(ROWS), 8)]
    amounts = [Decimal(one) / 100 for one in chance.sample(range(10**6), 5)]
    found += [Query(amounts=(one, one)) for one in (*amounts, HEAVY)]
    for _ in range(6):
        low, amount = chance.randrange(ROWS * 19 // 20), Decimal(chance.randrange(9500))
        found.append(Query((code(low), code(low + ROWS // 20)), (amount, amount + 500)))
    return found


def make_table(catalog: SharedCatalog, name: str) -> str:
    """Files each of which has codes and amounts of the whole range."""
    table, sql = catalog.full_name(name), catalog.spark.sql
    sql(
        f"CREATE TABLE {table} (code STRING, amount DECIMAL(20,2), note STRING) USING iceberg "
        f"TBLPROPERTIES ({PROPERTIES})"
    )
    for turn in range(FILES):
        sql(
            f"INSERT INTO {table} SELECT concat('{PREFIX}', lpad(string((id * 4637) % {ROWS}), 6, '0')), "
            f"IF(id % 4 = 0, {HEAVY}, CAST(pmod(hash(id), 1000000) AS DECIMAL(20,2)) / 100), sha2(string(id), 256) "
            f"FROM range({turn * ROWS // FILES}, {(turn + 1) * ROWS // FILES}, 1, 1)"
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
        return [spark.sql(f"SELECT * FROM {table} WHERE {one.text} ORDER BY code").collect() for one in asked]

    def read() -> int:
        java = load_java_table(spark, catalog.name, "db.t")
        return sum(one.bytes_by_java(java) for one in asked)

    before, bytes_before = answers(), read()
    assert len(before[13]) == ROWS // 4
    assert [len(one) for one in before[:8]] == [1] * 8
    cluster_table(services, table, ClusterOptions(columns=("code", "amount")))
    with logged(spark, tmp_path / "events"):
        after = answers()
    assert after == before
    assert read() * 3 <= bytes_before

    told = told_by_event_logs(tmp_path / "events", "cat.db.t")
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
