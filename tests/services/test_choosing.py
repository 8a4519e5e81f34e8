"""A round that somebody limits to partitions: planned so, kept so, and no row of others is touched."""

from contextlib import suppress

import pytest
from pyiceberg.table import Table

from amoro_core.errors import InvalidArgument
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, parse_table
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import World

NAME = parse_table("cat.db.t")


@pytest.fixture
def table(world: World) -> Table:
    """Four small files in each of two partitions, and an equality delete that reaches rows of both."""
    made = writer.make_table(world.catalog, "db.t", SCHEMA)
    with made.update_spec() as update:
        update.add_identity("part")
    made.refresh()
    for number in range(4):
        writer.append(made, [row(number, "a"), row(number + 100, "b")])
    everywhere = writer.EqualityDelete(["id"], [{"id": 1}, {"id": 101}], (), writer.unpartitioned_spec_id(made))
    writer.row_delta(made, equality_deletes=[everywhere])
    return made


def begin(world: World, where: str, kind: OptimizingType | None = OptimizingType.FULL) -> str:
    begun = world.planning.begin(world.table().table_id, trigger="request", requested=kind, where=where)
    assert begun.process_id is not None, begun.evaluation.reason
    return begun.process_id


def test_a_plan_and_a_process_have_the_chosen_partition_only(world: World, table: Table) -> None:
    preview = world.tables.preview(NAME, OptimizingType.FULL, False, "part = 'a'")
    assert preview.partition_paths == ("part=a",)
    assert preview.evaluation.summary.data_files == 8  # counts and health are those of the whole table
    process = begin(world, "part = 'a'")
    assert {task.partition for task in world.tasks(process)} == {"part=a"}
    assert world.optimizing.find_process(process).process.where == "part = 'a'"


def test_a_delete_that_other_partitions_need_stays_though_all_of_the_plan_is_rewritten(
    world: World, table: Table
) -> None:
    rows = oracle.live_rows(table)
    assert len(rows) == 6
    for where, data_files, delete_files in (("part = 'a'", 5, 1), ("part = 'b'", 2, 0)):
        process = begin(world, where)
        world.run_all(process)
        assert world.committing.commit(process) is ProcessStatus.SUCCESS
        table.refresh()
        oracle.assert_same_rows(rows, oracle.live_rows(table))
        contents = [file.content for file in oracle.live_files(table)]
        assert (contents.count(0), len(contents) - contents.count(0)) == (data_files, delete_files)


def test_a_limited_process_stays_limited_over_a_restart(world: World, table: Table) -> None:
    process = begin(world, "part = 'a'")
    world.restart()
    assert world.optimizing.find_process(process).process.where == "part = 'a'"
    world.run_all(process)
    world.restart()
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    table.refresh()
    assert [file.content for file in oracle.live_files(table)].count(0) == 5


def test_a_condition_that_no_partition_fulfils_leaves_nothing_to_do(world: World, table: Table) -> None:
    begun = world.planning.begin(world.table().table_id, trigger="request", where="part = 'c'")
    assert (begun.process_id, begun.evaluation.reason) == (None, "nothing to do: no partition satisfies the condition")
    assert begun.evaluation.summary.data_files == 8


@pytest.mark.parametrize("where", ["id = 4", "part >", "part = 'c'"])
def test_what_was_asked_for_in_vain_is_not_told_as_what_the_table_needs(world: World, table: Table, where: str) -> None:
    world.tables.set_enabled(NAME, True)
    before = world.table()
    assert "fragment" in before.status_reason or "small files" in before.status_reason
    with suppress(InvalidArgument):
        world.planning.begin(before.table_id, trigger="request", where=where)
    assert (world.table().status, world.table().status_reason) == (OptimizingStatus.IDLE, before.status_reason)


def test_a_condition_on_another_column_is_wrong_usage_and_says_nothing_about_the_table(
    world: World, table: Table
) -> None:
    world.tables.set_enabled(NAME, True)
    world.tables.refresh(world.table().table_id)
    assert world.table().status is OptimizingStatus.PENDING
    with pytest.raises(InvalidArgument, match="id is not a partition column"):
        world.tables.preview(NAME, None, False, "id = 4")
    with pytest.raises(InvalidArgument, match="id is not a partition column"):
        begin(world, "id = 4")
    assert (world.table().status, world.table().failures) == (OptimizingStatus.IDLE, 0)
    world.tables.refresh(world.table().table_id)
    assert world.table().status is OptimizingStatus.PENDING


def test_after_a_limited_round_the_table_is_still_due_for_the_rest(world: World, table: Table) -> None:
    world.tables.set_enabled(NAME, True)
    process = begin(world, "part = 'a'", None)
    world.run_all(process)
    world.committing.commit(process)
    world.later(61)
    world.tables.refresh(world.table().table_id)
    assert world.table().status is OptimizingStatus.PENDING
