"""Properties that change while a process runs, and what a group's properties do."""

import pytest

from amoro_core.errors import InvalidArgument
from amoro_core.model.processes import ProcessStatus, ResourceGroup, TaskStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableRuntime, parse_table
from amoro_core.services.catalogs import CatalogChange
from amoro_core.services.groups import GroupChange
from amoro_core.services.optimizing import Failure
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.world import World

MIB = 1024 * 1024
TABLE = parse_table("cat.db.t")


def two_tasks(world: World, **properties: str) -> str:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=properties)
    for number in range(4):
        writer.append(table, [row(number, "a"), row(number + 100, "b")])
    return world.begin(OptimizingType.MINOR)


def say(world: World, **properties: str) -> TableRuntime:
    """Set properties of the table, and let the coordinator look at it."""
    with world.catalog.load_table("db.t").transaction() as change:
        change.set_properties(properties)
    runtime = world.tables.refresh(world.table().table_id)
    assert runtime is not None
    return runtime


def test_fewer_retries_count_for_the_process_that_runs(world: World) -> None:
    process = two_tasks(world)
    say(world, **{"self-optimizing.execute.num-retries": "0", "self-optimizing.allow-partial-commit": "true"})
    optimizer = world.optimizer()
    world.run_one(optimizer)
    world.run_one(optimizer, Failure("AMORO-1001", "broken"))
    assert world.status(process) is ProcessStatus.COMMITTING
    assert world.committing.commit(process) is ProcessStatus.PARTIAL


def test_a_default_of_the_catalog_counts_for_the_process_that_runs_too(world: World) -> None:
    process = two_tasks(world)
    world.catalogs.update("cat", CatalogChange({"table.self-optimizing.execute.num-retries": "0"}))
    world.tables.refresh(world.table().table_id)
    world.run_one(world.optimizer(), Failure("AMORO-1001", "broken"))
    assert world.status(process) is ProcessStatus.FAILED


def test_open_tasks_go_to_the_tables_new_group_once_there_is_one(world: World) -> None:
    process = two_tasks(world)
    world.run_one(world.optimizer())
    say(world, **{"self-optimizing.group": "fast"})
    assert {task.group for task in world.tasks(process)} == {"default"}
    world.groups.create(ResourceGroup("fast"))
    world.tables.refresh(world.table().table_id)
    by_status = {task.status: task.group for task in world.tasks(process)}
    assert by_status == {TaskStatus.SUCCESS: "default", TaskStatus.PLANNED: "fast"}


def test_a_quota_that_changed_counts_at_the_next_poll(world: World) -> None:
    two_tasks(world)
    assert say(world, **{"self-optimizing.quota": "0.1"}).quota == 0.1


@pytest.mark.parametrize("by", ["property", "command"])
def test_switching_a_table_off_ends_the_process_that_runs(world: World, by: str) -> None:
    process = two_tasks(world)
    (running,) = world.poll(world.optimizer())
    if by == "property":
        say(world, **{"self-optimizing.enabled": "false"})
    else:
        world.tables.set_enabled(TABLE, False)
    view = world.optimizing.cancel_unwanted(world.table().table_id)
    assert view is not None
    assert (view.process.process_id, view.process.status) == (process, ProcessStatus.CLOSED)
    assert view.process.failure == "optimizing was switched off; 0 of 2 tasks were done"
    assert {task.status for task in view.tasks} == {TaskStatus.CANCELED}
    assert world.heard.left_over == [process]
    assert world.table().status is OptimizingStatus.IDLE
    assert world.optimizing.ack(running.attempt.task_id.process_id, [running.attempt]) == [None]


def test_a_request_for_a_table_that_is_only_observed_is_carried_through(world: World) -> None:
    two_tasks(world)
    assert not world.table().enabled
    assert world.optimizing.cancel_unwanted(world.table().table_id) is None


def test_what_commits_already_is_not_ended_by_switching_off(world: World) -> None:
    process = two_tasks(world)
    world.run_all(process)
    world.tables.set_enabled(TABLE, False)
    assert world.optimizing.cancel_unwanted(world.table().table_id) is None
    assert world.committing.commit(process) is ProcessStatus.SUCCESS


def test_a_process_reads_no_more_than_its_groups_input_limit(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(4):
        writer.append(table, [row(number, part) for part in "abc"])
    world.groups.update("default", GroupChange(properties={"max-input-file-size-per-thread": "1"}))
    previewed = world.tables.preview(TABLE, OptimizingType.MINOR, False)
    assert previewed.plan is not None
    assert len(previewed.plan.tasks) == 1
    assert len(world.tasks(world.begin(OptimizingType.MINOR))) == 1


def test_an_optimizer_must_have_the_memory_that_its_group_asks_for(world: World) -> None:
    world.groups.update("default", GroupChange(properties={"memory": "512"}))
    with pytest.raises(
        InvalidArgument, match=r"'default' asks for 512 MB of memory for each thread, .* has 511 MB"
    ) as e:
        world.optimizer(threads=2, memory_bytes=2 * 511 * MIB)
    assert e.value.hint == "Start it with --memory 512MB, or in another group."
    world.optimizer(threads=2, memory_bytes=2 * 512 * MIB)


@pytest.mark.parametrize("properties", [{"memory": "lots"}, {"max-input-file-size-per-thread": "-1"}])
def test_a_malformed_property_of_a_group_is_named_with_its_value(world: World, properties: dict[str, str]) -> None:
    ((key, value),) = properties.items()
    with pytest.raises(InvalidArgument, match=f"{key} has the malformed value '{value}'"):
        world.groups.update("default", GroupChange(properties=properties))
    with pytest.raises(InvalidArgument, match=f"{key} has the malformed value '{value}'"):
        world.groups.create(ResourceGroup("new", properties=tuple(properties.items())))
