"""Random files of several writers, copied by one task: every reader finds the rows, and metrics hold for them."""

from __future__ import annotations

import math
import random
import string
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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

from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.files import NO_METRICS, ColumnMetrics, DataFile, FileFormat
from amoro_core.model.task_payload import CopyRule, RewriteOutput
from tests.rewrite.checking import assert_holding_metrics
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
    may_reorder = chance.random() < 0.5
    output = run(
        replace(work, copy=None if seed % 5 == 4 else rule, tells_left_out=may_reorder, may_reorder=may_reorder)
    )
    order = output.position_map.order if output.position_map is not None else ()
    expected = pa.concat_tables(_without(tables[at], gone[at]) for at in order or range(len(tables)))
    totals["tasks in another order"] += order != ()
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


Writer = Callable[[pa.Table, Path], None]

KEY = NestedField(1, "id", LongType())
FIELDS = (
    NestedField(2, "s", StringType()),
    NestedField(3, "f", DoubleType()),
    NestedField(4, "i", IntegerType()),
    NestedField(5, "yes", BooleanType()),
    NestedField(6, "g", FloatType()),
    NestedField(7, "raw", BinaryType()),
    NestedField(8, "day", DateType()),
    NestedField(9, "moment", TimestamptzType()),
    NestedField(10, "local", TimestampType()),
    NestedField(11, "clock", TimeType()),
    NestedField(12, "d", DecimalType(9, 2)),
    NestedField(13, "long", DecimalType(18, 4)),
    NestedField(14, "big", DecimalType(38, 6)),
    NestedField(15, "u", UUIDType()),
    NestedField(16, "fixed", FixedType(5)),
    NestedField(17, "l", ListType(30, LongType(), element_required=False)),
    NestedField(18, "texts", ListType(31, StringType(), element_required=False)),
    NestedField(19, "m", MapType(32, StringType(), 33, DoubleType(), value_required=False)),
    NestedField(20, "r", StructType(NestedField(34, "a", IntegerType()), NestedField(35, "b", StringType()))),
)
KINDS = ("arrow", "arrow", "arrow in parts", "duckdb", "polars", "datafusion")
CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
#: What a writer has no type for, or fails at.
_LACKS = {"duckdb": {"fixed"}, "polars": {"m"}}
#: What a writer lays out in another way than Iceberg: its files are decoded.
_WRITES_OTHERWISE = {"polars": {"u"}, "datafusion": {"u", "m"}}

_INTEGERS = ("PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT")
_TEXTS = ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")
_FLOATS = ("PLAIN", "BYTE_STREAM_SPLIT")
#: By the path of a leaf; of nested columns too.
_ENCODINGS = {
    **dict.fromkeys(("id", "i", "day", "moment", "local", "clock", "d", "long", "l.list.element", "r.a"), _INTEGERS),
    **dict.fromkeys(("s", "raw", "texts.list.element", "m.key_value.key", "r.b"), _TEXTS),
    **dict.fromkeys(("f", "g", "m.key_value.value"), _FLOATS),
    **dict.fromkeys(("big", "u", "fixed"), (*_FLOATS, "DELTA_BYTE_ARRAY")),
    "yes": ("PLAIN", "RLE"),
}


def choose(chance: random.Random, files: int) -> tuple[Schema, list[str]]:
    """A table's columns, and by which writers its files are: mostly such that write all of them as Iceberg does."""
    kinds = [chance.choice(KINDS) for _ in range(files)]
    if chance.random() < 0.3:
        kinds = [kinds[0]] * files
    ways = [_LACKS, *([_WRITES_OTHERWISE] if chance.random() < 0.8 else [])]
    without = {name for kind in kinds for way in ways for name in way.get(kind, ())}
    fields = [field for field in FIELDS if field.name not in without]
    chosen = sorted(chance.sample(fields, chance.randint(2, 7)), key=lambda field: field.field_id)
    return Schema(KEY, *chosen), kinds


def writes_as_iceberg(kind: str, schema: Schema) -> bool:
    """Whether that kind of writer writes all of these columns as Iceberg does."""
    without = _LACKS.get(kind, set()) | _WRITES_OTHERWISE.get(kind, set())
    return without.isdisjoint(field.name for field in schema.fields)


def make_rows(chance: random.Random, schema: Schema, first: int, count: int) -> pa.Table:
    """Rows with ascending ids; each other column has its own number of nulls and of different values."""
    _, *others = kind = arrow_schema(schema)
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.Table.from_arrays([ids, *(_column(chance, field, count) for field in others)], schema=kind)


def _column(chance: random.Random, field: pa.Field, count: int) -> pa.Array:
    nulls = chance.choice((0.0, 0.1, 0.5, 1.0 if chance.random() < 0.2 else 0.0))
    values = [_value(chance, field.type) for _ in range(chance.choice((1, 10, count)))]
    return _array([None if chance.random() < nulls else chance.choice(values) for _ in range(count)], field.type)


def _value(chance: random.Random, kind: pa.DataType) -> Any:
    """A value as `_array` takes it."""
    if pa.types.is_list(kind):
        return [_value(chance, kind.value_type) for _ in range(chance.randrange(4))] + [None] * chance.randrange(2)
    if pa.types.is_map(kind):
        return [(key, _value(chance, kind.item_type)) for key in sorted(chance.sample("abcdef", chance.randrange(3)))]
    if pa.types.is_struct(kind):
        return {one.name: None if chance.random() < 0.2 else _value(chance, one.type) for one in kind}
    if pa.types.is_decimal(kind):
        return Decimal(chance.randint(-(10**kind.precision) + 1, 10**kind.precision - 1)).scaleb(-kind.scale)
    if pa.types.is_floating(kind):
        return chance.choice((0.0, -0.0, math.nan, math.inf, -math.inf, float(chance.randint(-999, 999)) / 8))
    if pa.types.is_string(kind):
        return "".join(chance.choices(string.ascii_lowercase + "äß語", k=chance.choice((0, 1, 5, 5, 5, 90))))
    if pa.types.is_binary(kind):
        return chance.randbytes(chance.choice((0, 1, 20)))
    for known, make in _MADE.items():
        if kind == known:
            return make(chance)
    return chance.randbytes(16 if isinstance(kind, pa.UuidType) else kind.byte_width)


_MADE: dict[pa.DataType, Callable[[random.Random], Any]] = {
    pa.bool_(): lambda chance: chance.random() < 0.5,
    # DuckDB packs differences of more than 31 bits in a way that Arrow does not read.
    pa.int32(): lambda chance: chance.randint(-(10**9), 10**9),
    pa.int64(): lambda chance: chance.choice((chance.randint(0, 99), chance.randint(-(2**63), 2**63 - 1))),
    pa.date32(): lambda chance: chance.randint(-9_000, 40_000),
    pa.time64("us"): lambda chance: chance.randrange(24 * 3600 * 10**6),
    pa.timestamp("us"): lambda chance: chance.randint(-(10**15), 4 * 10**15),
    pa.timestamp("us", "UTC"): lambda chance: chance.randint(-(10**15), 4 * 10**15),
}


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.UuidType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).cast(kind)
    return pa.array(values, pa.int64()).cast(kind) if pa.types.is_temporal(kind) else pa.array(values, kind)


def choose_writer(chance: random.Random, kind: str, schema: Schema, codecs: Sequence[str] = CODECS) -> Writer:
    """A writer of that kind with random options."""
    codec = chance.choice(codecs)
    match kind:
        case "duckdb":
            codec = {"none": "uncompressed", "lz4": "lz4_raw"}.get(codec, codec)
            return partial(by_duckdb, codec=codec, parquet_version=chance.choice(("v1", "v2")))
        case "polars":
            codec = {"none": "uncompressed", "brotli": "zstd"}.get(codec, codec)
            return partial(by_polars, compression=codec, data_page_size=chance.choice((500, 100_000)))
        case "datafusion":
            return partial(by_datafusion, **_datafusion_options(chance, codec, schema))
    options = _arrow_options(chance, codec, schema)
    if kind == "arrow in parts":
        return partial(_in_parts, **options)
    return partial(by_arrow, row_group_size=chance.choice((7, 50, 1000)), **options)


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


def _encodings(chance: random.Random, schema: Schema) -> dict[str, str]:
    names = {field.name for field in schema.fields}
    return {path: chance.choice(known) for path, known in _ENCODINGS.items() if path.split(".")[0] in names}


def _arrow_options(chance: random.Random, codec: str, schema: Schema) -> dict[str, Any]:
    options: dict[str, Any] = {
        "store_decimal_as_integer": chance.random() < 0.5,
        "compression": codec,
        "data_page_version": chance.choice(("1.0", "2.0")),
        "use_dictionary": chance.random() < 0.5,
        "write_statistics": chance.random() < 0.8,
        "write_page_index": chance.random() < 0.5,
        "write_page_checksum": chance.random() < 0.5,
        "data_page_size": chance.choice((200, 1 << 20)),
        "write_batch_size": chance.choice((20, 1024)),
    }
    if options["store_decimal_as_integer"] and not options["use_dictionary"] and chance.random() < 0.7:
        options["column_encoding"] = _encodings(chance, schema)
    if chance.random() < 0.3:
        options["bloom_filter_options"] = {"id": {"ndv": 500, "fpp": 0.01}}
    return options


def _datafusion_options(chance: random.Random, codec: str, schema: Schema) -> dict[str, Any]:
    levels = {"none": "uncompressed", "gzip": "gzip(6)", "brotli": "brotli(1)", "zstd": "zstd(3)", "lz4": "lz4_raw"}
    with_dictionary = chance.random() < 0.5
    return {
        "compression": levels.get(codec, codec),
        "writer_version": chance.choice(("1.0", "2.0")),
        "dictionary_enabled": with_dictionary,
        "statistics_enabled": chance.choice(("none", "chunk", "page", "page")),
        "bloom_filter_on_write": chance.random() < 0.3,
        "max_row_group_size": chance.choice((7, 50, 1000)),
        "data_page_row_count_limit": chance.choice((20, 20_000)),
        "write_batch_size": chance.choice((20, 1024)),
        "encodings": {} if with_dictionary else _encodings(chance, schema),
    }


def _in_parts(table: pa.Table, path: Path, **options: Any) -> None:
    """A row group without rows first, in between, and last."""
    half = table.num_rows // 2
    options = {"store_schema": False, "store_decimal_as_integer": True, **options}
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        for part in (table.slice(0, 0), table.slice(0, half), table.slice(0, 0), table.slice(half), table.slice(0, 0)):
            writer.write_table(part)
