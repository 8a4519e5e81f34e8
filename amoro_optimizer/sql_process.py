"""The process of one SQL statement: reads the rows that it needs, and answers it by DuckDB or by a Spark server.

DuckDB reaches no file, no network and no other setting; the files of tables are read as optimizers read them. The
process ends with its parent, whatever it is doing.
"""

import json
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from amoro_core.errors import AmoroError, InvalidArgument, TableRefused, WorkFailed
from amoro_core.files.schema.schemas import FIELD_ID, arrow_schema, parse_rows_schema
from amoro_core.protocol import codec, rewrite_pb2
from amoro_optimizer.execution import access_for
from amoro_optimizer.rewrite.engine import live_batches

BEYOND_MEMORY = "the statement needs more memory than terminal.memory allows"
NARROWER = "Name fewer columns and narrower conditions, or raise terminal.memory."
_SOURCE = "rows_of_a_table"
#: No file, no network, no extension, no object of this program; locked before the statement.
_SETTINGS = """
SET temp_directory = ''; SET memory_limit = '{bytes}B'; SET threads = 1; SET TimeZone = 'UTC';
SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;
SET python_enable_replacements = false; SET enable_external_access = false
"""
_NICENESS = 10  # optimizers' calls go before statements
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
    with duckdb.connect(":memory:") as db:
        try:
            db.execute(_SETTINGS.format(bytes=memory // 2))
            for table in request["tables"]:
                rows = pa.RecordBatchReader.from_batches(_schema(table), _batches(table, memory // 2))
                db.register(_SOURCE, rows)
                db.execute(f"CREATE TABLE {table['local']} AS FROM {_SOURCE}")
                db.unregister(_SOURCE)
            db.execute("SET lock_configuration = true")
            statements = db.extract_statements(request["sql"])
            if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
                raise InvalidArgument("DuckDB does not take it for one SELECT")
            found = db.sql(request["sql"])
            texts = ", ".join(f"#{number}::VARCHAR" for number in range(1, len(found.columns) + 1))
            columns = list(zip(found.columns, map(str, found.types), strict=True))
            return _answer(columns, found.limit(request["limit"] + 1).project(texts).fetchall(), request["limit"])
        except duckdb.OutOfMemoryException as error:
            raise WorkFailed(BEYOND_MEMORY, hint=NARROWER) from error
        except duckdb.Error as error:
            raise InvalidArgument(f"DuckDB refuses the statement: {error}") from error


def _schema(table: Json) -> pa.Schema:
    """The columns that are read, under the table's names."""
    chosen, schema = table["columns"], arrow_schema(parse_rows_schema(table["schema"]))
    fields = [field for field in schema if _id(field) in chosen]
    return pa.schema([field.with_name(table["names"][_id(field)]) for field in fields])


def _id(field: pa.Field) -> int:
    return int(field.metadata[FIELD_ID])


def _batches(table: Json, memory_bytes: int) -> Iterator[pa.RecordBatch]:
    schema, columns, left = _schema(table), table["columns"], table["most_rows"]
    for payload in table["works"]:
        work = codec.decode_input(rewrite_pb2.RewriteInput.FromString(payload))
        for batch in live_batches(
            work,
            access_for(work, table["io"]),
            memory_limit_bytes=memory_bytes,
            is_cancelled=lambda: False,
            columns=frozenset(columns),
        ):
            yield pa.record_batch(batch.columns, schema=schema)
            if left is not None and (left := left - batch.num_rows) <= 0:
                return


def _by_spark(request: Json) -> Json:
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidArgument(f"Spark Connect is not installed here: {error}", hint="Install amoro[spark].") from error
    try:
        frame = SparkSession.builder.remote(request["spark"]).getOrCreate().sql(request["sql"])
        columns = [(field.name, field.dataType.simpleString()) for field in frame.schema]
        numbered = frame.limit(request["limit"] + 1).toDF(*map(str, range(len(columns))))
        texts = numbered.selectExpr(*(f"CAST(`{at}` AS STRING)" for at in range(len(columns))))
        return _answer(columns, texts.collect(), request["limit"])
    except PySparkException as error:
        raise WorkFailed(f"Spark refuses the statement: {error}") from error


def _answer(columns: Sequence[tuple[str, str]], found: Sequence[Sequence[str | None]], limit: int) -> Json:
    """The first of the rows that were found, up to the limit and to MOST_RESULT_BYTES."""
    shown: list[Sequence[str | None]] = []
    left = MOST_RESULT_BYTES
    for row in found[:limit]:
        left -= sum(8 + len((text or "").encode()) for text in row)
        if left < 0:
            break
        shown.append(tuple(row))
    return {"columns": tuple(columns), "rows": tuple(shown), "is_cut": len(shown) < len(found)}
