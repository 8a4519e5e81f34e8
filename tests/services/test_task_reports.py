"""Acks and results: whatever becomes of one, the others count, and none is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from amoro_core import failpoints
from amoro_core.errors import IllegalState, InvalidArgument, StoreFailed
from amoro_core.failpoints import InjectedFault
from amoro_core.model.processes import Attempt, TaskId, TaskStatus
from amoro_core.model.task_payload import WorkResult
from amoro_core.services.task_lifecycle import Failure, PollRequest, Refusal, Report, ReportReply
from amoro_core.store import tasks
from amoro_core.store.connection import Connection, Parameters
from tests.services.rigs import reaching
from tests.services.world import World
from tests.store import builders

KIND = "paint"
RED = WorkResult(KIND, b"red")
PLANNED, SCHEDULED, ACKED, SUCCESS = TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED, TaskStatus.SUCCESS


@pytest.fixture(autouse=True)
def _disarmed() -> Any:
    yield
    failpoints.arm("")


def plan(world: World, count: int) -> str:
    """A process with so many tasks, and one of a kind that nobody does, so that it goes on."""
    return world.store.write(lambda db: builders.endless_process(db, KIND, count))


def painter(world: World) -> str:
    return world.optimizer(threads=8, kinds=(KIND,))


def scheduled(world: World, optimizer: str, *threads: int) -> list[Attempt]:
    return [task.attempt for task in world.poll(optimizer, *threads)]


def acked(world: World, optimizer: str, *threads: int) -> list[Attempt]:
    attempts = scheduled(world, optimizer, *threads)
    assert None not in world.optimizing.ack(optimizer, attempts)
    return attempts


def statuses(world: World, process: str) -> list[TaskStatus]:
    return [task.status for task in world.tasks(process)[:-1]]


def done(world: World, optimizer: str, attempt: Attempt, *threads: int) -> tuple[bool, list[tuple[int, int, int]]]:
    """Report a result and poll for these threads: whether it counts; thread, task and attempt of what is given."""
    poll = PollRequest(optimizer, "default", threads) if threads else None
    reply = world.optimizing.report([Report(optimizer, attempt, RED)], poll)
    given = [(task.thread_id, task.attempt.task_id.number, task.attempt.number) for task in reply.tasks]
    return reply.accepted[0], given


def test_only_the_holder_of_the_present_attempt_acks_it_and_may_repeat_that(world: World) -> None:
    process = plan(world, 3)
    one, other = painter(world), painter(world)
    (first,), (second,) = scheduled(world, one, 1), scheduled(world, other, 1)
    unknown, earlier = Attempt(TaskId("p-nothing", 1), 1), first._replace(number=0)
    ack = world.optimizing.ack
    assert ack(other, [first, second, second]) == [None, {}, {}]
    assert ack(one, [unknown, earlier]) == [None, None]
    assert [ack(one, [first]), ack(one, [first])] == [[{}], [{}]]
    assert statuses(world, process) == [ACKED, ACKED, PLANNED]


def test_results_beside_what_cannot_be_taken_count(world: World) -> None:
    process = plan(world, 6)
    one, other = painter(world), painter(world)
    mine, (stale, refused) = acked(world, one, 1, 2, 3), acked(world, other, 1, 2)
    world.optimizing.dismiss(other, "not heard of", lost=False)
    assert done(world, other, stale) == (False, [])
    assert done(world, one, Attempt(TaskId("p-nothing", 1), 1)) == (False, [])
    assert done(world, one, mine[0], 1) == (True, [(1, 4, 2)])
    with pytest.raises(InvalidArgument):
        world.optimizing.complete(one, mine[1], WorkResult("another", b""))
    assert done(world, one, mine[0]) == (True, []), "the same once more"
    both = [Report(one, mine[2], Failure("AMORO-1001", "broken")), Report(one, mine[1], RED)]
    assert world.optimizing.report(both) == ReportReply((True, True))
    assert not world.optimizing.complete(other, refused, Refusal(KIND, "no"))
    assert statuses(world, process) == [SUCCESS, SUCCESS, PLANNED, SCHEDULED, PLANNED, PLANNED]


def test_a_call_with_a_result_that_cannot_be_taken_keeps_the_others_and_schedules_nothing(world: World) -> None:
    process = plan(world, 3)
    optimizer = painter(world)
    first, second = acked(world, optimizer, 1, 2)
    reports = [Report(optimizer, first, WorkResult("another", b"")), Report(optimizer, second, RED)]
    with pytest.raises(InvalidArgument):
        world.optimizing.report(reports, PollRequest(optimizer, "default", (1, 2)))
    assert statuses(world, process) == [ACKED, SUCCESS, PLANNED]


def test_a_result_that_overtakes_its_ack_changes_nothing_and_counts_after_it(world: World) -> None:
    process = plan(world, 1)
    optimizer = painter(world)
    (attempt,) = scheduled(world, optimizer, 1)
    assert done(world, optimizer, attempt) == (False, [])
    assert statuses(world, process) == [SCHEDULED]
    assert None not in world.optimizing.ack(optimizer, [attempt])
    assert done(world, optimizer, attempt) == (True, [])
    assert statuses(world, process) == [SUCCESS]


class _Commits:
    """COMMIT fails, as with a full disk or one that is gone, as long as `is_broken`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_broken, execute = False, Connection.execute

        def run(db: Connection, sql: str, *parameters: Parameters) -> int:
            if sql == "COMMIT" and self.is_broken:
                raise sqlite3.OperationalError("disk I/O error")
            return execute(db, sql, *parameters)

        monkeypatch.setattr(Connection, "execute", run)


def test_what_is_not_committed_does_not_count_and_counts_when_it_is_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = plan(world, 2)
    optimizer = painter(world)
    (attempt,) = scheduled(world, optimizer, 1)
    commits = _Commits(monkeypatch)

    def refused(ask: Callable[[], object]) -> None:
        commits.is_broken = True
        with pytest.raises(StoreFailed):
            ask()
        commits.is_broken = False

    refused(lambda: world.optimizing.ack(optimizer, [attempt]))
    assert statuses(world, process) == [SCHEDULED, PLANNED]
    assert world.optimizing.ack(optimizer, [attempt]) == [{}]
    refused(lambda: done(world, optimizer, attempt, 1))
    assert statuses(world, process) == [ACKED, PLANNED]
    assert done(world, optimizer, attempt, 1) == (True, [(1, 2, 1)])
    assert statuses(world, process) == [SUCCESS, SCHEDULED]


def test_what_is_stored_and_not_answered_is_accepted_again_and_its_thread_gets_its_task_anew(world: World) -> None:
    process = plan(world, 2)
    optimizer = painter(world)
    (attempt,) = acked(world, optimizer, 1)
    failpoints.arm("complete.after_store=fail")
    with pytest.raises(InjectedFault):
        done(world, optimizer, attempt, 1)
    assert statuses(world, process) == [SUCCESS, SCHEDULED]
    assert done(world, optimizer, attempt, 1) == (True, [(1, 2, 2)])
    assert statuses(world, process) == [SUCCESS, SCHEDULED]


@pytest.mark.parametrize("result", [RED, Failure("AMORO-1001", "broken")], ids=["success", "failure"])
def test_places_to_die_lie_before_and_after_what_stores_a_result(world: World, result: WorkResult | Failure) -> None:
    process = plan(world, 1)
    optimizer = painter(world)
    (attempt,) = acked(world, optimizer, 1)
    reached: list[tuple[str, bool]] = []

    def reach(name: str) -> None:
        reached.append((name, statuses(world, process) == [ACKED]))

    with reaching(reach):
        assert world.optimizing.complete(optimizer, attempt, result)
    assert reached == [("complete.before_store", True), ("complete.after_store", False)]


def test_a_task_in_another_status_or_attempt_is_not_changed(world: World) -> None:
    process = plan(world, 1)
    optimizer = painter(world)
    scheduled(world, optimizer, 1)
    task = world.tasks(process)[0]
    for before in (task._replace(status=PLANNED), task._replace(attempt=2)):
        after = before._replace(status=ACKED, acked_at=world.now + timedelta(seconds=1))
        with pytest.raises(IllegalState, match="scheduled in attempt 1, not as it was"):
            world.store.write(lambda db, pair=(before, after): tasks.change_many(db, [pair]))
    assert world.tasks(process)[0] == task
