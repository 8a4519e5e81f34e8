"""Both services over the wire: tokens, errors, long polls, the whole life of a task."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyiceberg.catalog.sql import SqlCatalog

from amoro_cli.client import AdminClient
from amoro_cli.connection import Endpoint
from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.errors import (
    AmoroError,
    DataFileMissing,
    GroupNotFound,
    InvalidSettings,
    NotAllowed,
    TableNotFound,
    UnknownToken,
)
from amoro_core.model.principals import PLAIN, Role
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import parse_table
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import optimizing_pb2
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.protocol.optimizing_pb2_grpc import OptimizingServiceStub
from amoro_optimizer.client import Client
from amoro_optimizer.session import Running
from amoro_optimizer.work_kinds import InProcess, Run
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.rpc.conftest import register, wait_until
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


def test_a_table_that_cannot_be_looked_at_says_why(
    coordinator: Coordinator, admin: AdminClient, catalog: SqlCatalog
) -> None:
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
    with pytest.raises(GroupNotFound, match="'nope'"):
        register(coordinator, client, group="nope")
    with pytest.raises(InvalidSettings, match="heartbeat interval 30 s is not below"):
        register(coordinator, client, heartbeat_interval_s=30.0)
    for token in (Secret("amo_wrong"), coordinator.admin_token):
        with pytest.raises(NotAllowed, match="the enrolment token is wrong"):
            register(coordinator, client, token=token)
    _, created = coordinator.tokens.create("more", Role.ENROLMENT)
    assert register(coordinator, client, token=Secret(created)).optimizer_id


@pytest.mark.parametrize("letter", ["x", "é", "%", "客"])
def test_a_message_that_is_too_long_for_grpc_arrives_cut(admin: AdminClient, letter: str) -> None:
    with pytest.raises(TableNotFound) as error:
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
    for call in (
        lambda: client.poll(old.token, [1], 0, (), 0).tasks,
        lambda: client.complete(old.token, first.attempt, AmoroError("late")),
    ):
        with pytest.raises(UnknownToken):
            call()
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
    who = {
        None: "the token ci",
        "root": "user root with the token ci",
        "zoë\x1b[1m" + "x" * 80: "user zoë\\x1b[1m" + "x" * 54 + " with the token ci",
    }
    with grpc.insecure_channel(coordinator.address) as channel:
        for user, words in who.items():
            metadata: list[tuple[str, str | bytes]] = [("authorization", f"Bearer {token}")]
            metadata += [] if user is None else [("amoro-user-bin", user.encode())]
            request = pb.CancelProcessRequest(process_id=begin(coordinator))
            answer = AdminServiceStub(channel).CancelProcess(request, metadata=metadata, timeout=90)
            assert (answer.status, answer.failure) == ("closed", f"cancelled by {words}; 0 of 1 task done")
    monkeypatch.setenv("LOGNAME", "alice")
    with closing(AdminClient(Endpoint(coordinator.address, coordinator.admin_token))) as client:
        failure = client.CancelProcess(pb.CancelProcessRequest(process_id=begin(coordinator))).failure
    assert failure == "cancelled by user alice with the token admin; 0 of 1 task done"
