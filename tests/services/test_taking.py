"""Acks and results of many optimizers at one moment: whatever becomes of one, the others count, and none is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from amoro_core import failpoints
from amoro_core.errors import IllegalState, InvalidArgument, StoreFailed
from amoro_core.failpoints import InjectedFault
from amoro_core.model.processes import Attempt, TaskId, TaskStatus
from amoro_core.model.task_payload import WorkResult
from amoro_core.services.task_lifecycle import (
    Acks,
    Failure,
    PollRequest,
    Refusal,
    Report,
    ReportCall,
    ReportReply,
    ScheduledTask,
)
from amoro_core.store import tasks
from amoro_core.store.connection import Connection, Parameters
from amoro_core.transactions.task_messages import Named
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


def ack_all(world: World, calls: Sequence[Acks]) -> list[Named | BaseException]:
    answers = world.optimizing.take([ReportCall(acks=call) for call in calls])
    return [answer.named if isinstance(answer, ReportReply) else answer for answer in answers]


def acked(world: World, optimizer: str, *threads: int) -> list[Attempt]:
    attempts = scheduled(world, optimizer, *threads)
    assert None not in world.optimizing.ack(optimizer, attempts)
    return attempts


def statuses(world: World, process: str) -> list[TaskStatus]:
    return [task.status for task in world.tasks(process)[:-1]]


def done(optimizer: str, attempt: Attempt, *threads: int) -> ReportCall:
    """The result of an attempt, and a poll for these threads."""
    asked = PollRequest(optimizer, "default", threads) if threads else None
    return ReportCall((Report(optimizer, attempt, RED),), asked)


def numbers(answer: ReportReply | BaseException) -> tuple[tuple[bool, ...], list[tuple[int, int]]]:
    """What counts, and which attempts of which tasks were scheduled."""
    assert isinstance(answer, ReportReply)
    return answer.accepted, [(task.attempt.task_id.number, task.attempt.number) for task in answer.tasks]


def test_acks_that_come_together_count_for_whom_they_are(world: World) -> None:
    process = plan(world, 3)
    one, other = painter(world), painter(world)
    (first,), (second,) = scheduled(world, one, 1), scheduled(world, other, 1)
    unknown, earlier = Attempt(TaskId("p-nothing", 1), 1), first._replace(number=0)
    table = world.optimizing.find_process(process).table
    assert ack_all(
        world, [Acks(other, (first, second)), Acks(one, (unknown, earlier)), Acks(one, (first,)), Acks(one, (first,))]
    ) == [{first: None, second: table}, {unknown: None, earlier: None}, {first: table}, {first: table}]
    assert statuses(world, process) == [ACKED, ACKED, PLANNED]


def test_an_ack_that_fails_all_together_leaves_the_others_to_be_taken_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = plan(world, 2)
    one, other = painter(world), painter(world)
    (first,), (second,) = scheduled(world, one, 1), scheduled(world, other, 1)
    reporting = world.optimizing._reporting
    ack = reporting.ack

    def fail_for_one(db: Connection, calls: Sequence[Acks]) -> object:
        answers = ack(db, calls)
        if any(call.optimizer_id == one for call in calls):
            raise RuntimeError("no luck")
        return answers

    monkeypatch.setattr(reporting, "ack", fail_for_one)
    failed, taken = ack_all(world, [Acks(one, (first,)), Acks(other, (second,))])
    assert (str(failed), isinstance(taken, Mapping)) == ("no luck", True)
    assert statuses(world, process) == [SCHEDULED, ACKED]


def test_results_beside_what_cannot_be_taken_count(world: World) -> None:
    process = plan(world, 6)
    one, other = painter(world), painter(world)
    mine, (stale, refused) = acked(world, one, 1, 2, 3), acked(world, other, 1, 2)
    world.optimizing.dismiss(other, "not heard of", lost=False)
    unknown = Attempt(TaskId("p-nothing", 1), 1)
    calls = [
        done(other, stale),
        done(one, unknown),
        done(one, mine[0], 1),
        ReportCall((Report(one, mine[1], WorkResult("another", b"")),)),
        done(one, mine[0]),  # the same once more
        ReportCall((Report(one, mine[2], Failure("AMORO-1001", "broken")), Report(one, mine[1], RED))),
        ReportCall((Report(other, refused, Refusal(KIND, "no")),)),
    ]
    answers = world.optimizing.take(calls)
    assert isinstance(answers[3], InvalidArgument)
    assert [numbers(answer) for number, answer in enumerate(answers) if number != 3] == [
        ((False,), []),
        ((False,), []),
        ((True,), [(4, 2)]),
        ((True,), []),
        ((True, True), []),
        ((False,), []),
    ]
    assert statuses(world, process) == [SUCCESS, SUCCESS, PLANNED, SCHEDULED, PLANNED, PLANNED]


def test_a_result_that_overtakes_its_ack_changes_nothing_and_counts_after_it(world: World) -> None:
    process = plan(world, 1)
    optimizer = painter(world)
    (attempt,) = scheduled(world, optimizer, 1)
    assert world.optimizing.take([done(optimizer, attempt)]) == [ReportReply((False,))]
    assert statuses(world, process) == [SCHEDULED]
    assert None not in world.optimizing.ack(optimizer, [attempt])
    assert world.optimizing.take([done(optimizer, attempt)]) == [ReportReply((True,))]
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


def test_of_a_round_that_is_not_committed_nothing_counts_and_what_is_repeated_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = plan(world, 4)
    one, other = painter(world), painter(world)
    (first,), (second,) = scheduled(world, one, 1), scheduled(world, other, 1)
    commits = _Commits(monkeypatch)

    def refused(ask: Callable[[], Sequence[object]]) -> None:
        commits.is_broken = True
        assert [type(answer) for answer in ask()] == [StoreFailed, StoreFailed]
        commits.is_broken = False

    def ack() -> Sequence[object]:
        return ack_all(world, [Acks(one, (first,)), Acks(other, (second,))])

    def complete() -> Sequence[ReportReply | BaseException]:
        return world.optimizing.take([done(one, first, 1), done(other, second, 1)])

    refused(ack)
    assert statuses(world, process) == [SCHEDULED, SCHEDULED, PLANNED, PLANNED]
    assert all(isinstance(answer, Mapping) for answer in ack())
    refused(complete)
    assert statuses(world, process) == [ACKED, ACKED, PLANNED, PLANNED]
    assert [numbers(answer) for answer in complete()] == [((True,), [(3, 1)]), ((True,), [(4, 1)])]
    assert statuses(world, process) == [SUCCESS, SUCCESS, SCHEDULED, SCHEDULED]


def test_what_is_stored_and_not_answered_is_accepted_again_and_its_threads_get_their_tasks_anew(world: World) -> None:
    process = plan(world, 4)
    one, other = painter(world), painter(world)
    (first,), (second,) = acked(world, one, 1), acked(world, other, 1)
    calls = [done(one, first, 1), done(other, second, 1)]
    failpoints.arm("complete.after_store=fail")
    with pytest.raises(InjectedFault):
        world.optimizing.take(calls)
    assert statuses(world, process) == [SUCCESS, SUCCESS, SCHEDULED, SCHEDULED]
    assert [numbers(answer) for answer in world.optimizing.take(calls)] == [
        ((True,), [(3, 2)]),
        ((True,), [(4, 2)]),
    ]
    assert statuses(world, process) == [SUCCESS, SUCCESS, SCHEDULED, SCHEDULED]


@pytest.mark.parametrize("result", [RED, Failure("AMORO-1001", "broken")], ids=["success", "failure"])
def test_places_to_die_lie_before_and_after_what_stores_a_result(world: World, result: WorkResult | Failure) -> None:
    process = plan(world, 1)
    optimizer = painter(world)
    (attempt,) = acked(world, optimizer, 1)
    reached: list[tuple[str, bool]] = []

    def reach(name: str) -> None:
        reached.append((name, statuses(world, process) == [ACKED]))

    with reaching(reach):
        assert world.optimizing.take([ReportCall((Report(optimizer, attempt, result),))]) == [ReportReply((True,))]
    assert reached == [("complete.before_store", True), ("complete.after_store", False)]


def test_what_memory_has_wrong_is_not_written(world: World) -> None:
    process = plan(world, 2)
    optimizer = painter(world)
    first, second = scheduled(world, optimizer, 1, 2)
    board = world.optimizing.scheduling.scheduler.board
    held = dict(board._whole)
    world.optimizing.dismiss(optimizer, "not heard of", lost=False)
    again = painter(world)
    (anew,) = scheduled(world, again, 1)
    board._changed.tasks.clear()
    board._whole |= held
    assert ack_all(world, [Acks(optimizer, (second,)), Acks(again, (anew,))])[0] == {second: None}
    board._changed.tasks.clear()
    board._whole[first.task_id] = held[first.task_id]._replace(status=ACKED, acked_at=world.now)
    assert world.optimizing.take([done(optimizer, first)]) == [ReportReply((False,))]
    assert [(one.status, one.attempt) for one in world.tasks(process)[:-1]] == [(ACKED, 2), (PLANNED, 1)]


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


def test_a_poll_that_fails_all_together_leaves_the_others_to_be_served(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = plan(world, 2)
    one, other = painter(world), painter(world)
    scheduler = world.optimizing.scheduling.scheduler
    schedule = scheduler.schedule

    def fail_for_one(db: Connection, asked: Sequence[PollRequest], *more: Any) -> object:
        answers = schedule(db, asked, *more)
        if any(each.optimizer_id == one for each in asked):
            raise RuntimeError("no luck")
        return answers

    monkeypatch.setattr(scheduler, "schedule", fail_for_one)
    failed, given = world.optimizing.schedule([PollRequest(one, "default", (1,)), PollRequest(other, "default", (1,))])
    assert str(failed) == "no luck"
    assert not isinstance(given, BaseException)
    assert [task.attempt.task_id.number for task in given] == [1]
    assert statuses(world, process) == [SCHEDULED, PLANNED]


def test_tasks_of_a_round_go_to_threads_of_those_who_asked(world: World) -> None:
    plan(world, 4)
    one, other = painter(world), painter(world)
    (first,), (second,) = acked(world, one, 1), acked(world, other, 5)
    answers = world.optimizing.take([done(other, second, 5), done(one, first, 1)])
    given: list[list[ScheduledTask]] = [list(answer.tasks) for answer in answers if isinstance(answer, ReportReply)]
    assert [(task.thread_id, task.attempt.task_id.number) for tasks in given for task in tasks] == [(5, 3), (1, 4)]
