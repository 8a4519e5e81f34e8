"""Data manifests that lose files: spliced, they hold what they hold when every entry is decoded and encoded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.iceberg.commit import committing
from amoro_core.iceberg.commit.rewrite_files import stage
from amoro_core.iceberg.manifest import spliced_manifests
from amoro_core.iceberg.manifest.avro_schema import with_first_row_id
from amoro_core.iceberg.manifest.entries import partition_types
from amoro_core.iceberg.manifest.reading import Manifest, read_bytes, read_list, read_manifest
from amoro_core.iceberg.manifest.spliced_manifests import Source, Spliced, splice
from amoro_core.iceberg.manifest.writing import MIN_COUNT_KEY, deleted_entry, existing_entry, write_manifest
from amoro_core.model.paths import normalise
from amoro_core.validation import validate
from amoro_core.validation.view import build_view
from tests.engine.oracle import assert_same_rows, live_rows
from tests.engine.writer import append, make_catalog, make_table, remove_files
from tests.iceberg.orphan_tables import live_paths
from tests.iceberg.rewriting import head_of, loaded, rewritten
from tests.iceberg.test_column_reading import data_manifests, made_of, made_up
from tests.iceberg.test_commit import SCHEMA, rows
from tests.iceberg.test_entry_paths import TYPES, VALUES

OURS = 77


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()


def source_of(table: Table, manifest: ManifestFile) -> Source:
    types = partition_types(table.metadata, table.specs()[manifest.partition_spec_id])
    data = read_bytes(table.io, manifest)
    return Source(manifest, data, types, table.metadata.format_version, OURS)


def spliced(table: Table, manifest: ManifestFile, paths: set[str]) -> Spliced | None:
    return splice(source_of(table, manifest), frozenset(paths), lambda found: list(found.entries))


def encoded(table: Table, manifest: ManifestFile, paths: set[str]) -> ManifestFile:
    """The same manifest by decoding each entry."""
    found = read_manifest(table.io, manifest)
    entries = [
        deleted_entry(one, OURS) if one.data_file.file_path in paths else existing_entry(one) for one in found.live
    ]
    path = f"{table.location()}/metadata/encoded.avro"
    version = table.metadata.format_version
    return write_manifest(table.io, path, version, manifest.content, found.header, OURS, entries)


def read_back(table: Table, listed: ManifestFile) -> Manifest:
    """With the ids of rows that entries have themselves."""
    return read_manifest(table.io, with_first_row_id(listed, 0 if table.metadata.format_version > 2 else None))


def written(table: Table, made: Spliced) -> ManifestFile:
    path = f"{table.location()}/metadata/spliced.avro"
    with table.io.new_output(path).create(overwrite=True) as target:
        target.write(made.content)
    made.listed[0] = path
    return made.listed


def values_of(entry: ManifestEntry) -> list[Any]:
    file = [dict(one) if hasattr(one, "items") else one for one in entry.data_file._data]
    return [*entry._data[:4], file]


def assert_same(table: Table, manifest: ManifestFile, paths: set[str]) -> None:
    made = spliced(table, manifest, paths)
    assert made is not None
    ours, theirs = written(table, made), encoded(table, manifest, paths)
    assert [values_of(one) for one in read_back(table, ours).entries] == [
        values_of(one) for one in read_back(table, theirs).entries
    ]
    assert ours._data[2:] == theirs._data[2:]  # all but path and length
    assert ours.manifest_length == len(read_bytes(table.io, ours))
    assert {one.data_file.file_path for one in made.gone} == paths
    headers = [replace(read_back(table, one).header, content=None) for one in (ours, theirs)]
    assert headers[0] == headers[1]


def some_of(chance: random.Random, table: Table, manifest: ManifestFile) -> set[str]:
    paths = [one.data_file.file_path for one in read_manifest(table.io, manifest).live]
    return set(chance.sample(paths, k=chance.randint(1, len(paths)))) if paths else set()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_entries_of_every_kind_are_carried_over_as_they_are(catalog: SqlCatalog, seed: int, version: int) -> None:
    chance = random.Random(seed)
    fields = [NestedField(at, f"c{at}", kind, required=False) for at, kind in enumerate(TYPES, 1)]
    values = [Record(*(None if chance.random() < 0.3 else one for one in VALUES)) for _ in range(4)]
    files = [made_up(chance, number, chance.choice(values)) for number in range(30)]
    table = made_of(catalog, files, fields, version)
    (manifest,) = data_manifests(table)
    assert_same(table, manifest, some_of(chance, table, manifest))


@pytest.mark.parametrize("version", [2, 3])
def test_what_several_commits_left_is_carried_over_as_it_is(catalog: SqlCatalog, version: int) -> None:
    chance = random.Random(version)
    table = make_table(catalog, "db.t", SCHEMA, format_version=version)
    for number in range(3):
        append(table, rows(number, number + 10, number + 20), files=3)
    seen = 0
    for _ in range(3):
        remove_files(table, chance.sample(live_paths(table), k=1))
        for manifest in data_manifests(table.refresh()):
            if some := some_of(chance, table, manifest):
                assert_same(table, manifest, some)
                seen += 1
    assert seen > 9


def test_an_optimized_manifest_is_spliced_again_and_again(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "db.t", SCHEMA, properties={MIN_COUNT_KEY: "100"})
    append(table, rows(*range(8)), files=8)
    before = live_rows(table)
    for _ in range(3):
        paths = sorted(live_paths(table))[:2]
        record = rewritten(table, only=paths)
        head = head_of(table, record.snapshot_id)
        content = validate(build_view(record, head)).content
        assert content is not None
        attempt = stage(loaded(table), head, content, {})
        committing.send(table.catalog, loaded(table), attempt.payload)
        table = loaded(table)
        assert_same_rows(before, live_rows(table))


def test_spliced_manifests_are_merged_with_others(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "db.t", SCHEMA, properties={MIN_COUNT_KEY: "2"})
    for number in range(3):
        append(table, rows(number, number + 10), files=2)
    before = live_rows(table)
    record = rewritten(table, only=sorted(live_paths(table))[:2])
    head = head_of(table, record.snapshot_id)
    content = validate(build_view(record, head)).content
    assert content is not None
    states = []
    for splices in (True, False):
        attempt = stage(loaded(table), head, content, {}, splices=splices)
        listed = read_list(table.io, attempt.manifest_list)
        states.append([values_of(one)[2:] for manifest in listed for one in read_manifest(table.io, manifest).entries])
        assert len(listed) == 1
        written_files = [Path(normalise(path)) for path in attempt.metadata_files]
        assert all(path.exists() for path in written_files)
    assert sorted(map(str, states[0])) == sorted(map(str, states[1]))
    committing.send(table.catalog, loaded(table), attempt.payload)
    assert_same_rows(before, live_rows(loaded(table)))


def a_table(catalog: SqlCatalog) -> tuple[Table, ManifestFile, set[str]]:
    fields = [NestedField(1, "c1", LongType(), required=False), NestedField(2, "c2", StringType(), required=False)]
    files = [made_up(random.Random(at), at, Record(at % 3, "ab"[at % 2])) for at in range(6)]
    table = made_of(catalog, files, fields)
    (manifest,) = data_manifests(table)
    return table, manifest, {files[2].file_path, files[4].file_path}


def test_a_manifest_with_none_of_the_files_is_not_written_anew(catalog: SqlCatalog) -> None:
    table, manifest, _ = a_table(catalog)
    found = spliced(table, manifest, {"file:/x/another"})
    assert found == Spliced(b"", manifest, ())


def test_of_two_entries_of_one_path_the_confirmed_one_goes(catalog: SqlCatalog) -> None:
    files = [made_up(random.Random(at), 7, Record(at)) for at in (1, 2)]
    files[1][1] = files[0].file_path
    table = made_of(catalog, files, [NestedField(1, "c1", LongType(), required=False)])
    (manifest,) = data_manifests(table)
    made = splice(source_of(table, manifest), frozenset([files[0].file_path]), lambda found: [found.entries[1]])
    assert made is not None
    assert [one.status.name for one in read_back(table, written(table, made)).entries] == ["EXISTING", "DELETED"]


def test_what_would_have_other_files_is_not_used(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table, manifest, paths = a_table(catalog)
    write = spliced_manifests._written
    for wrong in (
        lambda entries: entries[:-1],
        lambda entries: [*entries, entries[0]],
        lambda entries: entries[::-1],
        lambda entries: [entries[0].replace(b"file:/x/", b"file:/y/"), *entries[1:]],
        lambda entries: [b"\x04" + entries[0][1:], *entries[1:]],
    ):
        monkeypatch.setattr(
            spliced_manifests, "_written", lambda metadata, entries, wrong=wrong: write(metadata, wrong(entries))
        )
        assert spliced(table, manifest, paths) is None


def test_manifests_that_can_not_be_spliced_are_left_to_decoding(catalog: SqlCatalog) -> None:
    table, manifest, paths = a_table(catalog)
    source = source_of(table, manifest)
    others = (
        replace(source, format_version=3),  # of an upgraded table
        replace(source, data=source.data[:-1]),
        replace(source, file=with_first_row_id(source.file, 5)),
    )
    assert [splice(one, frozenset(paths), lambda found: list(found.entries)) for one in others] == [None] * 3
