"""The tests' own engine: pyiceberg reads what it writes, and its oracle follows the specification."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, StringType

from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SPECS, as_pyiceberg_reads, by_content, ids, make, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files, write_position_deletes
from tests.engine.oracle import DATA, EQUALITY_DELETES, POSITION_DELETES, assert_same_rows, live_files, live_rows
from tests.engine.parquet_rows import local_path
from tests.engine.values import rows_of


@pytest.fixture
def catalog(tmp_path: Path):
    opened = writer.make_catalog(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_appended_rows_are_read_back_by_the_oracle_and_by_pyiceberg(catalog, version, spec):
    table = make(catalog, version, spec)
    rows = [row(1), row(2, "b"), row(2, "b"), row(3, None), row(None, "a", None)]
    writer.append(table, rows, files=2)
    expected = rows_of(table.schema(), rows)
    assert live_rows(table) == expected
    assert as_pyiceberg_reads(table) == expected
    assert len(live_files(table)) == (2 if spec is UNPARTITIONED_PARTITION_SPEC else 5)
    assert {file.data_sequence for file in live_files(table)} == {0 if version == 1 else 1}


def test_partitioned_append_puts_every_row_into_the_file_of_its_partition(catalog):
    table = make(catalog, spec=BY_PART)
    writer.append(table, [row(1, "a"), row(2, "b/c d"), row(3, None), row(4, "a")])
    partitions = {file.path: file.partition for file in live_files(table)}
    assert sorted(map(repr, partitions.values())) == ["('a',)", "('b/c d',)", "(None,)"]
    for live in oracle.live_rows_with_positions(table):
        assert partitions[live.path] == (live.record["part"],)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_copy_on_write_removes_and_updates_rows_with_a_new_sequence_number(catalog, version, spec):
    table = make(catalog, version, spec)
    writer.append(table, [row(1), row(2), row(3, "b")])
    writer.append(table, [row(4, "c")])
    writer.copy_on_write(table, lambda r: r["id"] == 1)
    writer.copy_on_write(table, lambda r: r["id"] == 3, lambda r: {**r, "value": "new"})
    expected = rows_of(table.schema(), [row(2), row(3, "b", "new"), row(4, "c")])
    assert live_rows(table) == expected
    assert as_pyiceberg_reads(table) == expected
    sequences = {live.record["id"]: live.path for live in oracle.live_rows_with_positions(table)}
    numbers = {file.path: file.data_sequence for file in live_files(table)}
    together = spec is UNPARTITIONED_PARTITION_SPEC
    expected_numbers = {2: 4 if together else 3, 3: 4, 4: 2} if version == 2 else {2: 0, 3: 0, 4: 0}
    assert {id_: numbers[path] for id_, path in sequences.items()} == expected_numbers


def test_copy_on_write_that_matches_nothing_makes_no_snapshot(catalog):
    table = make(catalog)
    head = writer.append(table, [row(1)])
    assert writer.copy_on_write(table, lambda r: False) is None
    assert table.refresh().current_snapshot().snapshot_id == head.snapshot_id


def test_copy_on_write_keeps_rows_deleted_that_were_deleted_before(catalog):
    table = make(catalog)
    writer.append(table, [row(1), row(2), row(3), row(4)])
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], None, None)])
    writer.delete_where(table, lambda r: r["id"] == 2)
    writer.copy_on_write(table, lambda r: r["id"] == 3)
    assert ids(table) == [4]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_position_deletes_remove_exactly_the_matching_rows(catalog, spec):
    table = make(catalog, spec=spec)
    writer.append(table, [row(1), row(2), row(3, "b"), row(4, "b")], files=2)
    writer.delete_where(table, lambda r: r["id"] in (1, 4))
    expected = rows_of(table.schema(), [row(2), row(3, "b")])
    assert live_rows(table) == expected
    assert as_pyiceberg_reads(table) == expected
    assert by_content(table)[POSITION_DELETES] == (1 if spec is UNPARTITIONED_PARTITION_SPEC else 2)


def test_position_deletes_per_file_and_unsorted_are_read_alike(catalog):
    table = make(catalog)
    writer.append(table, [row(at) for at in range(8)], files=2)
    paths = [file.path for file in live_files(table)]
    writer.row_delta(table, position_deletes=[(paths[1], [3, 0]), (paths[0], [2, 1])], sort=False)
    assert by_content(table) == {DATA: 2, POSITION_DELETES: 1}
    assert len(ids(table)) == 4
    writer.delete_where(table, lambda r: True, per_file=True)
    assert by_content(table) == {DATA: 2, POSITION_DELETES: 3}
    assert ids(table) == []
    assert as_pyiceberg_reads(table) == Counter()
    unsorted = next(file for file in live_files(table) if file.content == POSITION_DELETES)
    written = pq.ParquetFile(local_path(unsorted.path)).read().to_pylist()
    assert [(one["file_path"], one["pos"]) for one in written] == [
        (paths[1], 3),
        (paths[1], 0),
        (paths[0], 2),
        (paths[0], 1),
    ]


def test_position_delete_files_have_the_reserved_ids_and_full_bounds(catalog):
    table = make(catalog)
    writer.append(table, [row(1), row(2), row(3)])
    writer.row_delta(table, position_deletes=[(live_files(table)[0].path, [2, 1])])
    data, delete = live_files(table)
    schema = pq.ParquetFile(local_path(delete.path)).schema_arrow
    assert [int(field.metadata[b"PARQUET:field_id"]) for field in schema] == [2147483546, 2147483545]
    [entry] = [
        e for m in table.current_snapshot().manifests(table.io) for e in m.fetch_manifest_entry(table.io) if m.content
    ]
    bounds = {
        name: (from_bytes(kind, entry.data_file.lower_bounds[id_]), from_bytes(kind, entry.data_file.upper_bounds[id_]))
        for name, id_, kind in (("path", 2147483546, StringType()), ("pos", 2147483545, LongType()))
    }
    assert bounds == {"path": (data.path, data.path), "pos": (1, 2)}
    writer.row_delta(table, position_deletes=[(data.path, [0])], with_bounds=False)
    newest = table.current_snapshot().manifests(table.io)[0].fetch_manifest_entry(table.io)[0].data_file
    assert (newest.lower_bounds or {}, newest.upper_bounds or {}) == ({}, {})


def test_position_delete_for_a_file_that_is_not_live_is_refused(catalog):
    table = make(catalog)
    writer.append(table, [row(1)])
    with pytest.raises(ValueError, match=r"not live: .*nowhere"):
        writer.row_delta(table, position_deletes=[("file:///nowhere", [0])])


def test_row_of_the_same_commit_survives_its_equality_delete(catalog):
    table = make(catalog)
    writer.append(table, [row(1, value="old"), row(2)])
    snapshot = writer.row_delta(table, [row(1, value="new")], [writer.EqualityDelete(["id"], [{"id": 1}])])
    assert live_rows(table) == rows_of(table.schema(), [row(1, value="new"), row(2)])
    assert [(file.content, file.data_sequence) for file in live_files(table)] == [
        (DATA, 1),
        (DATA, 2),
        (EQUALITY_DELETES, 2),
    ]
    assert snapshot.sequence_number == 2


def test_key_inserted_again_after_its_delete_is_there(catalog):
    table = make(catalog)
    writer.append(table, [row(1, value="first")])
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}])])
    assert live_rows(table) == Counter()
    writer.append(table, [row(1, value="second")])
    assert live_rows(table) == rows_of(table.schema(), [row(1, value="second")])


def test_equality_delete_applies_within_its_partition_only(catalog):
    table = make(catalog, spec=BY_PART)
    writer.append(table, [row(1, "a"), row(1, "b"), row(1, None)])
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], ("a",), None)])
    assert live_rows(table) == rows_of(table.schema(), [row(1, "b"), row(1, None)])
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], (None,), None)])
    assert live_rows(table) == rows_of(table.schema(), [row(1, "b")])


def test_keys_without_a_partition_are_split_by_their_own_columns_or_refused(catalog):
    table = make(catalog, spec=BY_PART)
    writer.append(table, [row(1, "a"), row(1, "b"), row(2, "a"), row(2, "b")])
    keys = [{"id": 1, "part": "a"}, {"id": 2, "part": "b"}]
    writer.row_delta(table, equality_deletes=[(["id"], keys)])
    assert live_rows(table) == rows_of(table.schema(), [row(1, "b"), row(2, "a")])
    deletes = [file for file in live_files(table) if file.content == EQUALITY_DELETES]
    assert sorted((file.partition, file.equality_ids) for file in deletes) == [(("a",), (1,)), (("b",), (1,))]
    with pytest.raises(ValueError, match="the keys lack part"):
        writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}])])


def test_equality_delete_of_an_unpartitioned_spec_is_global(catalog):
    table = make(catalog)
    writer.append(table, [row(1, "a"), row(2, "a")])
    with table.update_spec() as update:
        update.add_identity("part")
    table.refresh()
    writer.append(table, [row(1, "a"), row(1, "b"), row(3, "b")])
    global_spec = writer.unpartitioned_spec_id(table)
    assert (global_spec, table.spec().spec_id) == (0, 1)
    writer.row_delta(table, [row(1, "c")], [(["id"], [{"id": 1}], None, global_spec)])
    assert live_rows(table) == rows_of(table.schema(), [row(1, "c"), row(2, "a"), row(3, "b")])


def test_equality_delete_of_a_spec_of_void_fields_is_global(catalog):
    table = make(catalog, 1, BY_PART)
    writer.append(table, [row(1, "a"), row(2, "b")])
    with table.update_spec() as update:
        update.remove_field("part")
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    assert [str(field.transform) for field in table.refresh().spec().fields] == ["void"]
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], (), table.spec().spec_id)])
    assert live_rows(table) == rows_of(table.schema(), [row(2, "b")])


def test_partitioned_equality_delete_does_not_reach_files_of_another_spec(catalog):
    table = make(catalog)
    writer.append(table, [row(1, "a")])
    with table.update_spec() as update:
        update.add_identity("part")
    writer.append(table, [row(1, "a", "newer")])
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], ("a",), None)])
    assert live_rows(table) == rows_of(table.schema(), [row(1, "a")])
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "bucket")
    writer.append(table, [row(5, "a")])
    writer.delete_where(table, lambda r: True)
    assert sorted(file.spec_id for file in live_files(table) if file.content == POSITION_DELETES) == [0, 2]
    assert live_rows(table) == Counter()


def test_equality_delete_under_a_spec_of_void_fields_is_global(catalog):
    table = make(catalog, 1, BY_PART)
    writer.append(table, [row(1, "a"), row(2, "a"), row(1, "b")])
    with table.update_spec() as update:
        update.remove_field("part")
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    assert [str(field.transform) for field in table.spec().fields] == ["void"]
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], (None,), None)])
    assert live_rows(table) == rows_of(table.schema(), [row(2, "a")])


def test_equality_delete_does_not_reach_an_equal_partition_of_another_spec(catalog):
    table = make(catalog, spec=BY_PART)
    writer.append(table, [row(1, "same", "x")])
    with table.update_spec() as update:
        update.remove_field("part")
        update.add_identity("value")
    writer.append(table, [row(1, "y", "same")])
    writer.row_delta(table, equality_deletes=[(["id"], [{"id": 1}], ("same",), None)])
    partitions = [(file.content, file.spec_id, file.partition) for file in live_files(table)]
    assert partitions == [(DATA, 0, ("same",)), (DATA, 1, ("same",)), (EQUALITY_DELETES, 1, ("same",))]
    assert live_rows(table) == rows_of(table.schema(), [row(1, "same", "x")])


def test_upgraded_table_keeps_files_of_format_1_at_sequence_zero(catalog):
    table = make(catalog, 1)
    writer.append(table, [row(1), row(2)])
    writer.append(table, [row(3)])
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    writer.upsert(table, [row(2, value="new")], ["id"])
    assert [file.data_sequence for file in live_files(table)] == [0, 0, 1, 1]
    assert live_rows(table) == rows_of(table.schema(), [row(1), row(2, value="new"), row(3)])
    path = next(live.path for live in oracle.live_rows_with_positions(table) if live.record["id"] == 3)
    writer.remove_files(table, [path])
    assert ids(table) == [1, 2]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_upsert_replaces_rows_of_its_keys(catalog, spec):
    table = make(catalog, spec=spec)
    writer.append(table, [row(1), row(2), row(3, "b")])
    writer.upsert(table, [row(1, "a", "new"), row(4, "c", "new"), row(3, "b", "new")], ["id", "part"])
    expected = [row(1, "a", "new"), row(2), row(3, "b", "new"), row(4, "c", "new")]
    assert live_rows(table) == rows_of(table.schema(), expected)
    assert by_content(table)[EQUALITY_DELETES] == (1 if spec is UNPARTITIONED_PARTITION_SPEC else 3)


def test_last_row_of_a_key_wins_within_one_upsert_by_position_deletes_of_the_same_sequence(catalog):
    table = make(catalog)
    writer.append(table, [row(1, value="0")])
    writer.upsert(table, [row(1, value="1"), row(2), row(1, value="2"), row(1, value="3")], ["id"])
    assert live_rows(table) == rows_of(table.schema(), [row(1, value="3"), row(2)])
    assert by_content(table) == {DATA: 3, POSITION_DELETES: 1, EQUALITY_DELETES: 1}
    assert [file.data_sequence for file in live_files(table)] == [1, 2, 2, 2, 2]


def test_position_deletes_older_than_their_data_file_do_nothing(catalog):
    table = make(catalog)
    [file] = write_data_files(table, [row(1), row(2)])
    deletes = [write_position_deletes(table, 0, (), [(file.file_path, position)]) for position in (0, 1)]
    commit(table, lambda head: Change((deletes[0],)))
    commit(table, lambda head: Change((file,)))
    assert ids(table) == [1, 2]
    assert as_pyiceberg_reads(table) == live_rows(table)
    commit(table, lambda head: Change((deletes[1],)))
    assert ids(table) == [1]
    assert as_pyiceberg_reads(table) == live_rows(table)


def test_key_of_several_columns_needs_all_of_them_equal(catalog):
    table = make(catalog)
    writer.append(table, [row(1, "a"), row(1, "b"), row(2, "a"), row(None, "a"), row(None, None)])
    writer.row_delta(table, equality_deletes=[([1, 2], [{"id": 1, "part": "a"}, {"id": None, "part": None}])])
    assert live_rows(table) == rows_of(table.schema(), [row(1, "b"), row(2, "a"), row(None, "a")])


def test_manifests_hold_equality_ids_as_ints_and_the_schema_id(catalog):
    table = make(catalog)
    writer.append(table, [row(1)])
    writer.upsert(table, [row(1)], ["id"])
    manifests = table.current_snapshot().manifests(table.io)
    schema, [entry] = oracle.read_avro(next(one.manifest_path for one in manifests if one.content))
    fields = next(field["type"] for field in schema["fields"] if field["name"] == "data_file")["fields"]
    [ids_type] = [field["type"] for field in fields if field["name"] == "equality_ids"]
    assert [one["items"] for one in ids_type if isinstance(one, dict)] == ["int"]
    assert entry["data_file"]["equality_ids"] == [1]


def test_manifests_without_live_entries_are_not_carried(catalog):
    table = make(catalog)
    for at in range(3):
        writer.append(table, [row(at)])
    writer.remove_files(table, [file.path for file in live_files(table)[:2]])
    assert len(table.current_snapshot().manifests(table.io)) == 3
    writer.append(table, [row(9)])
    assert len(table.current_snapshot().manifests(table.io)) == 2
    assert ids(table) == [2, 9]


def test_removing_a_file_keeps_the_sequence_numbers_of_the_others_in_its_manifest(catalog):
    table = make(catalog)
    writer.append(table, [row(1), row(2), row(3)], files=3)
    writer.append(table, [row(4)])
    gone = live_files(table)[0]
    kept = [(file.path, file.data_sequence, file.file_sequence) for file in live_files(table)[1:]]
    writer.remove_files(table, [gone.path])
    assert [(file.path, file.data_sequence, file.file_sequence) for file in live_files(table)] == kept
    with pytest.raises(ValueError, match="not live on main"):
        writer.remove_files(table, [gone.path])


def test_summaries_count_files_and_rows(catalog):
    table = make(catalog)
    writer.append(table, [row(1), row(2)], files=2)
    writer.upsert(table, [row(2)], ["id"], summary={"flink.max-committed-checkpoint-id": "7"})
    writer.delete_where(table, lambda r: r["id"] == 1)
    summaries = [snapshot.summary for snapshot in table.snapshots()]
    assert [summary.operation.value for summary in summaries] == ["append", "overwrite", "delete"]
    assert summaries[1]["flink.max-committed-checkpoint-id"] == "7"
    names = (
        "total-data-files",
        "total-records",
        "total-delete-files",
        "total-equality-deletes",
        "total-position-deletes",
    )
    assert [summaries[2][name] for name in names] == ["3", "3", "2", "1", "1"]


def test_older_snapshots_branches_and_tags_are_read_as_they_were(catalog):
    table = make(catalog)
    first = writer.append(table, [row(1)])
    writer.create_branch(table, "audit", min_snapshots_to_keep=3, max_snapshot_age_ms=1000)
    writer.create_tag(table, "v1", max_ref_age_ms=5000)
    writer.append(table, [row(2)], branch="audit")
    writer.append(table, [row(3)])
    heads = {name: table.refs()[name].snapshot_id for name in ("main", "audit", "v1")}
    found = {name: sorted(one[0] for one in live_rows(table, head)) for name, head in heads.items()}
    assert found == {"main": [1, 3], "audit": [1, 2], "v1": [1]}
    audit = table.refs()["audit"]
    assert (audit.min_snapshots_to_keep, audit.max_snapshot_age_ms) == (3, 1000)
    assert table.refs()["v1"].max_ref_age_ms == 5000
    writer.rollback(table, first.snapshot_id)
    assert ids(table) == [1]


def test_expiry_keeps_the_heads_of_refs(catalog):
    table = make(catalog)
    snapshots = [writer.append(table, [row(at)]).snapshot_id for at in range(4)]
    writer.create_tag(table, "kept", snapshots[1])
    with pytest.raises(ValueError, match="can't be expired"):
        writer.expire_snapshots(table, [snapshots[1]])
    assert writer.expire_snapshots(table, [snapshots[0]]) == [snapshots[0]]
    assert writer.expire_snapshots(table) == [snapshots[2]]
    assert writer.expire_snapshots(table) == []
    assert {one.snapshot_id for one in table.snapshots()} == {snapshots[1], snapshots[3]}
    assert ids(table) == [0, 1, 2, 3]


def test_oracle_reads_the_head_of_the_catalog_and_not_of_a_stale_table(catalog):
    table = make(catalog)
    stale = catalog.load_table("db.t")
    writer.append(table, [row(1)])
    assert stale.current_snapshot() is None
    assert ids(stale) == [1]


def test_empty_table_has_no_rows_and_no_files(catalog):
    table = make(catalog)
    assert (live_rows(table), live_files(table)) == (Counter(), [])
    assert writer.append(table, []) is None
    with pytest.raises(ValueError, match="has no snapshot 5"):
        live_rows(table, 5)


def test_delete_files_are_refused_in_format_1(catalog):
    table = make(catalog, 1)
    writer.append(table, [row(1)])
    with pytest.raises(ValueError, match="format 1 can't hold delete files"):
        writer.delete_where(table, lambda r: True)
    assert ids(table) == [1]


def test_difference_of_rows_is_told_by_count_and_example():
    assert_same_rows(Counter({(1, "a"): 2}), Counter({(1, "a"): 2}))
    with pytest.raises(AssertionError) as told:
        assert_same_rows(Counter({(1, "a"): 2, (2, "b"): 1}), Counter({(1, "a"): 1, (3, "c"): 1}))
    assert str(told.value).splitlines() == [
        "rows differ: 3 before, 2 after",
        "  missing: 2 rows",
        "    1 x (1, 'a')",
        "    1 x (2, 'b')",
        "  unexpected: 1 rows",
        "    1 x (3, 'c')",
    ]
