"""Manifests read as columns, and the paths of their entries: what is read is what entries have one by one."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from copy import copy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
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
from amoro_core.iceberg.manifest.columns import EntryPath, decode_columns, read_columns, read_paths
from amoro_core.iceberg.manifest.reading import (
    PartitionTypes,
    partition_types,
    read_bytes,
    read_list,
    read_manifest,
    to_data_file,
)
from amoro_core.iceberg.scan import _refuse_parts_outside, refuse_outside
from amoro_core.iceberg.table_support import refuse_manifest
from amoro_core.model.files import DataFile
from amoro_core.model.paths import normalise
from amoro_core.scan.columns import ColumnPart, Gathering, Names, Paths
from tests.engine.commits import Change, commit
from tests.engine.writer import append, delete_where, make_table, remove_files, upsert
from tests.iceberg.orphan_tables import live_paths, make_site
from tests.iceberg.scenarios import SCHEMA, rows
from tests.iceberg.test_bounded import _sized, _uncompressed, manifest_of
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


def files_of(part: ColumnPart) -> list[DataFile]:
    gathering = Gathering()
    gathering.take(part)
    columns = gathering.columns()
    return [columns.row(at) for at in range(len(columns))]


def at_once(table: Table, manifest: ManifestFile) -> list[DataFile] | None:
    found = read_columns(table.io, manifest, types_of(table, manifest))
    return None if found is None else files_of(found)


def data_manifests(table: Table) -> list[ManifestFile]:
    """Of all snapshots, as their lists have them."""
    lists = [read_list(table.io, one.manifest_list) for one in table.refresh().metadata.snapshots]
    return [one for some in lists for one in some if one.content == ManifestContent.DATA]


def assert_same(table: Table) -> int:
    """The number of files, all of which were read at once."""
    found = 0
    for manifest in data_manifests(table):
        expected = one_by_one(table, manifest)
        assert at_once(table, manifest) == expected
        found += len(expected)
    return found


@pytest.mark.parametrize("number", range(3))
def test_files_of_random_tables_are_read_at_once(catalog: SqlCatalog, number: int) -> None:
    table = make_site(catalog, number, None).table
    if table.format_version > 1:
        assert assert_same(table)
    else:
        assert {at_once(table, one) is None for one in data_manifests(table)} == {True}


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


@pytest.mark.parametrize("version", [2, 3])
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


def test_any_bit_that_turned_is_what_entries_say_or_nothing(table: Table) -> None:
    manifest, chance = manifest_of(table), random.Random(3)
    path = Path(normalise(manifest.manifest_path))
    data = _uncompressed(path.read_bytes())
    manifest = _sized(manifest, len(data))
    same = 0
    for _ in range(count(150, 600)):
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        found = at_once(table, manifest)
        if found is not None:
            assert found == one_by_one(table, manifest)
            same += 1
    assert same > count(20, 100)  # of bounds and paths most values are some


def test_a_manifest_that_was_cut_is_not_read_at_once(table: Table) -> None:
    manifest = manifest_of(table)
    data, types = read_bytes(table.io, manifest), types_of(table, manifest)
    header = data.index(data[-16:]) + 16
    for size in range(0, len(data), 13):
        assert decode_columns(data[:size], manifest, types) is None
    assert (
        decode_columns(data[:header], manifest, types) is None
    )  # a whole file, but its list has other numbers of files
    with pytest.raises(AmoroError, match="bytes were read"):
        read_columns(table.io, _sized(manifest, len(data) + 1), types)


def test_what_contradicts_the_manifest_list_is_not_read_at_once(table: Table) -> None:
    manifest = manifest_of(table)
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
    assert at_once(table, manifest_of(table)) is None
    with pytest.raises(AmoroError):
        one_by_one(table, manifest_of(table))


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


@pytest.fixture
def mixed(catalog: SqlCatalog) -> Table:
    made = make_table(catalog, "db.t", SCHEMA)
    append(made, rows(1, 2), files=2)
    upsert(made, rows(1), ["x"])
    delete_where(made, lambda row: row["x"] == 2)
    remove_files(made, live_paths(made)[:1])
    return made.refresh()


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


def assert_same_paths(table: Table) -> list[EntryPath]:
    every = [one for snap in table.refresh().metadata.snapshots for one in snap.manifests(table.io)]
    for manifest in every:
        assert list(read_paths(table.io, manifest)) == whole(table.io, manifest)
    return [entry for manifest in every for entry in read_paths(table.io, manifest)]


@pytest.mark.parametrize("number", range(4))
def test_entries_of_random_tables_are_told(catalog: SqlCatalog, number: int) -> None:
    assert assert_same_paths(make_site(catalog, number, None).table)


@pytest.mark.parametrize("version", [1, 2])
def test_partitions_of_every_type_are_passed_over(catalog: SqlCatalog, version: int) -> None:
    fields = [NestedField(at, f"c{at}", kind, required=False) for at, kind in enumerate(TYPES, 1)]
    partitions = (Record(*VALUES), Record(*[None] * len(VALUES)))
    files = [made_up(random.Random(at), at, one) for at, one in enumerate(partitions)]
    files[0][NAMES.index("key_metadata")] = b"k"
    assert len(assert_same_paths(made_of(catalog, files, fields, version))) == 2


def test_a_cut_anywhere_is_an_error_but_behind_the_header(mixed: Table) -> None:
    manifest = manifest_of(mixed)
    path = Path(normalise(manifest.manifest_path))
    data = path.read_bytes()
    header = data.index(data[-16:]) + 16
    for size in {*range(0, len(data), 37), *range(len(data) - 40, len(data))} - {header}:
        path.write_bytes(data[:size])
        with pytest.raises(UnreadableFile, match="can't be read"):
            list(read_paths(mixed.io, _sized(manifest, size)))
    path.unlink()
    with pytest.raises(DataFileMissing):
        list(read_paths(mixed.io, manifest))


def test_any_bit_that_turned_is_an_error_or_what_is_read_whole(mixed: Table) -> None:
    manifest, chance = manifest_of(mixed), random.Random(3)
    path = Path(normalise(manifest.manifest_path))
    data = _uncompressed(path.read_bytes())
    manifest = _sized(manifest, len(data))
    for _ in range(400):
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        try:
            expected = whole(mixed.io, manifest)
        except UnreadableFile:
            expected = None
        try:
            found = list(read_paths(mixed.io, manifest))
        except UnreadableFile:
            continue
        assert expected is None or found == expected
