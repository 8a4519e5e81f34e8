"""Scheduling, reports, losses: what optimizers may and may not do to a process."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from amoro_core import failpoints
from amoro_core.errors import (
    CatalogUnavailable,
    GroupNotFound,
    IllegalState,
    InvalidArgument,
    StoreFailed,
    TableBusy,
    UnknownToken,
)
from amoro_core.failpoints import InjectedFault
from amoro_core.formats.tables import Vending
from amoro_core.model.processes import Attempt, ProcessStatus, TaskId, TaskStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableIdentifier
from amoro_core.model.task_payload import WorkResult
from amoro_core.services.listings import OverviewService
from amoro_core.store import tasks
from amoro_core.store.connection import Connection, Parameters, as_stored
from amoro_core.transactions.task_queue import PollRequest
from amoro_core.transactions.task_reports import Failure, Refusal, Report, ReportReply
from tests.engine import oracle
from tests.services.rigs import raising
from tests.services.world import World, make_small_files, make_two_partitions
from tests.store import builders

ACK, CLOSE = timedelta(seconds=30), timedelta(hours=2)
HOUR_S = 3600.0


def two_partitions(world: World, **properties: str) -> str:
    """A process of two tasks, planned on a table with two partitions of small files."""
    make_two_partitions(world.catalog, properties)
    process = world.begin(OptimizingType.MINOR)
    assert len(world.tasks(process)) == 2
    return process


def sweep(world: World) -> None:
    world.optimizing.sweep(world.seconds, ACK, CLOSE)


def statuses(world: World, process: str) -> list[TaskStatus]:
    return [task.status for task in world.tasks(process)]


def test_a_plan_that_fails_says_why_in_one_line_without_secrets_and_backs_the_table_off(world: World) -> None:
    make_small_files(world.catalog, 1)
    table_id = world.table().table_id
    world.iceberg.table(scan=raising(RuntimeError("postgresql://u:hunter2@db/x\n says no")))
    for failures, minutes in ((1, 1), (2, 2), (3, 4)):
        with pytest.raises(RuntimeError, match="says no"):
            world.planning.begin(table_id, trigger="evaluation")
        runtime, why = world.table(), "planning failed: postgresql://u:***@db/x says no"
        assert (runtime.status, runtime.status_reason) == (OptimizingStatus.IDLE, why)
        assert (runtime.failures, runtime.retry_at) == (failures, world.now + timedelta(minutes=minutes))


def test_a_group_that_does_not_exist_is_named_and_nothing_is_planned(world: World) -> None:
    make_small_files(world.catalog, properties={"self-optimizing.group": "nope"})
    with pytest.raises(GroupNotFound, match="'nope'"):
        world.begin(OptimizingType.MINOR)
    assert world.table().status is OptimizingStatus.IDLE
    assert world.optimizing.list_processes() == []


def test_a_process_waits_for_an_optimizer_its_work_alone_takes_time_and_its_progress_stays(world: World) -> None:
    process, overview = two_partitions(world), OverviewService(world.store)
    assert overview.process(process, {}).figures.is_waiting
    world.later(3600)
    optimizer = world.optimizer()
    taken = world.take(optimizer).attempt
    (size, _) = (task.input_bytes for task in world.tasks(process))
    begun = world.process(process).started_at
    assert begun == as_stored(world.now)
    half = overview.process(process, {taken: (5, 10)}).figures
    assert (half.is_waiting, half.input_bytes_done) == (False, size // 2)

    world.optimizing.dismiss(optimizer, "silent", lost=True)
    lost = overview.process(process, {}).figures
    assert (lost.is_waiting, lost.input_bytes_done) == (True, half.input_bytes_done)
    world.later(60)
    world.run_all(process)
    world.committing.commit(process)
    assert world.process(process).started_at == begun
    assert world.receipt(process).duration_ms == 60_000
    assert overview.process(process, {}).figures.input_bytes_done == half.input_bytes


def test_late_completion_of_an_earlier_attempt_is_absorbed(world: World) -> None:
    process = two_partitions(world)
    with pytest.raises(TableBusy, match=process):
        world.begin(OptimizingType.MINOR)
    slow, quick = world.optimizer(), world.optimizer()
    handed = world.take(slow)
    late = world.execute(handed)
    world.optimizing.dismiss(slow, "not heard of", lost=True)
    again = world.run_one(quick)
    assert again.attempt.task_id == handed.attempt.task_id
    kept = world.output(again.attempt)
    assert kept != late
    assert not world.complete(slow, handed.attempt, late)
    assert not world.complete(quick, again.attempt, late)
    assert world.output(again.attempt) == kept
    assert world.tasks(process)[0].status is TaskStatus.SUCCESS


def test_a_table_that_cannot_be_loaded_is_asked_for_again_after_a_second(world: World) -> None:
    two_partitions(world)
    identifier, asked = world.table().identifier, list[int]()

    def load(_: TableIdentifier) -> Mapping[str, str]:
        asked.append(1)
        now[0] += timedelta(seconds=30)
        raise CatalogUnavailable("down")

    now = [world.now]
    vending = Vending(load, lambda: now[0])
    assert vending.properties_of(identifier) == {}
    now[0] += timedelta(seconds=0.999)
    assert vending.properties_of(identifier) == {}
    assert len(asked) == 1
    now[0] += timedelta(seconds=0.001)
    assert vending.properties_of(identifier) == {}
    assert len(asked) == 2


class Storage:
    """Properties that tell how often they were loaded, which takes ten seconds, by a clock of its own."""

    def __init__(self) -> None:
        self.now, self.loaded = datetime(2026, 1, 1, tzinfo=UTC), 0
        self._turned = Lock()  # whoever turns the clock on: it never goes back
        self.vending = Vending(self._load, lambda: self.now)

    def _load(self, _: TableIdentifier) -> Mapping[str, str]:
        self.loaded += 1
        self.now += timedelta(seconds=10)
        return {"loaded": str(self.loaded)}

    def wait(self, seconds: int) -> datetime:
        with self._turned:
            self.now += timedelta(seconds=seconds)
            return self.now


A, B, C = (TableIdentifier("cat", ("db",), name) for name in ("a", "b", "c"))


def test_properties_that_came_with_a_table_count_from_its_loading_and_are_not_kept_longer() -> None:
    storage = Storage()
    storage.vending.keep(A, {"planned": "yes"}, storage.now)
    storage.vending.keep(B, {"planned": "yes"}, storage.now - timedelta(seconds=31))
    storage.vending.keep(C, {"planned": "yes"}, storage.now - timedelta(seconds=61))
    assert [storage.vending.properties_of(one) for one in (A, B)] == [{"planned": "yes"}] * 2
    storage.wait(29)
    assert storage.vending.properties_of(A) == {"planned": "yes"}
    assert [storage.vending.properties_of(one) for one in (B, C)] == [{"loaded": "1"}, {"loaded": "2"}]
    storage.wait(39)
    assert storage.vending.properties_of(B) == {"loaded": "1"}
    storage.wait(1)
    assert storage.vending.properties_of(B) == {"loaded": "3"}
    storage.vending.keep(C, {}, storage.wait(61))
    assert storage.vending._vended.keys() == {C}


def test_a_clock_that_was_set_back_keeps_no_properties_longer() -> None:
    storage = Storage()
    assert storage.vending.properties_of(A) == {"loaded": "1"}
    storage.wait(-3600)
    assert storage.vending.properties_of(B) == {"loaded": "2"}
    assert set(storage.vending._vended) == {B}
    assert storage.vending.properties_of(A) == {"loaded": "3"}
    assert storage.vending.properties_of(A) == {"loaded": "3"}


def test_properties_may_be_told_from_many_threads() -> None:
    storage = Storage()

    def tell(thread: int) -> None:
        for number in range(12000):
            storage.vending.keep(TableIdentifier("cat", ("db",), f"{thread}-{number}"), {}, storage.wait(61))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(tell, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert len(storage.vending._vended) < 100


def test_who_plans_a_table_saves_its_optimizers_another_look(world: World) -> None:
    two_partitions(world)
    optimizer = world.optimizer(threads=2)
    (task,) = world.optimizing.poll(optimizer, "default", [1])
    world.iceberg.table(io_properties=raising(AssertionError("loaded again")))
    assert world.optimizing.ack(optimizer, [task.attempt]) == [{}]


def set_clock(hours: int) -> Callable[[World], None]:
    def happen(world: World) -> None:
        world.now += timedelta(hours=hours)

    return happen


def restarted(world: World) -> None:
    """Every lease has its whole time again, from the first look on."""
    world.later(2 * HOUR_S)
    world.restart()
    sweep(world)


@pytest.mark.parametrize("happen", [set_clock(-24), set_clock(24), restarted], ids=["back", "forth", "restart"])
def test_a_clock_that_is_set_neither_ends_nor_prolongs_anybodys_time(
    world: World, happen: Callable[[World], None]
) -> None:
    process = two_partitions(world)
    optimizer = world.optimizer()
    acked, _ = world.poll(optimizer, 1, 2)
    world.optimizing.ack(optimizer, [acked.attempt])
    sweep(world)
    happen(world)
    for seconds, expected, silent in (
        (30, [TaskStatus.ACKED, TaskStatus.SCHEDULED], []),
        (0.001, [TaskStatus.ACKED, TaskStatus.PLANNED], []),
        (30, [TaskStatus.ACKED, TaskStatus.PLANNED], [optimizer]),
        (2 * HOUR_S - 60.001, [TaskStatus.ACKED, TaskStatus.PLANNED], [optimizer]),
        (0.001, [TaskStatus.PLANNED, TaskStatus.PLANNED], [optimizer]),
    ):
        world.later(seconds)
        sweep(world)
        assert (statuses(world, process), world.optimizers.silent()) == (expected, silent)
    taken_back = world.tasks(process)[1]
    assert (taken_back.lost_attempts, taken_back.failure) == (1, "not acknowledged within 30 s")
    assert world.optimizing.abandoned(optimizer, [acked.attempt]) == [acked.attempt]


def test_attempts_go_on_under_a_new_registration_with_a_new_time_for_their_acks_alone(world: World) -> None:
    process = two_partitions(world)
    old = world.optimizer()
    handed, unacked = world.poll(old, 1, 2)
    world.optimizing.ack(old, [handed.attempt])
    sweep(world)
    output = world.execute(handed)
    world.later(2 * HOUR_S)
    unknown = Attempt(handed.attempt.task_id, 9)
    new = world.optimizer(running=[handed.attempt, unacked.attempt, unknown], previous_id=old)
    task = world.tasks(process)[0]
    assert (task.thread.optimizer_id, task.attempt, task.lost_attempts) == (new, 1, 0)
    assert world.optimizing.abandoned(new, [handed.attempt, unknown]) == [unknown]
    assert not world.complete(old, handed.attempt, output)
    sweep(world)
    assert statuses(world, process) == [TaskStatus.ACKED, TaskStatus.SCHEDULED]
    world.later(0.001)
    sweep(world)
    assert statuses(world, process) == [TaskStatus.PLANNED, TaskStatus.SCHEDULED]
    world.optimizing.ack(new, [unacked.attempt])
    assert world.complete(new, unacked.attempt, world.execute(unacked))


def test_a_silent_optimizer_is_lost_after_a_whole_timeout_also_since_a_restart(world: World) -> None:
    optimizer = world.optimizer()
    world.later(3600)
    assert world.optimizers.silent() == [optimizer]
    world.restart()
    assert [item.optimizer_id for item, _ in world.optimizers.list_optimizers()] == [optimizer]
    world.later(60)
    assert world.optimizers.silent() == []
    world.later(0.001)
    assert world.optimizers.silent() == [optimizer]
    world.optimizers.touch(optimizer, 2, {})
    assert world.optimizers.silent() == []
    process = two_partitions(world)
    world.poll(optimizer, 1)
    for _ in range(2):  # it gets nothing more, and counts no more
        world.optimizing.dismiss(optimizer, "not heard of", lost=True)
        assert statuses(world, process) == [TaskStatus.PLANNED, TaskStatus.PLANNED]
        assert world.groups.get("default").threads == 0
        with pytest.raises(UnknownToken):
            world.optimizers.touch(optimizer, 2, {})
        with pytest.raises(UnknownToken):
            world.poll(optimizer, 2)


def test_a_heartbeat_interval_of_the_timeout_is_refused(world: World) -> None:
    with pytest.raises(InvalidArgument, match="60 s is not below the coordinator's timeout of 60 s"):
        world.optimizer(heartbeat_interval=timedelta(seconds=60))
    with pytest.raises(GroupNotFound, match="'other'"):
        world.optimizer(group="other")


def test_a_failed_task_is_retried_until_its_runs_are_used_up(world: World) -> None:
    process = two_partitions(world, **{"self-optimizing.execute.num-retries": "2"})
    optimizer = world.optimizer()
    for run in range(1, 4):
        assert world.status(process) is ProcessStatus.RUNNING
        handed = world.run_one(optimizer, Failure("AMORO-1001", f"gone {run}"))
        assert (handed.attempt.task_id.number, handed.attempt.number) == (1, run)
    view = world.optimizing.find_process(process)
    assert (view.process.status, view.process.failure_code) == (ProcessStatus.FAILED, "AMORO-1001")
    assert view.process.failure == "task 1 failed 3 times; last: gone 3"
    assert statuses(world, process) == [TaskStatus.FAILED, TaskStatus.CANCELED]
    runtime = world.table()
    assert (runtime.status, runtime.failures) == (OptimizingStatus.IDLE, 1)
    assert world.heard.left_over == [process]


def test_a_task_that_kills_its_optimizers_is_given_up(world: World) -> None:
    process = two_partitions(world)
    for _ in range(3):
        assert world.status(process) is ProcessStatus.RUNNING
        optimizer = world.optimizer()
        (handed,) = world.poll(optimizer)
        assert handed.attempt.task_id.number == 1
        world.optimizing.ack(optimizer, [handed.attempt])
        world.optimizing.dismiss(optimizer, "killed", lost=True)
    view = world.optimizing.find_process(process)
    assert view.process.status is ProcessStatus.FAILED
    assert view.process.failure.startswith("task 1 lost 3 attempts on 3 optimizers")


@pytest.mark.parametrize("stage", ["planned", "scheduled", "acked", "completed", "all completed", "failed"])
def test_every_stage_survives_a_restart(world: World, stage: str) -> None:
    process = two_partitions(world)
    before = world.rows()
    optimizer = world.optimizer()
    handed = world.poll(optimizer, 1) if stage in ("scheduled", "acked") else []
    if stage == "acked":
        world.optimizing.ack(optimizer, [handed[0].attempt])
    if stage in ("completed", "all completed"):
        world.run_one(optimizer)
    if stage == "all completed":
        world.run_one(optimizer)
    if stage == "failed":
        world.run_one(optimizer, Failure("AMORO-1001", "no"))
    kept = world.tasks(process)
    world.restart()
    assert world.tasks(process) == kept
    if handed:
        if stage == "scheduled":
            assert world.optimizing.ack(optimizer, [handed[0].attempt]) != [None]
        assert world.complete(optimizer, handed[0].attempt, world.execute(handed[0]))
    world.run_all(process, optimizer)
    assert world.heard.commits == [process]
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, world.rows())


def test_what_was_pending_is_pending_again_after_a_restart_amid_its_plan_and_requests_in_vain(world: World) -> None:
    # Three undersized files, which only a major rewrites.
    table = make_small_files(world.catalog)
    largest = max(Path(file.path.removeprefix("file://")).stat().st_size for file in oracle.live_files(table))
    properties = {"self-optimizing.enabled": "true", "self-optimizing.target-size": str(largest * 5 // 2)}
    runtime = world.refresh_with(properties)

    def request() -> None:
        begun = world.planning.begin(runtime.table_id, trigger="request", requested=OptimizingType.MINOR)
        assert begun.process_id is None

    def fail() -> None:
        with world.iceberg.table(scan=lambda self: 1 / 0), pytest.raises(ZeroDivisionError):
            world.planning.begin(runtime.table_id, trigger="request", requested=OptimizingType.MINOR)

    def die() -> None:
        world.store.write(lambda db: world.planning._mark_planning(db, runtime.table_id, "evaluation"))
        assert world.table().status is OptimizingStatus.PLANNING
        world.restart()

    for happen in (request, die, fail):
        assert world.refresh().status is OptimizingStatus.PENDING
        happen()
        assert world.table().status is OptimizingStatus.IDLE
    assert world.refresh().status is OptimizingStatus.PENDING


# Acks and results: whatever becomes of one, the others count, and none is lost


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


def statuses_of(world: World, process: str) -> list[TaskStatus]:
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
    assert statuses_of(world, process) == [ACKED, ACKED, PLANNED]


def test_results_beside_what_cannot_be_taken_count(world: World) -> None:
    process = plan(world, 6)
    one, other = painter(world), painter(world)
    mine, (stale, refused) = acked(world, one, 1, 2, 3), acked(world, other, 1, 2)
    world.optimizing.dismiss(other, "not heard of", lost=False)
    assert done(world, other, stale) == (False, [])
    assert done(world, one, Attempt(TaskId("p-nothing", 1), 1)) == (False, [])
    reports = [Report(one, mine[1], WorkResult("another", b"")), Report(one, mine[0], RED)]
    with pytest.raises(InvalidArgument):
        world.optimizing.report(reports, PollRequest(one, "default", (1, 2)))
    assert statuses_of(world, process) == [SUCCESS, ACKED, ACKED, PLANNED, PLANNED, PLANNED], "nothing is scheduled"
    assert done(world, one, mine[0], 1) == (True, [(1, 4, 2)]), "the same once more"
    both = [Report(one, mine[2], Failure("AMORO-1001", "broken")), Report(one, mine[1], RED)]
    assert world.optimizing.report(both) == ReportReply((True, True))
    assert not world.optimizing.complete(other, refused, Refusal(KIND, "no"))
    assert statuses_of(world, process) == [SUCCESS, SUCCESS, PLANNED, SCHEDULED, PLANNED, PLANNED]


def test_what_is_not_committed_does_not_count_and_counts_when_it_is_repeated(world: World) -> None:
    process = plan(world, 2)
    optimizer = painter(world)
    (attempt,) = scheduled(world, optimizer, 1)
    execute = Connection.execute

    def full(db: Connection, sql: str, *parameters: Parameters) -> int:
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return execute(db, sql, *parameters)

    def refused(ask: Callable[[], object]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Connection, "execute", full)
            with pytest.raises(StoreFailed):
                ask()

    refused(lambda: world.optimizing.ack(optimizer, [attempt]))
    assert statuses_of(world, process) == [SCHEDULED, PLANNED]
    assert world.optimizing.ack(optimizer, [attempt]) == [{}]
    refused(lambda: done(world, optimizer, attempt, 1))
    assert statuses_of(world, process) == [ACKED, PLANNED]
    assert done(world, optimizer, attempt, 1) == (True, [(1, 2, 1)])
    assert statuses_of(world, process) == [SUCCESS, SCHEDULED]


def test_what_is_stored_and_not_answered_is_accepted_again_and_its_thread_gets_its_task_anew(world: World) -> None:
    process = plan(world, 2)
    optimizer = painter(world)
    (attempt,) = scheduled(world, optimizer, 1)
    assert done(world, optimizer, attempt) == (False, []), "a result that overtakes its ack changes nothing"
    assert statuses_of(world, process)[0] is SCHEDULED
    assert world.optimizing.ack(optimizer, [attempt]) == [{}]
    failpoints.arm("complete.after_store=fail")
    with pytest.raises(InjectedFault):
        done(world, optimizer, attempt, 1)
    assert statuses_of(world, process) == [SUCCESS, SCHEDULED]
    assert done(world, optimizer, attempt, 1) == (True, [(1, 2, 2)])
    assert statuses_of(world, process) == [SUCCESS, SCHEDULED]
    task = world.tasks(process)[1]
    assert world.optimizing.ack(optimizer, [Attempt(task.task_id, 1), Attempt(task.task_id, 2)]) == [None, {}]
    assert world.tasks(process)[1].lost_attempts == 0


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
