"""A catalog of our own: `python -m tests.bench.catalog [--tables 20] [--requests 200] [--rounds 3]` prints JSON.

Seconds from the commit of a table's twelfth fragment to the hand-out of its task, with periodic looks off; and loads
and commits per CPU second of a table with 1,000 snapshots, beside those of the REST server that Iceberg Java's tests
use (`make test` fetches it; without it there are no such figures). Servers are processes of their own, over loopback.
"""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from amoro_core.bootstrap.coordinator_app import running, serving
from amoro_core.bootstrap.settings import Settings
from amoro_core.model.processes import CatalogConfig
from amoro_core.services import discovery
from amoro_core.web.server import Listener
from tests.acceptance.processes import wait_until
from tests.bench.machine import ROOT, Child, Figures, answer, in_rounds, medians, options, ratio, say, tell

SNAPSHOTS, FRAGMENTS = 1000, 12
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
DAY_S = 86_400.0


def main() -> None:
    """Measure, or be the coordinator."""
    given = options(__doc__, tables=20, requests=200, rounds=3, coordinate="")
    if given.coordinate:
        _coordinate(Path(given.coordinate))
        return
    with tempfile.TemporaryDirectory(prefix="amoro-bench-") as made, ExitStack() as stack:
        told = stack.enter_context(Child("tests.bench.catalog", "--coordinate", made)).ask()
        seconds = sorted(_hand_outs(Path(made), told, given.tables))
        figures: dict[str, object] = {
            "tables": len(seconds),
            "hand-out, median s": round(seconds[len(seconds) // 2], 2),
            "hand-out, p95 s": round(seconds[-1 - len(seconds) // 20], 2),
        }
        ways = {"ours": Table(str(told["uri"]), "/v1/lake", int(told["pid"]), str(told["token"]))}
        java = stack.enter_context(_java_table(Path(made)))
        ways |= {} if java is None else {"java": java}
        found = in_rounds({name: partial(way.round, given.requests) for name, way in ways.items()}, given.rounds)
        figures |= {name: medians(rounds) for name, rounds in found.items()}
        if "java" in found:
            figures |= {f"ours / java, {key}": ratio(found["ours"], found["java"], key) for key in found["java"][0]}
        say(figures)


def _hand_outs(home: Path, told: Mapping[str, Any], count: int) -> Iterator[float]:
    """Seconds until the task of each table is handed out after its last fragment's commit was answered."""
    command = [sys.executable, "-m", "amoro_core", "optimizer", "run", "--address", str(told["address"])]
    command += ["--threads", "1", "--token-file", str(home / "home" / "enrolment.token")]
    optimizer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    scheduled = "SELECT min(scheduled_at_ms) FROM task_runtime JOIN table_identifier USING (table_id)"
    try:
        catalog = RestCatalog("lake", uri=told["uri"], warehouse="lake", token=told["token"])
        catalog.create_namespace("db")
        with closing(sqlite3.connect(f"{(home / 'home' / 'amoro.db').as_uri()}?mode=ro", uri=True)) as state:
            for number in range(count):
                on = {"self-optimizing.enabled": "true"}
                table = catalog.create_table(f"db.t{number}", ROWS.schema, properties=on)
                for _ in range(FRAGMENTS):
                    table.append(ROWS)
                committed_ms, asked = time.time() * 1000, (f"{scheduled} WHERE table_name = ?", (f"t{number}",))
                at_ms = wait_until(lambda asked=asked: state.execute(*asked).fetchone()[0], "a task is handed out")
                tell(f"handed out after {at_ms - committed_ms:.0f} ms")
                yield (at_ms - committed_ms) / 1000
    finally:
        optimizer.terminate()
        optimizer.wait(60)


class Table:
    """A table with many snapshots in a catalog that a process serves."""

    def __init__(self, uri: str, prefix: str, pid: int, token: str = "") -> None:
        parts = urlsplit(uri)
        self._path, self._process, self._head, self._number = f"{parts.path}{prefix}", psutil.Process(pid), None, 0
        self._connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        self._ask("POST", "/namespaces", {"namespace": ["bench"]})
        properties = {"write.metadata.previous-versions-max": "10"}
        self._ask("POST", "/namespaces/bench/tables", {"name": "t", "schema": SCHEMA, "properties": properties})
        for _ in range(SNAPSHOTS // 100):
            self._commit(100)

    def round(self, requests: int) -> Figures:
        """Loads and commits per CPU second of the server."""
        load = partial(self._ask, "GET", "/namespaces/bench/tables/t")
        return {
            "loads per CPU s": requests / self._cpu_s(load, requests),
            "commits per CPU s": requests / self._cpu_s(partial(self._commit, 1), requests),
        }

    def _cpu_s(self, work: Callable[[], object], times: int) -> float:
        before = self._process.cpu_times()
        for _ in range(times):
            work()
        after = self._process.cpu_times()
        return after.user + after.system - before.user - before.system

    def _commit(self, count: int) -> None:
        updates: list[dict[str, Any]] = []
        required = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": self._head}
        for _ in range(count):
            parent = {} if self._head is None else {"parent-snapshot-id": self._head}
            self._head = self._number = self._number + 1
            snapshot = {
                "snapshot-id": self._head, "sequence-number": self._number, "timestamp-ms": round(time.time() * 1000),
                "manifest-list": "file:///none.avro", "summary": {"operation": "append"}, "schema-id": 0, **parent,
            }  # fmt: skip
            updates.append({"action": "add-snapshot", "snapshot": snapshot})
        ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": self._head}
        self._ask("POST", "/namespaces/bench/tables/t", {"requirements": [required], "updates": [*updates, ref]})

    def _ask(self, method: str, path: str, body: object = None) -> None:
        content = None if body is None else json.dumps(body)
        self._connection.request(method, self._path + path, content, self._headers)
        with self._connection.getresponse() as answered:
            if answered.read() and answered.status != 200:
                raise SystemExit(f"{method} {path} was answered {answered.status}")


@contextmanager
def _java_table(directory: Path) -> Iterator[Table | None]:
    """The table in Java's server; None where it is not installed."""
    from tests.spark.session import java_rest_server, missing_parts

    if missing := missing_parts():
        tell(f"no figures of Java's server: there is no {', '.join(missing)}")
        yield None
        return
    with java_rest_server(directory / "java") as uri:
        (server,) = [one for one in psutil.Process().children() if one.name() == "java"]
        yield Table(uri, "/v1", server.pid)


def _coordinate(home: Path) -> None:
    discovery.COMPARE_INTERVAL_S = discovery.ASK_AGAIN_S = DAY_S  # no look but those that commits cause
    settings = replace(Settings(), port=0, explore_interval=timedelta(seconds=DAY_S))
    gc.freeze()  # as the program does once it has imported what it needs
    with (
        closing(Listener("127.0.0.1", 0, settings.certificates())) as listener,
        running(home / "home", settings) as coordinator,
        serving(coordinator, listener),
    ):
        lake = (("type", "internal"), ("warehouse", f"file://{home}/lake"))
        coordinator.catalogs.add(CatalogConfig("lake", lake))
        uri, token = f"http://127.0.0.1:{listener.port}/iceberg", coordinator.admin_token.reveal()
        answer({"address": coordinator.address, "uri": uri, "token": token, "pid": os.getpid()})
        sys.stdin.read()


if __name__ == "__main__":
    main()
