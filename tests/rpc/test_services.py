"""Both services over the wire: tokens, errors, long polls, the whole life of a task."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyiceberg.catalog.sql import SqlCatalog

from amoro_cli.client import AdminClient
from amoro_cli.connection import Endpoint
from amoro_core import errors
from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.errors import AmoroError, AttemptAbandoned, DataFileMissing, UnknownWork
from amoro_core.model.principals import PLAIN, Role
from amoro_core.model.processes import OptimizingTask, ProcessStatus, TaskStatus
from amoro_core.model.tables import parse_table
from amoro_core.model.task_payload import REWRITE, Work, WorkResult
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import codec, optimizing_pb2
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.protocol.optimizing_pb2_grpc import OptimizingServiceStub
from amoro_core.store import tasks
from amoro_optimizer.client import Client, Polled
from amoro_optimizer.execution import steady_s
from amoro_optimizer.runner import Runner
from amoro_optimizer.session import Running
from amoro_optimizer.work_kinds import InProcess, Kinds, Run
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.rpc.conftest import optimizer, register, wait_until
from tests.store import builders
from tests.work import rewrite_input


def small_files(catalog: SqlCatalog) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])


def begin(coordinator: Coordinator) -> str:
    runtime = coordinator.tables.ensure(parse_table("cat.db.t"))
    begun = coordinator.planning.begin(runtime.table_id, trigger="request", requested=None)
    assert begun.process_id is not None
    return begun.process_id


def test_a_table_that_can_t_be_read_says_why(coordinator: Coordinator, admin: AdminClient, catalog: SqlCatalog) -> None:
    small_files(catalog)
    table_id = coordinator.tables.ensure(parse_table("cat.db.t")).table_id
    coordinator.tables.refresh(table_id)
    before = admin.GetTable(pb.GetTableRequest(table="cat.db.t"))
    location = local_path(catalog.load_table("db.t").metadata_location)
    gone = Path(location).rename(f"{location}.gone")
    for failures in (1, 2):
        with pytest.raises(DataFileMissing):
            coordinator.tables.refresh(table_id)
        shown = admin.GetTable(pb.GetTableRequest(table="cat.db.t"))
        assert (shown.state, shown.failures, shown.failure_code) == ("failing", failures, DataFileMissing.code)
    assert shown.failure.startswith("the last look at the table: [AMORO-1002] the metadata file of cat.db.t does not")
    assert location in shown.failure
    gone.rename(location)
    coordinator.tables.refresh(table_id)
    healed = admin.GetTable(pb.GetTableRequest(table="cat.db.t"))
    assert (healed.state, healed.failures, healed.failure) == (before.state, 0, "")


def test_what_a_registration_lacks_is_refused_by_name(coordinator: Coordinator, client: Client) -> None:
    with pytest.raises(errors.GroupNotFound, match="'nope'"):
        register(coordinator, client, group="nope")
    with pytest.raises(errors.InvalidSettings, match="heartbeat interval 30 s is not below"):
        register(coordinator, client, heartbeat_interval_s=30.0)
    for token in (Secret("amo_wrong"), coordinator.admin_token):
        with pytest.raises(errors.NotAllowed, match="the enrolment token is wrong"):
            register(coordinator, client, token=token)
    _, created = coordinator.tokens.create("more", Role.ENROLMENT)
    assert register(coordinator, client, token=Secret(created)).optimizer_id


@pytest.mark.parametrize("letter", ["x", "é", "%", "客"])
def test_a_message_that_is_too_long_for_grpc_arrives_cut(admin: AdminClient, letter: str) -> None:
    with pytest.raises(errors.TableNotFound) as error:
        admin.GetTable(pb.GetTableRequest(table=f"cat.db.{letter * 20_000}"))
    assert error.value.message.startswith(f"table cat.db.{letter * 400}")
    assert re.search(r" … \(cut: 20,\d\d\d characters in all\)$", error.value.message)


def test_the_life_of_a_task_over_the_wire(coordinator: Coordinator, client: Client, catalog: SqlCatalog) -> None:
    small_files(catalog)
    before = oracle.live_rows(catalog.load_table("db.t"))
    process = begin(coordinator)
    token = register(coordinator, client).token
    (handed,) = client.poll(token, [1], 0, (), 0).tasks
    assert (handed.table, handed.thread_id, len(rewrite_input(handed.work).rewritten)) == ("cat.db.t", 1, 3)
    vended = client.ack(token, handed.attempt)
    assert vended is not None
    assert not {"uri", "token", "credential"} & set(vended)
    assert client.heartbeat(token, [Running(handed.attempt, 1, 1, 3)], 1) == ((), False)
    run = Run(handed.attempt, vended, 1 << 29, lambda done, total: None, lambda: False)
    output = InProcess().execute(handed.work, handed.table, run)
    assert client.complete(token, handed.attempt, output).accepted
    assert client.complete(token, handed.attempt, output).accepted
    wait_until(lambda: not coordinator.optimizing.find_process(process).process.is_active)
    assert coordinator.optimizing.find_process(process).process.status is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, oracle.live_rows(catalog.load_table("db.t")))


def test_work_whose_answer_was_lost_and_that_of_who_leaves_is_given_anew_and_none_to_who_drains(
    coordinator: Coordinator, admin: AdminClient, client: Client, catalog: SqlCatalog
) -> None:
    small_files(catalog)
    process = begin(coordinator)
    token = register(coordinator, client).token
    (first,) = client.poll(token, [1], 0, (), 0).tasks
    (second,) = client.poll(token, [1], 0, (), 0).tasks
    assert client.ack(token, first.attempt) is None
    assert client.ack(token, second.attempt) is not None
    assert client.heartbeat(token, [Running(first.attempt, 1)], 1) == ((first.attempt,), False)
    client.deregister(token)
    (task,) = coordinator.optimizing.find_process(process).tasks
    assert (task.status.value, task.lost_attempts) == ("planned", 0)

    draining = register(coordinator, client)
    assert admin.DrainOptimizer(pb.DrainOptimizerRequest(optimizer_id=draining.optimizer_id)).draining
    assert client.heartbeat(draining.token, [], 1) == ((), True)
    assert client.poll(draining.token, [1], 0, (), 0).tasks == ()
    (again,) = client.poll(register(coordinator, client).token, [1], 0, (), 0).tasks
    assert (again.attempt.task_id, again.attempt.number) == (second.attempt.task_id, second.attempt.number + 1)


def test_a_long_poll_ends_at_once_when_the_optimizer_stops(coordinator: Coordinator) -> None:
    stopping = threading.Event()
    with closing(Client(coordinator.address, PLAIN, stopping=stopping)) as client, ThreadPoolExecutor(2) as pool:
        token = register(coordinator, client).token
        begun = time.monotonic()
        waiting = [pool.submit(client.poll, token, [thread], 20.0, (), 0) for thread in (1, 2)]
        stopping.set()
        client.stop_polling()
        assert [poll.result(90).tasks for poll in waiting] == [(), ()]
        assert client.poll(token, [1], 20.0, (), 0).tasks == ()  # one that comes late ends, too
    assert time.monotonic() - begun < 20.0  # what one that is not ended takes


def test_a_released_optimizer_is_forgotten_at_once_and_its_late_result_does_not_count(
    coordinator: Coordinator, admin: AdminClient, client: Client, catalog: SqlCatalog
) -> None:
    small_files(catalog)
    process = begin(coordinator)
    old = register(coordinator, client)
    (first,) = client.poll(old.token, [1], 0, (), 0).tasks
    assert client.ack(old.token, first.attempt) is not None
    answer = admin.ReleaseOptimizer(pb.ReleaseOptimizerRequest(optimizer_id=old.optimizer_id[:-1]))
    assert (answer.optimizer_id, answer.tasks) == (old.optimizer_id, 1)
    assert coordinator.optimizers.list_optimizers() == []
    (task,) = coordinator.optimizing.find_process(process).tasks
    assert (task.status.value, task.thread, task.lost_attempts) == ("planned", None, 0)
    with pytest.raises(errors.UnknownToken):
        client.poll(old.token, [1], 0, (), 0)
    with pytest.raises(errors.UnknownToken):
        client.complete(old.token, first.attempt, AmoroError("late"))
    new = register(coordinator, client)
    (second,) = client.poll(new.token, [1], 0, (), 0).tasks
    assert client.ack(new.token, second.attempt) is not None
    # A result of the earlier attempt is fenced by its number, whoever brings it.
    assert not client.complete(new.token, first.attempt, AmoroError("late")).accepted
    (task,) = coordinator.optimizing.find_process(process).tasks
    assert (task.status.value, task.attempt, task.failed_runs) == ("acked", 2, 0)


def called(call: Any, is_streamed: bool, request: Any, metadata: Any) -> None:
    answer = call(request, metadata=metadata, timeout=90)
    list(answer if is_streamed else ())


def test_every_optimizing_method_wants_a_token_and_health_none(coordinator: Coordinator) -> None:
    service = optimizing_pb2.DESCRIPTOR.services_by_name["OptimizingService"]
    with grpc.insecure_channel(coordinator.address) as channel:
        stub, health = OptimizingServiceStub(channel), health_pb2_grpc.HealthStub(channel)
        for method in service.methods:
            request = getattr(optimizing_pb2, method.input_type.name)()
            for token in (None, coordinator.admin_token.reveal(), "amo_x"):
                metadata = [] if token is None else [("authorization", f"Bearer {token}")]
                with pytest.raises(grpc.RpcError) as error:
                    called(getattr(stub, method.name), method.server_streaming, request, metadata)
                assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED, method.name
        for name in ("", "amoro.v1.OptimizingService", "amoro.v1.AdminService"):
            said = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=90)
            assert said.status == health_pb2.HealthCheckResponse.SERVING


def test_a_cancelled_process_says_by_whom_and_how_far_it_was(
    coordinator: Coordinator, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(catalog)
    _, token = coordinator.tokens.create("ci", Role.ADMIN)
    who = {"": "", "root": "user root with ", "zoë\x1b[1m" + "x" * 80: "user zoë\\x1b[1m" + "x" * 54 + " with "}
    with grpc.insecure_channel(coordinator.address) as channel:
        for user, words in who.items():
            metadata: list[tuple[str, str | bytes]] = [("authorization", f"Bearer {token}")]
            metadata += [("amoro-user-bin", user.encode())] if user else []
            request = pb.CancelProcessRequest(process_id=begin(coordinator))
            answer = AdminServiceStub(channel).CancelProcess(request, metadata=metadata, timeout=90)
            assert (answer.status, answer.failure) == ("closed", f"cancelled by {words}the token ci; 0 of 1 task done")
    monkeypatch.setenv("LOGNAME", "alice")
    with closing(AdminClient(Endpoint(coordinator.address, coordinator.admin_token))) as client:
        failure = client.CancelProcess(pb.CancelProcessRequest(process_id=begin(coordinator))).failure
    assert failure == "cancelled by user alice with the token admin; 0 of 1 task done"


# Optimizers and a coordinator: kinds of work, registering anew, abandoning, draining


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
        assert (task.thread.optimizer_id, task.attempt) == (new, 1)
        held.go.set()
        wait_until(lambda: not coordinator.optimizing.find_process(process).process.is_active)
    view = coordinator.optimizing.find_process(process)
    assert (view.process.status, view.tasks[0].attempt) == (ProcessStatus.SUCCESS, 1)
    oracle.assert_same_rows(before, oracle.live_rows(catalog.load_table("db.t")))
    assert not held.abandoned.is_set()


def test_a_cancelled_attempt_is_abandoned_by_a_heartbeat(coordinator: Coordinator, process: str, held: Held) -> None:
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
        raise errors.CoordinatorUnavailable("no answer")

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


def test_a_refused_task_is_planned_again_for_others_and_neither_failed_nor_lost(
    coordinator: Coordinator, client: Client, process: str
) -> None:
    token = register(coordinator, client).token
    (handed,) = client.poll(token, [1], 0, (), 0).tasks
    client.refuse(token, handed.attempt, "rewrite", UnknownWork("work of the kind 'rewrite' is not known here"))
    task = the_task(coordinator, process)
    assert (task.status, task.failed_runs, task.lost_attempts) == (TaskStatus.PLANNED, 0, 0)
    assert task.failure == "work of the kind 'rewrite' is not known here"
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
        client._report(token, optimizing_pb2.TaskResult(attempt=codec.encode_attempt(handed.attempt)))
    assert the_task(coordinator, process) == before


def test_an_installation_names_the_kind_that_it_does_not_know() -> None:
    known = "this optimizer, which knows cluster, delete, list, rewrite, sketch"
    with pytest.raises(UnknownWork, match=f"the kind 'polish' is not known to {known}"):
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
    change = "UPDATE task_runtime SET work_kind = 'polish' WHERE process_id = :process"
    coordinator._store.write(lambda db: db.execute(change, {"process": process}))
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


def test_one_poll_serves_all_threads_and_a_completion_brings_the_next(coordinator: Coordinator, client: Client) -> None:
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
    assert (reply.accepted, reply.following.thread_id, reply.following.attempt.task_id.number) == (True, 1, 4)
    statuses = [task.status for task in all_of(coordinator, process_id)]
    assert statuses == [TaskStatus.SUCCESS, TaskStatus.ACKED, TaskStatus.SCHEDULED, TaskStatus.SCHEDULED]


def test_an_optimizer_of_the_version_before_is_answered_as_then(coordinator: Coordinator, client: Client) -> None:
    process_id = plan(coordinator, 2)
    token = register(coordinator, client, threads=3, work_kinds=(KIND,)).token
    stub, metadata = client._stub, (("authorization", f"Bearer {token.reveal()}"),)
    answer = stub.PollTask(optimizing_pb2.PollTaskRequest(thread_ids=[2], wait_ms=0), metadata=metadata)
    (task,) = answer.tasks
    assert (task.thread_id, task.attempt.task_id, answer.draining) == (2, 1, False)
    (acked,) = stub.AckTask(optimizing_pb2.AckTaskRequest(attempts=[task.attempt]), metadata=metadata).results
    assert acked.status == optimizing_pb2.REPORT_STATUS_ACCEPTED
    red = optimizing_pb2.KindMessage(kind=KIND, payload=b"red")
    result = optimizing_pb2.TaskResult(attempt=task.attempt, other=red)
    done = stub.CompleteTask(optimizing_pb2.CompleteTaskRequest(results=[result]), metadata=metadata)
    assert [one.status for one in done.results] == [optimizing_pb2.REPORT_STATUS_ACCEPTED]
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
