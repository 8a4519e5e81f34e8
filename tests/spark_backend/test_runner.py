"""A runner on the backend, with a coordinator in this process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark import SparkContext

from amoro_core import app
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.rpc import optimizing
from amoro_core.settings import Settings
from amoro_optimizer import runner as runner_module
from amoro_optimizer.backends.spark.driver import SparkBackend
from amoro_optimizer.backends.standalone import InProcess
from amoro_optimizer.runner import OptimizerConfig, Runner
from tests.acceptance.processes import PATIENCE_S, wait_until
from tests.acceptance.tables import assert_nothing_is_left, assert_optimized_once, is_optimized, look, name_of
from tests.spark_backend.stuck import in_thread, stuck_table

MB = 2**20
SETTINGS = Settings(
    port=0,
    heartbeat_interval=timedelta(milliseconds=200),
    heartbeat_timeout=timedelta(seconds=30),
    start_to_close=timedelta(seconds=8),
)


def config_for(coordinator: app.Coordinator, threads: int) -> OptimizerConfig:
    return OptimizerConfig(
        address=coordinator.address,
        group="default",
        threads=threads,
        memory_bytes=64 * MB,
        enrolment_token=coordinator.enrolment_token,
        heartbeat_interval_s=0.2,
        labels={},
    )


def threads_of(coordinator: app.Coordinator) -> list[int]:
    return [optimizer.threads for optimizer, _ in coordinator.optimizers.list_optimizers()]


def test_an_attempt_that_the_coordinator_takes_back_is_stopped_and_the_next_one_is_committed(
    backend: SparkBackend, catalog: SqlCatalog, tmp_path: Path
) -> None:
    with app.running(tmp_path / "home", SETTINGS, watch=False) as coordinator:
        coordinator.catalogs.add(CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items())))
        stuck = stuck_table(catalog)
        table = coordinator.tables.ensure(parse_table(name_of(stuck.table)))
        runner = Runner(config_for(coordinator, threads=2), backend)
        with in_thread(runner.run, lambda: runner.stop(at_once=True)):
            # The first worker loads the engine, which may take longer than an attempt has here.
            SparkContext.getOrCreate().parallelize([0], 1).count()
            begun = coordinator.planning.begin(table.table_id, trigger="request", requested=OptimizingType.FULL)
            assert begun.process_id is not None
            _, file = stuck.wait_for_writer()
            # The first attempt goes on waiting; the next one reads the file as it should be.
            stuck.mend()
            before = look(stuck.table)
            wait_until(lambda: is_optimized(stuck.table), "the second attempt is committed")
            (task,) = coordinator.optimizing.find_process(begun.process_id).tasks
            assert task.attempt >= 2  # the next one may be late, too
            assert_optimized_once(stuck.table, before)
            wait_until(lambda: not file.exists(), "the first attempt is stopped")
            assert_nothing_is_left(stuck.table)


@dataclass(slots=True)
class Capacity:
    """A number of cores that changes."""

    cores: int

    def __call__(self) -> int:
        return self.cores


def test_the_number_of_threads_follows_the_capacity_also_while_a_poll_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only heartbeats can tell it: a poll that gets nothing stays open for longer than the test waits.
    monkeypatch.setattr(runner_module, "POLL_WAIT_S", 2 * PATIENCE_S)
    monkeypatch.setattr(optimizing, "MAX_POLL_WAIT_S", 2 * PATIENCE_S)
    capacity = Capacity(1)
    with app.running(tmp_path / "home", SETTINGS, watch=False) as coordinator:
        runner = Runner(config_for(coordinator, threads=1), InProcess(), capacity)
        with in_thread(runner.run, runner.stop) as call:
            for cores in (1, 3, 2, 4):
                capacity.cores = cores
                wait_until(lambda: threads_of(coordinator) == [capacity.cores], f"{cores} threads are registered")
        assert call.raised is None
        assert threads_of(coordinator) == []


def test_without_capacity_the_number_of_threads_stays(tmp_path: Path) -> None:
    with app.running(tmp_path / "home", SETTINGS, watch=False) as coordinator:
        runner = Runner(config_for(coordinator, threads=2), InProcess())
        with in_thread(runner.run, runner.stop):
            wait_until(lambda: threads_of(coordinator) == [2], "two threads are registered")
