"""Which files the entries of a manifest are about, read past all else: the same as of entries that are read whole."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntryStatus, ManifestFile
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

from amoro_core.errors import DataFileMissing, UnreadableFile
from amoro_core.iceberg.manifest.columns import EntryPath, read_paths
from amoro_core.iceberg.manifest.reading import read_manifest
from amoro_core.model.paths import normalise
from tests.engine.commits import Change, commit
from tests.engine.writer import append, delete_where, make_catalog, make_table, remove_files, upsert
from tests.iceberg.orphan_tables import live_paths, make_site
from tests.iceberg.test_bounded import _sized, _uncompressed, manifest_of
from tests.iceberg.test_commit import SCHEMA, rows

TYPES = (
    LongType(), StringType(), DecimalType(20, 2), DateType(), BooleanType(), UUIDType(), DoubleType(), BinaryType(),
    FixedType(3),
)  # fmt: skip
VALUES = (2**40, "é", Decimal("-1.25"), 19000, True, uuid.UUID(int=7), 2.5, b"\x00\x01", b"abc")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
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


def assert_same(table: Table) -> list[EntryPath]:
    every = [one for snap in table.refresh().metadata.snapshots for one in snap.manifests(table.io)]
    for manifest in every:
        assert list(read_paths(table.io, manifest)) == whole(table.io, manifest)
    return [entry for manifest in every for entry in read_paths(table.io, manifest)]


def test_entries_with_metrics_and_deletes_are_told(table: Table) -> None:
    found = assert_same(table)
    assert {one.content for one in found} == set(DataFileContent)
    assert {one.is_live for one in found} == {True, False}


@pytest.mark.parametrize("number", range(4))
def test_entries_of_random_tables_are_told(catalog: SqlCatalog, number: int) -> None:
    assert assert_same(make_site(catalog, number, None).table)


@pytest.mark.parametrize("version", [1, 2])
def test_partitions_of_every_type_are_passed_over(catalog: SqlCatalog, version: int) -> None:
    fields = [NestedField(at, f"c{at}", kind, required=False) for at, kind in enumerate(TYPES, 1)]
    spec = PartitionSpec(
        *(PartitionField(one.field_id, 1000 + one.field_id, IdentityTransform(), f"p{one.field_id}") for one in fields)
    )
    made = make_table(catalog, "db.t", Schema(*fields), spec, version)
    for values in (VALUES, [None] * len(VALUES)):
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"file:/x/{uuid.uuid4()}",
            file_format=FileFormat.PARQUET,
            partition=Record(*values),
            record_count=2**40,
            file_size_in_bytes=2**50,
            split_offsets=[4, 2**33],
            value_counts={1: 2**40, 2: 0},
            lower_bounds={1: b"", 2: b"abc" * 90},
            key_metadata=b"k",
        )
        file.spec_id = made.spec().spec_id
        commit(made, lambda head, file=file: Change((file,)))
    assert {one.size_bytes for one in assert_same(made)} == {2**50}


def test_a_cut_anywhere_is_an_error_but_behind_the_header(table: Table) -> None:
    manifest = manifest_of(table)
    path = Path(normalise(manifest.manifest_path))
    data = path.read_bytes()
    header = data.index(data[-16:]) + 16
    for size in {*range(0, len(data), 37), *range(len(data) - 40, len(data))} - {header}:
        path.write_bytes(data[:size])
        with pytest.raises(UnreadableFile, match="can't be read"):
            list(read_paths(table.io, _sized(manifest, size)))
    path.unlink()
    with pytest.raises(DataFileMissing):
        list(read_paths(table.io, manifest))


def test_any_bit_that_turned_is_an_error_or_what_is_read_whole(table: Table) -> None:
    manifest, chance = manifest_of(table), random.Random(3)
    path = Path(normalise(manifest.manifest_path))
    data = _uncompressed(path.read_bytes())
    manifest = _sized(manifest, len(data))
    for _ in range(400):
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        try:
            expected = whole(table.io, manifest)
        except UnreadableFile:
            expected = None
        try:
            found = list(read_paths(table.io, manifest))
        except UnreadableFile:
            continue
        assert expected is None or found == expected
