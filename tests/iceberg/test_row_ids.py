"""Row ids in the metadata of format 3, and keys that the model of metadata would lose."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile as EntryFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from amoro_core.errors import CommitConflict, TableRefused
from amoro_core.iceberg.catalog.catalogs import load_table
from amoro_core.iceberg.commit import committing
from amoro_core.iceberg.maintenance import rewrite_manifests
from amoro_core.iceberg.maintenance.expiry import LostRef, stage_expiry, stage_restored, stage_return
from amoro_core.iceberg.maintenance.rewrite_manifests import ManifestSource
from amoro_core.iceberg.manifest.avro import assign_row_ids, first_row_id_of, inherit_row_ids, with_first_row_id
from amoro_core.iceberg.manifest.manifest_cache import ManifestCache, TableManifestCache
from amoro_core.iceberg.manifest.reading import read_manifest
from amoro_core.iceberg.manifest.writing import counted
from amoro_core.iceberg.pyiceberg_sandbox import lost_key, refusing_lost_keys
from amoro_core.iceberg.scan import ManifestSources, scan
from amoro_core.model.files import DataFile
from amoro_core.model.tables import TableIdentifier
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, make, row
from tests.engine.parquet_rows import local_path
from tests.engine.writer3 import upgrade
from tests.iceberg.rewriting import current, loaded, manifests, optimized, rewritten, scanned, staged
from tests.iceberg.scenarios import change_metadata, sql_config
from tests.tiers import sample

ADDED, EXISTING, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED
DATA, DELETES = ManifestContent.DATA, ManifestContent.DELETES


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Three files of 2, 3 and 1 rows in one partition, a file of 4 in another."""
    made = make(catalog, 3, BY_PART)
    for part, ids in (("a", (1, 2)), ("a", (3, 4, 5)), ("b", (10, 11, 12, 13)), ("a", (6,))):
        writer.append(made, [row(one, part) for one in ids])
    return made


def entry(status: ManifestEntryStatus, rows: int, first_row_id: int | None = None) -> ManifestEntry:
    file = EntryFile.from_args(
        _table_format_version=3, content=DataFileContent.DATA, partition=Record(), record_count=rows
    )
    file[16] = first_row_id
    return ManifestEntry.from_args(_table_format_version=3, status=status, data_file=file)


def listed(
    content: ManifestContent, first_row_id: int | None, added: int | None = 0, existing: int | None = 0
) -> ManifestFile:
    return ManifestFile.from_args(
        _table_format_version=3,
        manifest_path="m.avro",
        content=content,
        added_rows_count=added,
        existing_rows_count=existing,
        deleted_rows_count=1000,
        first_row_id=first_row_id,
    )


@pytest.mark.parametrize(
    ("manifest", "entries", "expected"),
    [
        (
            listed(DATA, 100),
            [entry(EXISTING, 5), entry(DELETED, 7), entry(EXISTING, 3, 50), entry(ADDED, 2), entry(ADDED, 1)],
            [100, None, 50, 105, 107],
        ),
        (listed(DATA, 100), [entry(DELETED, 7, 20), entry(ADDED, 2)], [20, 100]),
        *(
            (without, [entry(ADDED, 1), entry(EXISTING, 1, 7)], [None, None])
            for without in (listed(DATA, None), listed(DELETES, None), ManifestFile.from_args())
        ),
    ],
)
def test_files_inherit_in_order_and_deleted_ones_take_no_id_and_keep_theirs(
    manifest: ManifestFile, entries: list[ManifestEntry], expected: list[int | None]
) -> None:
    assert [one.data_file[16] for one in inherit_row_ids(entries, manifest)] == expected


def test_a_list_gives_ids_to_data_manifests_without_one_by_their_live_rows() -> None:
    manifests = [listed(DATA, None, 3, 4), listed(DELETES, None, 9, 9), listed(DATA, 2, 5), listed(DATA, None, 1)]
    assert assign_row_ids(manifests, 10) == ([10, None, 2, 17], 8)
    for counts in ((None, 1), (1, None)):
        with pytest.raises(ValueError, match=r"the number of rows of the manifest m\.avro is not known"):
            assign_row_ids([listed(DATA, None, *counts)], 10)


def live_ids(table: Table) -> dict[str, int | None]:
    """The first row id of each live data file by the slow reader."""
    return {file.path: file.first_row_id for file in oracle.live_files(table) if file.content == oracle.DATA}


def avro(path: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    with Path(local_path(path)).open("rb") as source:
        reader: Any = fastavro.reader(source)
        return dict(reader.metadata), list(reader)


# Inheritance and assignment


# Reading


def test_a_scan_tells_the_first_row_id_of_each_file_and_refuses_ids_that_would_be_given_again(table: Table) -> None:
    expected, fresh = live_ids(table), loaded(table)
    assert sorted(one for one in expected.values() if one is not None) == [0, 2, 5, 9]
    assert {one.data.path: one.data.first_row_id for one in scanned(fresh).files} == expected
    for next_row_id in (9, 0, None):
        fresh.metadata = fresh.metadata.model_copy(update={"next_row_id": next_row_id})
        said = f"has row ids from 9 to 9, but the table's next-row-id is {next_row_id}"
        with pytest.raises(TableRefused, match=said):
            scanned(fresh)
    with pytest.raises(TableRefused, match="format 3 lacks next-row-id") as refused:
        stage_restored(fresh, LostRef("tag", current(table)), own_metadata=True)
    assert refused.value.reason == "metadata"


def test_what_is_known_of_a_manifest_without_ids_does_not_count_once_it_has_them(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    """The first commit after an upgrade gives ids to manifests that stay as they are."""
    table = make(catalog, 2)
    writer.append(table, [row(1), row(2)])
    known = ManifestSources(TableManifestCache(10**7, least_files=1))

    def seen() -> list[DataFile]:
        found = scan(loaded(table), ["file:///"], sources=known)
        return [one.data for one in found.files]

    (before,) = seen()
    upgrade(table)
    assert seen() == [before]
    writer.append(table, [row(3)])
    after = {one.path: one.first_row_id for one in seen()}
    assert (before.first_row_id, after) == (None, live_ids(table))
    # The list names the newest manifest first.
    assert after[before.path] == 1


def test_a_cached_manifest_counts_for_one_first_row_id_and_a_counted_one_keeps_its_own(table: Table) -> None:
    (file, *_) = manifests(table)
    cache = ManifestCache()
    for first, expected in ((None, None), (70, 70), (first_row_id_of(file), first_row_id_of(file))):
        (entry,) = cache.read(table.io, with_first_row_id(file, first)).entries
        assert entry.data_file[16] == expected
    assert first_row_id_of(counted(read_manifest(table.io, file))) == first_row_id_of(file) == 9


# Commits


def new_ids(table: Table, gone: list[str]) -> list[int | None]:
    """The ids of the new files once these are rewritten; carried ones keep theirs."""
    before = live_ids(table)
    optimized(table, rewritten(table, only=gone))
    after = live_ids(table)
    kept = {path: given for path, given in before.items() if path not in gone}
    assert {path: given for path, given in after.items() if path in before} == kept
    assert {one.data.path: one.data.first_row_id for one in scanned(loaded(table)).files} == after
    return [given for path, given in after.items() if path not in before]


def test_a_commit_keeps_the_ids_of_carried_files_and_says_from_where_on_how_many_it_has_given(table: Table) -> None:
    rows = oracle.live_rows(table)
    replaced = [file.path for file in oracle.live_files(table) if file.partition == ("a",)][:2]
    count = sum(file.record_count for file in oracle.live_files(table) if file.path in replaced)
    assert loaded(table).metadata.next_row_id == 10
    assert new_ids(table, replaced) == [10]
    oracle.assert_same_rows(rows, oracle.live_rows(table))
    head, metadata = current(table), loaded(table).metadata
    header, listed = avro(head.manifest_list)
    assert (header["first-row-id"], header["format-version"], listed[0]["first_row_id"]) == ("10", "3", 10)
    # Of two manifests of ours: the outputs' rows, and no more for those that were removed.
    assert (head.first_row_id, head.added_rows, metadata.next_row_id) == (10, count, 10 + count)
    assert head.sequence_number == metadata.last_sequence_number == 5


def test_merging_manifests_keeps_every_id(table: Table) -> None:
    with table.transaction() as changing:
        changing.set_properties({"commit.manifest.min-count-to-merge": "2"})
    lonely = next(file.path for file in oracle.live_files(table) if file.partition == ("b",))
    assert new_ids(table, [lonely]) == [10]
    (manifest,) = (one for one in manifests(table) if one.added_files_count)
    assert (manifest.existing_files_count, first_row_id_of(manifest)) == (3, 10)
    # Java counts the existing rows, too: ids are skipped, and never given twice.
    assert loaded(table).metadata.next_row_id == 10 + 4 + 6


def test_entries_carried_and_removed_are_written_with_their_ids_and_added_ones_without(table: Table) -> None:
    writer.remove_files(table, [])
    first, *others = (file.path for file in oracle.live_files(table) if file.partition == ("a",))
    writer.append(table, [row(7), row(8)], files=2)
    before = live_ids(table)
    two = [path for path in before if path not in (first, *others) and before[path] >= 10]  # type: ignore[operator]

    optimized(table, rewritten(table, only=[two[0], first]))

    entries = [one for listed in avro(current(table).manifest_list)[1] for one in avro(listed["manifest_path"])[1]]
    told = {one["data_file"]["file_path"]: (one["status"], one["data_file"]["first_row_id"]) for one in entries}
    assert told[two[0]] == (DELETED.value, before[two[0]])
    assert told[two[1]] == (EXISTING.value, before[two[1]])
    assert [given for status, given in told.values() if status == ADDED.value and given is not None] == []


def test_the_first_commit_after_an_upgrade_gives_ids_to_every_file(catalog: SqlCatalog) -> None:
    for version in (1, 2):
        table = writer.make_table(catalog, f"db.old{version}", SCHEMA, format_version=version)
        writer.append(table, [row(1), row(2)])
        writer.append(table, [row(3)])
        upgrade(table)
        assert set(live_ids(table).values()) == {None}
        kept, gone = (file.path for file in oracle.live_files(table))

        optimized(table, rewritten(table, only=[gone]))

        after = live_ids(table)
        assert len(after) == 2
        assert sorted(after.values()) == [0, 1]  # type: ignore[type-var]
        assert loaded(table).metadata.next_row_id == 3
        assert after[kept] == 1


def test_an_attempt_that_another_branch_overtook_is_refused_even_if_that_gave_no_ids(table: Table) -> None:
    """pyiceberg compares sequence numbers in format 2 only: two snapshots would have the same."""
    payload = staged(table, rewritten(table))[1].payload
    ids = {"snapshot_id": 4711, "parent_snapshot_id": None}
    other = current(table).model_copy(update={**ids, "sequence_number": 5, "first_row_id": 10, "added_rows": 0})
    moved = SetSnapshotRefUpdate(ref_name="side", type=SnapshotRefType.BRANCH, snapshot_id=4711)
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=other), moved))

    with pytest.raises(CommitConflict, match="has the sequence number 5, and the table's last one is 5"):
        committing.send(table.catalog, loaded(table), payload)
    assert current(table).sequence_number == 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"first-row-id": 9}, "has row ids from 9 on, and the table's next one is 10"),
        ({"added-rows": None}, "lacks its row ids"),
        ({"first-row-id": None}, "lacks its row ids"),
    ],
)
def test_a_snapshot_with_ids_that_others_have_or_without_any_is_not_added(
    table: Table, change: dict[str, Any], told: str
) -> None:
    request = json.loads(staged(table, rewritten(table))[1].payload)
    request["updates"][0]["snapshot"] |= change
    before = loaded(table).metadata_location
    with pytest.raises(Exception, match=told):
        committing.send(table.catalog, loaded(table), json.dumps(request).encode())
    assert loaded(table).metadata_location == before


# Maintenance


@pytest.mark.parametrize("was_upgraded", [False, True])
def test_clustered_manifests_keep_every_id(catalog: SqlCatalog, table: Table, was_upgraded: bool) -> None:
    if was_upgraded:
        table = writer.make_table(catalog, "db.old", SCHEMA, BY_PART)
        for part, ids in (("a", (1, 2)), ("b", (3, 4, 5)), ("a", (6, 7, 8, 9, 10))):
            writer.append(table, [row(one, part) for one in ids])
        upgrade(table)
    with table.transaction() as changing:
        changing.set_properties({"commit.manifest.target-size-bytes": "100000"})
    before = live_ids(table)

    def source() -> ManifestSource:
        return ManifestSource(loaded(table), read_manifest, ["file:///"])

    done = rewrite_manifests.stage(source(), source, None, {})
    committing.send(table.catalog, loaded(table), done.commit.payload)

    after = live_ids(table)
    assert len(manifests(table)) == 1
    if was_upgraded:
        assert (set(before.values()), sorted(after.values(), key=str)) == ({None}, [0, 2, 7])
    else:
        assert after == before
    assert loaded(table).metadata.next_row_id == (10 if was_upgraded else 20)


@pytest.mark.parametrize("restore", ["one", "all"])
def test_an_expired_snapshot_comes_back_with_its_ids(table: Table, restore: str) -> None:
    expired = loaded(table).metadata.snapshots[1]
    before = _ids_at(table, expired.snapshot_id)
    fresh = loaded(table)
    location = fresh.metadata_location
    payload, gone = stage_expiry(fresh, {expired.snapshot_id}, (), clean=False, own_metadata=True)
    committing.send(table.catalog, fresh, payload)
    fresh = loaded(table)
    if restore == "one":
        payload, made = stage_restored(fresh, LostRef("back", expired), own_metadata=True)
        name = made.name
    else:
        payload, _, (name,) = stage_return(fresh, location, gone, own_metadata=True)
    committing.send(table.catalog, fresh, payload)

    metadata = loaded(table).metadata
    assert _ids_at(table, metadata.refs[name].snapshot_id) == before
    restored = metadata.snapshot_by_id(metadata.refs[name].snapshot_id)
    assert (restored.first_row_id, restored.added_rows, metadata.next_row_id) == (10, 0, 10)
    writer.append(table, [row(20)])
    assert loaded(table).metadata.next_row_id == 11


def _ids_at(table: Table, snapshot_id: int) -> dict[str, int | None]:
    files = oracle.files_in(loaded(table).metadata, snapshot_id)
    return {file.path: file.first_row_id for file in files}


# What pyiceberg can't


def test_pyiceberg_still_writes_no_format_3_by_itself() -> None:
    """Where it does, what we do in its place is to be removed."""
    code = """
import pyiceberg.manifest, pyiceberg.table.metadata as metadata
assert pyiceberg.manifest.DEFAULT_READ_VERSION == 2, "manifest lists are read with first row ids"
assert metadata.SUPPORTED_TABLE_FORMAT_VERSION == 2, "tables are upgraded"
try:
    metadata.TableMetadataV3.model_construct().model_dump_json()
except NotImplementedError as refused:
    assert "Writing V3" in str(refused)
else:
    raise AssertionError("metadata of format 3 is written")
import amoro_core.iceberg.pyiceberg_sandbox as guards
guards.install_guards()
assert '"format-version":3' in metadata.TableMetadataV3.model_construct().model_dump_json()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# Where the client writes the metadata file, a key that pyiceberg's model drops is refused by name, in every format


Change = Callable[[dict[str, Any]], None]
TABLE = TableIdentifier("cat", ("db",), "t")


@pytest.fixture(params=[1, 2, 3])
def kept_table(catalog: SqlCatalog, request: pytest.FixtureRequest) -> Table:
    made = writer.make_table(catalog, "db.t", SCHEMA, BY_PART, request.param)
    writer.append(made, [row(1)])
    writer.append(made, [row(2)])
    change_metadata(made, with_statistics)
    return made


def file_of(table: Table) -> Path:
    return Path(local_path(loaded(table).metadata_location))


def with_statistics(said: dict[str, Any]) -> None:
    blob = {"type": "apache-datasketches-theta-v1", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}
    sizes = {"snapshot-id": 1, "statistics-path": "/s", "file-size-in-bytes": 1}
    said["statistics"] = [
        {**sizes, "file-footer-size-in-bytes": 1, "blob-metadata": [{**blob, "properties": {"any": "thing"}}]}
    ]
    said["partition-statistics"] = [sizes]
    field = {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    said["sort-orders"].append({"order-id": 1, "fields": [field]})


def at(*path: Any) -> Change:
    """Puts an unknown key into what the path leads to."""

    def add(said: dict[str, Any]) -> None:
        for one in path:
            said = said[one]
        said["of-tomorrow"] = {"a": 1}

    return add


PLACES: list[tuple[Any, ...]] = [
    (),
    ("snapshots", 1),
    ("snapshot-log", 0),
    ("metadata-log", 0),
    ("refs", "main"),
    ("schemas", 0),
    ("schemas", 0, "fields", 2),
    ("partition-specs", 0),
    ("partition-specs", 0, "fields", 0),
    ("sort-orders", 1),
    ("sort-orders", 1, "fields", 0),
    ("statistics", 0),
    ("statistics", 0, "blob-metadata", 0),
    ("partition-statistics", 0),
]


@pytest.mark.parametrize("kept_table", [2], indirect=True)
@pytest.mark.parametrize("place", sample(PLACES, every=4), ids=lambda place: ".".join(map(str, place)) or "top")
def test_an_unknown_key_at_any_place_is_named(kept_table: Table, tmp_path: Path, place: tuple[Any, ...]) -> None:
    change_metadata(kept_table, at(*place))
    with pytest.raises(TableRefused) as refused:
        load_table(sql_config(tmp_path), TABLE)
    parts = (f"[{one}]" if isinstance(one, int) else f".{one}" for one in (*place, "of-tomorrow"))
    said = f"has the key {''.join(parts).removeprefix('.')}, which would be lost"
    assert (refused.value.reason, said in refused.value.message) == ("metadata", True), refused.value.message


def test_in_every_format_a_key_of_a_later_one_is_refused_and_known_ones_are_not(
    kept_table: Table, tmp_path: Path
) -> None:
    assert load_table(sql_config(tmp_path), TABLE).metadata == loaded(kept_table).metadata
    change_metadata(kept_table, lambda said: said.update({"next-row-id": 4}))
    if kept_table.metadata.format_version == 3:
        load_table(sql_config(tmp_path), TABLE)
    else:
        with pytest.raises(TableRefused, match="the key next-row-id"):
            load_table(sql_config(tmp_path), TABLE)
    change_metadata(kept_table, lambda said: said.pop("next-row-id"))
    change_metadata(kept_table, at("snapshots", 0))
    with pytest.raises(TableRefused, match=r"the key snapshots\[0\]\.of-tomorrow"):
        load_table(sql_config(tmp_path), TABLE)


def _made(table: Table, by: Change = lambda said: None) -> str | None:
    said = json.loads(file_of(table).read_text())
    by(said)
    text = json.dumps(said)
    return lost_key(text, TableMetadataUtil.parse_raw(text))


@pytest.mark.parametrize("kept_table", [2], indirect=True)
@pytest.mark.parametrize(
    "by",
    [
        lambda said: said.update({"of-tomorrow": None}),
        lambda said: said["snapshots"][0].update({"key-id": None}),
        lambda said: said.update({"schema": said["schemas"][0], "partition-spec": []}),
        lambda said: said["properties"].update({"any": "thing"}),
        lambda said: said["snapshots"][0]["summary"].update({"any": "thing"}),
        lambda said: said["schemas"][0].update({"identifier-field-ids": []}),
        lambda said: said.update({"current-snapshot-id": -1, "snapshots": [], "snapshot-log": [], "refs": {}}),
    ],
)
def test_what_is_null_or_kept_is_not_lost(kept_table: Table, by: Change) -> None:
    assert _made(kept_table, by) is None


def test_columns_of_every_shape_lose_nothing(catalog: SqlCatalog) -> None:
    inner = StructType(
        NestedField(20, "a", DecimalType(9, 2), required=True, doc="said"), NestedField(21, "b", FixedType(4))
    )
    schema = Schema(
        NestedField(1, "l", ListType(10, inner, element_required=False), required=False),
        NestedField(2, "m", MapType(11, StringType(), 12, ListType(13, DoubleType())), required=False),
        NestedField(3, "t", TimestamptzType(), required=True, doc="when"),
        NestedField(4, "k", LongType(), required=True),
        identifier_field_ids=[4],
    )
    table = writer.make_table(catalog, "db.t", schema)
    assert _made(table) is None
    text = file_of(table).read_text().replace('"doc":"said"', '"doc":"said","collation":"x"')
    assert lost_key(text, TableMetadataUtil.parse_raw(text)) == "schemas[0].fields[0].type.element.fields[0].collation"


@pytest.mark.parametrize("kept_table", [2], indirect=True)
def test_only_where_the_client_writes_the_metadata_is_it_refused(kept_table: Table) -> None:
    text = file_of(kept_table).read_text()
    with refusing_lost_keys(kept_table.catalog):
        for _ in range(2):
            assert TableMetadataUtil.parse_raw(text).table_uuid == kept_table.metadata.table_uuid
        with pytest.raises(TableRefused, match="the key partition-tomorrowed,"):  # a text of the same length
            TableMetadataUtil.parse_raw(text.replace("partition-statistics", "partition-tomorrowed"))
    change_metadata(kept_table, at())
    text = file_of(kept_table).read_text()
    with refusing_lost_keys(NoopCatalog("rest")):
        assert TableMetadataUtil.parse_raw(text).table_uuid == kept_table.metadata.table_uuid
    with refusing_lost_keys(kept_table.catalog), pytest.raises(TableRefused):
        TableMetadataUtil.parse_raw(text)
    assert TableMetadataUtil.parse_raw(text).table_uuid == kept_table.metadata.table_uuid
