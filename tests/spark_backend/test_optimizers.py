"""`amoro optimizer run --backend spark`: optimizers as processes, what they survive, what they keep to themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import requests
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark import SparkContext

from amoro_core.bootstrap import coordinator_app
from amoro_core.bootstrap.settings import Settings
from amoro_core.model import clustering
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.rpc import optimizing
from amoro_optimizer import runner as runner_module
from amoro_optimizer.backends.spark.driver import SparkBackend
from amoro_optimizer.runner import OptimizerConfig, Runner
from amoro_optimizer.work_kinds import InProcess
from tests.acceptance.processes import PATIENCE_S, Installation, Process, address_of, install, wait_until
from tests.acceptance.tables import (
    Seen,
    assert_nothing_is_left,
    assert_optimized_once,
    is_optimized,
    look,
    messy_table,
    name_of,
    unreferenced_files,
)
from tests.engine import oracle
from tests.engine.parquet_rows import local_path
from tests.spark_backend.groups import group_table
from tests.spark_backend.spark import (
    in_thread,
    is_alive,
    java_of,
    kill,
    optimize_once,
    parent_of,
    python_workers,
    spark_optimizer,
    stuck_table,
)

CLUSTERING = ("--type", "cluster", "--columns", "id,value")


class Held(NamedTuple):
    """An optimizer on Spark, whose worker holds while it optimizes a table."""

    address: str
    optimizer: Process
    table: Table
    before: Seen
    process_id: str
    mark: Path  # while it exists


def hold(
    installation: Installation,
    failpoint: str = "task.before_write",
    made: Callable[[Catalog], Table] = messy_table,
    asked: tuple[str, ...] = ("--type", "full"),
    settings: Mapping[str, str] | None = None,
) -> Held:
    address, mark = address_of(installation.up()), installation.directory / "held"
    failing = f"{failpoint}=hold:{mark}"
    optimizer = spark_optimizer(installation, address, "local[1]", failpoints=failing, settings=settings)
    table = made(installation.catalog)
    before, planned = look(table), installation.ask("optimize", name_of(table), *asked)
    wait_until(mark.exists, "a worker holds")
    return Held(address, optimizer, table, before, planned["process_id"], mark)


def assert_done(installation: Installation, held: Held, *attempts: int) -> None:
    """Fail unless its process has optimized the table once, with so many attempts at each task."""
    process = wait_until(lambda: installation.ended(held.process_id), "the process ends")
    assert (process["status"], [task["attempt"] for task in process["tasks"]]) == ("success", [*attempts])
    assert_optimized_once(held.table, held.before)
    assert_nothing_is_left(held.table)


def test_an_optimizer_on_spark_has_a_thread_for_each_core_clusters_and_tells_errors_by_their_code(
    installation: Installation,
) -> None:
    settings = {"spark.default.parallelism": "7"}  # says nothing of cores
    optimizer = spark_optimizer(installation, address_of(installation.up()), "local[2]", settings=settings)
    (listed,) = installation.ask("optimizer", "list")["optimizers"]
    labels = listed["labels"]
    assert (listed["threads"], listed["memory_bytes"]) == (2, 2 * 512 * 2**20)
    assert (labels["backend"], labels["master"], labels["pid"]) == ("spark", "local[2]", str(optimizer.popen.pid))
    assert labels["application"].startswith("local-")

    table = messy_table(installation.catalog, {"self-optimizing.cluster.partial-progress": "false"})
    before = look(table)
    options = ("--type", "cluster", "--columns", "id", "--full", "--wait")
    outcome = installation.run("optimize", name_of(table), *options)
    assert outcome.status == 0, outcome.stderr
    after = look(table)
    oracle.assert_same_rows(before.rows, after.rows)
    assert after.snapshots == before.snapshots + 1
    assert {clustering.group_of(file.path) for file in oracle.live_files(table)} - {None}
    assert_nothing_is_left(table)
    assert '"kind": "cluster"' in optimizer.output

    broken = messy_table(installation.catalog)
    lost = Path(local_path(oracle.live_files(broken)[0].path))
    kept = lost.rename(lost.with_suffix(".kept"))
    outcome = installation.run("optimize", name_of(broken), "--type", "full", "--wait")
    assert outcome.status == 1
    assert f"{lost} does not exist (the table's metadata names it" in " ".join(outcome.said)
    assert "[AMORO-1002]" in " ".join(outcome.said)
    assert "Py4J" not in outcome.stderr
    kept.rename(lost)
    assert_nothing_is_left(broken)


def test_a_killed_worker_costs_one_attempt_and_a_draining_optimizer_finishes_what_it_runs(
    installation: Installation,
) -> None:
    held = hold(installation)
    optimizer = held.optimizer
    (worker,) = python_workers(optimizer.popen.pid)
    kill(worker)
    held.mark.unlink()
    wait_until(held.mark.exists, "the worker of the next attempt holds")
    optimizer.popen.terminate()
    optimizer.wait_for("optimizer.draining")
    held.mark.unlink()
    assert optimizer.wait() == 0
    assert_done(installation, held, 2)
    assert "Spark could not run the task: Lost task 0.0" in optimizer.output


def test_an_optimizer_whose_spark_dies_gives_its_attempt_back_and_ends_with_an_error(
    installation: Installation,
) -> None:
    held = hold(installation)
    kill(java_of(held.optimizer.popen.pid))
    assert held.optimizer.wait() == 1
    assert "Error: the Spark application local-" in held.optimizer.output
    (task,) = installation.ask("process", "show", held.process_id)["tasks"]
    assert (task["status"], task["attempt"]) == ("planned", 1)
    installation.optimizer(held.address)
    assert_done(installation, held, 2)


@pytest.mark.parametrize(
    ("made", "asked"), [(messy_table, ("--type", "full")), (group_table, CLUSTERING)], ids=["full", "cluster"]
)
def test_a_worker_whose_driver_was_killed_removes_its_file_and_another_optimizer_finishes(
    installation: Installation, made: Callable[[Catalog], Table], asked: tuple[str, ...]
) -> None:
    held = hold(installation, "task.after_file", made, asked)
    (worker,) = python_workers(held.optimizer.popen.pid)
    assert len(unreferenced_files(held.table)) == 1
    daemon, java = parent_of(worker), java_of(held.optimizer.popen.pid)
    held.optimizer.kill()
    kill(java)
    wait_until(lambda: not is_alive(daemon), "the daemon has told its workers to end and is gone")
    held.mark.unlink()
    wait_until(lambda: not is_alive(worker), "the worker ends")
    assert unreferenced_files(held.table) == set()
    installation.optimizer(held.address)
    assert_done(installation, held, 2)


SETTINGS = Settings(
    port=0,
    heartbeat_interval=timedelta(milliseconds=200),
    heartbeat_timeout=timedelta(seconds=30),
    start_to_close=timedelta(seconds=8),
)


def config_for(coordinator: coordinator_app.Coordinator, threads: int) -> OptimizerConfig:
    return OptimizerConfig(coordinator.address, "default", threads, 64 << 20, coordinator.enrolment_token, 0.2, {})


def test_an_attempt_that_the_coordinator_takes_back_is_stopped_and_the_next_one_is_committed(
    backend: SparkBackend, catalog: SqlCatalog, tmp_path: Path
) -> None:
    with coordinator_app.running(tmp_path / "home", SETTINGS, watch=False) as coordinator:
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


def test_the_number_of_threads_follows_the_capacity_also_while_a_poll_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only heartbeats can tell it: a poll that gets nothing stays open for longer than the test waits.
    for module, name in ((runner_module, "POLL_WAIT_S"), (optimizing, "MAX_POLL_WAIT_S")):
        monkeypatch.setattr(module, name, 2 * PATIENCE_S)
    capacity = [1]

    def threads() -> list[int]:
        return [optimizer.threads for optimizer, _ in coordinator.optimizers.list_optimizers()]

    with coordinator_app.running(tmp_path / "home", SETTINGS, watch=False) as coordinator:
        runner = Runner(config_for(coordinator, threads=1), InProcess(), lambda: capacity[0])
        with in_thread(runner.run, runner.stop) as call:
            for cores in (1, 3, 2, 4):
                capacity[0] = cores
                wait_until(lambda: threads() == capacity, f"{cores} threads are registered")
        assert call.raised is None
        assert threads() == []


def create_group(installation: Installation, name: str, *settings: str) -> None:
    """A group whose optimizers are on Spark."""
    given = ("spark-master=local[1]", "spark-conf.spark.ui.enabled=false", *settings)
    properties = [word for item in given for word in ("--property", item)]
    made = installation.run("group", "create", name, "--container", "spark", *properties)
    assert made.status == 0, made.stderr


def test_spark_submit_starts_an_optimizer_that_works_and_drains(installation: Installation) -> None:
    installation.up()
    create_group(installation, "spark")
    installation.ask("group", "scale", "spark", "1")
    leader = 0
    try:
        optimize_once(installation, "spark")
        (instance,) = installation.ask("group", "show", "spark")["instances"]
        (optimizer,) = installation.ask("optimizer", "list")["optimizers"]
        leader = int(instance["handle"])
        assert (optimizer["labels"]["backend"], optimizer["labels"]["master"]) == ("spark", "local[1]")
        assert optimizer["labels"]["resource-id"] == instance["resource_id"]
        assert "org.apache.spark.deploy.SparkSubmit" in psutil.Process(leader).cmdline()

        stands = installation.ask("optimizer", "status", optimizer["optimizer_id"])
        assert (stands["resource_id"], stands["liveness"]) == (instance["resource_id"], "alive")

        installation.ask("group", "scale", "spark", "0")
        wait_until(lambda: installation.ask("group", "show", "spark")["instances"] == [], "no instance is left")
        assert not psutil.pid_exists(leader) or psutil.Process(leader).status() == psutil.STATUS_ZOMBIE
        log = (installation.home / "logs" / f"optimizer-{instance['resource_id']}.log").read_text()
        shown = installation.ask("optimizer", "logs", instance["resource_id"], "--lines", "10000")["lines"]
        assert shown == [line for line in log.splitlines() if line.strip()]
        assert "optimizer.deregistered" in log
        assert (installation.home / "enrolment.token").read_text().strip() not in log
    finally:
        if leader and psutil.pid_exists(leader):
            psutil.Process(leader).kill()


def test_spark_runs_only_while_there_is_work(installation: Installation) -> None:
    installation.up()
    create_group(installation, "nightly", "threads=1", "max-instances=2", "idle-timeout=3s")
    drivers: list[int] = []
    try:
        assert installation.ask("group", "jobs", "nightly")["jobs"] == []
        optimize_once(installation, "nightly")
        drivers = [int(job["handle"]) for job in installation.ask("group", "jobs", "nightly")["jobs"]]
        assert 1 <= len(drivers) <= 2
        wait_until(lambda: not any(map(is_alive, drivers)), "no JVM is left", seconds=33)
        wait_until(lambda: installation.ask("group", "show", "nightly")["instances"] == [], "that is known")
        causes = {job["cause"] for job in installation.ask("group", "jobs", "nightly")["jobs"]}
        assert causes == {"it had no task for 3 s"}
    finally:
        for pid in filter(psutil.pid_exists, drivers):
            psutil.Process(pid).kill()


CANARY = "kanarienvogel4711"
SECRETS = {"s3.secret-access-key": CANARY, "s3.session-token": CANARY, "token": CANARY}
#: Log4j's configuration with which Spark says on which ports it listens.
TELLING_PORTS = """
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = info
"""


def test_credentials_of_storage_are_seen_in_no_log_no_page_no_event_and_no_file_that_stays(tmp_path: Path) -> None:
    with closing(install(tmp_path, properties=SECRETS)) as installation:
        require_credentials_unseen(installation)


def require_credentials_unseen(installation: Installation) -> None:
    events, logging = installation.directory / "events", installation.directory / "log4j2.properties"
    events.mkdir()
    logging.write_text(TELLING_PORTS)
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    held = hold(installation, settings=settings)
    optimizer, broken = held.optimizer, messy_table(installation.catalog)
    application = installation.ask("optimizer", "list")["optimizers"][0]["labels"]["application"]
    told = re.search(r"Successfully started service 'SparkUI' on port (\d+)", optimizer.output)
    assert told is not None
    base = f"http://127.0.0.1:{told[1]}"
    kinds = ("environment", "jobs", "stages", "executors")
    names = (*(f"{kind}/" for kind in kinds), *(f"api/v1/applications/{application}/{kind}" for kind in kinds))
    names = (*names, "executors/threadDump/?executorId=driver")
    answers = {name: requests.get(f"{base}/{name}", timeout=30) for name in names}
    assert all(answer.ok for answer in answers.values())
    pages = {name: answer.text for name, answer in answers.items()}
    assert "spark.scheduler.mode" in pages["environment/"]
    assert f"{name_of(held.table)} · process" in pages["jobs/"]
    held.mark.unlink()
    assert_done(installation, held, 1)
    group = installation.ask("optimize", name_of(group_table(installation.catalog)), *CLUSTERING)["process_id"]
    wait_until(lambda: held.mark.unlink(missing_ok=True) or installation.ended(group), "the group is clustered")
    assert installation.ended(group)["status"] == "success"
    spilled = [path for place in ("blockmgr-*", "spark-*") for path in installation.directory.glob(f"{place}/**/*")]
    assert [path for path in spilled if path.is_file() and CANARY.encode() in path.read_bytes()] == []
    Path(local_path(oracle.live_files(broken)[0].path)).unlink()
    assert installation.run("optimize", name_of(broken), "--type", "full", "--wait").status == 1
    assert optimizer.terminate() == 0

    logged = {path.name: path.read_text() for path in events.rglob("*") if path.is_file()}
    assert any("SparkListenerJobStart" in text for text in logged.values())
    assert optimizer.output.count("task.started") >= 2
    said = {**pages, **logged, **dict(installation.logs())}
    assert [name for name, text in said.items() if CANARY in text] == []
