"""DuckDB reads the files that the engine writes, by their paths, as the rows that went in."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.files.schema import arrow_schema
from tests.unit.rewrite.builders import context, data_file, equality_deletes, run, task

SCHEMA = Schema(
    NestedField(1, "n", LongType(), required=True),
    NestedField(2, "flag", BooleanType()),
    NestedField(3, "small", IntegerType()),
    NestedField(4, "f", FloatType()),
    NestedField(5, "d", DoubleType()),
    NestedField(6, "day", DateType()),
    NestedField(7, "at", TimeType()),
    NestedField(8, "ts", TimestampType()),
    NestedField(9, "tz", TimestamptzType()),
    NestedField(10, "s", StringType()),
    NestedField(11, "u", UUIDType()),
    NestedField(12, "raw", BinaryType()),
    NestedField(13, "short", DecimalType(9, 2)),
    NestedField(14, "long", DecimalType(38, 4)),
    NestedField(15, "list", ListType(16, IntegerType(), element_required=False)),
    NestedField(17, "map", MapType(18, StringType(), 19, LongType(), value_required=False)),
    NestedField(20, "in", StructType(NestedField(21, "x", LongType()), NestedField(22, "y", StringType()))),
)
BLOOM = {
    "write.parquet.page-row-limit": "50",
    "write.parquet.row-group-limit": "400",
    "write.parquet.bloom-filter-enabled.column.n": "true",
    "write.parquet.bloom-filter-enabled.column.s": "true",
}


def row(n: int) -> dict[str, Any]:
    if n % 5 == 4:
        return {**{field.name: None for field in SCHEMA.fields}, "n": n}
    return {
        "n": n,
        "flag": n % 2 == 0,
        "small": -n,
        "f": n / 4,
        "d": -n / 8,
        "day": date(1969, 12, 20 + n % 10),
        "at": time(23, n % 60, 59, 999999),
        "ts": datetime(1900 + n % 200, 1, 1, 0, 0, 0, n),
        "tz": datetime(1969, 12, 31, 23, 59, 59, n, tzinfo=UTC),
        "s": f"row {n} é",
        "u": uuid.UUID(int=2**127 + n),
        "raw": b"\0" + bytes([n % 256]),
        "short": Decimal(n).scaleb(-2) - 5,
        "long": Decimal(f"{10**28 + n}.{n:04}"),
        "list": [] if n % 3 else [n, None],
        "map": [("a", n), ("b", None)][: n % 3],
        "in": {"x": n, "y": None},
    }


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    columns = []
    for field in arrow_schema(SCHEMA):
        values = [one[field.name] for one in rows]
        if field.name == "u":
            stored = pa.array([value and value.bytes for value in values], pa.binary(16))
            columns.append(pa.ExtensionArray.from_storage(field.type, stored))
        else:
            columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=arrow_schema(SCHEMA))


def test_duckdb_reads_every_type_and_finds_single_rows_by_bloom_filters(tmp_path: Path) -> None:
    rows = [row(n) for n in range(1000)]
    columns = list(arrow_schema(SCHEMA))
    files = [data_file(tmp_path, columns, table_of(rows[start : start + 250])) for start in range(0, 1000, 250)]
    deletes = equality_deletes(tmp_path, [1], columns[:1], {"n": list(range(0, 1000, 10))})

    output = run(task(context(tmp_path, SCHEMA, properties=BLOOM), files, [deletes], output_count=2))

    left = [one for one in rows if one["n"] % 10]
    expected = [
        {**one, "map": None if one["map"] is None else dict(one["map"]), "u": one["u"] and str(one["u"])}
        for one in left
    ]
    paths = [file.path for file in output.data_files]
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        found = db.read_parquet(paths).order("n").to_arrow_table()
        assert found.to_pylist(maps_as_pydicts="strict") == expected
        for n, count in ((501, 1), (500, 0), (2000, 0)):
            query = "SELECT count(*) FROM read_parquet($paths) WHERE n = $n AND s = $s"
            known = db.execute(query, {"paths": paths, "n": n, "s": f"row {n} é"}).fetchone()
            assert known == (count,)
        blooms = db.execute(
            "SELECT DISTINCT path_in_schema FROM parquet_metadata($paths) WHERE bloom_filter_offset IS NOT NULL",
            {"paths": paths},
        ).fetchall()
        assert {name for (name,) in blooms} == {"n", "s"}
