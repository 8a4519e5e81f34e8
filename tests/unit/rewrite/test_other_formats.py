"""Data and delete files in Avro and ORC: read as Parquet is, written as Parquet."""

import io
import random
import uuid
import zlib
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
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

from amoro_core.errors import TableRefused, UnreadableFile
from amoro_core.files.opening import SMALL_FILE_BYTES, open_rows
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    DELETE_POS_FIELD_ID,
    DataFile,
    DeleteFile,
    DeleteKind,
    FileFormat,
)

from .builders import access_to, col, context, data_file, rows_of, run, task

EVERY = Schema(
    NestedField(1, "b", BooleanType()),
    NestedField(2, "i", IntegerType()),
    NestedField(3, "l", LongType(), required=True),
    NestedField(4, "f", FloatType()),
    NestedField(5, "d", DoubleType()),
    NestedField(6, "day", DateType()),
    NestedField(7, "at", TimeType()),
    NestedField(8, "ts", TimestampType()),
    NestedField(9, "tz", TimestamptzType()),
    NestedField(10, "s", StringType()),
    NestedField(11, "u", UUIDType()),
    NestedField(12, "x", FixedType(3)),
    NestedField(13, "raw", BinaryType()),
    NestedField(14, "dec", DecimalType(38, 4)),
    NestedField(15, "list", ListType(16, DecimalType(5, 2))),
    NestedField(17, "map", MapType(18, StringType(), 19, LongType())),
    NestedField(20, "in", StructType(NestedField(21, "dec", DecimalType(9, 0)), NestedField(22, "n", LongType()))),
    NestedField(23, "pairs", MapType(24, IntegerType(), 25, StringType())),
)
VALUES: dict[str, Any] = {
    "b": True,
    "i": -(2**31),
    "l": 2**63 - 1,
    "f": 1.5,
    "d": -0.0,
    "day": date(1869, 12, 31),
    "at": time(23, 59, 59, 999999),
    "ts": datetime(1600, 1, 1, 0, 0, 0, 1),
    "tz": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "s": "é\0",
    "u": uuid.UUID(int=2**127 + 1),
    "x": b"\0\xff\0",
    "raw": b"",
    "dec": Decimal("-9999999999999999999999999999999999.9999"),
    "list": [Decimal("-1.50"), Decimal(0)],
    "map": [("k", 1), ("", 2)],
    "in": {"dec": Decimal(-7), "n": None},
    "pairs": [(5, "five"), (-1, "")],
}
EMPTY: dict[str, Any] = {**dict.fromkeys(VALUES), "l": 0}


def avro_file(root: Path, schema: dict[str, Any], rows: list[Any], **options: Any) -> DataFile:
    path = root / "in" / f"{uuid.uuid4()}.avro"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(schema), rows, **options)
    return DataFile(str(path), FileFormat.AVRO, 0, (), len(rows), path.stat().st_size, 1)


def orc_file(root: Path, table: pa.Table) -> DataFile:
    path = root / "in" / f"{uuid.uuid4()}.orc"
    path.parent.mkdir(parents=True, exist_ok=True)
    orc.write_table(table, str(path), stripe_size=1024)
    return DataFile(str(path), FileFormat.ORC, 0, (), table.num_rows, path.stat().st_size, 1)


def orc_col(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"iceberg.id": str(field_id).encode()})


def deletes_of(file: DataFile, kind: DeleteKind, ids: tuple[int, ...] = ()) -> DeleteFile:
    return DeleteFile(file.path, kind, file.file_format, 0, (), file.record_count, file.size_bytes, 2, ids)


def test_every_type_written_as_avro_by_pyiceberg_is_read_exactly(tmp_path: Path) -> None:
    path = tmp_path / "in.avro"
    rows = [VALUES, EMPTY]
    with AvroOutputFile[Record](PyArrowFileIO().new_output(str(path)), EVERY, "rows") as out:
        out.write_block([_record(row) for row in rows])
    file = DataFile(str(path), FileFormat.AVRO, 0, (), 2, path.stat().st_size, 1)

    output = run(task(context(tmp_path, EVERY), [file]))

    assert output.data_files[0].file_format is FileFormat.PARQUET
    assert rows_of(output) == rows


def _record(row: dict[str, Any]) -> Record:
    """The row as pyiceberg stores it."""
    epoch = datetime(1970, 1, 1)
    values = []
    for field in EVERY.fields:
        value = row[field.name]
        match value:
            case datetime():
                difference = value.replace(tzinfo=None) - epoch
                value = (difference.days * 86_400 + difference.seconds) * 10**6 + difference.microseconds
            case date():
                value = (value - epoch.date()).days
            case time():
                value = ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
            case dict():
                value = Record(*value.values())
            case [(_, _), *_]:
                value = dict(value)
        values.append(value)
    return Record(*values)


def test_nulls_in_lists_and_maps_of_avro_files_stay_where_they_are(tmp_path: Path) -> None:
    number = {"type": "fixed", "name": "fixed_2", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 1}
    pair = [
        {"name": "key", "type": "int", "field-id": 7},
        {"name": "value", "type": ["null", "fixed_2"], "field-id": 8},
    ]
    kinds = {
        "list": {"type": "array", "items": ["null", number], "element-id": 2},
        "map": {"type": "map", "values": ["null", "fixed_2"], "key-id": 4, "value-id": 5},
        "pairs": {
            "type": "array",
            "logicalType": "map",
            "items": {"type": "record", "name": "pair", "fields": pair},
        },
    }
    ids = {"list": 1, "map": 3, "pairs": 6}
    fields = [{"name": name, "type": ["null", kind], "field-id": ids[name]} for name, kind in kinds.items()]
    one = Decimal("-1.5")
    rows = [
        {"list": [one, None], "map": {"a": None, "b": one}, "pairs": [{"key": 1, "value": None}]},
        {"list": [], "map": {}, "pairs": []},
        dict.fromkeys(kinds),
    ]
    file = avro_file(tmp_path, {"type": "record", "name": "r", "fields": fields}, rows)
    schema = Schema(
        NestedField(1, "list", ListType(2, DecimalType(4, 1), element_required=False)),
        NestedField(3, "map", MapType(4, StringType(), 5, DecimalType(4, 1), value_required=False)),
        NestedField(6, "pairs", MapType(7, IntegerType(), 8, DecimalType(9, 1), value_required=False)),
    )

    output = run(task(context(tmp_path, schema), [file]))

    assert rows_of(output) == [
        {"list": [one, None], "map": [("a", None), ("b", one)], "pairs": [(1, None)]},
        {"list": [], "map": [], "pairs": []},
        dict.fromkeys(kinds),
    ]


@pytest.mark.parametrize("prefix", ["", "local-"])
@pytest.mark.parametrize(("unit", "number"), [("millis", 1_700_000_000_123), ("nanos", 1_700_000_000_123_000_000)])
def test_avro_moments_of_any_unit_are_the_same_moments(tmp_path: Path, prefix: str, unit: str, number: int) -> None:
    kind = {"type": "long", "logicalType": f"{prefix}timestamp-{unit}"}
    fields = [{"name": "ts", "type": ["null", kind], "field-id": 1}]
    file = avro_file(tmp_path, {"type": "record", "name": "r", "fields": fields}, [{"ts": number}, {"ts": None}])

    output = run(task(context(tmp_path, Schema(NestedField(1, "ts", TimestampType()))), [file]))

    assert rows_of(output) == [{"ts": datetime(2023, 11, 14, 22, 13, 20, 123000)}, {"ts": None}]


def test_avro_moments_between_microseconds_make_the_file_unreadable(tmp_path: Path) -> None:
    fields = [{"name": "ts", "type": {"type": "long", "logicalType": "timestamp-nanos"}, "field-id": 1}]
    file = avro_file(tmp_path, {"type": "record", "name": "r", "fields": fields}, [{"ts": 1_700_000_000_123_000_001}])

    with pytest.raises(UnreadableFile, match="would lose data"):
        run(task(context(tmp_path, Schema(NestedField(1, "ts", TimestampType()))), [file]))


NAMES = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "n", "type": "long", "field-id": 1},
        {"name": "s", "type": ["null", "string"], "field-id": 2},
    ],
}
TWO = Schema(NestedField(1, "n", LongType()), NestedField(2, "s", StringType()))


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "zstandard", "snappy"])
def test_avro_files_of_every_codec_are_read(tmp_path: Path, codec: str) -> None:
    rows = [{"n": n, "s": f"row {n}"} for n in range(1000)]
    if codec in ("zstandard", "snappy"):
        file = recoded(avro_file(tmp_path, NAMES, rows, sync_interval=500), codec)
    else:
        file = avro_file(tmp_path, NAMES, rows, codec=codec, sync_interval=500)

    assert rows_of(run(task(context(tmp_path, TWO), [file]))) == rows


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "zstandard", "snappy"])
def test_a_broken_block_of_any_codec_makes_the_avro_file_unreadable(tmp_path: Path, codec: str) -> None:
    rows = [{"n": n, "s": f"row {n}"} for n in range(1000)]
    if codec in ("zstandard", "snappy"):
        file = recoded(avro_file(tmp_path, NAMES, rows), codec)
    else:
        file = avro_file(tmp_path, NAMES, rows, codec=codec)
    content = bytearray(Path(file.path).read_bytes())
    content[-60:-30] = b"\xaa" * 30
    Path(file.path).write_bytes(content)

    with pytest.raises(UnreadableFile, match=f"{file.path} cannot be read as Avro"):
        run(task(context(tmp_path, TWO), [file]))


def test_an_avro_file_of_an_unknown_codec_is_unreadable_by_its_name(tmp_path: Path) -> None:
    file = recoded(avro_file(tmp_path, NAMES, [{"n": 1, "s": None}]), "lz4")

    with pytest.raises(UnreadableFile, match="compressed by lz4"):
        run(task(context(tmp_path, TWO), [file]))


def recoded(file: DataFile, codec: str) -> DataFile:
    """An uncompressed file with its blocks compressed: fastavro would need further packages to write these."""
    content = Path(file.path).read_bytes()
    sync = content[-16:]
    head, *blocks, _ = content.split(sync)
    named = codec.encode()
    head = head.replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + bytes([2 * len(named)]) + named)
    written = [head]
    for block in blocks:
        stream = io.BytesIO(block)
        count, _size = read_long(stream), read_long(stream)
        stored = stream.read()
        match codec:
            case "zstandard":
                stored = pa.Codec("zstd").compress(stored, asbytes=True)
            case "snappy":
                checksum = zlib.crc32(stored).to_bytes(4, "big")
                stored = pa.compress(stored, "snappy", asbytes=True) + checksum
        out = io.BytesIO()
        write_long(out, count)
        write_long(out, len(stored))
        written.append(out.getvalue() + stored)
    path = Path(f"{file.path}.recoded")
    path.write_bytes(sync.join([*written, b""]))
    return replace(file, path=str(path), size_bytes=path.stat().st_size)


def read_long(stream: io.BytesIO) -> int:
    return int(fastavro.schemaless_reader(stream, "long", None))


def write_long(stream: io.BytesIO, number: int) -> None:
    fastavro.schemaless_writer(stream, "long", number)


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_avro_files_of_many_blocks_lose_rows_to_deletes_of_every_kind_and_format(tmp_path: Path, codec: str) -> None:
    file = avro_file(tmp_path, NAMES, [{"n": n, "s": f"row {n}"} for n in range(1000)], codec=codec, sync_interval=500)
    keys = avro_file(tmp_path, {**NAMES, "fields": NAMES["fields"][:1]}, [{"n": n} for n in range(0, 1000, 3)])
    position_fields = [
        {"name": "file_path", "type": "string", "field-id": DELETE_PATH_FIELD_ID},
        {"name": "pos", "type": "long", "field-id": DELETE_POS_FIELD_ID},
    ]
    positions = avro_file(
        tmp_path, {**NAMES, "fields": position_fields}, [{"file_path": file.path, "pos": n} for n in (1, 4, 4)]
    )
    orc_keys = orc_file(tmp_path, pa.table([pa.array([7, 8])], schema=pa.schema([orc_col("n", pa.int64(), 1)])))
    deletes = [
        deletes_of(keys, DeleteKind.EQUALITY, (1,)),
        deletes_of(positions, DeleteKind.POSITION),
        deletes_of(orc_keys, DeleteKind.EQUALITY, (1,)),
    ]

    output = run(task(context(tmp_path, TWO), [file], deletes, output_count=2))

    expected = [n for n in range(1000) if n % 3 and n not in (1, 4, 7, 8)]
    assert rows_of(output) == [{"n": n, "s": f"row {n}"} for n in expected]


def test_keys_deleted_from_avro_and_orc_files_that_stay_become_positions(tmp_path: Path) -> None:
    rows = [{"n": n, "s": None} for n in range(100)]
    avro = avro_file(tmp_path, NAMES, rows)
    orc_columns = pa.schema([orc_col("n", pa.int64(), 1), orc_col("s", pa.string(), 2)])
    other = orc_file(tmp_path, pa.Table.from_pylist(rows, schema=orc_columns))
    keys = avro_file(tmp_path, {**NAMES, "fields": NAMES["fields"][:1]}, [{"n": 7}, {"n": 99}])
    work = task(context(tmp_path, TWO), [], [deletes_of(keys, DeleteKind.EQUALITY, (1,))], converted=[avro, other])

    output = run(work)

    made = {
        file.referenced_data_file: pq.read_table(file.path).column("pos").to_pylist() for file in output.delete_files
    }
    assert made == {avro.path: [7, 99], other.path: [7, 99]}


def test_large_avro_files_are_streamed_with_the_same_result(tmp_path: Path) -> None:
    rows = [{"n": n, "s": f"{n:05}" * 2000} for n in range(5000)]
    file = avro_file(tmp_path, NAMES, rows)
    assert file.size_bytes > SMALL_FILE_BYTES
    access = access_to(tmp_path)
    access.read_bytes = None

    output = run(task(context(tmp_path, TWO), [file]), access)

    assert rows_of(output) == rows


def test_an_avro_file_that_ends_within_a_block_is_unreadable(tmp_path: Path) -> None:
    file = avro_file(tmp_path, NAMES, [{"n": n, "s": None} for n in range(1000)], sync_interval=500)
    content = Path(file.path).read_bytes()
    for length in (len(content) - 1, len(content) - 17, len(content) // 2):
        Path(file.path).write_bytes(content[:length])
        with pytest.raises(UnreadableFile, match=file.path):
            run(task(context(tmp_path, TWO), [file]))


def test_an_orc_file_of_an_older_schema_is_read_by_field_ids(tmp_path: Path) -> None:
    inner = pa.struct([orc_col("was", pa.list_(orc_col("item", pa.int32(), 5)), 4), orc_col("gone", pa.int32(), 9)])
    columns = [orc_col("renamed", pa.int32(), 1), orc_col("in", inner, 3), orc_col("ts", pa.timestamp("us"), 6)]
    rows = [
        {"renamed": n, "in": {"was": [n, None], "gone": 1} if n % 2 else None, "ts": datetime(2024, 1, 1, 0, 0, n)}
        for n in range(50)
    ]
    file = orc_file(tmp_path, pa.Table.from_pylist(rows, schema=pa.schema(columns)))
    schema = Schema(
        NestedField(6, "ts", TimestampType()),
        NestedField(1, "n", LongType()),
        NestedField(3, "in", StructType(NestedField(4, "list", ListType(5, LongType(), element_required=False)))),
        NestedField(7, "late", StringType()),
    )

    output = run(task(context(tmp_path, schema), [file]))

    assert rows_of(output) == [
        {"ts": row["ts"], "n": row["renamed"], "in": row["in"] and {"list": row["in"]["was"]}, "late": None}
        for row in rows
    ]


def test_orc_columns_with_dots_in_their_names_are_not_taken_for_others(tmp_path: Path) -> None:
    inner = pa.struct([orc_col("b", pa.int64(), 3), orc_col("c.d", pa.int64(), 4)])
    columns = pa.schema([orc_col("a.b", pa.int64(), 1), orc_col("a", inner, 2), orc_col("ts", pa.timestamp("us"), 5)])
    moment = datetime(1969, 12, 31, 23, 59, 58, 500001)
    row = {"a.b": 1, "a": {"b": 2, "c.d": 3}, "ts": moment}
    file = orc_file(tmp_path, pa.Table.from_pylist([row], schema=columns))
    inside = StructType(NestedField(3, "b", LongType()), NestedField(4, "c.d", LongType()))
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "a", inside), NestedField(5, "ts", TimestampType()))

    output = run(task(context(tmp_path, schema), [file]))

    assert rows_of(output) == [{"n": 1, "a": {"b": 2, "c_x2Ed": 3}, "ts": moment}]


def test_orc_moments_that_arrow_cannot_hold_make_the_file_unreadable(tmp_path: Path) -> None:
    columns = pa.schema([orc_col("ts", pa.timestamp("us"), 1)])
    file = orc_file(tmp_path, pa.Table.from_pylist([{"ts": datetime(1600, 1, 1)}], schema=columns))

    with pytest.raises(UnreadableFile, match=r"cannot be read as ORC: .* out of range"):
        run(task(context(tmp_path, Schema(NestedField(1, "ts", TimestampType()))), [file]))


@pytest.mark.parametrize("file_format", [FileFormat.AVRO, FileFormat.ORC])
def test_a_file_that_is_not_of_its_format_is_unreadable(tmp_path: Path, file_format: FileFormat) -> None:
    file = data_file(tmp_path, [col("n", pa.int64(), 1)], {"n": [1]})
    other = DataFile(file.path, file_format, 0, (), 1, file.size_bytes, 1)

    with pytest.raises(UnreadableFile, match=f"{file.path} cannot be read as {file_format.name.title()}|as ORC"):
        run(task(context(tmp_path, TWO), [other]))


def test_avro_and_orc_files_tell_their_rows_without_columns(tmp_path: Path) -> None:
    avro = avro_file(tmp_path, NAMES, [{"n": n, "s": None} for n in range(10)])
    other = orc_file(tmp_path, pa.table([pa.array(range(10))], schema=pa.schema([orc_col("n", pa.int64(), 1)])))
    for file in (avro, other):
        with open_rows(access_to(tmp_path), file, None) as source:
            assert (source.rows, sum(batch.num_rows for _, batch in source.batches([]))) == (10, 10)


def test_large_rows_make_small_batches(tmp_path: Path) -> None:
    rows = [{"n": n, "s": random.Random(n).randbytes(100_000).hex()} for n in range(100)]
    columns = pa.schema([orc_col("n", pa.int64(), 1), orc_col("s", pa.string(), 2)])
    for file in (avro_file(tmp_path, NAMES, rows), orc_file(tmp_path, pa.Table.from_pylist(rows, schema=columns))):
        with open_rows(access_to(tmp_path), file, None) as source:
            found = [batch for _, batch in source.batches(["n", "s"])]
        assert [n for batch in found for n in batch.column(0).to_pylist()] == list(range(100))
        assert max(batch.num_rows for batch in found) <= 21  # of 200 kB each


@pytest.mark.parametrize("wanted", ["avro", "ORC"])
def test_tables_that_want_other_formats_written_are_refused_by_name(tmp_path: Path, wanted: str) -> None:
    file = data_file(tmp_path, [col("n", pa.int64(), 1)], {"n": [1]})

    with pytest.raises(TableRefused, match=f"write.format.default is '{wanted}', and only Parquet is") as refused:
        run(task(context(tmp_path, TWO, properties={"write.format.default": wanted}), [file]))
    assert refused.value.reason == "format"
