"""The same number on a page, in REST, in the JSON of the command line, over gRPC and in the database, on six pages."""

import html
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from amoro_cli.main import run
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import queue_pb2
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from tests.cli.fakes import FakeLauncher
from tests.dashboard.served import Served, serving
from tests.dashboard.states import seed
from tests.store.ready import open_store

TABLE, PROCESS = "lake.finance.customers", "0199aaaa-0001-7000-8000-000000000000"
_OF_TABLE = "FROM table_runtime JOIN table_identifier USING (table_id) WHERE namespace_json = '[\"finance\"]' "
_SUMMARY = "SELECT summary_json ->> '{}' " + _OF_TABLE + "AND table_name = 'customers'"


@dataclass(frozen=True, slots=True)
class Source:
    """A page, and what REST, a command and an operation answer to the same question."""

    page: str
    rest: str
    command: tuple[str, ...]
    method: str
    request: Message


OVERVIEW = Source("/", "/status", ("status",), "GetStatus", pb.GetStatusRequest())
TABLES = Source(
    *("/tables?text=customers", "/tables?text=customers", ("table", "list", "--text", "customers"), "ListTables"),
    pb.ListTablesRequest(text="customers"),
)
ONE = Source(
    *(f"/tables/{TABLE}", f"/tables/{TABLE}", ("table", "show", TABLE), "GetTable"), pb.GetTableRequest(table=TABLE)
)
A_PROCESS = Source(
    *(f"/processes/{PROCESS}", f"/processes/{PROCESS}", ("process", "show", PROCESS), "GetProcess"),
    pb.GetProcessRequest(process_id=PROCESS),
)
GROUPS = Source("/groups", "/groups", ("group", "list"), "ListGroups", pb.ListGroupsRequest())
QUEUE = Source("/queue", "/queue", ("group", "queue"), "ListQueue", queue_pb2.ListQueueRequest())


@dataclass(frozen=True, slots=True)
class Figure:
    """A number: the words around it on the page, where it is in documents and messages, and how SQL counts it."""

    source: Source
    told: str  # a pattern of the page's text
    key: str  # of a document
    sql: str


def _of_a_row(*before: str) -> str:
    """The cell after these of the row of the table."""
    return rf"\| {re.escape(TABLE)} \|" + "".join(f" {one} \\|" for one in before) + r" ([\d,]+) \|"


_ROW = ("pending", "[^|]+")
_GROUP = r"\| default \| quota \| external \|"
FIGURES = (
    Figure(OVERVIEW, r"\| ([\d,]+) \| tables \|", "tables", "SELECT count(*) FROM table_runtime"),
    Figure(
        *(OVERVIEW, r"([\d,]+) \| running processes", "running_processes"),
        "SELECT count(*) FROM table_process WHERE status = 'running'",
    ),
    Figure(OVERVIEW, r"([\d,]+) \| optimizers", "optimizers", "SELECT count(*) FROM optimizer"),
    Figure(TABLES, _of_a_row(*_ROW), "health_score", _SUMMARY.format("health_score")),
    Figure(TABLES, _of_a_row(*_ROW, ".+?"), "files.data_files", _SUMMARY.format("data_files")),
    Figure(ONE, r"Health: ([\d,]+) of 100", "health_score", _SUMMARY.format("health_score")),
    Figure(ONE, r"\| data \| ([\d,]+) files", "files.data_files", _SUMMARY.format("data_files")),
    Figure(ONE, r"\| ([\d,]+) fragments", "files.fragment_files", _SUMMARY.format("fragment_files")),
    Figure(ONE, r"\| rows \| ([\d,]+)", "files.records", _SUMMARY.format("records")),
    Figure(
        ONE, r"\| snapshot \| (\d+)", "snapshot_id", "SELECT snapshot_id " + _OF_TABLE + "AND table_name = 'customers'"
    ),
    Figure(
        *(A_PROCESS, r"\| Tasks \| ([\d,]+) of", "tasks_done"),
        f"SELECT count(*) FROM task_runtime WHERE process_id = '{PROCESS}' AND status = 'success'",
    ),
    Figure(
        *(A_PROCESS, r"\| Tasks \| [\d,]+ of ([\d,]+)", "tasks_total"),
        f"SELECT count(*) FROM task_runtime WHERE process_id = '{PROCESS}'",
    ),
    Figure(
        GROUPS, rf"{_GROUP} ([\d,]+) \|", "optimizers", "SELECT count(*) FROM optimizer WHERE group_name = 'default'"
    ),
    Figure(
        *(GROUPS, rf"{_GROUP} [\d,]+ \| ([\d,]+) \|", "threads"),
        "SELECT sum(threads) FROM optimizer WHERE group_name = 'default'",
    ),
    Figure(
        *(GROUPS, rf"{_GROUP} [\d,]+ \| [\d,]+ \| ([\d,]+) \|", "running_tasks"),
        "SELECT count(*) FROM task_runtime WHERE group_name = 'default' AND status IN ('scheduled', 'acked')",
    ),
    Figure(
        *(GROUPS, rf"{_GROUP} [\d,]+ \| [\d,]+ \| [\d,]+ \| ([\d,]+) \|", "tables"),
        "SELECT count(*) FROM table_runtime WHERE group_name = 'default'",
    ),
    Figure(
        *(QUEUE, r"of ([\d,]+) tables, by group", "pending_total"),
        "SELECT count(*) FROM table_runtime WHERE status = 'pending'",
    ),
    Figure(
        *(QUEUE, r"\| minor \| ([\d,]+) \|", "waiting.waiting_tasks"),
        "SELECT count(*) FROM task_runtime WHERE status = 'planned'",
    ),
)


@dataclass(frozen=True, slots=True)
class Sight:
    """A coordinator with its state, seen in five ways."""

    served: Served
    database: Path
    command: Callable[[tuple[str, ...]], Any]

    def on_page(self, figure: Figure) -> int:
        """The number in the page's text, whose elements are kept apart by bars."""
        main = self.served.ask(figure.source.page).body.partition("<main")[2]
        text = html.unescape(re.sub(r"<[^>]*>", " | ", re.sub(r"(?s)<svg.*?</svg>", "", main)))
        found = re.search(figure.told, re.sub(r"\s*(\|\s*)+", " | ", text))
        assert found, text[:2000]
        return int(found[1].replace(",", ""))

    def in_rest(self, figure: Figure) -> int:
        return _found(self.served.ask(f"/api/v1{figure.source.rest}").document, figure.key)

    def in_command(self, figure: Figure) -> int:
        return _found(self.command(figure.source.command), figure.key)

    def over_grpc(self, figure: Figure) -> int:
        source = figure.source
        with grpc.insecure_channel(self.served.coordinator.address) as channel:
            call = getattr(AdminServiceStub(channel), source.method)
            answer = call(source.request, metadata=(("authorization", f"Bearer {self.served.admin}"),), timeout=60)
        made = next((getattr(answer, name) for name in ("tables", "groups") if _is_list(answer, name)), [answer])[0]
        for name in figure.key.split("."):
            made = getattr(made, name)
            made = made[0] if hasattr(made, "__len__") else made
        return int(made)

    def in_database(self, figure: Figure) -> int:
        with sqlite3.connect(self.database) as db:
            return int(db.execute(figure.sql).fetchone()[0])


def _is_list(answer: Message, name: str) -> bool:
    return any(field.name == name and field.is_repeated for field in answer.DESCRIPTOR.fields)


def _found(document: Any, key: str) -> int:
    """The value at the dotted key, of the first item where there is a list of them."""
    made = document
    for name in ("tables", "groups", "items"):
        if isinstance(made, dict) and isinstance(made.get(name), list):
            made = made[name]
    for name in key.split("."):
        made = made[0] if isinstance(made, list) else made
        made = made[name]
    return int(made)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp("same") / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home.parent))
        patch.setenv("PYICEBERG_HOME", str(home.parent))
        with open_store(home / "amoro.db") as store:
            seed(store, "typical")
        with serving(home) as made:
            yield made


@pytest.fixture
def sight(served: Served, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Sight:
    monkeypatch.setenv("AMORO_ADDRESS", served.coordinator.address)
    monkeypatch.setenv("AMORO_TOKEN", served.admin)

    def command(words: tuple[str, ...]) -> Any:
        assert run(FakeLauncher(), (*words, "-o", "json")) == 0
        return json.loads(capfd.readouterr().out)

    return Sight(served, served.coordinator.home / "amoro.db", command)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure.source.method} {figure.key}")
def test_a_number_is_the_same_wherever_it_is_told(sight: Sight, figure: Figure) -> None:
    expected = sight.in_database(figure)
    found = {
        "page": sight.on_page(figure),
        "REST": sight.in_rest(figure),
        "command": sight.in_command(figure),
        "gRPC": sight.over_grpc(figure),
    }
    assert found == dict.fromkeys(found, expected)
