"""Many tasks, acks and results in few calls; optimizers and coordinators of the version before beside those of now."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.errors import AmoroError, CoordinatorUnavailable, UnknownToken
from amoro_core.model.processes import Attempt, OptimizingTask, TaskStatus
from amoro_core.model.task_payload import Work, WorkResult
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.store import tasks
from amoro_optimizer.client import Client, Polled, report_of
from amoro_optimizer.execution import Run
from amoro_optimizer.report_batcher import Batches, Reports
from amoro_optimizer.runner import OptimizerConfig, Runner
from amoro_optimizer.session import Registration
from tests.store import builders

KIND = "paint"


def plan(coordinator: Coordinator, count: int) -> str:
    """A process with so many tasks of a kind of our own, and one that nobody does, so that it goes on."""
    made = coordinator._store.write(lambda db: builders.endless_process(db, KIND, count))
    coordinator.services.work.fire()
    return made


def all_of(coordinator: Coordinator, process_id: str) -> list[OptimizingTask]:
    return coordinator._store.read(lambda db: tasks.list_for_process(db, process_id))[:-1]


def register(coordinator: Coordinator, client: Client, threads: int = 3) -> Registration:
    registration, _ = client.register(
        coordinator.enrolment_token,
        group="default",
        threads=threads,
        memory_bytes=1 << 30,
        labels={},
        heartbeat_interval_s=5,
        running=(),
        previous_optimizer_id="",
        work_kinds=(KIND,),
    )
    return registration


def test_one_poll_serves_all_free_threads_and_a_completion_brings_the_next_task(
    coordinator: Coordinator, client: Client
) -> None:
    process_id = plan(coordinator, 4)
    token = register(coordinator, client).token
    polled = client.poll_alive(token, [1, 2, 3], 0, (), 3)
    assert [(task.thread_id, task.attempt.task_id.number) for task in polled.tasks] == [(1, 1), (2, 2), (3, 3)]
    attempts = [task.attempt for task in polled.tasks]
    strange = attempts[0]._replace(number=7)
    acked = client.ack_all(token, [attempts[0], strange, attempts[1]])
    assert [answer is not None for answer in acked] == [True, False, True]
    reports = [report_of(attempts[0], WorkResult(KIND, b"red")), report_of(strange, WorkResult(KIND, b"blue"))]
    accepted, following = client.complete_all(token, reports, [1])
    assert accepted == [True, False]
    assert [(task.thread_id, task.attempt.task_id.number) for task in following] == [(1, 4)]
    statuses = [task.status for task in all_of(coordinator, process_id)]
    assert statuses == [TaskStatus.SUCCESS, TaskStatus.ACKED, TaskStatus.SCHEDULED, TaskStatus.SCHEDULED]


def test_calls_of_an_optimizer_of_the_version_before_are_answered_as_then(
    coordinator: Coordinator, client: Client
) -> None:
    process_id = plan(coordinator, 2)
    token = register(coordinator, client).token
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
    registration = register(coordinator, client)
    with ThreadPoolExecutor(1) as pool:
        open_poll = pool.submit(client.poll_alive, registration.token, [1], 20, (), 3)
        while not coordinator.services.optimizers._polls:
            threading.Event().wait(0.01)
        coordinator.optimizers.drain(registration.optimizer_id)
        assert open_poll.result(10) == Polled((), (), True)


def test_an_open_poll_is_a_heartbeat_until_some_time_after_its_end(coordinator: Coordinator, client: Client) -> None:
    optimizers = coordinator.optimizers
    now_s = optimizers._monotonic()
    optimizers._monotonic = lambda: now_s
    optimizer_id = register(coordinator, client).optimizer_id
    with optimizers.polling(optimizer_id):
        now_s += timedelta(days=1).total_seconds()
        assert optimizers.silent() == []
    assert optimizers.silent() == []
    now_s += 30
    assert optimizers.silent() == []
    now_s += 1
    assert optimizers.silent() == [optimizer_id]


def test_a_poll_is_a_heartbeat_and_says_how_many_threads_there_are(coordinator: Coordinator, client: Client) -> None:
    registration = register(coordinator, client)
    ((_, before),) = coordinator.optimizers.list_optimizers()
    assert client.poll_alive(registration.token, [1], 0, (), 3) == Polled((), (), False)
    ((optimizer, after),) = coordinator.optimizers.list_optimizers()
    assert optimizer.threads == 3
    assert after.touched_s > before.touched_s
    client.poll_alive(registration.token, [1], 0, (), 5)
    ((optimizer, _),) = coordinator.optimizers.list_optimizers()
    assert optimizer.threads == 5


class Painter:
    """A backend whose work takes no time; it counts what it has done."""

    kinds = (KIND,)
    max_cluster_bytes = 0

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def execute(self, work: Work, table: str, run: Run) -> WorkResult:
        self.threads.add(threading.current_thread().name)
        return WorkResult(work.kind, b"red")


def _without_polls(client: Client) -> None:
    """Let the client meet a coordinator of the version before: it knows no poll that is a heartbeat or of a result."""
    register, complete_all = client.register, client.complete_all

    def registered(*given: object, **more: object) -> tuple[Registration, tuple[Attempt, ...]]:
        registration, adopted = register(*given, **more)  # type: ignore[arg-type]
        return replace(registration, polls_keep_alive=False), adopted

    def completed(token: Secret, reports: Sequence[pb.TaskResult], thread_ids: Sequence[int]) -> object:
        return complete_all(token, reports, ())

    client.register, client.complete_all = registered, completed  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("is_earlier", [False, True], ids=["now", "before"])
def test_all_threads_work_through_what_is_planned_with_either_coordinator(
    coordinator: Coordinator, is_earlier: bool
) -> None:
    config = OptimizerConfig(coordinator.address, "default", 4, 1 << 20, coordinator.enrolment_token, 0.2, {})
    painter = Painter()
    runner = Runner(config, painter)
    if is_earlier:
        _without_polls(runner._client)
    beats = []
    heartbeat = runner._client.heartbeat
    runner._client.heartbeat = lambda *given: beats.append(1) or heartbeat(*given)  # type: ignore[method-assign]
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        process_id = plan(coordinator, 60)
        until(lambda: all(one.status is TaskStatus.SUCCESS for one in all_of(coordinator, process_id)))
        assert {one.attempt for one in all_of(coordinator, process_id)} == {1}
        del beats[:]
        until(lambda: bool(coordinator.services.optimizers._polls) or bool(beats))
        if is_earlier:
            until(lambda: len(beats) > 1)
        else:
            until(lambda: any(coordinator.services.optimizers._polls.values()))
            threading.Event().wait(0.3)  # a heartbeat may have been on its way
            del beats[:]
            threading.Event().wait(1.0)
            assert not beats, "an open poll says that the optimizer lives"
    finally:
        runner.stop()
        thread.join()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it never came")


def test_results_beside_one_that_is_refused_are_delivered(coordinator: Coordinator, client: Client) -> None:
    process_id = plan(coordinator, 3)
    token = register(coordinator, client).token
    attempts = [task.attempt for task in client.poll(token, [1, 2, 3], 0)]
    client.ack_all(token, attempts)
    first, others = threading.Event(), threading.Event()
    complete_all = client.complete_all

    def slow(token: Secret, reports: Sequence[pb.TaskResult], thread_ids: Sequence[int]) -> object:
        first.set()
        others.wait()
        return complete_all(token, reports, thread_ids)

    client.complete_all = slow  # type: ignore[method-assign,assignment]
    reports = Reports(client)
    kinds = {attempts[0]: KIND, attempts[1]: "of another kind", attempts[2]: KIND}

    def report(attempt: Attempt) -> bool:
        return reports.complete(token, attempt, WorkResult(kinds[attempt], b"red"), 0).accepted

    with ThreadPoolExecutor(3) as pool:
        alone = pool.submit(report, attempts[0])
        first.wait()
        refused, beside = pool.submit(report, attempts[1]), pool.submit(report, attempts[2])
        until(lambda: len(reports._results._waiting) == 2)
        others.set()
        assert alone.result()
        assert beside.result()
        with pytest.raises(AmoroError, match="of another kind"):
            refused.result()
    statuses = [task.status for task in all_of(coordinator, process_id)]
    assert statuses == [TaskStatus.SUCCESS, TaskStatus.ACKED, TaskStatus.SUCCESS]


def test_reports_of_one_moment_count_by_the_token_of_their_own_call(coordinator: Coordinator, client: Client) -> None:
    process_id = plan(coordinator, 2)
    tokens = [register(coordinator, client).token for _ in range(2)]
    (first,), (second,) = (client.poll(token, [1], 0) for token in tokens)
    strange = Secret("another's")
    calls = [
        (tokens[1], first.attempt),
        (tokens[0], first.attempt),
        (strange, first.attempt),
        (tokens[1], second.attempt),
    ]

    def outcome(call: Callable[[Secret, Attempt], object], given: tuple[Secret, Attempt]) -> object:
        try:
            return call(*given)
        except UnknownToken:
            return UnknownToken

    def made(token: Secret) -> WorkResult:  # the same result, told twice, would count twice
        return WorkResult(KIND, token.reveal().encode())

    with ThreadPoolExecutor(len(calls)) as pool:
        acked = list(pool.map(lambda given: outcome(client.ack, given), calls))
        done = list(pool.map(lambda given: outcome(lambda *one: client.complete(*one, made(one[0])), given), calls))
    assert acked == [None, {}, UnknownToken, {}]
    assert done == [False, True, UnknownToken, True]
    assert [one.status for one in all_of(coordinator, process_id)] == [TaskStatus.SUCCESS, TaskStatus.SUCCESS]


def test_what_is_asked_while_a_call_is_under_way_shares_the_next_within_its_size() -> None:
    begun, go = threading.Event(), threading.Event()
    calls: list[list[str]] = []

    def call(asked: Sequence[str]) -> list[str]:
        calls.append(list(asked))
        begun.set()
        go.wait()
        if "broken" in asked:
            raise CoordinatorUnavailable("silent")
        return [one.upper() for one in asked]

    batches: Batches[str, str] = Batches(call, 10)
    with ThreadPoolExecutor(5) as pool:
        answers = [pool.submit(batches.ask, "first", 4)]
        begun.wait()
        for number, (word, size) in enumerate((("a", 4), ("b", 6), ("c", 20), ("broken", 1)), 1):
            answers.append(pool.submit(batches.ask, word, size))
            until(lambda number=number: len(batches._waiting) == number)
        go.set()
        assert [answer.result() for answer in answers[:4]] == ["FIRST", "A", "B", "C"]
        with pytest.raises(CoordinatorUnavailable):
            answers[4].result()
    assert calls == [["first"], ["a", "b"], ["c"], ["broken"]]


def test_a_call_waits_for_others_only_where_the_one_before_carried_several() -> None:
    calls: list[list[int]] = []
    begun, go = threading.Event(), threading.Event()
    gathered: list[int] = []

    def call(asked: Sequence[int]) -> Sequence[int]:
        calls.append(list(asked))
        begun.set()
        go.wait()
        return asked

    def gather(seconds: float) -> None:
        gathered.append(len(calls))
        if len(calls) == 2:
            until(lambda: len(batches._waiting) == 2)

    batches: Batches[int, int] = Batches(call, 10, gather)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(batches.ask, 1)
        begun.wait()
        others = [pool.submit(batches.ask, number) for number in (2, 3)]
        until(lambda: len(batches._waiting) == 2)
        go.set()
        assert [one.result() for one in (first, *others)] == [1, 2, 3]
        assert sorted(pool.map(batches.ask, (4, 5))) == [4, 5]
    assert [batches.ask(number) for number in (6, 7)] == [6, 7]
    assert [sorted(one) for one in calls] == [[1], [2, 3], [4, 5], [6], [7]]
    assert gathered == [2, 3], "before the third call and the fourth"
