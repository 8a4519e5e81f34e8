"""Kinds of work on the wire: handed to who knows them, refused by name on both sides, never taken for a failure."""

from __future__ import annotations

import threading

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.app import Coordinator
from amoro_core.errors import AmoroError, UnknownWork
from amoro_core.files.io import FileAccess
from amoro_core.model.processes import OptimizingTask, ProcessStatus, TaskStatus
from amoro_core.model.work import REWRITE, Work, WorkResult
from amoro_core.protocol import codec
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.store import tasks
from amoro_optimizer.backends.standalone import InProcess
from amoro_optimizer.client import Client
from amoro_optimizer.kinds import Kinds, Run
from amoro_optimizer.runner import OptimizerConfig, Runner
from tests.rpc.test_services import begin, register, small_files


@pytest.fixture
def process(coordinator: Coordinator, catalog: SqlCatalog) -> str:
    small_files(catalog)
    return begin(coordinator)


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
    assert client.poll(ignorant, [1], 0) == ()
    (handed,) = client.poll(able, [1], 0)
    assert handed.work.kind == "polish"
    assert handed.work.payload == coordinator._store.read(lambda db: tasks.read_input(db, handed.attempt.task_id))


def test_an_optimizer_that_names_no_kind_rewrites(coordinator: Coordinator, client: Client, process: str) -> None:
    """As those of earlier versions."""
    token = register(coordinator, client, work_kinds=()).token
    (handed,) = client.poll(token, [1], 0)
    assert handed.work.kind == REWRITE


def test_a_refused_task_is_planned_again_for_others_and_neither_failed_nor_lost(
    coordinator: Coordinator, client: Client, process: str
) -> None:
    token = register(coordinator, client).token
    (handed,) = client.poll(token, [1], 0)
    client.refuse(token, handed.attempt, "rewrite", UnknownWork("work of the kind 'rewrite' is not known here"))
    task = the_task(coordinator, process)
    assert (task.status, task.failed_runs, task.lost_attempts) == (TaskStatus.PLANNED, 0, 0)
    assert task.failure == ("work of the kind 'rewrite' is not known here")
    assert client.poll(token, [1], 0) == (), "who refused it is not asked again"
    (again,) = client.poll(register(coordinator, client).token, [1], 0)
    assert (again.attempt.task_id, again.attempt.number) == (handed.attempt.task_id, 2)


def test_a_result_of_another_kind_than_the_tasks_is_refused_by_both_names_and_nothing_changes(
    coordinator: Coordinator, client: Client, process: str
) -> None:
    token = register(coordinator, client).token
    (handed,) = client.poll(token, [1], 0)
    client.ack(token, handed.attempt)
    before = the_task(coordinator, process)
    with pytest.raises(AmoroError, match="has work of the kind 'rewrite', its result is of the kind 'polish'"):
        client.complete(token, handed.attempt, WorkResult("polish", b""))
    assert the_task(coordinator, process) == before


def test_a_result_that_the_coordinator_does_not_know_is_no_failure(
    coordinator: Coordinator, client: Client, process: str
) -> None:
    """As one of a later version, of which only the attempt can be read."""
    token = register(coordinator, client).token
    (handed,) = client.poll(token, [1], 0)
    client.ack(token, handed.attempt)
    before = the_task(coordinator, process)
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
    config = OptimizerConfig(
        coordinator.address, "default", 1, 1 << 29, coordinator.enrolment_token, heartbeat_interval_s=1, labels={}
    )
    runner = Runner(config, Forgetful())
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        for _ in range(600):
            task = the_task(coordinator, process)
            if task.attempt:
                break
            threading.Event().wait(0.05)
        while (task := the_task(coordinator, process)).status is not TaskStatus.PLANNED:
            threading.Event().wait(0.05)
    finally:
        runner.stop()
        thread.join()
    assert (task.attempt, task.failed_runs, task.lost_attempts) == (1, 0, 0)
    assert task.failure == "work of the kind 'polish' is not known to this optimizer, which knows rewrite"


class Polish:
    """A kind whose message is a file's name and what is to stand in it."""

    def open(self, payload: bytes, io_properties: object) -> FileAccess:
        from amoro_core.files.io import open_access

        place = payload.decode().rpartition("/")[0]
        return open_access({}, place, read_locations=(place,), write_locations=(place,))

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        path = f"{payload.decode()}-{run.attempt.number}"
        with access.create_output(path) as stream:
            stream.write(b"polished")
        return path.encode()

    def files(self, result: bytes) -> frozenset[str]:
        return frozenset({result.decode()})


def test_a_kind_that_is_plugged_in_is_executed_and_its_result_kept_as_it_is(
    coordinator: Coordinator, client: Client, process: str, tmp_path: object
) -> None:
    become(coordinator, process, "polish")
    backend = InProcess(Kinds({"polish": Polish()}))
    token = register(coordinator, client, work_kinds=backend.kinds).token
    (handed,) = client.poll(token, [1], 0)
    client.ack(token, handed.attempt)
    run = Run(handed.attempt, {}, 1, lambda done, total: None, lambda: False)
    result = backend.execute(Work("polish", f"{tmp_path}/out".encode()), handed.table, run)
    assert result == WorkResult("polish", f"{tmp_path}/out-1".encode())
    assert client.complete(token, handed.attempt, result)
    assert client.complete(token, handed.attempt, result), "a repetition is accepted"
    assert coordinator._store.read(lambda db: tasks.read_output(db, handed.attempt.task_id)) == (1, result.payload)
    assert the_task(coordinator, process).status is TaskStatus.SUCCESS
    assert coordinator.optimizing.find_process(process).process.status is not ProcessStatus.RUNNING
