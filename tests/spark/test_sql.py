"""The SQL terminal answers what Spark does on tables of every shape that Java leaves, and asks Spark Connect."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from amoro_core.errors import WorkFailed
from amoro_core.services.terminal import TerminalTerms
from tests.acceptance.conftest import installed
from tests.acceptance.processes import STEADY, wait_until

from .optimizing import Services
from .session import SharedCatalog
from .tables import SHAPES, Shape, make_mixed_table

TERMS = TerminalTerms(True, 1 << 30, timedelta(minutes=2), 1, 1000, "sc://127.0.0.1:1")
#: Of ids, parts and values.
SELECTS = """
SELECT * FROM (SELECT id, part, value FROM {t})
SELECT count(*) FROM {t}
SELECT part, count(*), sum(id), max(value) FROM {t} GROUP BY part
SELECT id FROM {t} WHERE id > 25
SELECT id, value FROM {t} WHERE part = 'a' AND id <= 41
SELECT value FROM {t} WHERE part IN ('b', 'c') AND id BETWEEN 3 AND 45
SELECT id FROM {t} WHERE part = 'b' OR id < 7
SELECT id FROM {t} WHERE NOT (part = 'b')
SELECT id FROM {t} WHERE value = 'updated' OR value LIKE 'v1%'
SELECT id FROM {t} WHERE value >= 'v2' AND value < 'v4'
SELECT DISTINCT part FROM {t} WHERE 30 >= id
SELECT id % 5 AS rest, count(*) FROM {t} GROUP BY id % 5 HAVING count(*) > 2
SELECT id + 1 AS part FROM {t} WHERE part = 'a'
SELECT a.id, b.value FROM {t} AS a JOIN {t} AS b ON a.id + 1 = b.id
SELECT a.id, b.id FROM {t} AS a LEFT JOIN {t} AS b ON a.id = b.id * 2 WHERE a.id < 30
SELECT a.id, b.id FROM {t} AS a LEFT JOIN {t} AS b ON a.id = b.id * 2 WHERE b.id < 10
SELECT a.id, b.id FROM {t} AS a FULL JOIN {t} AS b ON a.id = b.id + 20 WHERE a.id IS NULL OR b.part = 'a'
SELECT id FROM {t} WHERE id IN (SELECT id + 1 FROM {t} WHERE part = 'a')
SELECT id FROM {t} AS o WHERE NOT EXISTS (SELECT 1 FROM {t} AS i WHERE i.id = o.id + 1 AND o.id > 5)
SELECT id, (SELECT max(id) FROM {t} AS i WHERE i.part = o.part) AS most FROM {t} AS o
WITH t AS (SELECT id, part FROM {t} WHERE id > 10) SELECT t.part, count(*) FROM t GROUP BY t.part
WITH x AS (SELECT id FROM {t}), y AS (SELECT id FROM x WHERE id < 30) SELECT x.id FROM x JOIN y ON x.id = y.id
SELECT id, row_number() OVER (PARTITION BY part ORDER BY id) AS place FROM {t}
SELECT id, sum(id) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS three FROM {t}
SELECT id FROM {t} ORDER BY id DESC LIMIT 7
SELECT id FROM {t} ORDER BY id LIMIT 5 OFFSET 4
SELECT id FROM {t} WHERE part = 'a' UNION ALL SELECT id FROM {t} WHERE id < 10
SELECT id FROM {t} EXCEPT SELECT id FROM {t} WHERE part = 'b'
SELECT id FROM {t} INTERSECT SELECT id + 2 FROM {t}
SELECT upper(value) AS big, ID FROM {t} WHERE Id > 12
""".strip().splitlines()
#: Of columns that a shape has beside these. Spark finds no row of older files by a condition on a default of theirs.
OWN_SELECTS = {
    "defaulted": "SELECT id, c, price, s.a, s.d FROM {t} WHERE id > 3",
    "keyed-by-defaults": "SELECT id, c FROM {t} WHERE id < 50",
    "nested": "SELECT id, units, spot.x FROM {t} WHERE units > 10",
    "equality-parquet": """
SELECT id, region, code, day, price, note FROM {t}
SELECT note FROM {t} WHERE day >= DATE '2024-01-10' AND day < '2024-02-01'
SELECT region, count(*), count(code), sum(price) FROM {t} GROUP BY region
SELECT id FROM {t} WHERE code IS NULL OR price > 5
SELECT id FROM {t} WHERE region = 'north' AND code IN (1, 4, 7)
""",
    "mixed-parquet": """
SELECT id, category, label, units, amount, note FROM {t}
SELECT id FROM {t} WHERE category = 'alpha' AND units > 60
SELECT category, count(*), sum(amount) FROM {t} GROUP BY category
SELECT place.zip, id FROM {t} WHERE day > DATE '1970-01-01'
SELECT x.id FROM {t} AS x WHERE x.at < TIMESTAMP '1970-01-02 03:00:00'
""",
}


def selects_of(shape: Shape) -> list[str]:
    """Of a shape of format 3 every fifth statement of all, in turn."""
    own = OWN_SELECTS.get(shape.name, "").strip().splitlines()
    if shape.version < 3:
        return own
    return own + (SELECTS if shape.name == "three-kinds" else SELECTS[SHAPES.index(shape) % 5 :: 5])


@pytest.mark.parametrize(
    "shape", [one for one in SHAPES if one.is_read_by_spark and selects_of(one)], ids=lambda shape: shape.name
)
def test_statements_answer_what_spark_does(services: Services, shape: Shape) -> None:
    shape.make(services.spark, services.table)
    terminal, nothing = replace(services.world.services.terminal, terms=TERMS), {"statement_id": "", "caller": ""}
    for statement in selects_of(shape):
        text = statement.format(t=services.table)
        found = terminal.run(text, limit=0, require=lambda one: None, is_given_up=lambda: False, **nothing)
        expected = [tuple(None if value is None else str(value) for value in row) for row in services.sql(text)]
        assert Counter(found.rows) == Counter(expected), text


def test_a_spark_out_of_reach_is_an_error(services: Services) -> None:
    terminal = replace(services.world.services.terminal, terms=TERMS)
    with pytest.raises(WorkFailed, match="can't be reached"):
        terminal.run_on_spark("SELECT 1", limit=0, statement_id="", caller="", is_given_up=lambda: False)


ENDLESS = "SELECT count(*) FROM range(1000000000000000) WHERE hash(id) = id"


@contextmanager
def connect_server(catalog: SharedCatalog) -> Iterator[Any]:
    """Spark's service, on a port of its own; its sessions know the catalog."""
    jvm: Any = catalog.spark.sparkContext._jvm
    context = catalog.spark.sparkContext._jsc.sc()
    key = f"spark.sql.catalog.{catalog.name}"
    names = ("catalog-impl", "uri", "jdbc.schema-version", "warehouse", "cache-enabled")
    settings = {one: catalog.spark.conf.get(one) for one in (key, *(f"{key}.{name}" for name in names))}
    settings |= {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.execute.manager.detachedTimeout": "1d",  # nothing ends only because its client is gone
    }
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
