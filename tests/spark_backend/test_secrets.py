"""A canary: vended credentials stand neither in logs, nor in Spark's pages, nor in its event log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests

from tests.acceptance.processes import Installation, address_of, install, wait_until
from tests.acceptance.tables import assert_optimized_once, look, messy_table, name_of
from tests.engine import oracle
from tests.engine.parquet_rows import local_path
from tests.engine.writer import make_catalog
from tests.services.world import World
from tests.spark_backend.groups import LINEAR, clustered, group_of, group_table
from tests.spark_backend.spark import in_own_process, open_backend, spark_optimizer

CANARY = "kanarienvogel4711"
SECRETS = {"s3.secret-access-key": CANARY, "s3.session-token": CANARY, "token": CANARY}


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    made = install(tmp_path, properties=SECRETS)
    yield made
    made.close()


def page(address: str) -> str:
    answer = requests.get(address, timeout=30)
    answer.raise_for_status()
    return answer.text


def test_credentials_of_storage_are_seen_in_no_log_no_page_and_no_event(installation: Installation) -> None:
    coordinator, mark, events = installation.up(), installation.directory / "held", installation.directory / "events"
    events.mkdir()
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.log.level": "INFO",  # tells the port
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    optimizer = spark_optimizer(
        installation,
        address_of(coordinator),
        "local[1]",
        failpoints=f"task.before_write=hold:{mark}",
        settings=settings,
    )
    table, broken = messy_table(installation.catalog), messy_table(installation.catalog)
    before = look(table)
    planned = installation.ask("optimize", name_of(table), "--type", "full")
    wait_until(mark.exists, "a worker holds, with the credentials")
    application = installation.ask("optimizer", "list")["optimizers"][0]["labels"]["application"]
    told = re.search(r"Bound SparkUI to \S+,? and started at (http://\S+)", optimizer.output)
    assert told is not None
    base = told[1]
    pages = {
        name: page(f"{base}/{name}")
        for name in (
            *("jobs/", "stages/", "environment/", "executors/", "executors/threadDump/?executorId=driver"),
            *(f"api/v1/applications/{application}/{what}" for what in ("environment", "jobs", "stages", "executors")),
        )
    }
    assert "spark.scheduler.mode" in pages["environment/"]
    assert f"{name_of(table)} · process" in pages["jobs/"]
    mark.unlink()
    wait_until(lambda: installation.ended(planned["process_id"]), "the process ends")
    assert_optimized_once(table, before)
    Path(local_path(oracle.live_files(broken)[0].path)).unlink()
    assert installation.run("optimize", name_of(broken), "--type", "full", "--wait").status == 1
    assert optimizer.terminate() == 0

    logged = {path.name: path.read_text() for path in events.rglob("*") if path.is_file()}
    assert any("SparkListenerJobStart" in text for text in logged.values())
    assert optimizer.output.count("task.started") >= 2
    said = {**pages, **logged, **dict(installation.logs())}
    assert [name for name, text in said.items() if CANARY in text] == []


def test_credentials_of_a_group_that_is_clustered_are_in_no_event_and_in_no_file_that_stays(tmp_path: Path) -> None:
    """In a process of its own: a JVM writes to the stderr of the test that started it."""
    for name in ("events", "spill", "home"):
        (tmp_path / name).mkdir()
    done = in_own_process(cluster_with_secrets, tmp_path)
    logged = [path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file()]
    assert any("SparkListenerJobStart" in text for text in logged)
    assert "FairSchedulableBuilder" in done.stderr
    assert not [text for text in (*logged, done.stdout, done.stderr) if CANARY in text]


def cluster_with_secrets(directory: Path) -> None:
    """Cluster a group with these credentials; nothing of them stays in the spill of the open application."""
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (directory / "events").as_uri(),
    }
    with closing(make_catalog(directory)) as catalog, closing(World(directory / "home", catalog)) as world:
        attempt, work = group_of(world, group_table(catalog), LINEAR)
        spill = directory / "spill"
        with open_backend("local[1]", spill, settings) as backend:
            made = clustered(backend, work, attempt, io_properties=SECRETS)
            stays = [path for path in spill.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
            assert stays == []
        assert made.rewrite.rows_written > 0
