"""Manifests read as entries, as columns and by paths alone: all say the same, or an error where bytes lie."""

from __future__ import annotations

import io
import json
import random
import uuid
from collections import Counter
from copy import copy
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.manifest import DataFile as EntryFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    LongType,
    NestedField,
    StringType,
    UUIDType,
)

from amoro_core.errors import AmoroError, DataFileMissing, TableRefused, UnreadableFile
from amoro_core.iceberg.manifest.avro import BoundedDecoder
from amoro_core.iceberg.manifest.columns import EntryPath, decode_columns, read_columns, read_paths
from amoro_core.iceberg.manifest.reading import PartitionTypes, partition_types, read_list, read_manifest, to_data_file
from amoro_core.iceberg.scan import _refuse_parts_outside, refuse_outside
from amoro_core.iceberg.table_support import refuse_manifest
from amoro_core.model.files import DataFile
from amoro_core.model.paths import normalise
from amoro_core.scan.columns import Gathering, Names, PackedMap, Paths, read_number
from amoro_core.scan.columns import read_bytes as read_packed_bytes
from tests.engine.commits import Change, commit
from tests.engine.writer import append, make_table
from tests.iceberg.orphan_tables import make_site
from tests.iceberg.rewriting import current, manifests
from tests.tiers import count

TYPES = (
    LongType(), StringType(), DecimalType(20, 2), DateType(), BooleanType(), UUIDType(), DoubleType(), BinaryType(),
    FixedType(3),
)  # fmt: skip
VALUES = (2**40, "é", Decimal("-1.25"), 19000, True, uuid.UUID(int=7), 2.5, b"\x00\x01", b"abc")


def types_of(table: Table, manifest: ManifestFile) -> PartitionTypes:
    return partition_types(table.metadata, table.specs()[manifest.partition_spec_id])


def one_by_one(table: Table, manifest: ManifestFile) -> list[DataFile]:
    """The live files according to the entries. Raises whatever refuses them."""
    found, spec = read_manifest(table.io, manifest), table.specs()[manifest.partition_spec_id]
    refuse_manifest(found, len(spec.fields))
    return [to_data_file(entry, partition_types(table.metadata, spec)) for entry in found.live]


def at_once(table: Table, manifest: ManifestFile) -> list[DataFile] | None:
    found = read_columns(table.io, manifest, types_of(table, manifest))
    if found is None:
        return None
    gathering = Gathering()
    gathering.take(found)
    columns = gathering.columns()
    return [columns.row(at) for at in range(len(columns))]


def assert_same(table: Table) -> int:
    """The number of files of data manifests; all are read at once where the format has numbers, and paths alone."""
    found = 0
    for listed in (read_list(table.io, one.manifest_list) for one in table.refresh().metadata.snapshots):
        for manifest in listed:
            assert list(read_paths(table.io, manifest)) == whole(table.io, manifest)
            if manifest.content == ManifestContent.DATA:
                expected = one_by_one(table, manifest)
                assert at_once(table, manifest) == (expected if table.format_version > 1 else None)
                found += len(expected)
    return found


@pytest.mark.parametrize("number", range(4))
def test_files_of_random_tables_are_read_at_once(catalog: SqlCatalog, number: int) -> None:
    assert assert_same(make_site(catalog, number, None).table)


def made_of(catalog: SqlCatalog, files: list[EntryFile], fields: list[NestedField], version: int = 2) -> Table:
    """A table partitioned by each of the fields, with a manifest of the files."""
    parts = (
        PartitionField(one.field_id, 1000 + one.field_id, IdentityTransform(), f"p{one.field_id}") for one in fields
    )
    table = make_table(catalog, "db.t", Schema(*fields), PartitionSpec(*parts), version)
    for file in files:
        file.spec_id = table.spec().spec_id
    commit(table, lambda head: Change(tuple(files)))
    return table.refresh()


LISTED = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[3].fields]
NAMES = [field.name for field in DATA_FILE_TYPE[3].fields]


def made_up(chance: random.Random, number: int, partition: Record) -> EntryFile:
    """A file about which anything may be known or not."""
    maps = {
        name: {key: chance.choice((0, 1, 63, 64, 2**40)) for key in range(1, chance.randint(1, 4))}
        for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
        if chance.random() < 0.8
    }
    bounds = {
        name: {key: b"b" * chance.choice((0, 1, 8, 63, 64, 300)) for key in range(1, chance.randint(1, 4))}
        for name in ("lower_bounds", "upper_bounds")
        if chance.random() < 0.8
    }
    return EntryFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file:/x/{'é' * chance.randint(0, 70)}{number}",
        file_format=chance.choice((FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO)),
        partition=partition,
        record_count=chance.choice((1, 63, 64, 2**40)),
        file_size_in_bytes=chance.choice((1, 2**20, 2**47)),
        split_offsets=chance.choice((None, [4], [4, 2**33], list(range(4, 300)))),
        sort_order_id=chance.choice((None, 0, 1, 200)),
        **maps,
        **bounds,
    )


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_partitions_of_every_type_and_anything_that_may_be_missing_are_read_at_once(
    catalog: SqlCatalog, seed: int, version: int
) -> None:
    chance = random.Random(seed)
    fields = [NestedField(at, f"c{at}", kind, required=False) for at, kind in enumerate(TYPES, 1)]
    values = [Record(*(None if chance.random() < 0.3 else one for one in VALUES)) for _ in range(4)]
    files = [made_up(chance, number, chance.choice(values)) for number in range(60)]
    assert assert_same(made_of(catalog, files, fields, version)) == 60


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """A table with several files in its newest data manifest."""
    fields = [NestedField(1, "c1", LongType(), required=False), NestedField(2, "c2", StringType(), required=False)]
    chance = random.Random(5)
    return made_of(catalog, [made_up(chance, at, Record(at % 3, "ab"[at % 2])) for at in range(5)], fields)


def test_any_bit_that_turned_is_an_error_or_what_entries_say(table: Table) -> None:
    manifest, chance = manifests(table)[0], random.Random(3)
    path = Path(normalise(manifest.manifest_path))
    data = _uncompressed(path.read_bytes())  # so that every bit is a record's
    manifest = _sized(manifest, len(data))
    at_once_too = 0
    for _ in range(count(300, 600)):
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        columns = at_once(table, manifest)
        if columns is not None:
            assert columns == one_by_one(table, manifest)
            at_once_too += 1
        try:
            entries = read_manifest(table.io, manifest).entries
        except UnreadableFile:
            entries = None
        try:
            paths = list(read_paths(table.io, manifest))
        except UnreadableFile:
            paths = None
        if entries is not None:
            assert len(entries) == 5
            for file in (one.data_file for one in entries):  # what was left packed is there and ends
                for field in PACKED:
                    dict(getattr(file, field) or {})
            assert paths is None or paths == whole(table.io, manifest)
    assert at_once_too > count(40, 100)  # of bounds and paths most values are some


PACKED = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def test_a_manifest_that_was_cut_is_an_error_but_behind_its_header(table: Table) -> None:
    manifest, types = manifests(table)[0], types_of(table, manifests(table)[0])
    path = Path(normalise(manifest.manifest_path))
    data = path.read_bytes()
    header = data.index(data[-16:]) + 16  # cut there it is a whole file without entries
    for size in {*range(0, len(data), 29), *range(len(data) - 40, len(data))} - {header}:
        path.write_bytes(data[:size])
        for read in (read_manifest, lambda io, listed: list(read_paths(io, listed))):
            with pytest.raises(UnreadableFile, match="can't be read"):
                read(table.io, _sized(manifest, size))
        assert decode_columns(data[:size], manifest, types) is None
    path.write_bytes(data[:header])
    assert decode_columns(data[:header], manifest, types) is None  # its list has other numbers of files
    said = f"only {header} of {len(data)} bytes were read"
    for read in (read_manifest, lambda io, listed: read_columns(io, listed, types)):
        with pytest.raises(UnreadableFile, match=said):
            read(table.io, _sized(manifest, len(data)))
    path.unlink()
    with pytest.raises(DataFileMissing):
        list(read_paths(table.io, manifest))


def test_what_contradicts_the_manifest_list_is_not_read_at_once(table: Table) -> None:
    manifest = manifests(table)[0]
    types = types_of(table, manifest)
    assert read_columns(table.io, manifest, types) is not None
    for name, value in (("partition_spec_id", 9), ("added_files_count", 4), ("sequence_number", -1)):
        other = copy(manifest)
        other._data = list(manifest._data)
        other._data[LISTED.index(name)] = value
        assert read_columns(table.io, other, types) is None, name
    for wrong in (types[:1], (StringType(), LongType())):
        assert read_columns(table.io, manifest, wrong) is None


@pytest.mark.parametrize(
    "odd",
    [
        {"key_metadata": b"k"},
        {"record_count": 5, "file_size_in_bytes": 0},
        {"file_size_in_bytes": 2**48},
        {"record_count": -1},
        {"file_format": FileFormat.PUFFIN},
    ],
)
def test_a_file_that_is_refused_is_not_read_at_once(catalog: SqlCatalog, odd: dict[str, Any]) -> None:
    files = [made_up(random.Random(at), at, Record(1)) for at in range(3)]
    for name, value in odd.items():
        files[1][NAMES.index(name)] = value
    table = made_of(catalog, files, [NestedField(1, "c1", LongType(), required=False)])
    manifest = manifests(table)[0]
    assert at_once(table, manifest) is None
    with pytest.raises(AmoroError):
        one_by_one(table, manifest)
    assert list(read_paths(table.io, manifest)) == whole(table.io, manifest)


# Where data files lie is told by their directories, with the same outcome as path by path


LOCATIONS = ("/w/t", "s3://bucket/t", "s3://bucket/other/file", "hdfs://h/t")
PARTS = ("w", "t", "data", "file", "..", ".", "", "bucket", "other", "f.parquet", "a\0b", "t2")
STARTS = (
    "/",
    "file:/",
    "file:///",
    "s3://bucket/",
    "s3a://bucket/",
    "hdfs://h/",
    "",
    "s3:/",
    "file://w/",
    "/w/t/",
    "/w/t/data/",
)


def of(paths: list[str]) -> Paths:
    return Paths(pa.array(paths, pa.string()))


def outcome(paths: list[str], *, by_columns: bool) -> str | None:
    try:
        if by_columns:
            _refuse_parts_outside([of(paths[:1]), of(paths[1:])], LOCATIONS, "")
        else:
            refuse_outside(paths, LOCATIONS)
    except TableRefused as refusal:
        return refusal.message
    return None


def test_random_paths_are_refused_as_one_by_one() -> None:
    chance, seen = random.Random(5), Counter[bool]()
    for _ in range(4000):
        paths = [
            chance.choice(STARTS) + "/".join(chance.choices(PARTS, k=chance.randint(0, 4)))
            for _ in range(chance.choice([1, 1, 2, 4]))
        ]
        expected = outcome(paths, by_columns=False)
        assert outcome(paths, by_columns=True) == expected, paths
        seen[expected is None] += 1
    assert min(seen.values()) > 200


def test_a_directory_that_links_lead_out_of_the_locations_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t" / "data").symlink_to(tmp_path / "elsewhere")
    paths = of([f"{tmp_path}/t/data/f.parquet"])
    with pytest.raises(TableRefused, match="links lead"):
        _refuse_parts_outside([paths], (f"{tmp_path}/t",), "")


def test_a_path_that_is_live_twice_is_found_however_it_is_spelled() -> None:
    chance = random.Random(6)
    starts = ("/t/", "file:/t/", "file:///t/", "s3://t/", "s3a://t/", "/./t/", "FILE:/t/", "//t/")
    seen: Counter[bool] = Counter()
    for _ in range(3000):
        some = chance.choices(starts, k=chance.choice([1, 1, 2]))
        paths = [chance.choice(some) + str(chance.randrange(30)) for _ in range(chance.randint(0, 8))]
        counts = Counter(map(normalise, paths))
        cut = chance.randint(0, len(paths))
        found = Names([of(paths[:cut]), of(paths[cut:])]).repeated()
        assert (found is None) is (max(counts.values(), default=1) == 1), paths
        assert found is None or counts[found] > 1
        seen[found is None] += 1
    assert min(seen.values()) > 200


# Which files the entries of a manifest are about, read past all else: the same as of entries that are read whole


def whole(io: FileIO, manifest: ManifestFile) -> list[EntryPath]:
    entries = read_manifest(io, manifest).entries
    return [
        EntryPath(
            one.status != ManifestEntryStatus.DELETED,
            one.data_file.content,
            one.data_file.file_path,
            one.data_file.file_size_in_bytes,
        )
        for one in entries
    ]


# Avro whose bytes lie: an error, or all records; never other memory, never fewer files


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

        found = PackedMap(decoder.read_map(of_numbers=not is_bytes), read_packed_bytes if is_bytes else read_number)

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


def _zigzag(number: int) -> bytes:
    value, found = (number << 1) ^ (number >> 63), bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_block_of_a_list_that_is_empty_has_more_than_its_records_or_no_mark(table: Table, is_plain: bool) -> None:
    append(table, [{"c1": 1, "c2": "a"}])
    append(table, [{"c1": 2, "c2": "a"}])
    head = current(table)
    path = Path(normalise(head.manifest_list))
    whole = _uncompressed(path.read_bytes()) if is_plain else path.read_bytes()
    mark = whole[-16:]
    start = whole.index(mark) + 16  # behind the header, which ends with it
    assert whole[start] == 6  # three records
    broken = [whole[:-1] + b"x", whole + b"x", b"x" + whole[1:]]
    broken += [whole[:start] + count + whole[start + 1 :] for count in (b"\x04", b"\x08")]
    with_empty_block = whole[:start] + b"\x00\x00" + mark + whole[start:]
    for content in broken if is_plain else [*broken, with_empty_block]:  # a codec has nothing that says nothing
        path.write_bytes(content)
        with pytest.raises(UnreadableFile):
            read_list(table.io, head.manifest_list)
    if is_plain:
        path.write_bytes(with_empty_block)
        assert len(read_list(table.io, head.manifest_list)) == 3


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
