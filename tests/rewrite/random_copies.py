"""Random files of several writers, copied by one task: every reader finds the rows, and metrics hold for them."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.files import NO_METRICS, ColumnMetrics, DataFile, FileFormat
from amoro_core.model.task_payload import CopyRule, RewriteOutput
from tests.rewrite.copy_writers import choose, choose_writer, make_rows
from tests.rewrite.metrics import assert_holding_metrics
from tests.unit.rewrite.builders import context, data_file, position_deletes, run, task


def copy_files(root: Path, seed: int, totals: Counter[str]) -> None:
    """Write two to four files, rewrite them in a task that copies, or does not, and read the outputs by four readers.

    Raises AssertionError unless the rows are those that are not deleted, in their order.
    """
    chance = random.Random(seed)
    schema, kinds = choose(chance, chance.randint(2, 4))
    tables: list[pa.Table] = []
    files: list[DataFile] = []
    for number, kind in enumerate(kinds):
        path = root / f"in-{number}.parquet"
        # DuckDB's row groups have 2,048 rows at least.
        several = 2500 if kind == "duckdb" and chance.random() < 0.2 else 400
        table = make_rows(chance, schema, number * 10_000, chance.choice((1, 30, 200, 200, several)))
        choose_writer(chance, kind, schema)(table, path)
        tables.append(table)
        metrics = NO_METRICS if chance.random() < 0.1 else told_of(table, root, schema)
        files.append(DataFile(str(path), FileFormat.PARQUET, 0, (), table.num_rows, path.stat().st_size, 1, metrics))
    some_deleted = chance.random() < 0.5
    gone = [
        sorted(chance.sample(range(table.num_rows), some_deleted * chance.choice((0, 1, table.num_rows // 9))))
        for table in tables
    ]
    deletes = [position_deletes(root, [(file.path, at) for at in some]) for file, some in zip(files, gone, strict=True)]
    applicable = {number: [number] for number, some in enumerate(gone) if some}
    outputs = chance.choice((1, 1, 2))
    work = task(context(root, schema), files, deletes, applicable=applicable, output_count=outputs)
    rule = CopyRule(0, chance.choice((3, 1024)))
    output = run(replace(work, copy=None if seed % 5 == 4 else rule))
    expected = pa.concat_tables(_without(table, some) for table, some in zip(tables, gone, strict=True))
    _require(output, expected)
    _require_found(chance, output, expected)
    for file in output.data_files:
        assert_holding_metrics(file, schema)
    totals["files"] += len(files)
    totals["files copied whole"] += output.files_copied
    if output.files_copied == len(files):
        for kind in kinds:
            totals[f"files of {kind.split()[0]} copied whole"] += 1


def told_of(rows: pa.Table, root: Path, schema: Schema) -> ColumnMetrics:
    """What a manifest says of a file with these rows: what it says of theirs when they were rewritten."""
    elsewhere = root / "told"
    file = data_file(elsewhere, list(arrow_schema(schema)), rows)
    return run(task(context(elsewhere, schema), [file])).data_files[0].metrics


def _without(table: pa.Table, gone: Sequence[int]) -> pa.Table:
    deleted = set(gone)
    return table.filter(pa.array([at not in deleted for at in range(table.num_rows)], pa.bool_()))


def _require(output: RewriteOutput, expected: pa.Table) -> None:
    paths = [file.path for file in output.data_files]
    if not expected.num_rows:
        assert not paths
        return
    wanted = _plain(expected, expected.schema)
    found = [pq.read_table(path, page_checksum_verification=True) for path in paths]
    assert _plain(pa.concat_tables(found), expected.schema) == wanted
    encodings = fixed_encodings(paths)
    if "BYTE_STREAM_SPLIT" not in encodings:  # of these DuckDB reads numbers only
        by_duckdb = duckdb.sql(f"select * from read_parquet({paths!r})").to_arrow_table()
        assert _plain(by_duckdb, expected.schema) == wanted
    if not encodings & {"BYTE_STREAM_SPLIT", "DELTA_BYTE_ARRAY"}:  # nor does Polars read these
        assert _plain(polars.read_parquet(paths).to_arrow(), expected.schema) == wanted


def fixed_encodings(paths: Sequence[str]) -> set[str]:
    """How values of fixed length are encoded."""
    footers = [pq.read_metadata(path) for path in paths]
    groups = [footer.row_group(at) for footer in footers for at in range(footer.num_row_groups)]
    chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
    return {one for chunk in chunks if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY" for one in chunk.encodings}


def _plain(table: pa.Table, schema: pa.Schema) -> dict[str, str]:
    """The columns as text, in which NaN is NaN and 0.0 is not -0.0."""
    assert table.column_names == schema.names
    return {field.name: str([_same(one) for one in _as(table[field.name], field.type)]) for field in schema}


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    """Values of the type, which readers give in types of their own; names within nested ones may differ."""
    if isinstance(kind, pa.UuidType) and pa.types.is_string(column.type):
        return [one and uuid.UUID(one) for one in column.to_pylist()]
    return (column if pa.types.is_nested(kind) or isinstance(kind, pa.UuidType) else column.cast(kind)).to_pylist()


def _same(value: Any) -> Any:
    """A map's pair as a tuple, an id as its bytes, whatever the reader gives."""
    match value:
        case uuid.UUID():
            return value.bytes
        case {"key": key, "value": one}:
            return key, one
        case list():
            return [_same(one) for one in value]
    return value


def _require_found(chance: random.Random, output: RewriteOutput, expected: pa.Table) -> None:
    """Values are found, and others are not, by readers that go by statistics, page indexes and bloom filters."""
    if not expected.num_rows:
        return
    # It is imported where it is needed, as in `by_datafusion`.
    from datafusion import SessionConfig, SessionContext

    paths = [file.path for file in output.data_files]
    # Of a file in which some row groups lack bounds it takes those of the others for the file's (its issue 25226).
    session = SessionContext(SessionConfig().set("datafusion.execution.collect_statistics", "false"))
    session.register_parquet("t", str(Path(paths[0]).parent))
    there = chance.choice(expected["id"].to_pylist())
    for low, high in ((there, there), (there, there + 30), (-5, -1), (expected["id"][-1].as_py() + 1, 2**40)):
        count = pc.sum(pc.and_(pc.greater_equal(expected["id"], low), pc.less_equal(expected["id"], high))).as_py()
        condition = f"id = {low}" if low == high else f"id between {low} and {high}"
        filters = [("id", "=", low)] if low == high else [("id", ">=", low), ("id", "<=", high)]
        assert sum(pq.read_table(path, columns=["id"], filters=filters).num_rows for path in paths) == count
        assert duckdb.sql(f"select count(*) from read_parquet({paths!r}) where {condition}").fetchall() == [(count,)]
        (found,) = session.sql(f"select count(*) as n from t where {condition}").to_pydict()["n"]
        assert found == count
    if "s" in expected.column_names and (text := chance.choice(expected["s"].to_pylist())) is not None:
        for one in (text, f"{text}~"):
            count = pc.sum(pc.equal(expected["s"], one)).as_py()
            assert sum(pq.read_table(path, filters=[("s", "=", one)]).num_rows for path in paths) == count
            query = f"select count(*) as n from read_parquet({paths!r}) where s = '{one}'"
            assert duckdb.sql(query).fetchall() == [(count,)]
            (found,) = session.sql(f"select count(*) as n from t where s = '{one}'").to_pydict()["n"]
            assert found == count
