"""The files of a result that came too late are condemned at once, and nobody else's."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from amoro_core.actions.known import Actions
from amoro_core.model.paths import normalise
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.work import WorkResult
from amoro_core.services.optimizing import ScheduledTask
from amoro_core.store import condemned
from amoro_core.transactions.late import KEEP, condemn_late
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import World
from tests.work import as_result


@pytest.fixture
def handed(world: World) -> ScheduledTask:
    """A task of a process, acknowledged by an optimizer."""
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(2):
        writer.append(table, [row(number)])
    world.begin(force=True)
    (given,) = world.poll(world.optimizer())
    world.optimizing.ack(given_to(world, given), [given.attempt])
    return given


def given_to(world: World, given: ScheduledTask) -> str:
    task = world.tasks(given.attempt.task_id.process_id)[0]
    assert task.thread is not None
    return task.thread.optimizer_id


def waiting(world: World) -> frozenset[str]:
    return world.store.read(lambda db: condemned.paths(db, world.table().table_id))


def test_files_of_an_earlier_attempt_are_condemned_once_and_deleted(world: World, handed: ScheduledTask) -> None:
    slow, quick = given_to(world, handed), world.optimizer()
    late = world.execute(handed)
    world.optimizing.dismiss(slow, "not heard of", lost=True)
    world.run_one(quick)
    (path,) = (one.path for one in late.data_files)
    for _ in range(2):  # it is sent again where the answer was lost
        assert not world.complete(slow, handed.attempt, late)
        assert waiting(world) == {path}
    assert world.committing.commit(handed.attempt.task_id.process_id) is ProcessStatus.SUCCESS
    live = {one.path for one in oracle.live_files(world.catalog.load_table("db.t"))}
    assert os.path.exists(normalise(path))
    world.later(KEEP.total_seconds())
    begun = world.maintaining.begin(world.table().table_id, "empty-trash", trigger="request")
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    assert not os.path.exists(normalise(path))
    assert all(os.path.exists(normalise(one)) for one in live)


def test_files_of_a_process_that_has_ended_are_condemned(world: World, handed: ScheduledTask) -> None:
    late, optimizer = world.execute(handed), given_to(world, handed)
    world.optimizing.cancel(handed.attempt.task_id.process_id, "enough")
    assert not world.complete(optimizer, handed.attempt, late)
    assert waiting(world) == {one.path for one in late.data_files}


def test_files_of_an_attempt_that_may_still_be_taken_are_not_condemned(world: World, handed: ScheduledTask) -> None:
    """A result that came under another registration comes again under its own, and is committed."""
    output, owner = world.execute(handed), given_to(world, handed)
    assert not world.complete(world.optimizer(), handed.attempt, output)
    assert waiting(world) == frozenset()
    assert world.complete(owner, handed.attempt, output)


def test_files_of_a_result_that_was_taken_are_not_condemned(world: World, handed: ScheduledTask) -> None:
    """Sent again with other words about the same files, when its process has ended."""
    output, owner = world.execute(handed), given_to(world, handed)
    assert world.complete(owner, handed.attempt, output)
    assert world.committing.commit(handed.attempt.task_id.process_id) is ProcessStatus.SUCCESS
    again = world.execute(handed)
    both = replace(output, data_files=(*output.data_files, *again.data_files))
    result, of = as_result(both), Actions().of
    assert world.store.write(lambda db: condemn_late(db, handed.attempt, result, of, world.now)) == 1
    assert waiting(world) == {one.path for one in again.data_files}


def test_files_that_do_not_bear_the_attempts_name_are_not_condemned(world: World, handed: ScheduledTask) -> None:
    live = [one.path for one in oracle.live_files(world.catalog.load_table("db.t"))]
    late, optimizer = world.execute(handed), given_to(world, handed)
    world.optimizing.cancel(handed.attempt.task_id.process_id, "enough")
    foreign = replace(late, data_files=tuple(replace(late.data_files[0], path=path) for path in live))
    assert not world.complete(optimizer, handed.attempt, foreign)
    assert waiting(world) == frozenset()


def test_a_result_that_nobody_can_read_is_absorbed(world: World, handed: ScheduledTask) -> None:
    optimizer = given_to(world, handed)
    world.optimizing.cancel(handed.attempt.task_id.process_id, "enough")
    broken = WorkResult("rewrite", b"\xff\xff")
    assert not world.optimizing.complete(optimizer, handed.attempt, broken)
    assert waiting(world) == frozenset()
