"""Polls for several threads, which are heartbeats; results that poll; calls of earlier versions."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.model.processes import OptimizingTask, TaskStatus
from amoro_core.model.task_payload import Work, WorkResult
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.store import tasks
from amoro_optimizer.client import Client, Polled
from amoro_optimizer.execution import Run
from tests.rpc.conftest import optimizer, register, wait_until
from tests.store import builders

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
