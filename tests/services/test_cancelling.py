"""Taking a process back before its commit."""

import pytest

from amoro_core.admin.messages import processes as messages
from amoro_core.admin.messages.values import milliseconds
from amoro_core.errors import IllegalState, ProcessNotFound
from amoro_core.model.paging import Window
from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from amoro_core.services.overview import OverviewService
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.world import World


def two_tasks(world: World) -> str:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(4):
        writer.append(table, [row(number, "a"), row(number + 100, "b")])
    return world.begin(OptimizingType.MINOR)


def test_a_running_process_is_closed_its_tasks_are_cancelled_and_its_outputs_removed(world: World) -> None:
    process = two_tasks(world)
    before = oracle.live_rows(world.catalog.load_table("db.t"))
    optimizer = world.optimizer()
    done = world.run_one(optimizer)
    (running,) = world.poll(optimizer)
    world.optimizing.ack(optimizer, [running.attempt])
    view = world.optimizing.cancel(process[:13], "somebody cancelled it")
    how_far = "somebody cancelled it; 1 of 2 tasks were done"
    assert (view.process.status, view.process.failure) == (ProcessStatus.CLOSED, how_far)
    assert sorted(task.status for task in view.tasks) == [TaskStatus.CANCELED, TaskStatus.SUCCESS]
    assert world.heard.left_over == [process]
    assert world.optimizing.abandoned(optimizer, [running.attempt]) == [running.attempt]
    assert not world.complete(optimizer, running.attempt, world.execute(running))
    output = world.output(done.attempt)
    assert output is not None
    assert world.clearing.clean_up(process) == tuple(file.path for file in output.data_files)
    runtime = world.table()
    assert runtime.status is OptimizingStatus.IDLE
    assert runtime.status_reason == f"minor was ended: {how_far}"
    assert runtime.failures == 0
    oracle.assert_same_rows(before, oracle.live_rows(world.catalog.load_table("db.t")))


def test_a_cancelled_table_is_evaluated_again_at_its_next_refresh(world: World) -> None:
    process = two_tasks(world)
    world.optimizing.cancel(process, "no")
    world.later(60)
    evaluated = world.now
    refreshed = world.tables.refresh(world.table().table_id)
    assert refreshed is not None
    assert refreshed.evaluated_at == evaluated
    assert world.begin(OptimizingType.MINOR) != process


def test_a_process_that_has_ended_can_not_be_cancelled(world: World) -> None:
    process = two_tasks(world)
    world.run_all(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    with pytest.raises(IllegalState, match=f"process {process} has ended already: success"):
        world.optimizing.cancel(process, "no")
    assert world.heard.left_over == []


def test_an_unknown_process_is_not_found(world: World) -> None:
    with pytest.raises(ProcessNotFound):
        world.optimizing.cancel("01997a4c", "no")


def test_a_task_that_has_ended_keeps_who_had_it_its_rows_and_its_times(world: World) -> None:
    process = two_tasks(world)
    optimizer = world.optimizer()
    started = world.now
    (handed,) = world.poll(optimizer, 2)
    world.later(1)
    world.optimizing.ack(optimizer, [handed.attempt])
    world.later(3)
    assert world.complete(optimizer, handed.attempt, world.execute(handed))
    (held,) = world.poll(optimizer, 1)
    world.optimizing.cancel(process, "no")
    world.optimizing.dismiss(optimizer, "gone", lost=False)
    world.restart()

    done, canceled = (messages.task(task, {}) for task in world.optimizing.find_process(process).tasks)

    assert (done.status, done.optimizer_id, done.thread_id, done.rows_done, done.rows_total) == (
        "success",
        optimizer,
        2,
        4,
        4,
    )
    assert (done.scheduled_ms, done.started_ms, done.finished_ms) == (
        milliseconds(started),
        milliseconds(started) + 1000,
        milliseconds(started) + 4000,
    )
    assert (canceled.status, canceled.optimizer_id, canceled.thread_id, canceled.rows_total) == (
        "canceled",
        optimizer,
        1,
        0,
    )
    assert (canceled.task_id, canceled.scheduled_ms) == (held.attempt.task_id.number, milliseconds(world.now))


def test_tasks_that_were_cancelled_do_not_count_as_done(world: World) -> None:
    process = two_tasks(world)
    world.run_one(world.optimizer())
    world.optimizing.cancel(process, "no")
    (summary,) = OverviewService(world.store).processes(Window(), {}).items
    shown = messages.process(summary, "")
    assert (shown.tasks_done, shown.tasks_total) == (1, 2)
