"""The tests' own engine: pyiceberg reads what it writes, and its oracle follows the specification."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.transforms import BucketTransform

from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SPECS, as_pyiceberg_reads, by_content, ids, make, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files, write_position_deletes
from tests.engine.oracle import DATA, EQUALITY_DELETES, POSITION_DELETES, live_files, live_rows
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


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_position_deletes_remove_exactly_the_matching_rows(catalog, spec):
    table = make(catalog, spec=spec)
    writer.append(table, [row(1), row(2), row(3, "b"), row(4, "b")], files=2)
    writer.delete_where(table, lambda r: r["id"] in (1, 4))
    expected = rows_of(table.schema(), [row(2), row(3, "b")])
    assert live_rows(table) == expected
    assert as_pyiceberg_reads(table) == expected
    assert by_content(table)[POSITION_DELETES] == (1 if spec is UNPARTITIONED_PARTITION_SPEC else 2)


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
