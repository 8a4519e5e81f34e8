"""Parquet files of several writers, and their row groups copied into one output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from amoro_core.files.bound_merging import CopiedFile
from amoro_core.files.copy_source import CopySource, open_source
from amoro_core.files.io import FileAccess, open_access
from amoro_core.files.options import writer_options
from amoro_core.files.parquet_format import MAGIC, FileMetaData, Struct, decoded, encoded
from amoro_core.files.schema import arrow_schema
from amoro_core.files.splicing import MOST_ROW_GROUPS, SplicedOutput
from amoro_core.files.writing import ParquetOutput, WrittenFile
from amoro_core.model.files import ColumnMetrics
from amoro_core.model.rewrite import CopyRule

FLAT = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "f", DoubleType()),
    NestedField(4, "i", IntegerType()),
)
NESTED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "l", ListType(10, LongType(), element_required=False)),
    NestedField(3, "m", MapType(11, StringType(), 12, DoubleType(), value_required=False)),
    NestedField(4, "r", StructType(NestedField(13, "a", IntegerType()), NestedField(14, "b", StringType()))),
    NestedField(5, "d", DecimalType(12, 2)),
    NestedField(6, "big", DecimalType(30, 3)),
    NestedField(7, "day", DateType()),
    NestedField(8, "at", TimestamptzType()),
    NestedField(9, "local", TimestampType()),
)
MEMORY = 64 << 20


def access_to(root: Path) -> FileAccess:
    return open_access({}, str(root), read_locations=[str(root)], write_locations=[str(root)])


def flat_rows(first: int, count: int) -> pa.Table:
    """Rows with nulls and repeated values, ascending ids."""
    ids = range(first, first + count)
    columns = {
        "id": list(ids),
        "s": [None if n % 7 == 0 else f"text {n % 50}" for n in ids],
        "f": [n / 3 for n in ids],
        "i": [None if n % 5 == 0 else n % 100 for n in ids],
    }
    return pa.Table.from_pydict(columns, schema=arrow_schema(FLAT))


def nested_rows(first: int, count: int) -> pa.Table:
    """Rows with lists, maps and structs, empty and null ones among them."""
    rows = [
        {
            "id": n,
            "l": None if n % 11 == 0 else list(range(n % 4)),
            "m": None if n % 7 == 0 else [(f"k{k}", k / 2) for k in range(n % 3)],
            "r": None if n % 5 == 0 else {"a": n, "b": None if n % 3 == 0 else str(n)},
            "d": None if n % 6 == 0 else f"{n}.25",
            "big": f"{n}.125",
            "day": n % 20_000,
            "at": n * 1_000_003,
            "local": n * 999_983,
        }
        for n in range(first, first + count)
    ]
    kind = arrow_schema(NESTED)
    arrays = [pa.array([row[field.name] for row in rows], _raw(field.type)).cast(field.type) for field in kind]
    return pa.Table.from_arrays(arrays, schema=kind)


def _raw(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind):
        return pa.string()
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def by_arrow(table: pa.Table, path: Path, **options: Any) -> None:
    options = {"row_group_size": 1000, "store_schema": False, "store_decimal_as_integer": True, **options}
    pq.write_table(table, path, **options)


def by_duckdb(rows: pa.Table, path: Path, **options: Any) -> None:
    ids = ", ".join(f'"{field.name}": {_ids(field)}' for field in rows.schema)
    words = "".join(f", {key} {value!r}" for key, value in options.items())
    duckdb.sql(
        f"copy (select * from rows) to '{path}' (format parquet, field_ids {{{ids}}}, row_group_size 2048{words})"
    )


def _ids(field: pa.Field) -> str:
    """The field's id as DuckDB takes it, with those of what is within it."""
    kind, own = field.type, int(field.metadata[b"PARQUET:field_id"])
    inner: list[tuple[str, pa.Field]] = []
    if pa.types.is_list(kind):
        inner = [("element", kind.value_field)]
    elif pa.types.is_map(kind):
        inner = [("key", kind.key_field), ("value", kind.item_field)]
    elif pa.types.is_struct(kind):
        inner = [(one.name, one) for one in kind]
    if not inner:
        return str(own)
    return f"{{__duckdb_field_id: {own}, {', '.join(f'{name}: {_ids(one)}' for name, one in inner)}}}"


def by_polars(table: pa.Table, path: Path, **options: Any) -> None:
    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    kind = pa.schema([field.with_type(_large(field.type)) for field in table.schema])
    frame.lazy().sink_parquet(path, arrow_schema=kind, row_group_size=1500, **options)


def _large(kind: pa.DataType) -> pa.DataType:
    """The type as Polars has it."""
    if pa.types.is_list(kind):
        return pa.large_list(kind.value_field.with_type(_large(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_large(one.type)) for one in kind])
    if pa.types.is_binary(kind):
        return pa.large_binary()
    return pa.large_string() if pa.types.is_string(kind) else kind


def by_datafusion(table: pa.Table, path: Path, encodings: Mapping[str, str] | None = None, **options: Any) -> None:
    """By arrow-rs. `encodings` are by the path of a leaf."""
    # A forked child of a process that has imported it hangs: only who writes by it does.
    from datafusion import ParquetColumnOptions, ParquetWriterOptions, SessionContext

    kinds = {name: ParquetColumnOptions(encoding=one.lower()) for name, one in (encodings or {}).items()}
    chosen = ParquetWriterOptions(skip_arrow_metadata=True, column_specific_options=kinds or None, **options)
    SessionContext().from_arrow(table).write_parquet_with_options(path, chosen)


Writer = Callable[[pa.Table, Path], None]

WRITERS: dict[str, Writer] = {
    "arrow": by_arrow,
    "arrow with data pages of version 2": partial(by_arrow, data_page_version="2.0"),
    "arrow without dictionaries": partial(by_arrow, use_dictionary=False, compression="zstd"),
    "arrow with gzip": partial(by_arrow, compression="gzip"),
    "arrow with brotli": partial(by_arrow, compression="brotli"),
    "arrow with lz4": partial(by_arrow, compression="lz4", data_page_version="2.0"),
    "arrow uncompressed": partial(by_arrow, compression="none"),
    "arrow without statistics": partial(by_arrow, write_statistics=False),
    "arrow with an index and checksums": partial(
        by_arrow, write_page_index=True, write_page_checksum=True, data_page_size=500, write_batch_size=100
    ),
    "arrow with delta encodings": partial(
        by_arrow,
        use_dictionary=False,
        column_encoding={"id": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY", "f": "BYTE_STREAM_SPLIT"},
    ),
    "duckdb": by_duckdb,
    "duckdb with zstd": partial(by_duckdb, codec="zstd", parquet_version="v2"),
    "polars": by_polars,
    "polars with snappy": partial(by_polars, compression="snappy", data_page_size=2000),
    "datafusion": partial(by_datafusion, max_row_group_size=1000),
    "datafusion with small pages": partial(by_datafusion, max_row_group_size=700, data_page_row_count_limit=20),
}


def files(root: Path, writer: Writer, rows: Callable[[int, int], pa.Table] = flat_rows, count: int = 3) -> list[Path]:
    paths = [root / f"in-{number}.parquet" for number in range(count)]
    for number, path in enumerate(paths):
        writer(rows(number * 2500, 2500), path)
    return paths


def footer_of(path: Path | str) -> tuple[bytes, bytes]:
    """What is before the footer, and its bytes."""
    content = Path(path).read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:begin], content[begin:-8]


def with_footer(path: Path, footer: bytes) -> None:
    path.write_bytes(footer_of(path)[0] + footer + len(footer).to_bytes(4, "little") + MAGIC)


def change_footer(path: Path, change: Callable[[Struct], None]) -> None:
    footer = decoded(FileMetaData, footer_of(path)[1])
    change(footer)
    with_footer(path, encoded(footer))


def source(path: Path) -> CopySource:
    """The file as it is opened when it was fetched whole."""
    content = path.read_bytes()
    return open_source(lambda at, length: content[at : at + length], len(content), content)


def streamed(path: Path) -> CopySource:
    """The file as it is opened when it is read in parts."""

    def read(at: int, length: int) -> bytes:
        with path.open("rb") as stream:
            stream.seek(at)
            return stream.read(length)

    return open_source(read, path.stat().st_size)


def output(root: Path, schema: Schema, name: str = "out.parquet", **more: Any) -> SplicedOutput:
    options = writer_options(more.pop("properties", {}))
    rule = CopyRule(0, more.pop("max_row_groups", MOST_ROW_GROUPS), more.pop("verifies", True))
    return SplicedOutput(
        access_to(root),
        f"{root}/{name}",
        schema,
        options,
        memory_bytes=more.pop("memory_bytes", MEMORY),
        checkpoint=more.pop("checkpoint", lambda: None),
        rule=rule,
        **more,
    )


def told(path: Path, schema: Schema) -> ColumnMetrics:
    """What a manifest says of the file: as we write it ourselves."""
    return told_of(pq.read_table(path).cast(arrow_schema(schema)), path.parent, schema)


def told_of(rows: pa.Table, root: Path, schema: Schema) -> ColumnMetrics:
    """What a manifest says of a file with these rows."""
    written = ParquetOutput(access_to(root), f"{root}/{uuid4()}", schema, writer_options({}))
    for batch in rows.to_batches():
        written.write(batch)
    return written.close().metrics


def copied(
    root: Path, schema: Schema, paths: Sequence[Path], opened: Callable[[Path], CopySource] = source, **more: Any
) -> WrittenFile:
    """All row groups of the files in one output."""
    result = output(root, schema, **more)
    for path in paths:
        one = opened(path)
        file = CopiedFile(told(path, schema), sum(one.rows))
        for number in range(len(one.rows)):
            result.copy(one, number, file)
    return result.close()
