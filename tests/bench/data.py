"""Files as small writes leave them: of mixed columns, and of mostly text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.clustering import Layout, LayoutKey, Strategy
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat
from amoro_core.model.task_payload import InputFile, RewriteInput, TableContext

MIXED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "customer", IntegerType()),
    NestedField(3, "amount", DecimalType(12, 2)),
    NestedField(4, "price", DoubleType()),
    NestedField(5, "ratio", FloatType()),
    NestedField(6, "status", StringType()),
    NestedField(7, "country", StringType()),
    NestedField(8, "comment", StringType()),
    NestedField(9, "email", StringType()),
    NestedField(10, "created", TimestamptzType()),
    NestedField(11, "updated", TimestampType()),
    NestedField(12, "day", DateType()),
    NestedField(13, "active", BooleanType()),
    NestedField(14, "session", UUIDType()),
    NestedField(15, "count", LongType()),
)
TEXT = Schema(
    NestedField(1, "number", LongType(), required=True),
    NestedField(2, "id", StringType()),
    *(
        NestedField(3 + at, name, StringType())
        for at, name in enumerate(("title", "body", "note", "status", "country"))
    ),
    NestedField(8, "amount", DecimalType(12, 2)),
    NestedField(9, "tax", DecimalType(12, 2)),
    NestedField(10, "total", DecimalType(12, 2)),
    NestedField(11, "created", TimestamptzType()),
    NestedField(12, "day", DateType()),
    NestedField(13, "score", DoubleType()),
    NestedField(14, "active", BooleanType()),
    NestedField(15, "customer", IntegerType()),
)
_HALF_NULL = ("body", "note", "tax", "total", "score")
_WORDS = [f"word{number}" for number in range(3000)]


#: Orders of the mixed table's rows: of its decimal, and a curve over three columns.
LAYOUTS = {
    "sort": Layout(Strategy.LINEAR, (LayoutKey(3),)),
    "hilbert": Layout(Strategy.HILBERT, (LayoutKey(3), LayoutKey(5), LayoutKey(1))),
}


def mixed_rows(first: int, rows: int, seed: int) -> pa.Table:
    """Rows with ids from `first` on."""
    chance = np.random.default_rng(seed)
    moments = 1_700_000_000_000_000 + np.sort(chance.integers(0, 10**12, rows))
    columns = [
        np.arange(first, first + rows),
        chance.integers(0, 100_000, rows).astype(np.int32),
        _cents(chance.integers(0, 10**9, rows)),
        chance.normal(100, 30, rows),
        chance.random(rows).astype(np.float32),
        _chosen(chance, rows, ["new", "paid", "sent", "done", "lost"]),
        _chosen(chance, rows, [f"country {number}" for number in range(190)]),
        _comments(chance, rows),
        pc.binary_join_element_wise(_numbers(chance, rows), "example.com", "@"),
        pa.array(moments).cast(pa.timestamp("us", "UTC")),
        pa.array(moments + chance.integers(0, 10**9, rows)).cast(pa.timestamp("us")),
        chance.integers(19_000, 20_000, rows).astype(np.int32),
        chance.random(rows) < 0.7,
        pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(chance.bytes(16 * rows))]),
        chance.poisson(4, rows).astype(np.int64),
    ]
    return _table(MIXED, columns, chance, rows)


def text_rows(first: int, rows: int, seed: int) -> pa.Table:
    """Rows with random ids of 32 digits, and sentences of three to nine words; half of some columns is null."""
    chance = np.random.default_rng(seed)
    digits = chance.bytes(16 * rows).hex()
    columns = [
        np.arange(first, first + rows),
        [digits[at : at + 32] for at in range(0, 32 * rows, 32)],
        *(_sentences(chance, rows) for _ in range(3)),
        _chosen(chance, rows, ["new", "paid", "sent", "done", "lost"]),
        _chosen(chance, rows, [f"country {number}" for number in range(190)]),
        *(_cents(chance.integers(0, 10**9, rows)) for _ in range(3)),
        pa.array(1_700_000_000_000_000 + np.sort(chance.integers(0, 10**12, rows))).cast(pa.timestamp("us", "UTC")),
        chance.integers(19_000, 20_000, rows).astype(np.int32),
        chance.random(rows),
        chance.random(rows) < 0.7,
        chance.integers(0, 100_000, rows).astype(np.int32),
    ]
    table = _table(TEXT, columns, chance, rows)
    for name in _HALF_NULL:
        at, field = table.column_names.index(name), table.schema.field(name)
        kept = pc.if_else(pa.array(chance.random(rows) < 0.5), pa.scalar(None, field.type), table.column(name))
        table = table.set_column(at, field, kept)
    return table


def _table(schema: Schema, columns: list[Any], chance: np.random.Generator, rows: int) -> pa.Table:
    kind = arrow_schema(schema)
    arrays = []
    for column, target in zip(columns, kind, strict=True):
        array = column if isinstance(column, pa.Array) else pa.array(column)
        if isinstance(target.type, pa.BaseExtensionType):
            array = pa.ExtensionArray.from_storage(target.type, array)
        elif array.type != target.type:
            array = array.view(target.type) if pa.types.is_date(target.type) else array.cast(target.type)
        if target.nullable and target.name in ("comment", "ratio", "updated") and array.type == target.type:
            array = pc.if_else(pa.array(chance.random(rows) < 0.05), pa.scalar(None, target.type), array)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=kind)


def _cents(numbers: np.ndarray) -> pa.Array:
    """Decimals of two digits behind the point."""
    zeros = np.zeros(len(numbers), np.int64)
    words = np.stack([numbers.astype(np.int64), zeros], axis=1)  # of 128 bits, the lower half first
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(numbers), [None, pa.py_buffer(words.tobytes())])


def _chosen(chance: np.random.Generator, rows: int, values: list[str]) -> pa.Array:
    return pa.array(values).take(pa.array(chance.integers(0, len(values), rows)))


def _numbers(chance: np.random.Generator, rows: int) -> pa.Array:
    return pa.array(chance.integers(10**6, 10**9, rows)).cast(pa.string())


def _comments(chance: np.random.Generator, rows: int) -> pa.Array:
    return pc.binary_join_element_wise(*(_chosen(chance, rows, _WORDS) for _ in range(4)), " ")


def _sentences(chance: np.random.Generator, rows: int) -> pa.Array:
    ends = np.cumsum(chance.integers(3, 10, rows))
    words = np.array(_WORDS)[chance.integers(0, len(_WORDS), ends[-1])].tolist()
    return pa.array([" ".join(words[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)])


@dataclass(frozen=True, slots=True)
class BenchTable:
    """How a table's files are made; `file_rows` make about 1.3 MB."""

    schema: Schema
    rows: Callable[[int, int, int], pa.Table]  # first, count, seed
    file_rows: int


TABLES = {"mixed": BenchTable(MIXED, mixed_rows, 16_000), "text": BenchTable(TEXT, text_rows, 17_500)}


def write_files(kind: str, root: Path, files: int) -> list[DataFile]:
    """So many files under `root`, as Java writes them: zstd, page indexes and checksums; those that are there stay."""
    table = TABLES[kind]
    found = []
    for number in range(files):
        path = root / "data" / f"in-{number:05}.parquet"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = table.rows(number * table.file_rows, table.file_rows, number)
            pq.write_table(
                rows,
                path,
                compression="zstd",
                compression_level=3,
                store_schema=False,
                store_decimal_as_integer=True,
                write_page_index=True,
                write_page_checksum=True,
            )
        found.append(DataFile(str(path), FileFormat.PARQUET, 0, (), table.file_rows, path.stat().st_size, 1))
    return found


def write_keys(root: Path, name: str, keys: pa.Table, ids: tuple[int, ...]) -> DeleteFile:
    """An equality delete file; the columns of `keys` have their field ids."""
    path = root / "data" / f"{name}.parquet"
    pq.write_table(keys, path, compression="zstd", store_schema=False)
    size = path.stat().st_size
    return DeleteFile(str(path), DeleteKind.EQUALITY, FileFormat.PARQUET, 0, (), keys.num_rows, size, 2, ids)


def task(
    root: Path, files: list[DataFile], deletes: tuple[DeleteFile, ...] = (), outputs: int = 1, kind: str = "mixed"
) -> RewriteInput:
    """The rewrite of all files; every delete applies to every file."""
    context = TableContext(
        catalog="bench",
        table=f"bench.{kind}",
        table_uuid="0e0e0e0e-0000-4000-8000-000000000000",
        format_version=2,
        location=str(root),
        data_location=str(root / "out"),
        schema_json=TABLES[kind].schema.model_dump_json(),
        spec_json=UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
        name_mapping_json=None,
        dropped_fields_json=(),
        sort_order_json=None,
        properties={"write.parquet.row-group-size-bytes": str(1 << 40)},
        read_locations=(str(root),),
    )
    applying = tuple(range(len(deletes)))
    return RewriteInput(context, tuple(InputFile(file, applying) for file in files), (), deletes, 5, 1 << 40, outputs)
