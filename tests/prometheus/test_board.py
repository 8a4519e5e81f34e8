"""The board for Grafana: made by code, and answered by a Prometheus that scrapes a coordinator."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from amoro_core.bootstrap.coordinator_app import Coordinator, listening, running, serving
from amoro_core.bootstrap.settings import Settings
from amoro_core.documents.prometheus_files import SCRAPE_JOB, board
from amoro_core.model.principals import Role
from amoro_core.model.tables import OptimizingType, parse_table
from tests.acceptance.processes import free_port, wait_until
from tests.acceptance.tables import config_of
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.prometheus import promtool

PANELS = [panel for panel in json.loads(board())["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


@contextmanager
def scraped(coordinator: Coordinator, port: int, directory: Path) -> Iterator[str]:
    """A Prometheus with the job that is exported; its URL."""
    _, token = coordinator.tokens.create("prometheus", Role.VIEWER)
    (directory / "token").write_text(token)
    job = SCRAPE_JOB.replace("/etc/prometheus/amoro.token", str(directory / "token"))
    job = job.replace("127.0.0.1:1630", f"127.0.0.1:{port}").replace("15s", "1s")
    assert str(port) in job
    (directory / "prometheus.yml").write_text(f"rule_files: [{promtool.ALERTS}]\n{job}")
    own = free_port()
    arguments = [f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
    with subprocess.Popen(
        [promtool.found("prometheus"), *arguments, f"--web.listen-address=127.0.0.1:{own}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield f"http://127.0.0.1:{own}"
        finally:
            process.terminate()


def ask(url: str, path: str, **arguments: str) -> Any:
    """What Prometheus says; None while it does not answer yet."""
    try:
        answer = requests.get(f"{url}/api/v1/{path}", params=arguments, timeout=30)
    except requests.ConnectionError:
        return None
    assert answer.status_code in (200, 503), answer.text
    return answer.json()["data"] if answer.status_code == 200 else None


def is_answered(url: str, expression: str) -> bool:
    found = ask(url, "query", query=expression)
    return bool(found and found["result"])


def test_a_prometheus_that_scrapes_a_working_coordinator_answers_every_expression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promtool.found("prometheus")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    catalog = writer.make_catalog(tmp_path)
    table = writer.make_table(catalog, "db.t", SCHEMA)
    settings = Settings(port=0, http_port=free_port())
    with (
        running(tmp_path / "home", settings, threads=1, catalogs=(config_of(catalog),)) as coordinator,
        listening(settings) as listener,
        serving(coordinator, listener),
        scraped(coordinator, settings.http_port, tmp_path) as prometheus,
    ):
        asked = [expression.replace("$__rate_interval", "1m") for expression in EXPRESSIONS]
        wait_until(lambda: is_answered(prometheus, "amoro_leader"), "Prometheus has scraped")
        for number in range(3):
            writer.append(table, [row(number)])
        runtime = coordinator.tables.ensure(parse_table("cat.db.t"))
        coordinator.planning.begin(runtime.table_id, trigger="request", requested=OptimizingType.FULL)

        def is_seen() -> bool:
            """Asked together: a scrape that takes too long makes every series stale until the next."""
            healths = [target["health"] for target in ask(prometheus, "targets")["activeTargets"]]
            missing[:] = [expression for expression in asked if not is_answered(prometheus, expression)]
            return not missing and healths == ["up"]

        missing: list[str] = []
        try:
            wait_until(is_seen, "every expression is answered")
        except AssertionError:
            assert missing == [], "the target is not up"
            raise
        groups = ask(prometheus, "rules")["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
