"""Services of Hudi tables by an optimizer on Spark with Hudi's jar: with Spark 3.5, for which there is a jar."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from amoro_core.errors import AttemptAbandoned, OptimizerError, TableRefused
from amoro_core.model.task_payload import TAKE_OVER
from amoro_core.protocol.maintenance_pb2 import ProcedureOutput
from amoro_optimizer.backends.spark import procedures
from tests.acceptance.processes import PATIENCE_S, ROOT, Installation, wait_until
from tests.spark.session import HUDI_JAR, Application, require
from tests.spark.test_paimon import PYPAIMON
from tests.spark_backend import hudi_tables as hudi
from tests.spark_backend.hudi_tables import SHARED, execute, service
from tests.spark_backend.spark import PYTHON_PATH, Call
from tests.spark_backend.table_services import Lake, compact_beside, kill_rounds
from tests.tiers import seeds


@pytest.fixture(scope="module")
def template(spark_application: Application, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table after seven upserts by writers that share a lock."""
    require([] if HUDI_JAR.exists() else ["Hudi's jar in build/format-jars"])
    place = tmp_path_factory.mktemp("hudi") / "t"
    hudi.seven_upserts(spark_application.session, place)
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "t")


def assert_same_rows(application: Application, before: list[hudi.Row], place: Path) -> None:
    assert hudi.by_spark(application.session, place) == before
    assert hudi.by_hudi(place) == before


def test_log_files_are_compacted_rows_ordered_and_superseded_files_deleted_and_nothing_without_a_lock(
    spark_application: Application, place: Path
) -> None:
    backend, spark = spark_application.backend, spark_application.session
    before, timeline = hudi.by_hudi(place), hudi.timeline(place)
    for name in ("compact", "cluster", "clean"):
        with pytest.raises(TableRefused, match=r"lake\.db\.t can't be serviced: ") as refused:
            execute(backend, service(name, place))
        assert refused.value.reason == "lock"
    assert hudi.timeline(place) == timeline

    assert hudi.log_files(place) != []
    compacted = execute(backend, service("compact", place, options=SHARED))
    assert (compacted.engine_version, compacted.nothing_to_do) == ("1.2.0", False)
    assert (hudi.completed(place, "commit"), hudi.log_files(place)) == ({compacted.instant: 1}, [])
    assert execute(backend, service("compact", place, options=SHARED)).nothing_to_do
    again = execute(backend, service("compact", place, compacted.instant))
    assert list(again.notes) == [f"{compacted.instant} is not pending any more"]

    options = {"hoodie.clustering.plan.strategy.sort.columns": "name", **SHARED}
    unknown = {"hoodie.clustering.execution.strategy.class": "org.apache.hudi.NoSuchStrategy"}
    with pytest.raises(OptimizerError, match=r"hudi could not cluster lake\.db\.t: .*NoSuchStrategy"):
        execute(backend, service("cluster", place, options=options | unknown))
    assert len(hudi.planned(place)) == 1
    clustered = execute(backend, service("cluster", place, options=options))
    assert hudi.completed(place, "replacecommit") == {clustered.instant: 1}
    for file in place.glob(f"p*/*_{clustered.instant}.parquet"):
        names = pq.read_table(file, columns=["name"])["name"].to_pylist()
        assert names == sorted(names)

    files = set(place.glob("p*/*"))
    hudi.upsert(spark, place, 0)  # the rows of the first commit are older, and change nothing
    cleaned = execute(backend, service("clean", place, options={"hoodie.clean.commits.retained": "1", **SHARED}))
    assert hudi.completed(place, "clean") == {cleaned.instant: 1}
    assert files - set(place.glob("p*/*"))
    assert_same_rows(spark_application, before, place)


def test_a_plan_of_the_writer_is_executed_beside_it_and_once(spark_application: Application, tmp_path: Path) -> None:
    """Without a lock, as the writer is the only one; what a writer without heartbeats has begun is left to it."""
    backend, spark, place = spark_application.backend, spark_application.session, tmp_path / "t"
    compact_beside(backend, spark, tmp_path / "beside", 5)
    hudi.seven_upserts(spark, place, {})
    options = "hoodie.compact.inline.max.delta.commits=1"
    plan = f"CALL run_compaction(op => 'schedule', path => '{place}', options => '{options}')"
    instant = spark.sql(plan).collect()[0].timestamp
    execute(backend, service("compact", place, instant))
    hudi.upsert(spark, place, 8, {})
    later = spark.sql(plan).collect()[0].timestamp
    (place / ".hoodie" / "timeline" / f"{later}.compaction.inflight").touch()
    with pytest.raises(OptimizerError, match=f"the plan {later} of lake.db.t was begun by a writer$"):
        execute(backend, service("compact", place, later))
    execute(backend, service("compact", place, later, {TAKE_OVER: "true"}))
    assert_same_rows(spark_application, hudi.written(9), place)


@pytest.mark.parametrize("name", ["compact", "cluster"])
def test_of_two_optimizers_that_are_asked_for_the_same_plan_one_runs(
    spark_application: Application, place: Path, name: str
) -> None:
    """Each in a JVM of its own, and nobody has stated a lock."""
    spark, directory = spark_application.session, place.parent
    before = hudi.by_hudi(place)
    if name == "cluster":
        execute(spark_application.backend, service("compact", place, options=SHARED))
    options = ",".join(f"{key}={value}" for key, value in SHARED.items())
    procedure = {"compact": "run_compaction(", "cluster": "run_clustering(order => 'name', "}[name]
    spark.sql(f"CALL {procedure}op => 'schedule', path => '{place}', options => '{options}')").collect()
    [instant] = hudi.planned(place)
    command = [sys.executable, "-m", "tests.spark_backend.hudi_tables", str(directory), name, instant]
    with subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": PYTHON_PATH, "PATH": "/usr/bin:/bin"}) as other:
        wait_until(lambda: (directory / "ready").exists() or other.poll(), "the other one is ready")
        (directory / "go").touch()
        ours = execute(spark_application.backend, service(name, place, instant))
        assert other.wait(PATIENCE_S) == 0
    theirs = ProcedureOutput.FromString((directory / "output").read_bytes())
    assert sorted([ours.nothing_to_do, theirs.nothing_to_do]) == [False, True]
    assert hudi.completed(place, {"compact": "commit", "cluster": "replacecommit"}[name]) == {instant: 1}
    assert_same_rows(spark_application, before, place)


def test_a_cancel_ends_the_jobs_and_the_next_attempt_completes_the_plan(
    spark_application: Application, place: Path
) -> None:
    before, cancelled = hudi.by_hudi(place), threading.Event()
    call = Call(lambda: execute(spark_application.backend, service("compact", place, options=SHARED), cancelled.is_set))
    call.start()
    inflight = place / ".hoodie" / "timeline"
    wait_until(lambda: list(inflight.glob("*.compaction.inflight")), "the compaction has begun")
    cancelled.set()
    call.wait()
    assert isinstance(call.raised, AttemptAbandoned)
    assert len(list((place / ".hoodie" / ".aux").glob("amoro-*"))) == 1
    assert hudi.completed(place, "commit") == {}
    output = execute(spark_application.backend, service("compact", place, options=SHARED), number=2)
    assert hudi.completed(place, "commit") == {output.instant: 1}
    assert list((place / ".hoodie" / ".aux").glob("amoro-*")) == []
    assert_same_rows(spark_application, before, place)


def test_a_rollback_that_a_lost_driver_has_begun_is_waited_for_until_its_heartbeat_has_ended(
    spark_application: Application, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its compaction had reached Hudi's own metadata table, and the next driver was lost while it rolled that back."""
    backend, before, metadata = spark_application.backend, hudi.by_hudi(place), place / ".hoodie/metadata/.hoodie"
    instant = execute(backend, service("compact", place, options=SHARED)).instant
    for timeline in (place / ".hoodie/timeline", metadata / "timeline"):
        [completed] = timeline.glob(f"{instant}_*")
        completed.unlink()
    lost = shutil.copytree(place, tmp_path / "lost")
    again = service("compact", place, instant, {TAKE_OVER: "true", **SHARED})
    execute(backend, again)
    [plan] = (metadata / "timeline").glob("*.rollback.requested")
    begun = plan.read_bytes()
    shutil.rmtree(place)
    shutil.copytree(lost, place)
    plan.write_bytes(begun)
    heartbeat = metadata / ".heartbeat" / plan.name.partition(".")[0]
    heartbeat.parent.mkdir(exist_ok=True)
    heartbeat.touch()
    with monkeypatch.context() as impatient:
        impatient.setattr(procedures, "ROLLBACK_WAIT_S", 0.0)
        with pytest.raises(OptimizerError, match=f"Failed to rollback deltacommit at {instant}$"):
            execute(backend, again)
    almost_ended = time.time() - 105  # of the two minutes for which it counts
    os.utime(heartbeat, (almost_ended, almost_ended))
    execute(backend, again)
    assert hudi.completed(place, "commit") == {instant: 1}
    assert_same_rows(spark_application, before, place)


def test_the_coordinator_compacts_a_table_says_which_jar_is_missing_and_refuses_one_without_a_lock(
    installation: Installation, spark_application: Application, template: Path
) -> None:
    lake = Lake(installation, template)
    without = shutil.copytree(template, lake.place.with_name("without"))
    timeline = hudi.timeline(without)
    outcome = installation.run("table", "maintain", "lake.db.without", "--action", "hudi-cluster", "--wait")
    assert (outcome.status, "hoodie.write.lock.provider is not set" in outcome.stderr) == (6, True), outcome.stderr
    assert hudi.timeline(without) == timeline
    before = hudi.by_hudi(lake.place)
    jar = "has the jar of Hudi: start one with amoro optimizer run --group default --backend spark --jars FILE"
    installation.optimizer(lake.address)
    process_id = lake.begin()
    assert jar in str(lake.ask("process", "show", process_id)["no_optimizer"])
    assert jar in str(lake.ask("table", "show", "lake.db.t")["no_optimizer"])
    assert jar in installation.run("doctor").stdout
    lake.optimizer()
    assert lake.ended(process_id)["status"] == "success"
    assert (len(hudi.completed(lake.place, "commit")), hudi.log_files(lake.place)) == (1, [])
    assert_same_rows(spark_application, before, lake.place)


@pytest.mark.parametrize("seed", seeds(1, 1))
def test_drivers_and_coordinators_that_are_killed_leave_each_service_done_once_and_the_rows_equal(
    installation: Installation, spark_application: Application, template: Path, seed: int
) -> None:
    require([] if PYPAIMON.exists() else ["pypaimon in build/pypaimon"])
    kill_rounds(installation, spark_application.session, template, seed, rounds=1)
