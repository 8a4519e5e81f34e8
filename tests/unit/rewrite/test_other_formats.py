"""Data and delete files in Avro and ORC: read as Parquet is, written as Parquet."""

from __future__ import annotations

import io
import zlib
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType, TimestampType

from amoro_core.errors import TableRefused, UnreadableFile
from amoro_core.model.files import DataFile, DeleteKind, FileFormat

from .builders import (
    AVRO_NS,
    NS,
    access_to,
    as_delete,
    avro_file,
    col,
    context,
    data_file,
    orc_col,
    orc_file,
    rows_of,
    run,
    task,
)


@pytest.mark.parametrize("prefix", ["", "local-"])
@pytest.mark.parametrize(("unit", "number"), [("millis", 1_700_000_000_123), ("nanos", 1_700_000_000_123_000_000)])
def test_avro_moments_of_any_unit_are_the_same_moments(tmp_path: Path, prefix: str, unit: str, number: int) -> None:
    kind = {"type": "long", "logicalType": f"{prefix}timestamp-{unit}"}
    fields = [{"name": "ts", "type": ["null", kind], "field-id": 1}]
    file = avro_file(tmp_path, fields, [{"ts": number}, {"ts": None}])

    output = run(task(context(tmp_path, Schema(NestedField(1, "ts", TimestampType()))), [file]))

    assert rows_of(output) == [{"ts": datetime(2023, 11, 14, 22, 13, 20, 123000)}, {"ts": None}]


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "zstandard", "snappy"])
def test_avro_files_of_every_codec_are_read_unless_a_block_is_broken(tmp_path: Path, codec: str) -> None:
    rows = [{"n": n, "s": f"row {n}"} for n in range(1000)]
    if codec in ("zstandard", "snappy"):
        file = recoded(avro_file(tmp_path, AVRO_NS, rows, sync_interval=500), codec)
    else:
        file = avro_file(tmp_path, AVRO_NS, rows, codec=codec, sync_interval=500)
    assert rows_of(run(task(context(tmp_path, NS), [file]))) == rows
    content = bytearray(Path(file.path).read_bytes())
    content[-60:-30] = b"\xaa" * 30
    Path(file.path).write_bytes(content)
    with pytest.raises(UnreadableFile, match=f"{file.path} cannot be read as Avro"):
        run(task(context(tmp_path, NS), [file]))
    unknown = recoded(avro_file(tmp_path, AVRO_NS, rows[:1]), "lz4")
    with pytest.raises(UnreadableFile, match="compressed by lz4"):
        run(task(context(tmp_path, NS), [unknown]))


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


def test_keys_deleted_from_avro_and_orc_files_that_stay_become_positions(tmp_path: Path) -> None:
    rows = [{"n": n, "s": None} for n in range(100)]
    avro = avro_file(tmp_path, AVRO_NS, rows)
    orc_columns = pa.schema([orc_col("n", pa.int64(), 1), orc_col("s", pa.string(), 2)])
    other = orc_file(tmp_path, pa.Table.from_pylist(rows, schema=orc_columns))
    keys = avro_file(tmp_path, AVRO_NS[:1], [{"n": 7}, {"n": 99}])
    work = task(context(tmp_path, NS), [], [as_delete(keys, DeleteKind.EQUALITY, (1,))], converted=[avro, other])

    output = run(work)

    made = {
        file.referenced_data_file: pq.read_table(file.path).column("pos").to_pylist() for file in output.delete_files
    }
    assert made == {avro.path: [7, 99], other.path: [7, 99]}


def test_large_avro_files_are_streamed_with_the_same_result(tmp_path: Path) -> None:
    """Of more than a MiB where there is little memory."""
    rows = [{"n": n, "s": f"{n:05}" * 1000} for n in range(300)]
    file = avro_file(tmp_path, AVRO_NS, rows)
    access = access_to(tmp_path)
    access.read_bytes = None

    output = run(task(context(tmp_path, NS), [file]), access, memory_limit_bytes=16 << 20)

    assert rows_of(output) == rows


def test_an_avro_file_that_ends_within_a_block_is_unreadable(tmp_path: Path) -> None:
    file = avro_file(tmp_path, AVRO_NS, [{"n": n, "s": None} for n in range(1000)], sync_interval=500)
    content = Path(file.path).read_bytes()
    for length in (len(content) - 1, len(content) - 17, len(content) // 2):
        Path(file.path).write_bytes(content[:length])
        with pytest.raises(UnreadableFile, match=file.path):
            run(task(context(tmp_path, NS), [file]))


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
        run(task(context(tmp_path, NS), [other]))


@pytest.mark.parametrize("wanted", ["avro", "ORC"])
def test_tables_that_want_other_formats_written_are_refused_by_name(tmp_path: Path, wanted: str) -> None:
    file = data_file(tmp_path, [col("n", pa.int64(), 1)], {"n": [1]})

    with pytest.raises(TableRefused, match=f"write.format.default is '{wanted}', and only Parquet is") as refused:
        run(task(context(tmp_path, NS, properties={"write.format.default": wanted}), [file]))
    assert refused.value.reason == "format"
