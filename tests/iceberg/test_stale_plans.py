"""Plans that another writer overtook. In each schedule a row was deleted, and must stay so."""

from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import SetCurrentSchemaUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from amoro_core.errors import CommitConflict, DataFileMissing
from amoro_core.iceberg.commit.validation_history import read_head
from amoro_core.model.commits import Head
from amoro_core.model.files import DeleteKind
from tests.engine import oracle
from tests.engine.files import to_arrow
from tests.engine.oracle import assert_same_rows, live_files, live_rows
from tests.engine.parquet_rows import local_path
from tests.engine.writer import (
    EqualityDelete,
    append,
    copy_on_write,
    create_branch,
    delete_where,
    expire_snapshots,
    make_catalog,
    make_table,
    remove_files,
    rollback,
    row_delta,
    unpartitioned_spec_id,
    upsert,
)
from tests.iceberg.rewriting import head_of, loaded, optimized, rewritten, scanned
from tests.iceberg.scenarios import SCHEMA, rows

BY_REGION = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="region"))


def values(table: Table) -> list[int]:
    """The live values of x."""
    return sorted(one.record["x"] for one in oracle.live_rows_with_positions(loaded(table)))


def sequences(table: Table) -> dict[int, int]:
    """Data sequence number by number of rows, of data files."""
    return {file.record_count: file.data_sequence for file in live_files(table) if file.content == oracle.DATA}


@pytest.mark.parametrize("is_appended", [False, True], ids=["at once", "after an append"])
def test_a_position_delete_since_the_plan_is_never_lost(table: Table, is_appended: bool) -> None:
    plan = rewritten(table)
    delete_where(table, lambda row: row["x"] == 1)
    if is_appended:
        append(table, rows(5))
    before = live_rows(table)
    head = table.refresh().metadata.current_snapshot_id

    done = optimized(table, plan)

    assert (done.conflict, done.content) == (None, None)
    assert "came after the plan" in done.dropped[1]
    assert loaded(table).metadata.current_snapshot_id == head
    assert_same_rows(before, live_rows(table))
    assert 1 not in values(table)


def test_an_equality_delete_since_the_plan_goes_on_applying_to_the_outputs(table: Table) -> None:
    plan = rewritten(table)
    row_delta(table, equality_deletes=[EqualityDelete(["x"], [{"x": 1}])])
    append(table, rows(5))

    done = optimized(table, plan)
    after, fresh = values(table), loaded(table)
    append(table, rows(6))
    table.refresh().append(to_arrow(table.schema(), rows(7)))

    assert done.dropped == {}
    assert after == [2, 3, 4, 5]
    assert values(table) == [2, 3, 4, 5, 6, 7]
    assert sequences(table)[4] == plan.sequence_number == 2
    snapshot = fresh.current_snapshot()
    own = [one for one in snapshot.manifests(fresh.io) if one.added_snapshot_id == snapshot.snapshot_id]
    assert [(one.sequence_number, one.min_sequence_number) for one in own if one.added_files_count] == [(5, 2)]


@pytest.fixture
def partitioned(tmp_path: Path) -> Table:
    """Two files of the rows 1 to 4 in each of two regions."""
    made = make_table(make_catalog(tmp_path), "db.p", SCHEMA, BY_REGION)
    for region in ("n", "s"):
        append(made, rows(1, 2, region=region))
        append(made, rows(3, 4, region=region))
    return made


def test_a_copy_on_write_since_the_plan_drops_only_its_partition(partitioned: Table) -> None:
    plan = rewritten(partitioned)
    copy_on_write(partitioned, lambda row: row["x"] == 1 and row["region"] == "n")
    before = live_rows(partitioned)

    done = optimized(partitioned, plan)

    assert len(done.dropped) == 1
    assert len(done.content.removed_data) == 2
    assert_same_rows(before, live_rows(partitioned))


def test_a_global_equality_delete_since_the_plan_is_no_conflict(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path), "db.g", SCHEMA)
    append(table, rows(1, 2))
    with table.update_spec() as update:
        update.add_identity("region")
    append(table, rows(1, 3, region="s"))
    append(table, rows(4, region="s"))
    plan = rewritten(table)
    everywhere = EqualityDelete(["x"], [{"x": 1}], (), unpartitioned_spec_id(table))
    row_delta(table, equality_deletes=[everywhere])
    before = live_rows(table)

    done = optimized(table, plan)

    assert done.dropped == {}
    assert_same_rows(before, live_rows(table))
    assert values(table) == [2, 3, 4]


def test_a_converted_file_keeps_its_rows_and_takes_later_position_deletes(table: Table) -> None:
    upsert(table, rows(1), ["x"])
    (segment,) = (file.path for file in live_files(table) if file.data_sequence == 1)
    plan = rewritten(table, converted=[segment])
    delete_where(table, lambda row: row["x"] == 2)
    before = live_rows(table)

    done = optimized(table, plan)

    assert done.dropped == {}
    assert_same_rows(before, live_rows(table))
    kinds = [file.content for file in live_files(table)]
    assert kinds.count(oracle.EQUALITY_DELETES) == 0
    assert kinds.count(oracle.POSITION_DELETES) == 2


def test_two_optimizers_never_uncover_a_row(table: Table) -> None:
    """One rewrites and leaves a newer equality delete to later readers; the other folds and removes just that one."""
    first = rewritten(table)
    row_delta(table, equality_deletes=[EqualityDelete(["x"], [{"x": 1}])])
    (segment,) = (file.path for file in live_files(table) if file.content == oracle.DATA and file.data_sequence == 1)
    others = [file.path for file in live_files(table) if file.content == oracle.DATA and file.path != segment]
    second = rewritten(table, converted=[segment, *others])
    assert optimized(table, second).dropped == {}
    before = live_rows(table)

    done = optimized(table, first)

    assert done.content is None
    assert [reason for reason in done.dropped.values() if "was removed meanwhile" in reason]
    assert_same_rows(before, live_rows(table))
    assert values(table) == [2, 3, 4]


def test_a_rewrite_is_committed_once_however_often_it_is_tried(table: Table) -> None:
    plan = rewritten(table)
    before = live_rows(table)

    assert optimized(table, plan).dropped == {}
    second = optimized(table, plan)

    assert "is no longer live" in second.dropped[1]
    assert_same_rows(before, live_rows(table))


def test_a_plan_on_a_snapshot_that_was_rolled_back_conflicts(table: Table) -> None:
    old = table.refresh().metadata.current_snapshot_id
    assert old is not None
    append(table, rows(5))
    plan = rewritten(table)
    rollback(table, old)

    done = optimized(table, plan)

    assert done.conflict is not None
    assert "does not descend" in done.conflict
    assert values(table) == [1, 2, 3, 4]


def test_a_plan_whose_history_was_expired_conflicts(table: Table) -> None:
    plan = rewritten(table)
    append(table, rows(5))
    append(table, rows(6))
    expire_snapshots(table)

    done = optimized(table, plan)

    assert done.conflict is not None
    assert "it can no longer be told" in done.conflict


def test_a_column_dropped_before_the_plan_and_back_after_it_conflicts(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("region")
    plan = rewritten(table)
    change = (SetCurrentSchemaUpdate(schema_id=table.metadata.schemas[0].schema_id),)
    table.catalog.commit_table(table, (), change)

    done = optimized(table, plan)

    assert done.conflict == "columns of the table are not in the rewritten files: field ids [2]"


#


REGIONS = Schema(
    NestedField(1, "x", LongType(), required=False),
    NestedField(2, "s", StructType(NestedField(3, "y", StringType(), required=False)), required=False),
)


@pytest.fixture
def regions(tmp_path: Path) -> Table:
    made = make_table(make_catalog(tmp_path), "db.t", REGIONS)
    append(made, [{"x": 1}, {"x": 2}])
    return made


def snapshot_id(table: Table) -> int:
    found = loaded(table).metadata.current_snapshot_id
    assert found is not None
    return found


def delete(table: Table, value: int) -> str:
    """Delete a value by equality and return the delete file's path."""
    row_delta(table, equality_deletes=[EqualityDelete(["x"], [{"x": value}])])
    return [file.path for file in live_files(table) if file.content == oracle.EQUALITY_DELETES][-1]


def removed(head: Head) -> list[tuple[str, int]]:
    assert head.removed_equality_deletes is not None
    return [(one.path, one.sequence_number) for one in head.removed_equality_deletes]


def test_equality_deletes_removed_since_the_plan_are_named(regions: Table) -> None:
    remove_files(regions, [delete(regions, 7)])  # before the plan
    older = delete(regions, 1)
    planned = snapshot_id(regions)
    newer, kept = delete(regions, 2), delete(regions, 3)
    remove_files(regions, [older])
    remove_files(regions, [newer])

    head = head_of(regions, planned)

    assert head.descends is True
    assert sorted(removed(head)) == sorted([(older, 4), (newer, 5)])
    assert {one.path for one in head.scan.dangling if one.kind is DeleteKind.EQUALITY} == set()
    assert {one.path for file in head.scan.files for one in file.deletes} == {kept}


def without(table: Table, gone: int) -> Table:
    """The table as it is, of which that snapshot was expired."""
    fresh = loaded(table)
    left = [one for one in fresh.metadata.snapshots if one.snapshot_id != gone]
    fresh.metadata = fresh.metadata.model_copy(update={"snapshots": left})
    return fresh


def test_an_expired_plan_is_known_by_its_child_and_by_none_after_it(regions: Table) -> None:
    planned = snapshot_id(regions)
    gone = delete(regions, 2)
    child = snapshot_id(regions)
    remove_files(regions, [gone])

    head = read_head(without(regions, planned), planned, scanned)
    unknown = read_head(without(regions, child), planned, scanned)

    assert (head.descends, removed(head)) == (True, [(gone, 2)])
    assert (unknown.descends, unknown.removed_equality_deletes) == (None, None)


def test_a_plan_on_a_branch_is_no_ancestor_of_main_and_a_ring_of_parents_says_nothing(regions: Table) -> None:
    create_branch(regions, "audit")
    append(regions, [{"x": 3}], branch="audit")
    planned = loaded(regions).metadata.refs["audit"].snapshot_id
    append(regions, [{"x": 4}])
    assert head_of(regions, planned).descends is False

    fresh = without(regions, planned)
    first, second = fresh.metadata.snapshots
    ring = [first.model_copy(update={"parent_snapshot_id": second.snapshot_id}), second]
    fresh.metadata = fresh.metadata.model_copy(update={"snapshots": ring})
    assert read_head(fresh, 4711, scanned).descends is None


def test_a_delete_left_out_without_an_entry_counts_as_removed(regions: Table) -> None:
    planned = snapshot_id(regions)
    gone = delete(regions, 2)
    fresh = loaded(regions)
    found = scanned(fresh)
    bare = type(found)(found.snapshot_id, found.sequence_number, tuple(type(one)(one.data) for one in found.files))

    assert removed(read_head(fresh, planned, lambda _: bare)) == [(gone, 2)]


def test_a_table_without_snapshot_conflicts(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path), "db.empty", REGIONS)

    with pytest.raises(CommitConflict, match=r"the table db\.empty has no snapshot left"):
        read_head(table, 1, scanned)


def test_a_missing_manifest_list_of_the_history_is_named(regions: Table) -> None:
    planned = snapshot_id(regions)
    append(regions, [{"x": 3}])
    middle = loaded(regions).current_snapshot()
    append(regions, [{"x": 4}])
    Path(local_path(middle.manifest_list)).unlink()

    with pytest.raises(DataFileMissing, match=r"the manifest list .* does not exist"):
        head_of(regions, planned)
