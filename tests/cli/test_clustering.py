"""What `amoro cluster` sends and shows."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from amoro_cli import query_logs
from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin

TABLE = "sales.db.orders"
SCANS = {"scans": 12, "unfiltered_scans": 2, "old_scans": 3, "recent_scans": 15, "enough_scans": 100}
DAYS = {"first_day": "2026-11-21", "last_day": "2026-11-22"}
LEARNED = pb.LearnedScans(table=TABLE, columns=[pb.LearnedColumn(column="id", scans=10)], **SCANS, **DAYS)


def event(filters: str, at: int = 1795372118986) -> str:
    """A line of an event log."""
    plan = f"+- BatchScan cat.db.orders[] cat.db.orders (branch=null) [filters={filters}, groupedBy=]"
    kind = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
    return json.dumps({"Event": kind, "physicalPlanDescription": plan, "time": at}) + "\n"


def scan(column: str, scans: int, day: str = "2026-11-22", operator: str = "eq", **more: str) -> pb.ToldScan:
    return pb.ToldScan(day=day, filters=[pb.ScanFilter(column=column, operator=operator)], scans=scans, **more)


@pytest.fixture
def learning(admin: FakeAdmin) -> FakeAdmin:
    admin.script("LearnScans", LEARNED)
    admin.script("GetTable", pb.Table(table=TABLE))
    return admin


def test_queries_are_sent_summed_with_the_place_that_tells_them(cli: Cli, learning: FakeAdmin, tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    by_id = '{"columns": ["id"]}\n'
    file.write_text(by_id + '\n{"columns": ["ts"], "operator": "range", "weight": 5}\n' + by_id)
    words = ("cluster", "learn", "db.orders", "--queries", str(file))
    result = cli(*words)
    assert result.status == 0
    assert result.out.splitlines() == [
        "sales.db.orders: learned from 12 scans of 2026-11-21 to 2026-11-22",
        "  id: filtered by 10 scans",
        "  no column of the table: 2 scans",
        "  3 scans left out: older than 30 d",
        "  15 scans of the last 7 d are known; self-optimizing.cluster.columns=auto needs 100",
    ]
    (request,) = learning.asked("LearnScans")
    places = scan("id", 2, "", place=f"{file}, line 1"), scan("ts", 5, "", "range", place=f"{file}, line 3")
    assert (request.table, *request.scans) == ("db.orders", *places)
    assert json.loads(cli(*words, "-o", "json").out)["schema"] == "amoro.learned/v1"


def test_event_logs_are_read_below_a_directory_and_unpacked(cli: Cli, learning: FakeAdmin, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    start = '{"Event":"SparkListenerApplicationStart","App Name":"x","App ID":"local-1"}\n'
    (logs / "local-1").write_text('{"Event":"SparkListenerLogStart"}\n' + start + event("id = 5") + event("id = 'x'"))
    rolled = logs / "eventlog_v2_local-2"
    rolled.mkdir()
    (rolled / "appstatus_local-2").write_text("")
    (rolled / ".events_1_local-2.crc").write_bytes(b"\xff\xff")
    with pa.output_stream(str(rolled / "events_1_local-2.zstd"), compression="zstd") as written:
        written.write(event("id = 7, ts > 1").encode())
    whole = (rolled / "events_1_local-2.zstd").read_bytes()
    (rolled / "events_2_local-2.zstd").write_bytes(whole[:-4])  # of an application that runs
    (rolled / "events_3_local-2.zstd.compact").write_text(event("id = 8, ts > 1"))
    assert cli("cluster", "learn", "db.orders", "--spark-event-log", str(logs)).status == 0
    (request,) = learning.asked("LearnScans")
    one, both = request.scans[0], request.scans[1:]
    assert (request.table, one) == (TABLE, scan("id", 2, source="local-1"))
    assert [[item.column for item in each.filters] for each in both] == [["id", "ts"]] * 2
    assert [each.source for each in both] == ["events_1_local-2", "events_3_local-2"]


BY_ID, LOG = b'{"columns": ["id"]}\n', "--spark-event-log"
MANY = b"".join(b'{"columns":["%d"]}\n' % at for at in range(101))


@pytest.mark.parametrize(
    ("limit", "option", "content", "problem"),
    [
        ("", "--queries", BY_ID + b"hello", ", line 2 has no columns, a list of names: hello"),
        ("", "--queries", BY_ID + b"\xff", ", line 2 is not UTF-8"),
        ("", LOG, event("id = 1").encode() + b"hello\n", ", line 2 is not a Spark event"),
        ("MAX_QUERIES_BYTES", "--queries", BY_ID * 6, ", line 6: more than 100 bytes can't be read"),
        ("MAX_LOG_BYTES", LOG, b'{"Event": ""}\n' * 8, ", line 8: more than 100 bytes can't be read"),
        ("MAX_SCANS", "--queries", MANY, " has more than 100 diff"),
        ("MAX_LINE_BYTES", "--queries", b'{"columns": ["' + b"a" * 200, ", line 1 has more than 100 bytes"),
    ],
)
def test_a_file_that_is_malformed_or_would_fill_the_memory_is_named_and_nothing_is_sent(
    cli: Cli, learning: FakeAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, option: str,
    content: bytes, problem: str,
) -> None:  # fmt: skip
    if limit:
        monkeypatch.setattr(query_logs, limit, 100)
    file = tmp_path / "told"
    file.write_bytes(content)
    result = cli("cluster", "learn", "db.orders", option, str(file))
    assert (result.status, f"{file}{problem}" in " ".join(result.err.split())) == (2, True), result.err
    assert learning.asked("LearnScans") == []


def test_what_cannot_be_read_is_refused_by_name(cli: Cli, learning: FakeAdmin, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "events.lz4").write_bytes(b"x")
    (tmp_path / "events.zstd").write_bytes(b"no zstd")
    for option, name, problem in (
        ("--queries", "missing", "missing can't be read: No such file or directory"),
        ("--queries", "empty", "empty can't be read: Is a directory"),
        ("--spark-event-log", "empty", "empty has no event logs"),
        ("--spark-event-log", "events.lz4", "events.lz4 is compressed in a way that is not read here"),
        ("--spark-event-log", "events.zstd", "events.zstd can't be read"),
    ):
        result = cli("cluster", "learn", "db.orders", option, str(tmp_path / name))
        assert (result.status, problem in " ".join(result.err.split())) == (2, True), result.err
    assert learning.asked("LearnScans") == []


def test_suggested_columns_are_shown_with_their_reasons_and_what_auto_chooses(cli: Cli, admin: FakeAdmin) -> None:
    why = pb.SuggestedColumn(column="id", reason="it is an identifier field", files_met=38.5)
    chosen = pb.ChosenColumns(columns=[pb.ChosenColumn(column="id", saved=0.98)], strategy="linear", scans=200)
    told = pb.SuggestedColumns(table=TABLE, files=40, columns=[why], auto=chosen, auto_reason="chosen by 200 scans")
    admin.script("SuggestColumns", told)
    assert cli("cluster", "suggest", "db.orders").out.splitlines() == [
        "sales.db.orders  40 files",
        "  id: a point query reads 38.5 files; it is an identifier field",
        "  auto: linear(id 98%), chosen by 200 scans",
    ]
    assert json.loads(cli("cluster", "suggest", "db.orders", "-o", "json").out)["schema"] == "amoro.suggested/v1"
