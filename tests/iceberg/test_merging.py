from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from amoro_core.errors import CommitConflict, TableRefused
from amoro_core.iceberg.commit import committing, rewrite_files
from amoro_core.iceberg.commit.rewrite_files import stage
from amoro_core.iceberg.commit.validation_history import read_head
from amoro_core.iceberg.manifest.manifest_cache import ManifestCache
from amoro_core.iceberg.manifest.reading import Manifest, read_list, read_manifest
from amoro_core.iceberg.manifest.writing import (
    BUDGET_KEY,
    ENABLED_KEY,
    ENTRY_COST,
    MIN_COUNT_KEY,
    TARGET_SIZE_KEY,
    MergeSettings,
    in_bins,
    merge_settings,
    packed,
    within_budget,
)
from amoro_core.iceberg.table_support import refuse_table
from amoro_core.model.commits import CommitContent, Head
from amoro_core.scan.live_files import LiveFiles, ManifestIndex
from amoro_core.validation import validate
from amoro_core.validation.view import build_view
from tests.engine import writer
from tests.engine.oracle import assert_same_rows, live_files, live_rows
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, delete_where, make_table, upsert
from tests.iceberg.looking import Reader
from tests.iceberg.rewriting import current, head_of, loaded, manifests, optimized, rewritten, scanned, staged

SCHEMA = Schema(
    NestedField(1, "x", IntegerType(), required=False), NestedField(2, "region", StringType(), required=False)
)
BY_X = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x"))
ALWAYS = {MIN_COUNT_KEY: "2"}
DATA, DELETES = ManifestContent.DATA, ManifestContent.DELETES


def rows(*values: int) -> list[dict[str, Any]]:
    return [{"x": value, "region": "n"} for value in values]


def filled(catalog: SqlCatalog, properties: Mapping[str, str] = ALWAYS, **more: Any) -> Table:
    """A table of four appends, each with a manifest of its own, of which an earlier file may be rewritten."""
    table = make_table(catalog, "db.t", SCHEMA, properties=properties, **more)
    for value in range(1, 5):
        append(table, rows(value))
    return table


def counts(table: Table) -> list[tuple[ManifestContent, int, int | None, int | None, int | None]]:
    return [
        (one.content, one.partition_spec_id, one.added_files_count, one.existing_files_count, one.deleted_files_count)
        for one in manifests(table)
    ]


def entries(manifest: ManifestFile) -> list[dict[str, Any]]:
    return list(fastavro.reader(BytesIO(Path(local_path(manifest.manifest_path)).read_bytes())))


def listed(path: str, length: int, spec_id: int = 0) -> ManifestFile:
    return ManifestFile.from_args(manifest_path=path, manifest_length=length, partition_spec_id=spec_id, content=DATA)


def bins(manifests: Sequence[ManifestFile], settings: MergeSettings) -> list[str]:
    return ["".join(one.manifest_path for one in some) for some in in_bins(manifests, settings)]


# Which ones


def test_bins_are_filled_from_the_end_in_order_and_an_item_beyond_the_target_is_alone() -> None:
    assert packed([4, 9, 3, 3, 4, 8, 99, 1], int, 10) == [(4,), (9,), (3, 3, 4), (8,), (99,), (1,)]
    assert packed([5, 5, 5], int, 10) == [(5,), (5, 5)]
    assert packed([], int, 10) == []


@pytest.mark.parametrize(
    ("manifests", "settings", "expected"),
    [
        ("abc", MergeSettings(min_count=4), ["a", "b", "c"]),  # the newest bin waits for the least count
        ("abc", MergeSettings(min_count=3), ["abc"]),
        ("abcdefghij", MergeSettings(min_count=100, target_bytes=4), ["a", "b", "cdef", "ghij"]),  # older ones do not
        ("aBcD", MergeSettings(min_count=2), ["ac", "BD"]),  # never of different specs
        ("abc", MergeSettings(enabled=False, min_count=2), ["a", "b", "c"]),
    ],
)
def test_small_manifests_of_one_spec_are_binned(manifests: str, settings: MergeSettings, expected: list[str]) -> None:
    assert bins([listed(name, 1, int(name.isupper())) for name in manifests], settings) == expected


def test_what_does_not_fit_into_the_budget_with_those_before_it_falls_apart() -> None:
    a, b, c, d, e, f = (counted(name, *counts) for name, counts in zip("abcdef", COUNTED, strict=True))
    several = [(a, b), (c, d, e), (f,), (d, e)]

    def kept(most: int) -> list[str]:
        found = within_budget(several, MergeSettings(budget=most * ENTRY_COST))
        return ["".join(one.manifest_path for one in some) for some in found]

    assert kept(30) == ["ab", "cde", "f", "de"]
    assert kept(25) == ["ab", "cde", "f", "de"]
    assert kept(24) == ["ab", "cde", "f", "d", "e"]
    assert kept(18) == ["ab", "c", "d", "e", "f", "de"]
    assert kept(0) == ["a", "b", "c", "d", "e", "f", "d", "e"]


COUNTED = ((1, 2, 3), (4, 0, 0), (1, 1, 1), (2, 0, 0), (4, 0, 0), (99, 99, 99))


def counted(path: str, added: int, existing: int, deleted: int) -> ManifestFile:
    counts = {"added_files_count": added, "existing_files_count": existing, "deleted_files_count": deleted}
    return ManifestFile.from_args(manifest_path=path, manifest_length=1, partition_spec_id=0, content=DATA, **counts)


def test_manifests_without_counts_are_beyond_any_budget() -> None:
    some = (listed("a", 1), listed("b", 1))
    assert list(within_budget([some], MergeSettings(budget=timedelta(days=1)))) == [some[:1], some[1:]]


def test_a_commit_without_a_budget_merges_nothing_and_carries_all(catalog: SqlCatalog) -> None:
    table = filled(catalog, {**ALWAYS, BUDGET_KEY: "0s"})
    before, plan = live_rows(table), rewritten(table)
    assert optimized(table, plan).content is not None
    (_, *others) = manifests(table)
    assert len(others) == 4
    assert_same_rows(before, live_rows(table))


# What the table says


def test_settings_are_icebergs_unless_the_table_says_otherwise() -> None:
    assert merge_settings({}) == MergeSettings(True, 100, 8388608)
    assert merge_settings({TARGET_SIZE_KEY: "1"}).target_bytes == 1
    given = {ENABLED_KEY: "False", MIN_COUNT_KEY: "5", TARGET_SIZE_KEY: "+1024"}
    assert merge_settings(given) == MergeSettings(False, 5, 1024)
    assert merge_settings({BUDGET_KEY: "250ms"}).budget == timedelta(milliseconds=250)


@pytest.mark.parametrize(
    ("key", "value"),
    [(ENABLED_KEY, "yes"), (MIN_COUNT_KEY, "-1"), (MIN_COUNT_KEY, "1_0"), (TARGET_SIZE_KEY, "0"), (BUDGET_KEY, "-1s")],
)
def test_a_malformed_property_refuses_the_table_by_key_and_value(catalog: SqlCatalog, key: str, value: str) -> None:
    table = filled(catalog, {key: value})

    for refused in (lambda: refuse_table(table.metadata), lambda: staged(table, rewritten(table))):
        with pytest.raises(TableRefused, match=f"property {key} has the malformed value '{value}'") as told:
            refused()
        assert told.value.reason == "configuration"


# What is written


def test_small_manifests_become_one_with_the_numbers_of_their_files(catalog: SqlCatalog) -> None:
    table = filled(catalog)
    before = {file.path: file for file in live_files(table)}
    rows_before = live_rows(table)
    directory = Path(local_path(table.metadata.location), "metadata")
    files_before = {path.name for path in directory.iterdir()}

    fresh, attempt = staged(table, rewritten(table, only=[file.path for file in live_files(table)[:2]]))
    written = {path.name for path in directory.iterdir()} - files_before
    committing.send(table.catalog, fresh, attempt.payload)

    assert written == {path.rpartition("/")[2] for path in attempt.metadata_files}, "what was merged is gone"
    assert len(written) == 2
    (merged,) = manifests(table)
    assert (merged.sequence_number, merged.min_sequence_number) == (5, 3)
    assert counts(table) == [(DATA, 0, 1, 2, 2)]
    ids = [one.snapshot_id for one in loaded(table).metadata.snapshots]
    assert [
        (one["status"], ids.index(one["snapshot_id"]), one["sequence_number"], one["file_sequence_number"])
        for one in sorted(entries(merged), key=lambda one: (one["status"], one["sequence_number"]))
    ] == [(0, 2, 3, 3), (0, 3, 4, 4), (1, 4, 4, None), (2, 4, 1, 1), (2, 4, 2, 2)]
    after = {file.path: file for file in live_files(table)}
    assert {path: after[path] for path in after if path in before} == {
        path: file for path, file in before.items() if file.data_sequence > 2
    }
    assert_same_rows(rows_before, live_rows(table))
    assert sorted(loaded(table).scan().to_arrow()["x"].to_pylist()) == [1, 2, 3, 4]


def test_data_and_deletes_are_merged_apart_and_the_least_number_keeps_deletes_alive(catalog: SqlCatalog) -> None:
    table = filled(catalog)
    upsert(table, rows(1), ["x"])
    delete_where(table, lambda row: row["x"] == 2)
    upsert(table, rows(3), ["x"])
    plan = rewritten(table, only=[file.path for file in live_files(table) if file.data_sequence == 4])
    upsert(table, rows(4), ["x"])
    before = live_rows(table)

    optimized(table, plan)

    # The rewritten file carries the plan's number 7, below that of the newer delete.
    assert counts(table) == [(DATA, 0, 1, 6, 1), (DELETES, 0, 0, 4, 0)]
    assert [(one.sequence_number, one.min_sequence_number) for one in manifests(table)] == [(9, 1), (9, 5)]
    assert_same_rows(before, live_rows(table))


def test_new_position_deletes_of_converted_files_are_counted(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "db.t", SCHEMA, properties=ALWAYS)
    append(table, rows(1, 2, 3))
    append(table, rows(4))
    upsert(table, rows(1), ["x"])
    upsert(table, rows(2), ["x"])
    before = live_rows(table)

    optimized(table, rewritten(table, only=[], converted=[live_files(table)[0].path]))

    (merged,) = [one for one in manifests(table) if one.content == DELETES]
    assert (merged.added_files_count, merged.added_rows_count) == (1, 2)
    snapshot = current(table)
    names = ("added-position-deletes", "added-position-delete-files", "total-position-deletes", "total-delete-files")
    assert [snapshot.summary[name] for name in names] == ["2", "1", "2", "3"]
    assert_same_rows(before, live_rows(table))


def test_partitions_of_a_promoted_column_are_merged_in_its_newest_type(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "db.t", SCHEMA, BY_X, properties=ALWAYS)
    append(table, rows(1))
    append(table, rows(2))
    with table.update_schema() as change:
        change.update_column("x", LongType())
    append(table, rows(2**40))
    before = live_rows(table)

    optimized(table, rewritten(table, only=[live_files(table)[0].path]))

    (merged,) = manifests(table)
    assert sorted(one["data_file"]["partition"]["x"] for one in entries(merged)) == [1, 1, 2, 2**40]
    assert_same_rows(before, live_rows(table))


# Reading once


def test_no_manifest_is_read_twice_between_head_and_staging(catalog: SqlCatalog) -> None:
    table = filled(catalog)
    upsert(table, rows(1), ["x"])
    record = rewritten(table)
    upsert(table, rows(2), ["x"])
    fresh, cache = loaded(table), ManifestCache()
    head = read_head(fresh, record.snapshot_id, lambda one: scanned(one, cache.read), cache.read)
    content = validate(build_view(record, head)).content
    assert content is not None
    for one in manifests(table):
        Path(local_path(one.manifest_path)).unlink()

    attempt = stage(fresh, head, content, {}, read=cache.read)

    assert [one.deleted_files_count for one in read_list(fresh.io, attempt.manifest_list)] == [5, 1]


def test_a_cache_keeps_no_more_than_it_may_and_no_failure(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "db.t", SCHEMA)
    append(table, rows(*range(3)), files=3)
    append(table, rows(3))
    small, large = manifests(table)
    cache = ManifestCache(max_entries=2)
    hidden = Path(local_path(small.manifest_path))
    hidden.rename(hidden.with_suffix(".hidden"))
    with pytest.raises(Exception, match="does not exist"):
        cache.read(table.io, small)
    hidden.with_suffix(".hidden").rename(hidden)
    found: list[Manifest] = [cache.read(table.io, one) for one in (large, small)]

    assert [len(one.live) for one in found] == [3, 1]
    assert cache.read(table.io, small).entries is found[1].entries
    assert cache.read(table.io, large).entries is not found[0].entries
    assert read_manifest(table.io, large).live == found[0].live


# A commit reads and writes the manifests that hold what it removes, and carries the others over as they are


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = writer.make_table(writer.make_catalog(tmp_path), "db.t", SCHEMA)
    for number in range(5):
        writer.append(made, rows(2 * number, 2 * number + 1))
    writer.delete_where(made, lambda row: row["x"] == 1, per_file=True)
    writer.delete_where(made, lambda row: row["x"] == 9, per_file=True)
    return made


def rewrite_of_two(table: Table) -> tuple[Head, CommitContent]:
    """The rewrite of the first two files, and the head after another's commit."""
    oldest = sorted(writer_files(table))[:2]
    record = rewritten(table, only=[path for _, path in oldest])
    writer.append(table, rows(100))
    head = head_of(table, record.snapshot_id)
    content = validate(build_view(record, head)).content
    assert content is not None
    return head, content


def writer_files(table: Table) -> list[tuple[int, str]]:
    head = head_of(table, table.refresh().metadata.current_snapshot_id or 0)
    return [(file.data.sequence_number, file.data.path) for file in head.scan.files]


def lengths(table: Table) -> dict[str, int]:
    return {one.manifest_path: one.manifest_length for one in manifests(table)}


def test_only_manifests_with_removed_files_are_read_and_written_anew(table: Table) -> None:
    before, reader = live_rows(table).total() + 1, Reader()
    head, content = rewrite_of_two(table)
    carried = lengths(table)
    attempt = rewrite_files.stage(loaded(table), head, content, {}, read=reader, merge=False)
    assert (len(content.removed_data), len(content.removed_deletes)) == (2, 1)
    assert sorted(reader.read) == [ManifestContent.DATA] * 2 + [ManifestContent.DELETES]
    expected = live_rows(table)
    committing.send(table.catalog, loaded(table), attempt.payload)
    kept = lengths(table).items() & carried.items()
    assert len(kept) == len(carried) - 3
    assert_same_rows(expected, live_rows(table))
    assert live_rows(table).total() == before


@pytest.mark.parametrize("wrong", ["another data manifest", "another delete manifest", "none"])
def test_a_head_that_is_wrong_about_manifests_conflicts(table: Table, wrong: str) -> None:
    head, content = rewrite_of_two(table)
    live = LiveFiles.of(head.scan.files)
    parts, deletes = live.homes.parts, live.homes.deletes
    if wrong == "another data manifest":
        live.homes = ManifestIndex(parts[::-1], deletes)
    elif wrong == "another delete manifest":
        paths = list(deletes.values())
        live.homes = ManifestIndex(parts, dict(zip(deletes, reversed(paths), strict=True)))
    else:
        live.homes = ManifestIndex(("",) * len(parts), {})
    before = sorted(Path(table.location().removeprefix("file://")).rglob("*"))
    with pytest.raises(CommitConflict, match="is live 0 times on the head"):
        rewrite_files.stage(loaded(table), head, content, {})
    assert sorted(Path(table.location().removeprefix("file://")).rglob("*")) == before


def test_a_new_file_that_is_live_in_a_manifest_which_is_not_read_conflicts(table: Table) -> None:
    head, content = rewrite_of_two(table)
    removed = {file.path for file in content.removed_data}
    other = next(file.data for file in head.scan.files if file.data.path not in removed)
    for path in (other.path, f"file:{other.path.removeprefix('file://')}"):
        again = replace(content, added_data=(replace(content.added_data[0], path=path),))
        with pytest.raises(CommitConflict, match="is in the table already"):
            rewrite_files.stage(loaded(table), head, again, {})
