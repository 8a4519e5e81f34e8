"""Avro files whose bytes lie: an error, or all records; never other memory, never fewer files."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import fastavro
import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from amoro_core.errors import UnreadableFile
from amoro_core.iceberg.manifest.avro import BoundedDecoder
from amoro_core.iceberg.manifest.reading import read_list, read_manifest
from amoro_core.scan.columns import PackedMap, read_bytes, read_number
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, make_table

FIELDS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    made = make_table(catalog, "db.t", SCHEMA)
    for number in range(3):
        append(made, [row(number)])
    return made.refresh()


def manifest_of(table: Table) -> ManifestFile:
    head = table.current_snapshot()
    assert head is not None
    return head.manifests(table.io)[0]


def list_of(table: Table) -> str:
    head = table.current_snapshot()
    assert head is not None
    return head.manifest_list


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 10, b"\xff" * 11 + b"\x01"])
def test_a_number_that_does_not_end_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="does not end"):
        BoundedDecoder(data).read_int()
    with pytest.raises(ValueError, match="does not end"):
        BoundedDecoder(data).read_ints(1)


@pytest.mark.parametrize(
    "data", [b"\x02", b"\x03abc", b"\x7e" + b"a" * 62, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a"]
)
def test_bytes_that_are_announced_and_not_there_are_an_error(data: bytes) -> None:
    for read in (BoundedDecoder.read_bytes, BoundedDecoder.read_utf8, BoundedDecoder.skip_bytes):
        with pytest.raises(ValueError, match="are announced"):
            read(BoundedDecoder(data))
    with pytest.raises(ValueError, match="are announced"):
        BoundedDecoder(b"\x02" + data).read_int_bytes_dict(1, {})


def test_what_fits_is_read_as_pyiceberg_reads_it() -> None:
    chance = random.Random(1)
    for _ in range(200):
        numbers = [chance.choice((0, -1, 63, 64, -65, 2**31, 2**63 - 1, -(2**63))) for _ in range(5)]
        data = b"".join(_zigzag(number) for number in numbers) + _zigzag(3) + b"abc"
        ours, theirs = BoundedDecoder(data), StreamingBinaryDecoder(data)
        assert [*ours.read_ints(4), ours.read_int()] == numbers == [*theirs.read_ints(4), theirs.read_int()]
        assert ours.read_utf8() == theirs.read_utf8() == "abc"
        assert ours.is_at_end


def test_a_cut_anywhere_in_a_manifest_is_an_error_but_behind_its_header(table: Table) -> None:
    manifest = manifest_of(table)
    path = Path(local_path(manifest.manifest_path))
    whole = path.read_bytes()
    header = whole.index(whole[-16:]) + 16  # cut there it is a whole file without entries
    for size in {*range(0, len(whole), 17), *range(len(whole) - 40, len(whole))} - {header}:
        path.write_bytes(whole[:size])
        with pytest.raises(UnreadableFile, match="can't be read"):
            read_manifest(table.io, _sized(manifest, size))
    path.write_bytes(whole[:header])
    with pytest.raises(UnreadableFile, match=f"only {header} of {len(whole)} bytes were read"):
        read_manifest(table.io, _sized(manifest, len(whole)))


def test_any_bit_that_turned_is_an_error_or_a_value(table: Table) -> None:
    manifest, chance = manifest_of(table), random.Random(2)
    path = Path(local_path(manifest.manifest_path))
    whole = _uncompressed(path.read_bytes())  # so that every bit is a record's
    manifest = _sized(manifest, len(whole))
    for _ in range(500):
        at = chance.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
        try:
            read = read_manifest(table.io, manifest)
        except UnreadableFile:
            continue
        assert len(read.entries) == 1
        # What was left packed is there and ends.
        file = read.entries[0].data_file
        for field in FIELDS:
            dict(getattr(file, field) or {})


@pytest.mark.parametrize("blocks", [(3,), (-3,), (1, -2), (200,), (-70, 2, 1)])
def test_a_packed_map_is_what_pyiceberg_reads_of_its_blocks(blocks: tuple[int, ...]) -> None:
    chance = random.Random(3)
    for is_bytes in (False, True):
        data, expected = b"", {}
        for block in blocks:
            pairs = b""
            for _ in range(abs(block)):
                key, value = chance.randrange(2**20), chance.choice((b"", b"x" * 63, b"y" * 64, b"z" * 300))
                number = chance.choice((0, -1, 2**62))
                pairs += _zigzag(key) + (_zigzag(len(value)) + value if is_bytes else _zigzag(number))
                expected[key] = value if is_bytes else number
            data += _zigzag(block) + (_zigzag(len(pairs)) if block < 0 else b"") + pairs
        decoder = BoundedDecoder(data + b"\x00rest")

        found = PackedMap(decoder.read_map(of_numbers=not is_bytes), read_bytes if is_bytes else read_number)

        assert dict(found) == expected
        assert decoder.read(4) == b"rest"
        for cut in (*range(0, min(len(data), 300), 7), len(data)):
            with pytest.raises(ValueError, match=r"announced|end"):
                BoundedDecoder(data[:cut]).read_map(of_numbers=not is_bytes)


@pytest.mark.parametrize("count", [2**40, 2**62, -(2**40)])
def test_a_packed_map_of_more_pairs_than_bytes_is_an_error_at_once(count: int) -> None:
    for of_numbers in (True, False):
        with pytest.raises(ValueError, match=r"end|announced"):
            BoundedDecoder(_zigzag(count) + b"\x02" * 40).read_map(of_numbers=of_numbers)


def test_bytes_of_a_negative_length_in_a_packed_map_are_an_error() -> None:
    with pytest.raises(ValueError, match="are announced"):
        BoundedDecoder(b"\x02\x02\x01\x00\x00").read_map(of_numbers=False)


def test_an_empty_block_does_not_end_a_file(table: Table) -> None:
    path = Path(local_path(list_of(table)))
    whole = path.read_bytes()
    mark = whole[-16:]
    start = whole.index(mark) + 16  # behind the header, which ends with it
    path.write_bytes(whole[:start] + b"\x00\x00" + mark + whole[start:])
    with pytest.raises(UnreadableFile):  # a codec has nothing that says nothing
        read_list(table.io, list_of(table))
    plain = _uncompressed(whole)
    mark = plain[-16:]
    start = plain.index(mark) + 16
    path.write_bytes(plain[:start] + b"\x00\x00" + mark + plain[start:])
    assert len(read_list(table.io, list_of(table))) == 3


def test_a_block_with_more_than_its_records_and_one_without_its_mark_are_errors(table: Table) -> None:
    path = Path(local_path(list_of(table)))
    plain = _uncompressed(path.read_bytes())
    mark = plain[-16:]
    start = plain.index(mark) + 16
    assert plain[start] == 6  # three records
    for broken in (
        plain[:start] + b"\x04" + plain[start + 1 :],
        plain[:start] + b"\x08" + plain[start + 1 :],
        plain[:-1] + b"x",
        plain + b"x",
        b"x" + plain[1:],
    ):
        path.write_bytes(broken)
        with pytest.raises(UnreadableFile):
            read_list(table.io, list_of(table))


def _zigzag(number: int) -> bytes:
    value, found = (number << 1) ^ (number >> 63), bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _sized(manifest: ManifestFile, size: int) -> ManifestFile:
    """The manifest as its list would have it with so many bytes."""
    manifest._data[1] = size
    return manifest


def _uncompressed(avro: bytes) -> bytes:
    reader = fastavro.reader(io.BytesIO(avro))
    written = io.BytesIO()
    own = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    fastavro.writer(written, json.loads(reader.metadata["avro.schema"]), list(reader), codec="null", metadata=own)
    return written.getvalue()
