"""Optimizers and a coordinator: kinds of work, registering anew, abandoning, draining."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.errors import AmoroError, AttemptAbandoned, CoordinatorUnavailable, UnknownWork
from amoro_core.model.processes import OptimizingTask, ProcessStatus, TaskStatus
from amoro_core.model.task_payload import REWRITE, Work, WorkResult
from amoro_core.protocol import codec
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.store import tasks
from amoro_optimizer.client import Client, Polled
from amoro_optimizer.execution import steady_s
from amoro_optimizer.runner import Runner
from amoro_optimizer.work_kinds import InProcess, Kinds, Run
from tests.engine import oracle
from tests.rpc.conftest import optimizer, register, wait_until
from tests.rpc.test_services import begin, small_files
from tests.store import builders


class Held:
    """A backend that begins a task and goes on with it only when it is let go; it hears of cancellation."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.abandoned = threading.Event()
        self._backend = InProcess()
        self.kinds = self._backend.kinds
        self.max_cluster_bytes = self._backend.max_cluster_bytes

    def execute(self, work: Work, table: str, run: Run) -> WorkResult:
        self.run = run
        self.begun.set()
        while not self.go.wait(0.02):
            if run.is_cancelled():
                self.abandoned.set()
                raise AttemptAbandoned("cancelled")
        return self._backend.execute(work, table, run)


@pytest.fixture
def process(coordinator: Coordinator, catalog: SqlCatalog) -> str:
    small_files(catalog)
    return begin(coordinator)


def only_id(coordinator: Coordinator) -> str:
    ((found, _),) = coordinator.optimizers.list_optimizers()
    return found.optimizer_id


@pytest.fixture
def held() -> Held:
    return Held()


@contextmanager
def begun(coordinator: Coordinator, held: Held, threads: int = 1) -> Iterator[tuple[Runner, threading.Thread]]:
    """An optimizer that has begun its task."""
    with optimizer(coordinator, held, threads, 0.1) as (runner, thread):
        try:
            assert held.begun.wait(90)
            yield runner, thread
        finally:
            held.go.set()


def test_an_unknown_token_leads_to_a_new_registration_that_goes_on_with_the_running_attempt(
    coordinator: Coordinator, catalog: SqlCatalog, process: str, held: Held
) -> None:
    before = oracle.live_rows(catalog.load_table("db.t"))
    with begun(coordinator, held):
        old = only_id(coordinator)
        coordinator.optimizers.forget(old)
        wait_until(lambda: len(coordinator.optimizers.list_optimizers()) == 1)
        new = only_id(coordinator)
        assert new != old
        task = the_task(coordinator, process)
        assert task.thread is not None
        assert (task.thread.optimizer_id, task.attempt) == (new, 1)
        held.go.set()
        wait_until(lambda: not coordinator.optimizing.find_process(process).process.is_active)
    view = coordinator.optimizing.find_process(process)
    assert (view.process.status, view.tasks[0].attempt) == (ProcessStatus.SUCCESS, 1)
    oracle.assert_same_rows(before, oracle.live_rows(catalog.load_table("db.t")))
    assert not held.abandoned.is_set()


def test_a_cancelled_attempt_is_abandoned_within_a_heartbeat(
    coordinator: Coordinator, process: str, held: Held
) -> None:
    with begun(coordinator, held):
        coordinator.optimizing.cancel(process, "nobody wants it")
        assert held.abandoned.wait(90)
        wait_until(lambda: coordinator.optimizing.find_process(process).process.status is ProcessStatus.CLOSED)


def test_an_attempt_is_surely_its_optimizers_for_a_heartbeat_timeout_after_the_last_answer(
    coordinator: Coordinator, process: str, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = threading.Event()

    def unanswered(*arguments: object) -> None:
        silent.set()
        raise CoordinatorUnavailable("no answer")

    with begun(coordinator, held, threads=2), monkeypatch.context() as patched:  # the other one's poll is open
        registered = held.run.held_until_s()
        timeout_s = coordinator.optimizers.heartbeat_timeout.total_seconds()
        wait_until(lambda: held.run.held_until_s() > registered)
        patched.setattr(Client, "heartbeat", unanswered)
        assert silent.wait(90)
        last = held.run.held_until_s()
        assert steady_s() - 90 < last - timeout_s < steady_s()
        silent.clear()
        assert silent.wait(90)
        assert held.run.held_until_s() == last


def test_draining_finishes_what_runs_and_leaves(coordinator: Coordinator, process: str, held: Held) -> None:
    with begun(coordinator, held) as (runner, thread):
        runner.stop()
        assert thread.is_alive()
        held.go.set()
        thread.join(90)
        assert not thread.is_alive()
    assert coordinator.optimizers.list_optimizers() == []
    wait_until(lambda: coordinator.optimizing.find_process(process).process.status is ProcessStatus.SUCCESS)


def test_a_released_optimizer_that_lives_abandons_its_work_and_leaves_though_its_token_is_forgotten(
    coordinator: Coordinator, process: str, held: Held
) -> None:
    with begun(coordinator, held) as (runner, thread):
        assert coordinator.optimizing.release(only_id(coordinator)) == 1
        assert held.abandoned.wait(90)
        thread.join(90)
        assert not thread.is_alive()
        runner.stop(at_once=True)
    assert coordinator.optimizers.list_optimizers() == []
    task = the_task(coordinator, process)
    assert (task.status.value, task.attempt) == ("planned", 1)


def the_task(coordinator: Coordinator, process: str) -> OptimizingTask:
    (task,) = coordinator.optimizing.find_process(process).tasks
    return task


def become(coordinator: Coordinator, process: str, kind: str) -> None:
    """The process's task gets work of another kind."""
    change = "UPDATE task_runtime SET work_kind = :kind WHERE process_id = :process"
    coordinator._store.write(lambda db: db.execute(change, {"kind": kind, "process": process}))


def test_work_goes_only_to_an_optimizer_that_knows_its_kind(
    coordinator: Coordinator, client: Client, process: str
) -> None:
    become(coordinator, process, "polish")
    ignorant, able = (register(coordinator, client, work_kinds=kinds).token for kinds in ((REWRITE,), ("polish",)))
    assert client.poll(ignorant, [1], 0, (), 0).tasks == ()
    (handed,) = client.poll(able, [1], 0, (), 0).tasks
    assert handed.work.kind == "polish"
    assert handed.work.payload == coordinator._store.read(lambda db: tasks.read_input(db, handed.attempt.task_id))


def test_a_refused_task_is_planned_again_for_others_and_neither_failed_nor_lost(
    coordinator: Coordinator, client: Client, process: str
) -> None:
    token = register(coordinator, client).token
    (handed,) = client.poll(token, [1], 0, (), 0).tasks
    client.refuse(token, handed.attempt, "rewrite", UnknownWork("work of the kind 'rewrite' is not known here"))
    task = the_task(coordinator, process)
    assert (task.status, task.failed_runs, task.lost_attempts) == (TaskStatus.PLANNED, 0, 0)
    assert task.failure == ("work of the kind 'rewrite' is not known here")
    assert client.poll(token, [1], 0, (), 0).tasks == (), "who refused it is not asked again"
    (again,) = client.poll(register(coordinator, client).token, [1], 0, (), 0).tasks
    assert (again.attempt.task_id, again.attempt.number) == (handed.attempt.task_id, 2)


def test_a_result_of_another_kind_or_of_none_that_is_known_is_refused_and_nothing_changes(
    coordinator: Coordinator, client: Client, process: str
) -> None:
    token = register(coordinator, client).token
    (handed,) = client.poll(token, [1], 0, (), 0).tasks
    client.ack(token, handed.attempt)
    before = the_task(coordinator, process)
    with pytest.raises(AmoroError, match="has work of the kind 'rewrite', its result is of the kind 'polish'"):
        client.complete(token, handed.attempt, WorkResult("polish", b""))
    # As one of a later version, of which only the attempt can be read.
    with pytest.raises(AmoroError, match="is of no kind that this coordinator knows"):
        client._report(token, pb.TaskResult(attempt=codec.encode_attempt(handed.attempt)))
    assert the_task(coordinator, process) == before


def test_an_installation_names_the_kind_that_it_does_not_know() -> None:
    with pytest.raises(
        UnknownWork,
        match="the kind 'polish' is not known to this optimizer, which knows cluster, delete, list, rewrite, sketch",
    ):
        Kinds().of("polish")


class Forgetful(InProcess):
    """It says that it knows more than it does, once it is asked."""

    def __init__(self) -> None:
        super().__init__(Kinds())
        self.asked = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        self.asked += 1
        return (REWRITE, "polish") if self.asked == 1 else (REWRITE,)


def test_a_runner_gives_work_of_an_unknown_kind_back_and_goes_on(coordinator: Coordinator, process: str) -> None:
    become(coordinator, process, "polish")
    with optimizer(coordinator, Forgetful(), 1):
        wait_until(lambda: the_task(coordinator, process).attempt)
        wait_until(lambda: the_task(coordinator, process).status is TaskStatus.PLANNED)
    task = the_task(coordinator, process)
    assert (task.attempt, task.failed_runs, task.lost_attempts) == (1, 0, 0)
    assert task.failure == "work of the kind 'polish' is not known to this optimizer, which knows rewrite"


# Polls for several threads, which are heartbeats; results that poll; calls of earlier versions


KIND = "paint"


def plan(coordinator: Coordinator, count: int) -> str:
    """A process with so many tasks of a kind of our own, and one that nobody does, so that it goes on."""
    made = coordinator._store.write(lambda db: builders.endless_process(db, KIND, count))
    coordinator.services.work.fire()
    return made


def all_of(coordinator: Coordinator, process_id: str) -> list[OptimizingTask]:
    return coordinator._store.read(lambda db: tasks.list_for_process(db, process_id))[:-1]


def test_one_poll_serves_all_free_threads_and_a_completion_brings_the_next_task(
    coordinator: Coordinator, client: Client
) -> None:
    process_id = plan(coordinator, 4)
    token = register(coordinator, client, threads=3, work_kinds=(KIND,)).token
    polled = client.poll(token, [1, 2, 3], 0, (), 3)
    assert [(task.thread_id, task.attempt.task_id.number) for task in polled.tasks] == [(1, 1), (2, 2), (3, 3)]
    attempts = [task.attempt for task in polled.tasks]
    assert client.ack(token, attempts[0]) is not None
    assert client.ack(token, attempts[1]) is not None
    assert client.ack(token, attempts[0]._replace(number=7)) is None
    assert not client.complete(token, attempts[0]._replace(number=7), WorkResult(KIND, b"blue")).accepted
    reply = client.complete(token, attempts[0], WorkResult(KIND, b"red"), 1)
    assert reply.following is not None
    assert (reply.accepted, reply.following.thread_id, reply.following.attempt.task_id.number) == (True, 1, 4)
    statuses = [task.status for task in all_of(coordinator, process_id)]
    assert statuses == [TaskStatus.SUCCESS, TaskStatus.ACKED, TaskStatus.SCHEDULED, TaskStatus.SCHEDULED]


def test_calls_of_an_optimizer_of_the_version_before_are_answered_as_then(
    coordinator: Coordinator, client: Client
) -> None:
    process_id = plan(coordinator, 2)
    token = register(coordinator, client, threads=3, work_kinds=(KIND,)).token
    stub, metadata = client._stub, (("authorization", f"Bearer {token.reveal()}"),)
    answer = stub.PollTask(pb.PollTaskRequest(thread_ids=[2], wait_ms=0), metadata=metadata)
    (task,) = answer.tasks
    assert (task.thread_id, task.attempt.task_id, answer.draining) == (2, 1, False)
    (acked,) = stub.AckTask(pb.AckTaskRequest(attempts=[task.attempt]), metadata=metadata).results
    assert acked.status == pb.REPORT_STATUS_ACCEPTED
    result = pb.TaskResult(attempt=task.attempt, other=pb.KindMessage(kind=KIND, payload=b"red"))
    done = stub.CompleteTask(pb.CompleteTaskRequest(results=[result]), metadata=metadata)
    assert [one.status for one in done.results] == [pb.REPORT_STATUS_ACCEPTED]
    assert not done.HasField("polled")
    assert [one.status for one in all_of(coordinator, process_id)] == [TaskStatus.SUCCESS, TaskStatus.PLANNED]


def test_open_polls_of_who_leaves_end_at_once(coordinator: Coordinator, client: Client) -> None:
    registration = register(coordinator, client, threads=3, work_kinds=(KIND,))
    with ThreadPoolExecutor(1) as pool:
        open_poll = pool.submit(client.poll, registration.token, [1], 20, (), 3)
        wait_until(lambda: coordinator.services.optimizers._polls)
        coordinator.optimizers.drain(registration.optimizer_id)
        assert open_poll.result(10) == Polled((), (), True)


def test_an_open_poll_is_a_heartbeat_until_some_time_after_its_end(coordinator: Coordinator, client: Client) -> None:
    optimizers = coordinator.optimizers
    now_s = optimizers.monotonic()
    optimizers.monotonic = lambda: now_s
    optimizer_id = register(coordinator, client, threads=3, work_kinds=(KIND,)).optimizer_id
    with optimizers.polling(optimizer_id):
        now_s += timedelta(days=1).total_seconds()
        assert optimizers.silent() == []
    assert optimizers.silent() == []
    now_s += 30
    assert optimizers.silent() == []
    now_s += 1
    assert optimizers.silent() == [optimizer_id]


def test_a_poll_is_a_heartbeat_and_says_how_many_threads_there_are(coordinator: Coordinator, client: Client) -> None:
    registration = register(coordinator, client, threads=3, work_kinds=(KIND,))
    ((_, before),) = coordinator.optimizers.list_optimizers()
    assert client.poll(registration.token, [1], 0, (), 3) == Polled((), (), False)
    ((optimizer, after),) = coordinator.optimizers.list_optimizers()
    assert optimizer.threads == 3
    assert after.touched_s > before.touched_s
    client.poll(registration.token, [1], 0, (), 5)
    ((optimizer, _),) = coordinator.optimizers.list_optimizers()
    assert optimizer.threads == 5


class Painter:
    """A backend whose work takes no time."""

    kinds = (KIND,)
    max_cluster_bytes = 0

    def execute(self, work: Work, table: str, run: Run) -> WorkResult:
        return WorkResult(work.kind, b"red")


def test_all_threads_work_through_what_is_planned_and_polls_are_heartbeats(coordinator: Coordinator) -> None:
    beats = []
    with optimizer(coordinator, Painter(), 4, 0.2) as (runner, _):
        heartbeat = runner._client.heartbeat
        runner._client.heartbeat = lambda *given: beats.append(1) or heartbeat(*given)  # type: ignore[method-assign]
        process_id = plan(coordinator, 60)
        wait_until(lambda: all(one.status is TaskStatus.SUCCESS for one in all_of(coordinator, process_id)))
        assert {one.attempt for one in all_of(coordinator, process_id)} == {1}
        wait_until(lambda: any(coordinator.services.optimizers._polls.values()))
        threading.Event().wait(0.3)  # a heartbeat may have been on its way
        del beats[:]
        threading.Event().wait(1.0)
        assert not beats, "an open poll says that the optimizer lives"
