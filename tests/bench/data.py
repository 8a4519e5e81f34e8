"""Files as small writes leave them: of mixed columns, and of mostly text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.clustering import Layout, LayoutKey, Strategy
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat
from amoro_core.model.task_payload import RewriteInput
from tests.unit.rewrite import builders

Chance = np.random.Generator
_WORDS = [f"word{number}" for number in range(3000)]
_MONEY = "decimal(12, 2)"
#: Orders of the mixed table's rows: of its decimal, and a curve over three columns.
LAYOUTS = {
    "sort": Layout(Strategy.LINEAR, (LayoutKey(3),)),
    "hilbert": Layout(Strategy.HILBERT, (LayoutKey(3), LayoutKey(5), LayoutKey(1))),
}


def _chosen(chance: Chance, rows: int, values: list[str]) -> pa.Array:
    return pa.array(values).take(pa.array(chance.integers(0, len(values), rows)))


def _cents(chance: Chance, rows: int) -> pa.Array:
    """Decimals of two digits behind the point."""
    # Numbers of 128 bits, the lower half first.
    words = np.stack([chance.integers(0, 10**9, rows), np.zeros(rows, np.int64)], axis=1)
    return pa.Array.from_buffers(pa.decimal128(12, 2), rows, [None, pa.py_buffer(words.tobytes())])


def _moments(chance: Chance, rows: int, spread: int = 1) -> np.ndarray:
    """In order, but for that spread."""
    return 1_700_000_000_000_000 + np.sort(chance.integers(0, 10**12, rows)) + chance.integers(0, spread, rows)


def _comments(chance: Chance, rows: int) -> pa.Array:
    return pc.binary_join_element_wise(*(_chosen(chance, rows, _WORDS) for _ in range(4)), " ")


def _addresses(chance: Chance, rows: int) -> pa.Array:
    numbers = pa.array(chance.integers(10**6, 10**9, rows)).cast(pa.string())
    return pc.binary_join_element_wise(numbers, "example.com", "@")


def _sentences(chance: Chance, rows: int) -> pa.Array:
    """Of three to nine words."""
    ends = np.cumsum(chance.integers(3, 10, rows))
    words = np.array(_WORDS)[chance.integers(0, len(_WORDS), ends[-1])].tolist()
    return pa.array([" ".join(words[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)])


def _digits(chance: Chance, rows: int) -> list[str]:
    """Random ids of 32 digits."""
    digits = chance.bytes(16 * rows).hex()
    return [digits[at : at + 32] for at in range(0, 32 * rows, 32)]


def _uuids(chance: Chance, rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(chance.bytes(16 * rows))])


def _whole(chance: Chance, rows: int, low: int, high: int) -> np.ndarray:
    return chance.integers(low, high, rows)


_STATES = partial(_chosen, values=["new", "paid", "sent", "done", "lost"])
_COUNTRIES = partial(_chosen, values=[f"country {number}" for number in range(190)])
_CUSTOMERS, _DAYS = partial(_whole, low=0, high=100_000), partial(_whole, low=19_000, high=20_000)


@dataclass(frozen=True, slots=True)
class Column:
    """A column after the first one, which numbers the rows."""

    name: str
    kind: str
    make: Callable[[Chance, int], Any]
    nulls: float = 0.0  # the share of them


@dataclass(frozen=True, slots=True)
class BenchTable:
    """How a table's files are made; `file_rows` make about 1.3 MB."""

    key: str
    columns: tuple[Column, ...]
    file_rows: int

    @property
    def schema(self) -> Schema:
        others = (NestedField(at, one.name, one.kind) for at, one in enumerate(self.columns, 2))
        return Schema(NestedField(1, self.key, "long", required=True), *others)

    def rows(self, first: int, rows: int, seed: int) -> pa.Table:
        """Rows with numbers from `first` on."""
        chance, kind = np.random.default_rng(seed), arrow_schema(self.schema)
        arrays = [pa.array(np.arange(first, first + rows))]
        for column, target in zip(self.columns, list(kind)[1:], strict=True):
            array = pa.array(column.make(chance, rows))
            if isinstance(target.type, pa.BaseExtensionType):
                array = pa.ExtensionArray.from_storage(target.type, array)
            elif array.type != target.type:
                array = array.cast(pa.int32() if pa.types.is_date(target.type) else target.type).view(target.type)
            if column.nulls:
                array = pc.if_else(pa.array(chance.random(rows) < column.nulls), pa.scalar(None, target.type), array)
            arrays.append(array)
        return pa.Table.from_arrays(arrays, schema=kind)


MIXED = (
    Column("customer", "int", _CUSTOMERS),
    Column("amount", _MONEY, _cents),
    Column("price", "double", lambda chance, rows: chance.normal(100, 30, rows)),
    Column("ratio", "float", Chance.random, 0.05),
    Column("status", "string", _STATES),
    Column("country", "string", _COUNTRIES),
    Column("comment", "string", _comments, 0.05),
    Column("email", "string", _addresses),
    Column("created", "timestamptz", _moments),
    Column("updated", "timestamp", partial(_moments, spread=10**9), 0.05),
    Column("day", "date", _DAYS),
    Column("active", "boolean", lambda chance, rows: chance.random(rows) < 0.7),
    Column("session", "uuid", _uuids),
    Column("count", "long", lambda chance, rows: chance.poisson(4, rows)),
)
TEXT = (
    Column("id", "string", _digits),
    Column("title", "string", _sentences),
    Column("body", "string", _sentences, 0.5),
    Column("note", "string", _sentences, 0.5),
    Column("status", "string", _STATES),
    Column("country", "string", _COUNTRIES),
    Column("amount", _MONEY, _cents),
    Column("tax", _MONEY, _cents, 0.5),
    Column("total", _MONEY, _cents, 0.5),
    Column("created", "timestamptz", _moments),
    Column("day", "date", _DAYS),
    Column("score", "double", Chance.random, 0.5),
    Column("active", "boolean", lambda chance, rows: chance.random(rows) < 0.7),
    Column("customer", "int", _CUSTOMERS),
)
TABLES = {"mixed": BenchTable("id", MIXED, 16_000), "text": BenchTable("number", TEXT, 17_500)}


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


def task(root: Path, files: list[DataFile], deletes: tuple[DeleteFile, ...] = (), kind: str = "mixed") -> RewriteInput:
    """The rewrite of all files into one; every delete applies to every file."""
    properties = {"write.parquet.row-group-size-bytes": str(1 << 40)}
    context = builders.context(root, TABLES[kind].schema, properties=properties)
    out = replace(context, data_location=str(root / "out"))
    return builders.task(out, files, deletes, target_size_bytes=1 << 40)
