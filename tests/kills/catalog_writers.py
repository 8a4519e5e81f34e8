"""Sixteen writers of a catalog of our own behind a proxy that cuts and repeats, while the coordinator is killed.

A row is a snapshot with an id of its own; the manifest list that all of them name is an empty one.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import write_manifest_list

from amoro_core.protocol import admin_pb2 as pb
from tests.acceptance.processes import free_port, install, wait_until
from tests.kills.nursery import Child, Nursery
from tests.kills.site import ask

TABLES, WRITERS = tuple("abcdefgh"), 16
PAIRS = 0.3  # of the commits change two tables
LAKE, SPACE = "/iceberg/v1/lake", "/namespaces/db/tables"
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
#: All metadata files that were ever a table's present one stay in its log.
PROPERTIES = {"write.metadata.previous-versions-max": "1000000"}
FATES = ("passed",) * 5 + ("lost", "answer cut", "twice", "twice at once", "again later")
Json = dict[str, Any]


def _send_after(pause_s: float, port: int, *request: Any) -> None:
    time.sleep(pause_s)  # the repeat comes when others have committed
    _send(port, *request)


def _send(port: int, method: str, path: str, body: bytes | None, token: str) -> tuple[int, bytes]:
    """Raises OSError or HTTPException where the answer does not come whole."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body, {"Authorization": token, "Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()


class _Proxy(ThreadingHTTPServer):
    """Half of the commits pass; others are lost, their answers are cut, or they are sent twice."""

    daemon_threads = True
    request_queue_size = 4 * WRITERS

    def __init__(self, port: int, chance: random.Random) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self._port, self._chance = port, chance
        self.later, self.fates = ThreadPoolExecutor(WRITERS), Counter[str]()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that end are part of it."""

    def passed(self, *request: Any, is_commit: bool) -> tuple[int, bytes] | None:
        """The answer; None: the connection is cut."""
        fate = self._chance.choice(FATES) if is_commit else "passed"
        self.fates[fate] += is_commit
        with suppress(OSError, HTTPException):  # it was killed
            if fate == "lost":
                return None
            if fate == "twice at once":
                self.later.submit(_send, self._port, *request)
            answer = _send(self._port, *request)
            if fate == "twice":
                answer = _send(self._port, *request)
            if fate == "again later":
                self.later.submit(_send_after, self._chance.uniform(0, 2), self._port, *request)
            return None if fate == "answer cut" else answer
        return None


class _Passing(BaseHTTPRequestHandler):
    server: _Proxy

    def log_message(self, format: str, *args: Any) -> None:
        """Writers note what happened."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        answer = self.server.passed(
            self.command, self.path, body, self.headers["Authorization"], is_commit=body is not None
        )
        if answer is not None:
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(answer[1])))
            self.end_headers()
            self.wfile.write(answer[1])

    def do_POST(self) -> None:
        self.do_GET()


class CatalogSite:
    """A coordinator that is started again and again, its catalog `lake`, and what writers were told."""

    def __init__(self, directory: Path, nursery: Nursery) -> None:
        self.directory, self._nursery, self.port = directory, nursery, free_port()
        self._installation = install(directory)
        self.home = self._installation.home
        self.told: dict[int, str] = {}  # by snapshot: acknowledged, refused, unknown
        self.pairs: list[tuple[int, ...]] = []  # snapshots of one transaction
        self.ends = False
        (directory / "lake").mkdir()
        self._manifests = f"file://{directory}/lake/empty.avro"
        with write_manifest_list(2, PyArrowFileIO().new_output(self._manifests), 1, None, 1, "null"):
            pass

    def start(self) -> Child:
        more = {"AMORO_HTTP_PORT": str(self.port)}
        arguments = ("up", "--port", "0", "--without-optimizer")
        self.log = self.directory / "coordinator.log"
        return self._nursery.start(arguments, {**self._installation.environment, **more}, "", self.log)

    @property
    def token(self) -> str:
        return f"Bearer {(self.home / 'admin.token').read_text().strip()}"

    def asked(self, port: int, method: str, path: str, body: Json | None = None) -> tuple[int, Json] | None:
        """The status and the JSON; None without an answer."""
        with suppress(OSError, HTTPException):
            content = json.dumps(body).encode() if body is not None else None
            status, answer = _send(port, method, f"{LAKE}{path}", content, self.token)
            return status, json.loads(answer or b"{}")
        return None

    def prepare(self) -> None:
        place = f"file://{self.directory}/lake"
        request = pb.AddCatalogRequest(name="lake", properties={"type": "internal", "warehouse": place})
        wait_until(lambda: ask(self.home, lambda client: client.AddCatalog(request)), "the catalog is added")
        wait_until(lambda: self.asked(self.port, "POST", "/namespaces", {"namespace": ["db"]}), "it serves")
        for name in TABLES:
            body = {"name": name, "schema": SCHEMA, "properties": PROPERTIES}
            assert (self.asked(self.port, "POST", SPACE, body) or (0,))[0] == 200

    def write(self, port: int, writer: int) -> None:
        """Commit snapshots of this writer, to one table or to two at once, until all ends."""
        chance, number = random.Random(writer), writer * 1_000_000
        while not self.ends:
            names, changes, made = chance.sample(TABLES, 1 + (chance.random() < PAIRS)), [], []
            for name in names:
                loaded = self.asked(port, "GET", f"{SPACE}/{name}?snapshots=refs")
                if loaded is not None and loaded[0] == 200:
                    made.append(number := number + 1)
                    changes.append(self._appended(name, loaded[1]["metadata"], number))
            if len(changes) < len(names):
                time.sleep(0.05)
                continue
            one = len(changes) == 1
            path = f"{SPACE}/{names[0]}" if one else "/transactions/commit"
            body = changes[0] if one else {"table-changes": changes}
            if not one:
                self.pairs.append(tuple(made))
            told = self._committed(port, path, body, tries=chance.choice((1, 4)))
            self.told |= dict.fromkeys(made, told)

    def _committed(self, port: int, path: str, body: Json, tries: int) -> str:
        for _ in range(tries):
            answer = self.asked(port, "POST", path, body)
            if answer is not None and answer[0] < 500:
                assert answer[0] in (200, 204, 409), answer
                return "refused" if answer[0] == 409 else "acknowledged"
            time.sleep(0.2)
        return "unknown"

    def _appended(self, name: str, metadata: Json, number: int) -> Json:
        """A snapshot more, on the table's present one."""
        head = metadata.get("refs", {}).get("main", {}).get("snapshot-id")
        snapshot = {
            "snapshot-id": number, "sequence-number": metadata["last-sequence-number"] + 1, "schema-id": 0,
            "timestamp-ms": round(time.time() * 1000), "manifest-list": self._manifests,
            "summary": {"operation": "append"}, **({} if head is None else {"parent-snapshot-id": head}),
        }  # fmt: skip
        return {
            "identifier": {"namespace": ["db"], "name": name},
            "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head}],
            "updates": [
                {"action": "add-snapshot", "snapshot": snapshot},
                {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number},
            ],
        }

    def require(self) -> None:
        """What was acknowledged is there once, what was refused is not, pairs are whole, and nothing is forgotten."""
        there, files = Counter[int](), set[str]()
        for name in TABLES:
            status, found = wait_until(lambda name=name: self.asked(self.port, "GET", f"{SPACE}/{name}"), "it serves")
            assert status == 200, found
            metadata = found["metadata"]
            by_id = {one["snapshot-id"]: one for one in metadata["snapshots"]}
            there.update(one["snapshot-id"] for one in metadata["snapshots"])
            chain, at = [], metadata["current-snapshot-id"]
            while at is not None:
                chain.append(at)
                at = by_id[at].get("parent-snapshot-id")
            assert sorted(chain) == sorted(by_id), f"{name}: a commit is not in the history of main"
            numbers = [by_id[one]["sequence-number"] for one in reversed(chain)]
            assert numbers == list(range(1, len(chain) + 1))
            files |= {found["metadata-location"], *(one["metadata-file"] for one in metadata["metadata-log"])}
        assert set(there.values()) == {1}
        lost = [one for one, told in self.told.items() if told == "acknowledged" and one not in there]
        forged = [one for one, told in self.told.items() if told == "refused" and one in there]
        torn = [pair for pair in self.pairs if len({one in there for one in pair}) > 1]
        assert (lost, forged, torn) == ([], [], [])
        assert there.keys() <= self.told.keys()
        with closing(sqlite3.connect(self.home / "catalogs.db")) as catalogs:
            left = {row[0] for row in catalogs.execute("SELECT location FROM written_file")}
            assert catalogs.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        with closing(sqlite3.connect(self.home / "amoro.db")) as state:
            assert state.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        on_disk = {f"file://{path}" for path in (self.directory / "lake").rglob("*.metadata.json")}
        assert (files - on_disk, on_disk - files - left) == (set(), set()), "lost, or forgotten"


def run(seed: int, kills: int, directory: Path, totals: Counter[str]) -> None:
    """So many kills at random moments, and what must hold afterwards."""
    chance = random.Random(seed)
    with Nursery() as nursery:
        site = CatalogSite(directory, nursery)
        coordinator = site.start()
        try:
            site.prepare()
            with _Proxy(site.port, random.Random(seed)) as proxy, ThreadPoolExecutor(WRITERS) as writers:
                Thread(target=proxy.serve_forever, daemon=True).start()
                writing = [writers.submit(site.write, proxy.server_port, one) for one in range(1, WRITERS + 1)]
                for _ in range(kills):
                    known = len(site.told)
                    if chance.random() < 0.9:  # else it dies while it starts
                        wait_until(lambda known=known: len(site.told) > known + WRITERS, "writers go on")
                    time.sleep(chance.uniform(0, 0.5))
                    assert coordinator.kill(), "the coordinator ended by itself"
                    coordinator = site.start()
                site.ends = True
                for one in writing:
                    one.result()
                proxy.later.shutdown()
                proxy.shutdown()
            site.require()
        except BaseException:
            site.ends = True
            print(site.log.read_text(errors="replace")[-20_000:])
            raise
        totals.update({"kills": kills, **{f"snapshots {told}": n for told, n in Counter(site.told.values()).items()}})
        totals.update({"transactions": len(site.pairs), **{f"commits {one}": n for one, n in proxy.fates.items()}})
