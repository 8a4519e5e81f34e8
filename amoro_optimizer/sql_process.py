"""The process of one SQL statement: reads the rows that it needs, and answers it by DuckDB or by a Spark server.

DuckDB reaches no file, no network and no other setting; the files of tables are read as optimizers read them. The
process ends with its parent, whatever it is doing.
"""

import json
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import dataset

from amoro_core.errors import AmoroError, InvalidArgument, TableRefused, WorkFailed
from amoro_core.files.schema.schemas import FIELD_ID, arrow_schema, parse_rows_schema
from amoro_core.protocol import codec, rewrite_pb2
from amoro_optimizer.execution import access_for
from amoro_optimizer.rewrite.engine import live_batches

BEYOND_MEMORY = "the statement needs more memory than terminal.memory allows"
NARROWER = "Name fewer columns and narrower conditions, or raise terminal.memory."
#: No file, no network, no extension, no object of this program; locked before the statement.
_SETTINGS = """
SET temp_directory = ''; SET memory_limit = '{bytes}B'; SET threads = 1; SET TimeZone = 'UTC';
SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;
SET python_enable_replacements = false; SET enable_external_access = false; SET enable_progress_bar = false
"""
_NICENESS = 10  # optimizers' calls go before statements
_CONNECT_PORT, _CONNECT_S = 15002, 10
#: Bytes of a result, as text; the rest is cut.
MOST_RESULT_BYTES = 8 * 1024 * 1024

Json = dict[str, Any]


def answer_statement(answers: Connection, request: Json) -> None:
    """Send the answer of the statement; the process ends with its parent."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(_NICENESS)
    try:
        answer = _by_spark(request) if request["spark"] else _by_duckdb(request)
    except AmoroError as error:
        reason = error.reason if isinstance(error, TableRefused) else ""
        answer = {"code": error.code, "message": error.message, "hint": error.hint, "reason": reason}
    answers.send_bytes(json.dumps(answer).encode())


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _by_duckdb(request: Json) -> Json:
    import duckdb

    memory = request["memory_bytes"]
    tables = {table["local"]: _LiveRows(table, memory // 2) for table in request["tables"]}
    with duckdb.connect(":memory:") as db:
        try:
            db.execute(_SETTINGS.format(bytes=memory // 2))
            for name, rows in tables.items():
                db.register(name, rows)
            db.execute("SET lock_configuration = true")
            statements = db.extract_statements(request["sql"])
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise InvalidArgument("DuckDB does not take it for one SELECT")
            relation = db.sql(request["sql"])
            texts = ", ".join(f"#{number}::VARCHAR" for number in range(1, len(relation.columns) + 1))
            columns = list(zip(relation.columns, map(str, relation.types), strict=True))
            return _answer(columns, relation.limit(request["limit"] + 1).project(texts).fetchall(), request["limit"])
        except duckdb.OutOfMemoryException as error:
            raise WorkFailed(BEYOND_MEMORY, hint=NARROWER) from error
        except duckdb.Error as error:
            for rows in tables.values():
                if rows.error is not None:
                    raise rows.error from error
            raise InvalidArgument(f"DuckDB refuses the statement: {error}") from error


class _LiveRows(dataset.InMemoryDataset):  # type: ignore[misc]  # pyarrow has no stubs
    """A table's live rows; DuckDB asks for the columns and rows that it needs, each time it reads the table.

    DuckDB knows a dataset by Arrow's class, and calls `scanner` alone.
    `error` is what ended a reading: of that DuckDB passes on a text alone.
    """

    def __init__(self, table: Json, memory_bytes: int) -> None:
        fields = arrow_schema(parse_rows_schema(table["schema"]))
        self._ids = {table["names"][number]: number for number in (int(field.metadata[FIELD_ID]) for field in fields)}
        self._table, self._memory_bytes = table, memory_bytes
        self.error: AmoroError | None = None
        named = [field.with_name(name) for field, name in zip(fields, self._ids, strict=True)]
        super().__init__(pa.schema(named).empty_table())

    def scanner(self, columns: Sequence[str] | None = None, filter: dataset.Expression | None = None) -> Any:
        """The rows that fulfil the filter, without the columns that neither it nor DuckDB names; nothing is read
        before it is asked for, which a scanner of Arrow's would do."""
        names, text = columns or self.schema.names, str(filter)
        read = pa.schema([field for field in self.schema if field.name in names or field.name in text])
        tables = (table if filter is None else table.filter(filter) for table in self._tables(read))
        batches = (batch for table in tables for batch in table.select(names).to_batches())
        schema = pa.schema([self.schema.field(name) for name in names])
        return SimpleNamespace(to_reader=lambda: pa.RecordBatchReader.from_batches(schema, batches))

    def _tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        try:
            yield from self._read(schema)
        except AmoroError as error:
            self.error = error
            raise

    def _read(self, schema: pa.Schema) -> Iterator[pa.Table]:
        for payload in self._table["works"]:
            work = codec.decode_input(rewrite_pb2.RewriteInput.FromString(payload))
            for batch in live_batches(
                work,
                access_for(work, self._table["io"]),
                memory_limit_bytes=self._memory_bytes,
                is_cancelled=lambda: False,
                columns=frozenset(self._ids[name] for name in schema.names),
            ):
                yield pa.table(batch.columns, schema=schema)


def _by_spark(request: Json) -> Json:
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        _require_listening(request["spark"])
        with _interruptible(SparkSession.builder.remote(request["spark"]).getOrCreate()) as session:
            frame = session.sql(request["sql"])
            columns = [(field.name, field.dataType.simpleString()) for field in frame.schema]
            numbered = frame.limit(request["limit"] + 1).toDF(*map(str, range(len(columns))))
            texts = numbered.selectExpr(*(f"CAST(`{at}` AS STRING)" for at in range(len(columns))))
            return _answer(columns, texts.collect(), request["limit"])
    except ImportError as error:  # also PySpark's own, of a package that it lacks
        raise InvalidArgument(
            f"Spark Connect is not installed here: {error}", hint="Install pyspark[connect] of the server's version."
        ) from error
    except PySparkException as error:
        reason = str(error).split("JVM stacktrace:")[0].strip()
        raise WorkFailed(f"Spark refuses the statement: {reason}") from error


@contextmanager
def _interruptible(session: Any) -> Iterator[Any]:
    """The session, which ends with the block or by SIGTERM: Spark goes on with what a killed client has asked for."""
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=_interrupt, args=(session,)).start())
    try:
        yield session
    finally:
        session.stop()


def _require_listening(address: str) -> None:
    """Raise WorkFailed where nothing listens: Spark's client would try again for ten minutes."""
    server = urlsplit(address)
    try:
        socket.create_connection((server.hostname, server.port or _CONNECT_PORT), _CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise WorkFailed(f"the Spark Connect server {server.hostname} can't be reached: {error}") from error


def _interrupt(session: Any) -> None:
    try:
        session.interruptAll()
        session.stop()
    finally:
        os._exit(1)


def _answer(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str | None]], limit: int) -> Json:
    """The first of the rows that were found, up to the limit and to MOST_RESULT_BYTES."""
    lines: list[Sequence[str | None]] = []
    room = MOST_RESULT_BYTES
    for row in rows[:limit]:
        room -= sum(8 + len((text or "").encode()) for text in row)
        if room < 0:
            break
        lines.append(tuple(row))
    return {"columns": tuple(columns), "rows": tuple(lines), "is_cut": len(lines) < len(rows)}
