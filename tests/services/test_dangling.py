"""Dangling delete files: which of them leave the table, that no row moves, and what comes of others' commits."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyiceberg.table import Table

from amoro_core.actions.contract import Periodic
from amoro_core.actions.dangling import NAME, CleanDanglingDeletes
from amoro_core.errors import InvalidArgument
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.maintenance import Options
from amoro_core.model.processes import Figure, ProcessStatus
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, by_content, ids, row
from tests.services.world import World

SEND = IcebergTable.send


@pytest.fixture
def table(world: World) -> Table:
    """Two partitions, in each an equality and a position delete; in partition a nothing is left to which they apply.

    The equality delete of b is needed by one file of two, the later of which it is too old for.
    """
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    writer.append(made, [row(1, "a"), row(2, "a"), row(11, "b"), row(12, "b")])
    old = {one.path for one in oracle.live_files(made) if one.partition[0] == "a"}
    writer.upsert(made, [row(1, "a", "new"), row(11, "b", "new")], ["id"])
    writer.delete_where(made, lambda item: item["id"] in (2, 12))
    writer.remove_files(made, old)
    return made


def clean(world: World) -> ProcessStatus:
    return world.committing.commit(begin(world))


def begin(world: World) -> str:
    begun = world.maintaining.begin(world.table().table_id, NAME, trigger="request")
    assert begun.process_id, begun.reason
    return begun.process_id


def deletes(table: Table) -> list[tuple[int, str]]:
    """Content and partition of each live delete file."""
    return sorted((one.content, one.partition[0]) for one in oracle.live_files(table) if one.content)


def test_it_is_an_action_of_the_clock_that_is_on_by_default() -> None:
    action = CleanDanglingDeletes()
    assert isinstance(action, Periodic)
    assert (action.every, action.needs_gc, action.enabled({})) == (timedelta(days=1), True, True)
    assert not action.enabled({action.switch: "false"})


def test_only_what_applies_to_no_file_goes_and_no_row_changes(world: World, table: Table) -> None:
    before, rows = ids(table), oracle.live_rows(table)
    assert deletes(table) == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    process_id = begin(world)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert deletes(table) == [(1, "b"), (2, "b")]
    assert (ids(table), oracle.live_rows(table)) == (before, rows) == ([1, 11], rows)
    head = table.refresh().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation.value == "replace"
    said = head.summary.additional_properties
    assert said["snapshot.producer"] == "CLEAN_DANGLING_DELETE"
    assert said["amoro.process-id"] == process_id
    assert (said["removed-delete-files"], said["total-delete-files"], said["total-data-files"]) == ("2", "2", "3")
    receipt = world.optimizing.find_process(process_id).process.receipt
    assert receipt is not None
    assert (receipt.words, receipt.snapshot_id) == ("removed 2 dangling delete files", head.snapshot_id)
    assert receipt.figures[:2] == (
        Figure("removed_position_delete_files", 1, "files"),
        Figure("removed_equality_delete_files", 1, "files"),
    )


def test_a_table_where_none_dangles_is_left_as_it_is(world: World, table: Table) -> None:
    clean(world)
    snapshots = len(table.refresh().metadata.snapshots)
    begun = world.maintaining.begin(world.table().table_id, NAME, trigger="request")
    assert (begun.process_id, begun.reason) == ("", "no delete file dangles")
    assert len(table.refresh().metadata.snapshots) == snapshots


def test_a_table_without_deletes_is_not_even_scanned(world: World) -> None:
    writer.append(writer.make_table(world.catalog, "db.t", SCHEMA), [row(1)])
    world.iceberg.table(scan=lambda self: pytest.fail("scanned"))
    assert world.maintaining.preview(world.table().identifier, NAME).plan is None


def test_the_preview_names_what_would_go_and_changes_nothing(world: World, table: Table) -> None:
    seen = world.maintaining.preview(world.table().identifier, NAME)
    assert seen.plan is not None
    gone = {one.path for one in oracle.live_files(table) if one.content and one.partition[0] == "a"}
    assert set(seen.plan.document["delete_files"]) == gone
    assert seen.plan.document["removed_delete_files_count"] == 2
    assert len(deletes(table)) == 4


def test_a_delete_that_a_commit_beside_it_needs_again_stays(world: World, table: Table) -> None:
    """Amoro #3348, two scans: the table is set back to where the file still was, and what dangled applies again."""
    process_id = begin(world)
    writer.rollback(table, table.refresh().metadata.snapshots[2].snapshot_id)
    assert world.committing.commit(process_id) is ProcessStatus.FAILED
    assert "no delete file dangles any more" in world.optimizing.find_process(process_id).process.failure
    assert len(deletes(table)) == 4
    assert ids(table) == [1, 11]


def test_a_conflict_is_told_anew_on_the_new_head(world: World, table: Table) -> None:
    process_id, sent = begin(world), []

    def send(self: IcebergTable, payload: bytes) -> None:
        if not sent:
            writer.append(table, [row(3, "a"), row(13, "b")])
        sent.append(payload)
        SEND(self, payload)

    world.iceberg.table(send=send)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert len(sent) == 2
    assert (ids(table), deletes(table)) == ([1, 3, 11, 13], [(1, "b"), (2, "b")])


@pytest.mark.parametrize("arrives", [True, False])
def test_an_unknown_commit_lands_once(world: World, table: Table, arrives: bool) -> None:
    process_id, rows, snapshots = begin(world), oracle.live_rows(table), len(table.refresh().metadata.snapshots)
    world.iceberg.lose_answers(arrives=arrives)
    assert world.committing.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.iceberg.restore()
    world.restart()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert (oracle.live_rows(table), len(table.refresh().metadata.snapshots)) == (rows, snapshots + 1)
    assert by_content(table) == {0: 3, 1: 1, 2: 1}


def test_a_table_under_review_by_a_branch_is_left_alone(world: World, table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"write.wap.enabled": "true"})
    writer.create_branch(table, "audit")
    writer.append(table, [row(5, "b")], branch="audit")
    begun = world.maintaining.begin(world.table().table_id, NAME, trigger="request")
    assert begun.process_id == ""
    assert "audit" in begun.reason


def test_options_that_mean_nothing_to_it_are_refused_by_name(world: World, table: Table) -> None:
    options = Options(older_than=timedelta(days=3), retain_last=2)
    with pytest.raises(InvalidArgument, match=f"{NAME} takes no --older-than, --retain-last"):
        world.maintaining.preview(world.table().identifier, NAME, options)
