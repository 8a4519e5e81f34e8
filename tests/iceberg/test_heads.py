from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, StructType

from amoro_core.errors import CommitConflict, DataFileMissing
from amoro_core.iceberg.heads import read_head
from amoro_core.model.commits import Head
from amoro_core.model.files import DeleteKind
from tests.engine import oracle
from tests.engine.oracle import live_files
from tests.engine.parquet_rows import local_path
from tests.engine.writer import (
    EqualityDelete,
    append,
    create_branch,
    expire_snapshots,
    make_catalog,
    make_table,
    remove_files,
    rollback,
    row_delta,
)
from tests.iceberg.rewriting import head_of, loaded, scanned

SCHEMA = Schema(
    NestedField(1, "x", LongType(), required=False),
    NestedField(2, "s", StructType(NestedField(3, "y", StringType(), required=False)), required=False),
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = make_table(make_catalog(tmp_path), "db.t", SCHEMA)
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


def test_the_head_of_an_unchanged_table_is_the_plan(table: Table) -> None:
    planned = snapshot_id(table)
    fresh = loaded(table)

    assert head_of(table, planned) == Head(
        table_uuid=str(fresh.metadata.table_uuid),
        format_version=2,
        snapshot_id=planned,
        sequence_number=1,
        descends=True,
        field_ids=frozenset({1, 2, 3}),
        scan=scanned(fresh),
        removed_equality_deletes=(),
    )


def test_equality_deletes_removed_since_the_plan_are_named(table: Table) -> None:
    older = delete(table, 1)
    planned = snapshot_id(table)
    newer, kept = delete(table, 2), delete(table, 3)
    remove_files(table, [older])
    remove_files(table, [newer])

    head = head_of(table, planned)

    assert head.descends is True
    assert sorted(removed(head)) == sorted([(older, 2), (newer, 3)])
    assert {one.path for one in head.scan.dangling if one.kind is DeleteKind.EQUALITY} == set()
    assert {one.path for file in head.scan.files for one in file.deletes} == {kept}


def test_an_equality_delete_removed_before_the_plan_is_not_named(table: Table) -> None:
    remove_files(table, [delete(table, 1)])
    planned = snapshot_id(table)
    append(table, [{"x": 3}])

    assert removed(head_of(table, planned)) == []


def test_the_planned_snapshot_may_be_expired_while_its_child_names_it(table: Table) -> None:
    planned = snapshot_id(table)
    gone = delete(table, 2)
    remove_files(table, [gone])
    metadata = loaded(table).metadata
    without = [one for one in metadata.snapshots if one.snapshot_id != planned]
    fresh = loaded(table)
    fresh.metadata = metadata.model_copy(update={"snapshots": without})

    head = read_head(fresh, planned, scanned)

    assert (head.descends, removed(head)) == (True, [(gone, 2)])


def test_a_plan_behind_an_expired_snapshot_is_not_known_to_be_an_ancestor(table: Table) -> None:
    planned = snapshot_id(table)
    append(table, [{"x": 3}])
    middle = snapshot_id(table)
    append(table, [{"x": 4}])
    fresh = loaded(table)
    fresh.metadata = fresh.metadata.model_copy(
        update={"snapshots": [one for one in fresh.metadata.snapshots if one.snapshot_id != middle]}
    )

    head = read_head(fresh, planned, scanned)

    assert (head.descends, head.removed_equality_deletes) == (None, None)


def test_a_plan_of_an_expired_history_is_not_known_to_be_an_ancestor(table: Table) -> None:
    planned = snapshot_id(table)
    append(table, [{"x": 3}])
    append(table, [{"x": 4}])
    expire_snapshots(table)

    head = head_of(table, planned)

    assert (head.descends, head.removed_equality_deletes) == (None, None)


def test_a_plan_that_was_rolled_back_is_no_ancestor(table: Table) -> None:
    first = snapshot_id(table)
    append(table, [{"x": 3}])
    planned = snapshot_id(table)
    rollback(table, first)

    head = head_of(table, planned)

    assert (head.snapshot_id, head.descends, head.removed_equality_deletes) == (first, False, None)


def test_a_plan_on_a_branch_is_no_ancestor_of_main(table: Table) -> None:
    create_branch(table, "audit")
    append(table, [{"x": 3}], branch="audit")
    planned = loaded(table).metadata.refs["audit"].snapshot_id
    append(table, [{"x": 4}])

    assert head_of(table, planned).descends is False


def test_parents_that_form_a_ring_say_nothing(table: Table) -> None:
    append(table, [{"x": 3}])
    fresh = loaded(table)
    first, second = fresh.metadata.snapshots
    ring = [first.model_copy(update={"parent_snapshot_id": second.snapshot_id}), second]
    fresh.metadata = fresh.metadata.model_copy(update={"snapshots": ring})

    assert read_head(fresh, 4711, scanned).descends is None


def test_a_delete_left_out_without_an_entry_counts_as_removed(table: Table) -> None:
    planned = snapshot_id(table)
    gone = delete(table, 2)
    fresh = loaded(table)
    found = scanned(fresh)
    bare = type(found)(found.snapshot_id, found.sequence_number, tuple(type(one)(one.data) for one in found.files))

    assert removed(read_head(fresh, planned, lambda _: bare)) == [(gone, 2)]


def test_format_1_has_no_deletes(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path), "db.old", SCHEMA, format_version=1)
    append(table, [{"x": 1}])
    planned = snapshot_id(table)
    append(table, [{"x": 2}])

    head = head_of(table, planned)

    assert (head.format_version, head.sequence_number, head.descends, removed(head)) == (1, 0, True, [])


def test_a_table_without_snapshot_conflicts(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path), "db.empty", SCHEMA)

    with pytest.raises(CommitConflict, match=r"the table db\.empty has no snapshot left"):
        read_head(table, 1, scanned)


def test_a_missing_manifest_list_of_the_history_is_named(table: Table) -> None:
    planned = snapshot_id(table)
    append(table, [{"x": 3}])
    middle = loaded(table).current_snapshot()
    append(table, [{"x": 4}])
    assert middle is not None
    Path(local_path(middle.manifest_list)).unlink()

    with pytest.raises(DataFileMissing, match=r"the manifest list .* does not exist"):
        head_of(table, planned)
