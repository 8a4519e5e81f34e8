"""`amoro sql --engine spark` against a Spark Connect server: Spark's own, in the JVM of these tests."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import installed
from tests.acceptance.processes import STEADY, wait_until

from .session import SharedCatalog
from .tables import make_mixed_table

ENDLESS = "SELECT count(*) FROM range(1000000000000000) WHERE hash(id) = id"
SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.connect.execute.manager.detachedTimeout": "1d",  # nothing ends only because its client is gone
}
#: Of a catalog that Spark knows.
PROPERTIES = ("catalog-impl", "uri", "jdbc.schema-version", "warehouse", "cache-enabled")


@contextmanager
def connect_server(catalog: SharedCatalog) -> Iterator[Any]:
    """Spark's service, on a port of its own; its sessions know the catalog."""
    jvm: Any = catalog.spark.sparkContext._jvm
    context = catalog.spark.sparkContext._jsc.sc()
    key = f"spark.sql.catalog.{catalog.name}"
    keys = [key, *(f"{key}.{name}" for name in PROPERTIES)]
    settings = {**SETTINGS, **{one: catalog.spark.conf.get(one) for one in keys}}
    for name, value in settings.items():
        context.conf().set(name, value)
    service = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    service.start(context)
    try:
        yield service
    finally:
        service.stop(getattr(service, "stop$default$1")(), getattr(service, "stop$default$2")())
        for name in settings:
            context.conf().remove(name)


def test_a_spark_connect_server_answers_statements_and_ends_cancelled_ones(
    catalog: SharedCatalog, tmp_path: Path
) -> None:
    table, spark, nothing = catalog.table, catalog.spark, f"SELECT * FROM {catalog.name}.db.nothing"
    make_mixed_table(spark, table)
    with connect_server(catalog) as service:
        (tmp_path / "site").mkdir()
        settings = f"{STEADY}terminal.enabled: true\nterminal.spark-connect: sc://127.0.0.1:{service.localPort()}\n"
        with installed(tmp_path / "site", settings) as site:
            site.up()

            def ask(statement: str) -> Any:
                return site.ask("sql", "--engine", "spark", "-e", statement)

            def refusal(statement: str) -> str:
                outcome = site.run("sql", "--engine", "spark", "-e", statement)
                assert outcome.status != 0
                return outcome.said[0]

            answer, frame = ask(f"SELECT * FROM {table}"), spark.table(table)
            assert [(one["name"], one["type"]) for one in answer["columns"]] == frame.dtypes
            texts = frame.selectExpr(*(f"CAST({name} AS STRING)" for name in frame.columns)).collect()
            assert Counter(map(tuple, answer["rows"])) == Counter(map(tuple, texts))
            assert answer["is_cut"] is False

            change = f"DELETE FROM {table} WHERE id % 2 = 0"
            assert ask(change)["rows"] == []
            assert spark.table(table).count() == sum(int(row.id) % 2 for row in frame.select("id").collect()) > 0

            reason = "[USER_RAISED_EXCEPTION] no such day SQLSTATE: P0001"
            assert refusal("SELECT raise_error('no such day')") == (
                f"Error: Spark refuses the statement: {reason} [AMORO-1001]"
            )
            assert "[TABLE_OR_VIEW_NOT_FOUND]" in refusal(nothing)

            jobs = spark.sparkContext.statusTracker().getActiveJobsIds
            endless = site.start("sql", "--engine", "spark", "-e", ENDLESS)
            wait_until(jobs, "Spark counts")
            endless.popen.send_signal(signal.SIGINT)
            assert endless.wait() in (130, -signal.SIGINT)
            wait_until(lambda: not jobs(), "Spark has ended it")

            def outcomes() -> dict[str, str]:
                events = site.ask("audit", "list", "--operation", "RunStatement")["audit"]
                return {one["parameters"]["statement"]: one["outcome"] for one in events}

            wait_until(lambda: outcomes()[ENDLESS] == "failed", "the audit has the end of the statement")
            assert outcomes() == {
                f"SELECT * FROM {table}": "done",
                change: "done",
                "SELECT raise_error('no such day')": "failed",
                nothing: "failed",
                ENDLESS: "failed",
            }
