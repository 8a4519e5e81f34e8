"""The runner against a real coordinator: registering anew, abandoning, draining."""

import logging
import threading
import time
from collections.abc import Callable

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.app import Coordinator
from amoro_core.errors import AttemptAbandoned
from amoro_core.events import FIELDS
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import parse_table
from amoro_core.model.work import Work, WorkResult
from amoro_optimizer.backends.standalone import InProcess
from amoro_optimizer.kinds import Run
from amoro_optimizer.runner import OptimizerConfig, Runner
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row


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
        self.begun.set()
        while not self.go.wait(0.02):
            if run.is_cancelled():
                self.abandoned.set()
                raise AttemptAbandoned("cancelled")
        return self._backend.execute(work, table, run)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


@pytest.fixture
def process(coordinator: Coordinator, catalog: SqlCatalog) -> str:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    runtime = coordinator.tables.ensure(parse_table("cat.db.t"))
    begun = coordinator.planning.begin(runtime.table_id, trigger="request", requested=None)
    assert begun.process_id is not None
    return begun.process_id


def started(coordinator: Coordinator, held: Held, *, is_beside: bool = False) -> tuple[Runner, threading.Thread]:
    config = OptimizerConfig(
        address=coordinator.address,
        group="default",
        threads=1,
        memory_bytes=1 << 29,
        enrolment_token=coordinator.enrolment_token,
        heartbeat_interval_s=0.1,
        labels={},
        is_beside=is_beside,
    )
    runner = Runner(config, held)
    thread = threading.Thread(target=runner.run)
    thread.start()
    assert held.begun.wait(90)
    return runner, thread


def only_id(coordinator: Coordinator) -> str:
    ((optimizer, _),) = coordinator.optimizers.list_optimizers()
    return optimizer.optimizer_id


def test_an_unknown_token_leads_to_a_new_registration_that_goes_on_with_the_running_attempt(
    coordinator: Coordinator, catalog: SqlCatalog, process: str
) -> None:
    before = oracle.live_rows(catalog.load_table("db.t"))
    held = Held()
    runner, thread = started(coordinator, held)
    try:
        old = only_id(coordinator)
        coordinator.optimizers.forget(old)
        until(lambda: len(coordinator.optimizers.list_optimizers()) == 1)
        new = only_id(coordinator)
        assert new != old
        (task,) = coordinator.optimizing.find_process(process).tasks
        assert task.thread is not None
        assert (task.thread.optimizer_id, task.attempt) == (new, 1)
        held.go.set()
        until(lambda: not coordinator.optimizing.find_process(process).process.is_active)
    finally:
        held.go.set()
        runner.stop()
        thread.join()
    view = coordinator.optimizing.find_process(process)
    assert (view.process.status, view.tasks[0].attempt) == (ProcessStatus.SUCCESS, 1)
    oracle.assert_same_rows(before, oracle.live_rows(catalog.load_table("db.t")))
    assert not held.abandoned.is_set()


def test_a_cancelled_attempt_is_abandoned_within_a_heartbeat(coordinator: Coordinator, process: str) -> None:
    held = Held()
    runner, thread = started(coordinator, held)
    try:
        coordinator.optimizing.cancel(process, "nobody wants it")
        assert held.abandoned.wait(90)
        until(lambda: coordinator.optimizing.find_process(process).process.status is ProcessStatus.CLOSED)
    finally:
        runner.stop()
        thread.join()


@pytest.mark.parametrize(("is_beside", "times"), [(False, 2), (True, 1)])
def test_what_both_sides_know_is_logged_once_in_a_process_that_is_both(
    coordinator: Coordinator, process: str, caplog: pytest.LogCaptureFixture, is_beside: bool, times: int
) -> None:
    held = Held()
    with caplog.at_level(logging.INFO, "amoro"):
        runner, thread = started(coordinator, held, is_beside=is_beside)
        held.go.set()
        until(lambda: coordinator.optimizing.find_process(process).process.status is ProcessStatus.SUCCESS)
        runner.stop()
        thread.join()
    events = [getattr(record, FIELDS)["event"] for record in caplog.records if hasattr(record, FIELDS)]
    assert events.count("optimizer.registered") == times
    assert [events.count(name) for name in ("optimizer.draining", "optimizer.deregistered")] == [1, 1]


def test_draining_finishes_what_runs_and_leaves(coordinator: Coordinator, process: str) -> None:
    held = Held()
    runner, thread = started(coordinator, held)
    runner.stop()
    assert thread.is_alive()
    held.go.set()
    thread.join(90)
    assert not thread.is_alive()
    assert coordinator.optimizers.list_optimizers() == []
    until(lambda: coordinator.optimizing.find_process(process).process.status is ProcessStatus.SUCCESS)


def test_a_released_optimizer_that_lives_abandons_its_work_and_leaves_though_its_token_is_forgotten(
    coordinator: Coordinator, process: str
) -> None:
    held = Held()
    runner, thread = started(coordinator, held)
    try:
        released = only_id(coordinator)
        dismiss = coordinator.optimizing.dismiss
        held_tasks = coordinator.optimizers.release(
            released, lambda: dismiss(released, "its optimizer was released", lost=False)
        )
        assert held_tasks == 1
        assert held.abandoned.wait(90)
        thread.join(90)
        assert not thread.is_alive()
    finally:
        held.go.set()
        runner.stop(at_once=True)
        thread.join()
    assert coordinator.optimizers.list_optimizers() == []
    (task,) = coordinator.optimizing.find_process(process).tasks
    assert (task.status.value, task.attempt) == ("planned", 1)
