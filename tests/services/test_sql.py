"""The SQL terminal: what statements answer, what is refused, and what ends them."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)  # fmt: skip

from amoro_core.errors import (
    AmoroError,
    AttemptAbandoned,
    Conflict,
    IllegalState,
    InvalidArgument,
    NotAllowed,
    NotFound,
    WaitTimeout,
    WorkFailed,
)  # fmt: skip
from amoro_core.model.principals import Principal, Role
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import audit_pb2
from amoro_core.services.terminal import StatementResult, TerminalService, TerminalTerms
from tests.engine import oracle, writer, writer3
from tests.rpc.conftest import wait_until
from tests.services.world import World
from tests.tiers import count, sample, seeds

TERMS = TerminalTerms(True, 1 << 30, timedelta(seconds=60), 4, 1000, "")
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "part", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "ratio", DoubleType()),
    NestedField(6, "User", StringType()),
    NestedField(7, "s", StructType(NestedField(8, "a", LongType()), NestedField(9, "b", StringType()))),
    NestedField(10, "tags", ListType(11, StringType(), element_required=False)),
    NestedField(12, "units", IntegerType()),
)
ODD_NAMES = ("first", "current_date", "a b", 'c"d', "é", "select")
BY_DAY = PartitionSpec(PartitionField(3, 1000, DayTransform(), "day_day"))


def record(number: int, real: str = "ratio") -> dict[str, Any]:
    return {
        "id": number,
        "part": (None, "a", "b", "it's", "")[number % 5],
        "day": date(2024, 1, 1 + number % 3) if number % 7 else None,
        "at": datetime(2024, 1, 1 + number % 3, number % 24),
        real: (float("nan"), -0.0, 0.0, None, number / 8)[number % 5],
        "User": f"user{number % 4}",
        "s": {"a": number, "b": None} if number % 3 else None,
        "tags": ["x", None][: number % 3],
        "units": number % 6 or None,
    }


def make_tables(catalog: SqlCatalog) -> dict[str, Table]:
    """Position and equality deletes over two specs and an evolved schema; vectors; nothing."""
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_DAY)
    for first in range(0, 40, 10):
        writer.append(table, [record(first + one) for one in range(10)])
    writer.delete_where(table, lambda one: one["id"] % 10 == 3)
    writer.upsert(table, [{**record(number), "User": "new"} for number in (4, 14, 24)], ["id"])
    with table.update_spec() as spec:
        spec.add_field("part", IdentityTransform(), "part")
    with table.update_schema() as schema:
        schema.rename_column("ratio", "r")
        schema.update_column("units", LongType())
        schema.add_column("price", DecimalType(9, 2))
    writer.append(table, [{**record(number, "r"), "price": Decimal("2.50")} for number in range(30, 45)])
    writer.delete_where(table, lambda one: one["id"] in (31, 44))
    newer = writer.make_table(catalog, "db.v", SCHEMA, BY_DAY, 3)
    writer.append(newer, [record(number) for number in range(0, 60, 2)], 2)
    writer3.delete_rows(newer, lambda one: one["id"] % 8 == 0)
    odd = writer.make_table(
        catalog, "db.odd one", Schema(*(NestedField(at, name, StringType()) for at, name in enumerate(ODD_NAMES, 1)))
    )
    writer.append(odd, [dict.fromkeys(ODD_NAMES, f"of {number}") for number in range(3)])
    return {"t": table, "v": newer, "empty": writer.make_table(catalog, "db.empty", SCHEMA), '"odd one"': odd}


@pytest.fixture
def peer(catalog: SqlCatalog) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the rows that the slow reader finds, under the tables' names."""
    with duckdb.connect() as db:
        db.execute("ATTACH ':memory:' AS cat; CREATE SCHEMA cat.db; SET TimeZone = 'UTC'")
        for name, table in make_tables(catalog).items():
            rows = [dict(one.record) for one in oracle.live_rows_with_positions(table)]
            db.register("given", pa.Table.from_pylist(rows, schema_to_pyarrow(table.refresh().schema())))
            db.execute(f"CREATE TABLE cat.db.{name} AS FROM given")
            db.unregister("given")
        yield db


@pytest.fixture
def run(world: World) -> Callable[..., StatementResult]:
    """Answers a statement."""
    return answering(replace(world.services.terminal, terms=TERMS))


def answering(terminal: TerminalService) -> Callable[..., StatementResult]:
    def answer(text: str, limit: int = 0, is_given_up: Callable[[], bool] = lambda: False) -> StatementResult:
        return terminal.run(
            text, limit=limit, statement_id="one", caller="ann", require=lambda table: None, is_given_up=is_given_up
        )

    return answer


SELECTS = """
SELECT * FROM cat.db.t
FROM cat.db.v
SELECT count(*), count(s), count(DISTINCT part) FROM cat.db.v WHERE day = '2024-01-02'
SELECT #2, #1 FROM cat.db.t
SELECT t FROM cat.db.t
SELECT b, a FROM cat.db.t AS q(a, b)
SELECT id + 1 AS units FROM cat.db.t WHERE units > 3
SELECT id % 4 AS many FROM cat.db.t WHERE many = 2
SELECT "USER", ID FROM cat.db.t WHERE "Day" >= '2024-01-02' AND part IN ('a', 'it''s')
SELECT COLUMNS('u.*') FROM cat.db.t
SELECT * EXCLUDE (s, tags) REPLACE (id * 2 AS id) FROM cat.db.t WHERE id > 30
SELECT t.*, v.r2 FROM cat.db.t JOIN (SELECT id, ratio AS r2 FROM cat.db.v) AS v USING (id)
SELECT * FROM cat.db.t NATURAL JOIN cat.db.v
SELECT a.id, b.id FROM cat.db.t a LEFT JOIN cat.db.v b ON a.id = b.id AND b.id > 20 WHERE a.id < 30
SELECT a.id, b.id FROM cat.db.t a RIGHT JOIN cat.db.v b ON a.id = b.id WHERE b.day = '2024-01-02'
SELECT a.id, b.id, id FROM cat.db.t a FULL JOIN cat.db.v b USING (id) WHERE a.id < 20 AND b.id > 5
SELECT id FROM cat.db.t ANTI JOIN cat.db.v USING (id) WHERE t.id > 5
SELECT a.id, b.id FROM cat.db.t a ASOF JOIN cat.db.v b ON a.id >= b.id WHERE b.id > 10
SELECT t.id, v.id FROM cat.db.t, cat.db.v WHERE t.id = v.id AND v.part = 'a' AND t.day < '2024-01-03'
WITH t AS (SELECT 7 AS id) SELECT t.id, x.part FROM t JOIN cat.db.t AS x ON x.id > t.id
WITH table_0 AS (SELECT 1 AS id) SELECT id FROM cat.db.t UNION ALL SELECT id FROM table_0
SELECT id FROM cat.db.t AS o WHERE EXISTS (SELECT 1 FROM cat.db.v AS i WHERE i.id = o.id AND o.id > 8)
SELECT id, (SELECT max(id) FROM cat.db.v WHERE part = t.part) AS most FROM cat.db.t
SELECT part, sum(id), max("at") FROM cat.db.t GROUP BY ALL HAVING sum(id) > 9
SELECT id, row_number() OVER (PARTITION BY part ORDER BY id) FROM cat.db.t QUALIFY row_number() OVER (ORDER BY id) > 3
SELECT id FROM cat.db.v UNION SELECT units FROM cat.db.t EXCEPT SELECT id FROM cat.db.v WHERE id < 10
SELECT r FROM cat.db.t WHERE r = 0 OR r = 'nan'::DOUBLE
SELECT id FROM cat.db.t WHERE "at" >= TIMESTAMP '2024-01-02 05:00:00' AND 30 > id
SELECT price, s.a, s['b'], tags[1] FROM cat.db.t WHERE units IN (1, 2) AND NOT (part = 'a')
SELECT current_date FROM cat.db."odd one"
SELECT "a b", é, "c""d" FROM cat.db."odd one" WHERE "Select" > 'of 0' AND first <> 'of 2'
SELECT x FROM cat.db.t, unnest(tags) AS u(x) WHERE x = 'x'
SELECT * FROM cat.db.v PIVOT (count(id) FOR part IN ('a', 'b') GROUP BY day)
SELECT n, v FROM (UNPIVOT (SELECT id, units FROM cat.db.t) ON id, units INTO NAME n VALUE v)
SELECT * FROM cat.db.empty
SELECT list_transform([1, 2], lambda units: units + 1) AS two, id FROM cat.db.v
SELECT id FROM cat.db.t -- ; DROP TABLE x
SELECT 'FROM cat.db.t', id /* cat.db.v */ FROM cat.db.t;
"""
COLUMNS = ("id", "part", "day", '"at"', '"User"', "units", "s.a", "tags", "count(*) OVER (PARTITION BY part)")
CONDITIONS = (
    "{0}.id {1} {2}", "{2} {1} {0}.id", "{0}.units {1} {3}", "{0}.part {1} 'a'", "{0}.part IN ('b', 'it''s')",
    "{0}.day {1} '2024-01-02'", "{0}.day BETWEEN '2024-01-01' AND DATE '2024-01-02'", "{0}.id BETWEEN {3} AND {2}",
    "{0}.\"at\" {1} TIMESTAMP '2024-01-02 11:00:00'", "{0}.part IS NULL", "NOT {0}.id {1} {2}",
    "{0}.\"User\" {1} 'user2'",
    "({0}.id {1} {2} OR {0}.part = 'a')", "{0}.s.a {1} {2}", "{0}.id {1} {2}.5",
)  # fmt: skip


def a_select(chance: random.Random) -> str:
    """A SELECT of one table or of two."""

    def condition(table: str) -> str:
        word, numbers = chance.choice(("=", "<", "<=", ">", ">=", "<>")), (chance.randrange(50), chance.randrange(8))
        return chance.choice(CONDITIONS).format(table, word, *numbers)

    first, second = chance.choices(("t", "v", "empty"), (4, 4, 1), k=2)
    sides, where = ["a"], [condition("a") for _ in range(chance.randrange(4))]
    source = f"cat.db.{first} AS a"
    if chance.random() < 0.5:
        kind = chance.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        source += f" {kind} cat.db.{second} AS b ON a.id = b.id AND {condition(chance.choice('ab'))}"
        sides, where = ["a", "b"], [*where, *(condition("b") for _ in range(chance.randrange(3)))]
    columns = [f"{chance.choice(sides)}.{chance.choice(COLUMNS[:-1])}" for _ in range(chance.randrange(1, 4))]
    return f"SELECT {', '.join(columns)} FROM {source}" + (f" WHERE {' AND '.join(where)}" if where else "")


def test_statements_answer_what_duckdb_does_over_the_rows_of_the_slow_reader(
    run: Callable[..., StatementResult], peer: duckdb.DuckDBPyConnection, catalog: SqlCatalog
) -> None:
    chance = random.Random(seeds(1, 1)[0])
    statements = [*sample(SELECTS.strip().splitlines(), every=6), *(a_select(chance) for _ in range(count(4, 60)))]
    for text in statements:
        expected = peer.sql(text.replace(";", "", 1) if text.endswith(";") else text)
        texts = expected.project(", ".join(f"#{at}::VARCHAR" for at in range(1, len(expected.columns) + 1)))
        found = run(text)
        assert [name for name, _ in found.columns] == expected.columns, text
        assert [kind for _, kind in found.columns] == [str(kind) for kind in expected.types], text
        assert Counter(found.rows) == Counter(texts.fetchall()), text
    folded = Schema(NestedField(1, "a", LongType()), NestedField(2, "A", LongType()))
    writer.append(writer.make_table(catalog, "db.folded", folded), [{"a": 1, "A": 2}])
    with pytest.raises(InvalidArgument, match="differ only in their case"):
        run("SELECT a FROM cat.db.folded")
    every = Counter(run("SELECT id, part FROM cat.db.t").rows)
    for text, rows in (("LIMIT 7", 7), ("LIMIT 7 OFFSET 5", 7), ("LIMIT 25%", every.total() // 4), ("LIMIT 0", 0)):
        some = run(f"SELECT id, part FROM cat.db.t {text}")
        assert (len(some.rows), some.is_cut) == (rows, False), text
        assert Counter(some.rows) <= every
    cut = run("SELECT id, part FROM cat.db.t", limit=4)
    assert (len(cut.rows), cut.is_cut) == (4, True)
    assert run("DESCRIBE cat.db.v").rows[:2] == (("id", "long", "yes", None), ("part", "string", "yes", None))
    for file in oracle.live_files(catalog.load_table("db.v")):
        Path(file.path.removeprefix("file://")).unlink(missing_ok=True)
    with pytest.raises(WorkFailed, match=r"parquet does not exist$"):
        run("SELECT id FROM cat.db.v WHERE id > 3")


ESCAPES = r"""
SELECT * FROM '{file}'
SELECT * FROM "{file}"
SELECT * FROM read_parquet(['{file}'])
SELECT * FROM glob('{home}/*')
SELECT * FROM read_text('{file}')
SELECT * FROM query('SELECT * FROM ''{file}''')
SELECT * FROM (WITH "{file}" AS (SELECT 1) SELECT 1), "{file}"
SELECT * FROM sqlite_scan('{home}/amoro.db', 'token')
SELECT * FROM cat.db.t, read_csv('{file}')
SELECT (SELECT count(*) FROM read_csv('{file}')) FROM cat.db.t
SELECT * FROM cat.db.t WHERE id IN (SELECT id FROM other.db.t)
SELECT * FROM duckdb_settings()
SELECT * FROM information_schema.tables
WITH x AS (INSERT INTO cat.db.t VALUES (1) RETURNING *) SELECT * FROM x
SELECT id INTO copied FROM cat.db.t
SELECT 1; DROP TABLE cat.db.t
SELECT 1 --\n; DROP TABLE cat.db.t
/* SELECT 1 */ DROP TABLE cat.db.t
DELETE FROM cat.db.t
INSERT INTO cat.db.t SELECT * FROM cat.db.t
MERGE INTO cat.db.t USING cat.db.v ON t.id = v.id WHEN MATCHED THEN DELETE
CREATE TABLE x AS SELECT * FROM cat.db.t
ALTER TABLE cat.db.t DROP COLUMN id
ATTACH '{home}/new.db' AS new
COPY cat.db.t TO '{home}/out.csv'
EXPORT DATABASE '{home}'
SET enable_external_access = true
INSTALL httpfs
CALL pragma_version()
EXPLAIN ANALYZE SELECT 1
SUMMARIZE cat.db.t
SELECT column_name FROM (DESCRIBE cat.db.t)
VALUES (1)
SHOW TABLES
SELECT getenv('HOME')
SELECT * FROM
SELECT ((((
SELECT $1
"""


def test_what_is_no_select_on_tables_is_refused_and_changes_nothing(
    run: Callable[..., StatementResult], catalog: SqlCatalog, tmp_path: Path
) -> None:
    tables, home = make_tables(catalog), tmp_path / "home"
    (secret := tmp_path / "secret.csv").write_text("a\n5\n")
    before = sorted(path for path in tmp_path.rglob("*") if path.parent != home)
    heads = {name: table.refresh().metadata_location for name, table in tables.items()}
    statements = [text.format(file=secret, home=tmp_path) for text in ESCAPES.strip().splitlines()]
    for text in (*statements, "", ";", "SELECT " + "(" * 5000, "SELECT 1" + " " * 100_000):
        with pytest.raises(AmoroError) as refused:
            print(text[:100], run(text.replace("\\n", "\n")))
        assert isinstance(refused.value, InvalidArgument | NotFound), (text, refused.value)
    assert sorted(path for path in tmp_path.rglob("*") if path.parent != home) == before
    assert {name: table.refresh().metadata_location for name, table in tables.items()} == heads


ENDLESS = "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"


def test_statements_end_at_their_limits_and_when_they_are_cancelled(world: World) -> None:
    terminal = replace(world.services.terminal, terms=replace(TERMS, max_sessions=1))
    run = answering(terminal)
    assert run("SELECT 1").rows == (("1",),)
    small = answering(replace(terminal, terms=replace(TERMS, memory_bytes=400 << 20)))
    for text in (
        "SELECT string_agg(x::VARCHAR || repeat('y', 1000), ',') FROM (SELECT unnest(range(10000000)) AS x)",
        "SELECT max(len(s)) FROM (SELECT list(a.x * b.x) AS s FROM (SELECT unnest(range(100000)) AS x) AS a, "
        "(SELECT unnest(range(100000)) AS x) AS b GROUP BY a.x)",
        "SELECT repeat('x', 2000000000)",
    ):
        with pytest.raises(WorkFailed, match=r"more memory than terminal\.memory allows"):
            small(text)
    with pytest.raises(WaitTimeout, match=r"within 0\.5 s, the time of terminal\.timeout"):
        answering(replace(terminal, terms=replace(TERMS, timeout=timedelta(seconds=0.5))))(ENDLESS)
    with ThreadPoolExecutor(1) as pool:
        seen = threading.Event()

        def is_given_up() -> bool:
            seen.set()
            return False

        running = pool.submit(run, ENDLESS, is_given_up=is_given_up)
        assert seen.wait(60)
        with pytest.raises(Conflict, match="1 statements run already"):
            run("SELECT 1")
        assert not terminal.cancel("one", "eve", whoever=False)
        assert not terminal.cancel("two", "ann", whoever=True)
        began = time.monotonic()
        assert terminal.cancel("one", "ann", whoever=False)
        with pytest.raises(AttemptAbandoned):
            running.result()
        assert time.monotonic() - began < 2
    assert run("SELECT 1").rows == (("1",),)  # its place is free
    with pytest.raises(IllegalState, match="the SQL terminal is off"):
        answering(world.services.terminal)("SELECT 1")


COORDINATOR = """
import sys
from datetime import timedelta
from amoro_core.services.terminal import TerminalService, TerminalTerms
terms = TerminalTerms(True, 1 << 30, timedelta(seconds=300), 1, 10, "")
TerminalService(None, None, terms, None, None).run(
    sys.argv[1], limit=0, statement_id="", caller="", require=print, is_given_up=lambda: False
)
"""


def test_a_statement_ends_with_its_coordinator() -> None:
    with subprocess.Popen([sys.executable, "-c", COORDINATOR, ENDLESS]) as process:
        own = psutil.Process(process.pid)
        try:
            wait_until(lambda: any(one.nice() == 10 for one in own.children(recursive=True)))
            children = own.children(recursive=True)
        finally:
            process.kill()
    assert psutil.wait_procs(children, timeout=10)[1] == []


def test_operators_query_tables_of_their_pattern_and_the_audit_has_the_statement(world: World) -> None:
    make_tables(world.catalog)
    world.services.terminal.terms = TERMS
    operator, boss = Principal("op", Role.OPERATOR, "cat.db.t"), Principal("boss", Role.ADMIN)
    text = f"SELECT count(*) FROM cat.db.t /* {'x' * 3900} */"

    def call(method: str, request: Message, by: Principal) -> Any:
        with ThreadPoolExecutor(2) as pool:
            return asyncio.run(world.services.operations(pool).call(method, request, by))

    def ask(statement: str, by: Principal, engine: str = "") -> pb.StatementResult:
        answer: pb.StatementResult = call(
            "RunStatement", pb.RunStatementRequest(statement=statement, engine=engine), by
        )
        return answer

    for by in (operator, boss):
        assert ask(text, by).rows[0].values[0].text == "48"
    for beyond in (
        "SELECT * FROM cat.db.v",
        "SELECT id FROM cat.db.t WHERE id IN (SELECT id FROM cat.db.v)",
        "WITH x AS (SELECT id FROM cat.db.v) SELECT * FROM x",
        "DESCRIBE cat.db.v",
    ):
        with pytest.raises(NotAllowed):
            ask(beyond, operator)
    for by, engine in ((Principal("eve", Role.VIEWER), ""), (operator, "spark")):
        with pytest.raises(NotAllowed):
            ask(text, by, engine)
    with pytest.raises(IllegalState, match="no Spark Connect server is configured"):
        ask(text, boss, "spark")
    with pytest.raises(InvalidArgument, match="'trino' is no engine"):
        ask(text, operator, "trino")
    cancelled = call("CancelStatement", pb.CancelStatementRequest(statement_id="none"), operator)
    assert not cancelled.cancelled
    kept = call("ListAudit", audit_pb2.ListAuditRequest(), boss).events
    assert (kept[-1].parameters["statement"], kept[-1].actor, kept[-1].outcome) == (text, "op", "done")
    assert [one.operation for one in kept] == ["RunStatement"] * 10
