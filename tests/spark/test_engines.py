"""Spark, pyiceberg and DuckDB write one another's tables in a catalog of our own, while an optimizer rewrites them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table
from pyiceberg.types import IntegerType
from pyspark.sql import SparkSession

from tests.acceptance.conftest import installed
from tests.acceptance.processes import STEADY, address_of, free_port, wait_until

from .java import load_java_table, read_by_java
from .session import ROOT, conversation, require, set_in_spark
from .tables import MODES

DUCKDB = ROOT / "build" / "duckdb"
EAGER = (
    "table.self-optimizing.enabled=true",
    "table.self-optimizing.minor.trigger.file-count=2",
    "table.self-optimizing.min-plan-interval=0",
)
ROUNDS, ATTEMPTS = 2, 100
#: What engines say of it.
OTHERS_WERE_FIRST = re.compile("ValidationException|CommitFailed|concurrently modified|Requirement failed")
NAMES = ("spark", "pyiceberg", "duckdb")
Rows = dict[int, dict[str, Any]]


def values(rows: Mapping[int, str]) -> str:
    return ", ".join(f"({number}, '{text}')" for number, text in rows.items())


class BySql:
    """An engine to which all is SQL; `run` gives the names of columns, and then the rows."""

    def __init__(self, run: Callable[[str], list[Any]], created: str = "") -> None:
        self._run, self._created = run, created

    def create(self, table: str) -> None:
        self._run(f"CREATE TABLE {table} (id BIGINT, v STRING) {self._created}")

    def append(self, table: str, rows: Mapping[int, str]) -> None:
        columns = self._run(f"SELECT * FROM {table} LIMIT 0")[0]  # Spark wants a value for each
        nulls = "".join(", NULL" for _ in columns[2:])
        self._run(f"INSERT INTO {table} SELECT id, v{nulls} FROM (VALUES {values(rows)}) AS g(id, v)")

    def merge(self, table: str, rows: Mapping[int, str]) -> None:
        self._run(
            f"MERGE INTO {table} AS t USING (SELECT * FROM (VALUES {values(rows)}) AS g(id, v)) AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
        )

    def delete(self, table: str, number: int) -> None:
        self._run(f"DELETE FROM {table} WHERE id = {number}")

    def add_column(self, table: str, name: str) -> None:
        self._run(f"ALTER TABLE {table} ADD COLUMN {name} INT")

    def rows(self, table: str) -> Rows:
        columns, *rows = self._run(f"SELECT * FROM {table}")
        return _by_id([dict(zip(columns, row, strict=True)) for row in rows])


class ByPyiceberg:
    """pyiceberg, by Arrow's tables."""

    def __init__(self, catalog: RestCatalog) -> None:
        self._catalog = catalog

    def _load(self, table: str) -> Table:
        return self._catalog.load_table(table.removeprefix("lake."))

    def create(self, table: str) -> None:
        self._catalog.create_table(table.removeprefix("lake."), pa.schema({"id": pa.int64(), "v": pa.string()}))

    def append(self, table: str, rows: Mapping[int, str]) -> None:
        loaded = self._load(table)
        loaded.append(_all_columns(loaded, rows))

    def merge(self, table: str, rows: Mapping[int, str]) -> None:
        loaded = self._load(table)
        loaded.upsert(_all_columns(loaded, rows), join_cols=["id"])

    def delete(self, table: str, number: int) -> None:
        self._load(table).delete(f"id = {number}")

    def add_column(self, table: str, name: str) -> None:
        with self._load(table).update_schema() as update:
            update.add_column(name, IntegerType())

    def rows(self, table: str) -> Rows:
        return _by_id(self._load(table).scan().to_arrow().to_pylist())


def _by_id(rows: list[dict[str, Any]]) -> Rows:
    found = {one["id"]: one for one in rows}
    assert len(found) == len(rows)
    return found


def _all_columns(table: Table, rows: Mapping[int, str]) -> pa.Table:
    """Rows whose further columns are null."""
    return pa.Table.from_pylist([{"id": number, "v": text} for number, text in rows.items()], table.schema().as_arrow())


@contextmanager
def duckdb_on(log: Path, address: str, token: str) -> Iterator[BySql]:
    driver = Path(__file__).with_name("duckdb_driver.py")
    with conversation(log, sys.executable, driver, DUCKDB, address, token) as ask:

        def run(statement: str) -> list[Any]:
            answer = json.loads(ask(json.dumps(statement)))
            if isinstance(answer, str):
                raise RuntimeError(answer)
            return list(answer)

        yield BySql(run)


def spark_on(spark: SparkSession, address: str, token: str) -> BySql:
    set_in_spark(spark, "lake", {"type": "rest", "uri": address, "warehouse": "lake", "token": token})

    def run(statement: str) -> list[Any]:
        frame = spark.sql(statement)
        return [frame.columns, *map(tuple, frame.collect())]

    return BySql(run, f"USING iceberg TBLPROPERTIES ({MODES})")


def persist(change: Callable[..., None], *what: Any) -> None:
    """Make the change again where others were first, as users do."""
    for _ in range(ATTEMPTS):
        try:
            return change(*what)
        except Exception as error:  # each engine has its own
            if not OTHERS_WERE_FIRST.search(f"{type(error).__name__}: {error}"):
                raise
    raise AssertionError(f"{ATTEMPTS} attempts in vain: {what}")


def play(engine: BySql | ByPyiceberg, place: int, turn: int) -> None:
    """The engine's turn on each table: rows of its own, so that the result is the same in any order."""
    first = 1000 * turn + 100 * place
    for name in NAMES:
        table = f"lake.db.{name}"
        persist(engine.append, table, {first + at: "new" for at in range(4)})
        persist(engine.merge, table, {first + 1: "merged", first + 7: "added"})
        persist(engine.delete, table, first + 2)


@pytest.mark.filterwarnings("ignore:Merge on read is not yet supported:UserWarning")  # pyiceberg copies files
def test_engines_write_one_anothers_tables_while_an_optimizer_rewrites_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    require([] if DUCKDB.exists() else ["DuckDB in build/duckdb"])
    (tmp_path / "site").mkdir()
    with installed(tmp_path / "site", STEADY) as site:
        port = free_port()
        address = f"http://127.0.0.1:{port}/iceberg"
        coordinator = site.start("up", "--port", "0", "--without-optimizer", environment={"AMORO_HTTP_PORT": str(port)})
        site.optimizer(address_of(coordinator))
        (tmp_path / "lake").mkdir()
        for words in (
            ("catalog", "add", "lake", "type=internal", f"warehouse=file://{tmp_path}/lake", *EAGER),
            ("namespace", "create", "lake.db"),
            ("token", "create", "engines", "--role", "operator", "--on", "lake.**", "-o", "name"),
        ):
            outcome = site.run(*words)
            assert outcome.status == 0, outcome.stderr
        token = outcome.stdout.strip()
        with (
            closing(RestCatalog("lake", uri=address, warehouse="lake", token=token)) as catalog,
            duckdb_on(tmp_path / "duckdb.log", address, token) as duckdb,
            ThreadPoolExecutor(len(NAMES)) as pool,
        ):
            engines = (spark_on(spark, address, token), ByPyiceberg(catalog), duckdb)
            for name, engine in zip(NAMES, engines, strict=True):
                engine.create(f"lake.db.{name}")

            def optimized(name: str) -> list[bool]:
                snapshots = catalog.load_table(f"db.{name}").snapshots()
                ordered = sorted(snapshots, key=lambda one: one.sequence_number)
                return ["amoro.process-id" in one.summary.additional_properties for one in ordered]

            for turn in range(ROUNDS):
                before = [sum(optimized(name)) for name in NAMES]
                list(pool.map(play, engines, range(len(NAMES)), [turn] * len(NAMES)))
                for at, engine in enumerate(engines) if turn == 0 else ():  # another's table
                    persist(engine.add_column, f"lake.db.{NAMES[at - 1]}", f"of_{NAMES[at]}")
                for name, count in zip(NAMES, before, strict=True):
                    wait_until(lambda: sum(optimized(name)) > count, f"the table of {name} is optimized")  # noqa: B023
            firsts = [1000 * turn + 100 * place for turn in range(ROUNDS) for place in range(len(NAMES))]
            kept = {0: "new", 1: "merged", 3: "new", 7: "added"}
            wanted = {first + at: text for first in firsts for at, text in kept.items()}
            for at, name in enumerate(NAMES):
                table, added = f"lake.db.{name}", f"of_{NAMES[(at + 1) % len(NAMES)]}"
                expected = {number: {"id": number, "v": text, added: None} for number, text in wanted.items()}
                for engine in engines:
                    assert engine.rows(table) == expected
                java = load_java_table(spark, table)
                by_java = {number: plain for number, (plain, _, _) in read_by_java(java).items()}
                assert by_java == {n: tuple(map(repr, one.values())) for n, one in expected.items()}
                who = optimized(name)
                between = who[who.index(False) : len(who) - who[::-1].index(False)]
                assert any(between), "no commit of optimizing lies between those of the engines"
