"""Processes, tasks, attempts, events, values over time, the queue, and what is watched."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from amoro_cli.connection import Endpoint
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2, queue_pb2
from tests.cli.conftest import Cli, Terminal
from tests.cli.fakes import TOKEN, Failure, FakeAdmin, FakeLauncher
from tests.cli.messages import NOON, PROCESS, listed, process, table, task


def test_times_of_lists_are_how_long_ago_or_in_utc(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListProcesses", pb.ListProcessesResponse())
    admin.script("ListEvents", journal_pb2.ListEventsResponse())
    night = ["--since", "2026-09-20T14:13:20Z", "--until", "2026-09-21T16:13:20.123+02:00"]
    assert cli("process", "list", "--type", "full", *night).out == "No processes.\n"
    day = {"since_ms": NOON - 86_400_123, "until_ms": NOON}
    assert admin.asked("ListProcesses") == [pb.ListProcessesRequest(type="full", limit=20, **day)]
    cli("event", "list", *night)
    assert admin.asked("ListEvents") == [journal_pb2.ListEventsRequest(limit=20, **day)]
    now_ms = time.time() * 1000
    cli("event", "list", "--since", "1h30m")
    assert admin.asked("ListEvents")[-1].since_ms == pytest.approx(now_ms - 5_400_000, abs=60_000)
    wrong = cli("process", "list", "--since", "yesterday")
    assert (wrong.status, wrong.out) == (2, "")
    assert "'yesterday' is no time: write 12h for 12 hours ago, or 2026-11-29T22:00Z" in wrong.err


REPORT = journal_pb2.Report(
    began_ms=NOON - 43_200_000, ended_ms=NOON, processes=204, is_worse_known=True, worse_total=21,
    totals=[
        {
            "type": "minor", "status": "success", "processes": 1197, "tables": 22, "data_files_before": 14312,
            "data_files_after": 197, "delete_files_before": 90, "bytes_before": 5 << 30, "bytes_after": 4 << 30,
        },
    ],
    failures=[
        {
            "code": "AMORO-1002", "processes": 3, "tables_total": 1,
            "tables": [{"table": "a.b.c", "processes": 3, "reason": "a file\nis lost", "finished_ms": NOON}],
        }
    ],
    worse=[{"table": "a.b.c", "small_files_before": 2, "small_files": 113}],
)  # fmt: skip


def test_a_report_shows_what_was_done_what_failed_and_what_got_worse(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetReport", REPORT)
    result = cli("report", "--since", "12h", "--table", "sales.*")
    (asked,) = admin.asked("GetReport")
    assert (asked.table, asked.until_ms) == ("sales.*", 0)
    assert asked.since_ms == pytest.approx(time.time() * 1000 - 43_200_000, abs=60_000)
    assert (result.status, result.err) == (0, "")
    assert [" ".join(line.split()) for line in result.out.splitlines() if line and "TABLE" not in line] == [
        "204 processes ended from 2026-09-21 02:13:20Z to 2026-09-21 14:13:20Z.",
        "minor success 1,197 22 14,312 → 197 90 → 0 5.0 GB → 4.0 GB",
        "[AMORO-1002] 3 failures of 1 table:",
        "a.b.c 3 2026-09-21 14:13:20Z a file is lost",
        "21 tables got worse, 20 of them not shown:",
        "a.b.c 2 → 113 -",
    ]
    assert json.loads(cli("report", "-o", "json").out)["worse_total"] == 21
    admin.script("GetReport", journal_pb2.Report(began_ms=NOON, ended_ms=NOON + 1000))
    assert cli("report").out.endswith("Nothing failed.\nWhether tables got worse is not known.\n")


def test_a_process_is_cancelled_and_shown(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CancelProcess", process("closed", failure="somebody cancelled it", finished_ms=NOON + 1000))
    result = cli("process", "cancel", "01997a")
    assert (result.status, result.err) == (0, "")
    assert {"status    closed", "failure   somebody cancelled it"} <= {*result.out.splitlines()}
    assert admin.asked("CancelProcess") == [pb.CancelProcessRequest(process_id="01997a")]


def test_tasks_are_listed_by_status_and_one_is_shown_with_its_attempts_and_its_failure(
    cli: Cli, admin: FakeAdmin
) -> None:
    failed = task(
        task_id=2, attempt=3, status="failed", scheduled_ms=NOON - 1000, finished_ms=NOON + 2000,
        failure="out of memory", failure_code="AMORO-1001", failed_runs=2, lost_attempts=1,
    )  # fmt: skip
    admin.script("ListTasks", listed(process("running"), task(), failed))
    assert cli("task", "list", "01997a", "--status", "failed", "-o", "name").out == f"{PROCESS}-2\n"
    assert cli("task", "list", "01997a", "-o", "name").out == f"{PROCESS}-1\n{PROCESS}-2\n"
    assert cli("task", "list", "01997a", "--status", "planned").out == "No tasks.\n"
    result = cli("task", "show", "01997a-7")
    assert (result.status, result.out) == (3, "")
    hint = "Hint: Its tasks are numbered from 1 to 3.\n"
    assert result.err == f"Error: process {PROCESS} has no task 7 [AMORO-3004]\n{hint}"
    result = cli("task", "show", "01997a-2")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        f"task       {PROCESS}-2\n"
        "table      sales.db.orders\n"
        "status     failed\n"
        "attempt    3, 2 failed, 1 lost\n"
        "partition  dt=2026-09-20\n"
        "input      18 files, 100 MB\n"
        "optimizer  o-1/2\n"
        "assigned   2026-09-21 14:13:19Z\n"
        "started    2026-09-21 14:13:20Z\n"
        "finished   2026-09-21 14:13:22Z, after 2.0 s\n"
        "rows       500/1,000\n"
        "failure    [AMORO-1001] out of memory\n"
    )
    body = json.loads(cli("task", "show", f"{PROCESS}-2", "-o", "json").out)
    assert (body["schema"], body["process_id"], body["task_id"]) == ("amoro.task/v1", PROCESS, 2)
    assert (body["scheduled_at"], body["finished_at"]) == ("2026-09-21T14:13:19.123Z", "2026-09-21T14:13:22.123Z")


def test_what_a_commit_waits_for_stands_in_the_list_and_in_the_process(cli: Cli, admin: FakeAdmin) -> None:
    waiting = "waiting to commit: no answer, next try at 2026-09-21 14:13:20 UTC"
    item = process("committing", waiting=waiting, retry_ms=1_790_000_000_000)
    admin.script("ListProcesses", pb.ListProcessesResponse(processes=[item]))
    admin.script("GetProcess", item)
    assert waiting in cli("process", "list").out
    assert f"commit    {waiting}\n" in cli("process", "show", PROCESS).out
    body = json.loads(cli("process", "show", PROCESS, "-o", "json").out)
    assert (body["waiting"], body["retry_at"]) == (waiting, "2026-09-21T14:13:20.000Z")


EVENT = journal_pb2.Event(
    event_id=7, happened_ms=NOON, kind="failed", table="sales.db.orders", text="minor failed: no\ndisk",
    data={"tasks": "3"},
)  # fmt: skip
ATTEMPT = journal_pb2.AttemptInfo(
    task_id=3, attempt=2, optimizer_id="o-1", thread_id=4, outcome="failed", scheduled_ms=NOON, started_ms=NOON + 1000,
    finished_ms=NOON + 5000, failure_code="AMORO-1", failure="no disk", input_rows=1000, input_bytes=2048,
)  # fmt: skip


def test_filters_are_asked_for(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListEvents", journal_pb2.ListEventsResponse(events=[EVENT], total=9, next="5-7", total_is_exact=True))
    words = ("--kind", "failed", "--kind", "LOST", "--table", "sales.db.orders", "--process", "01997a", "--limit", "1")
    result = cli("event", "list", *words, "--after", "6-8")
    of_one = {"table": "sales.db.orders", "process_id": "01997a", "limit": 1, "after": "6-8"}
    assert admin.asked("ListEvents") == [journal_pb2.ListEventsRequest(kinds=["failed", "lost"], **of_one)]
    header, line, more = result.out.splitlines()
    assert header.split() == ["EVENT", "AT", "KIND", "TABLE", "PROCESS", "TEXT"]
    assert (line.split()[0], line[-21:]) == ("7", "minor failed: no disk")
    assert more == "and more: see --limit"
    (told,) = json.loads(cli("event", "list", "--limit", "1", "-o", "json").out)["events"]
    assert (told["event_id"], told["data"], told["happened_at"][:2]) == (7, {"tasks": "3"}, "20")
    assert cli("event", "list", "--limit", "1", "-o", "name").out == "7\n"


def test_events_are_followed_from_the_last_one_in_their_order(cli: Cli, admin: FakeAdmin) -> None:
    def later(number: int) -> journal_pb2.Event:
        return journal_pb2.Event(event_id=number, happened_ms=NOON, kind="lost", text=f"event {number}")

    answers: list[Any] = [
        journal_pb2.ListEventsResponse(events=[later(9), EVENT], last_event_id=9, total_is_exact=True),
        journal_pb2.ListEventsResponse(events=[later(10), later(11)], last_event_id=12),
        journal_pb2.ListEventsResponse(events=[later(12)], last_event_id=12, total_is_exact=True),
        journal_pb2.ListEventsResponse(last_event_id=12, total_is_exact=True),
        Failure("gone", "AMORO-1008", 1),
    ]
    admin.script("ListEvents", *answers)
    result = cli("event", "list", "--follow", "--interval", "1ms")
    assert result.status == 1
    assert [line.split()[-1] for line in result.out.splitlines()] == ["disk", "9", "10", "11", "12"]
    assert [request.newer_than for request in admin.asked("ListEvents")] == [0, 9, 11, 12, 12]


def test_attempts_are_those_of_a_process_or_of_a_task(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListAttempts", journal_pb2.ListAttemptsResponse(process_id=PROCESS, attempts=[ATTEMPT], total=1))
    for of, process_id, number in (("01997a-3", "01997a", 3), (PROCESS, PROCESS, 0), (PROCESS[:15], PROCESS[:15], 0)):
        result = cli("task", "attempts", of)
        asked = journal_pb2.ListAttemptsRequest(process_id=process_id, task_id=number)
        assert admin.asked("ListAttempts")[-1] == asked
        line = result.out.splitlines()[1].split()
        assert line[:3] == ["3", "2", "failed"]
        assert line[-5:] == ["kB", "o-1/4", "[AMORO-1]", "no", "disk"]
        assert "4.0 s" in result.out
    assert cli("task", "attempts", PROCESS, "-o", "name").out == f"{PROCESS}-3-2\n"


def series(name: str, at: int, n: int, total: float, least: float, most: float, **more: str) -> journal_pb2.Series:
    """A series of one value, `at` minutes after noon."""
    point = journal_pb2.SeriesPoint(from_ms=NOON + at * 60_000, n=n, sum=total, min=least, max=most)
    return journal_pb2.Series(name=name, points=[point], **more)


SERIES = journal_pb2.GetSeriesResponse(
    step_s=600,
    series=[
        series("threads-busy", 0, 4, 6, 0, 3, label="default", kind="level"),
        series("bytes-rewritten", -1, 2, 4096, 0, 4096, kind="total", unit="bytes"),
        series("queue-age", 1, 2, 180, 60, 120, kind="level", unit="seconds"),
    ],
)


def test_a_total_is_its_sum_and_a_level_its_mean(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetSeries", SERIES)
    lines = cli("series", "show", "threads-busy", "queue-age", "--label", "default", "--since", "6h").out.splitlines()
    (asked,) = admin.asked("GetSeries")
    assert (asked.names, asked.label, asked.table, asked.step_s) == (["threads-busy", "queue-age"], "default", "", 0)
    assert asked.since_ms > NOON
    assert [line.split()[2:] for line in lines[1:4]] == [
        ["bytes-rewritten", "4.0", "kB", "0", "B", "4.0", "kB"],
        ["threads-busy/default", "1.5", "0", "3"],
        ["queue-age", "1", "min", "30", "s", "1", "min", "0", "s", "2", "min", "0", "s"],
    ]
    assert lines[-1].startswith("one value for 10")
    told = json.loads(cli("series", "show", "-o", "json").out)
    assert (told["schema"], told["step_s"], told["series"][0]["points"][0]["sum"]) == ("amoro.series/v1", 600, 6)
    assert cli("series", "show", "-o", "name").out == "threads-busy/default\nbytes-rewritten\nqueue-age\n"


QUEUE = queue_pb2.ListQueueResponse(
    pending=[
        queue_pb2.PendingTable(
            table="sales.db.orders", table_id=7, group="default", place=1, type="minor", since_ms=1789999999000,
            policy="quota", key="0.100, never", quota=0.5, limit=2, occupation=0.1, held_back="blocked",
            priority=2, value=12.5,
        )
    ],
    waiting=[
        queue_pb2.WaitingProcess(
            process_id="01997a4c", table="sales.db.returns", group="default", place=1, type="minor", waiting_tasks=1200,
            running_tasks=3, limit=2, share=0.5, ahead_s=61.2, created_ms=1789999999000, priority=9,
        )
    ],
    pending_total=3,
    waiting_total=1,
)  # fmt: skip


def test_what_waits_is_shown_in_two_lists_or_one_of_them(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListQueue", QUEUE)
    result = cli("group", "queue", "default", "--limit", "1")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "Tables that wait for a plan:\n"
        "GROUP    PLACE  TABLE            TYPE   SINCE                 POLICY  KEY           CLASS  VALUE  HELD BACK\n"
        "default      1  sales.db.orders  minor  2026-09-21 14:13:19Z  quota   0.100, never      2   12.5  blocked\n"
        "and 2 more: see --limit\n"
        "\n"
        "Processes that wait for threads:\n"
        "GROUP    PLACE  PROCESS   TABLE             WAITING  RUNNING  SHARE  AHEAD  CLASS  VALUE\n"
        "default      1  01997a4c  sales.db.returns    1,200      3/2    50%   61 s      9      -\n"
    )
    assert admin.asked("ListQueue") == [queue_pb2.ListQueueRequest(group="default", limit=1)]
    body = json.loads(cli("group", "queue", "--limit", "1", "-o", "json").out)
    assert (body["schema"], body["pending_total"], body["next"]) == ("amoro.queue/v1", 3, None)
    assert body["pending"][0]["since_at"] == "2026-09-21T14:13:19.000Z"
    assert body["waiting"][0]["share"] == 0.5
    assert cli("group", "queue", "--limit", "1", "-o", "name").out == "sales.db.orders\n01997a4c\n"
    admin.script("ListQueue", queue_pb2.ListQueueResponse())
    assert cli("group", "queue", "--only", "pending").out == "Nothing waits for a plan.\n"
    assert admin.asked("ListQueue")[-1] == queue_pb2.ListQueueRequest(limit=1000, only="pending")


QUICKLY = ("--watch", "--interval", "1ms")


def test_processes_and_lists_are_shown_at_each_change_until_something_ends_it(cli: Cli, admin: FakeAdmin) -> None:
    running, committing = process(status="running"), process(status="committing")
    admin.script("GetProcess", running, running, committing, committing, process(status="success"))
    result = cli("process", "show", PROCESS, *QUICKLY, "-o", "yaml")
    assert (result.status, result.err) == (0, "")
    assert [body["status"] for body in yaml.safe_load_all(result.out)] == ["running", "committing", "success"]
    assert len(admin.asked("GetProcess")) == 5
    first, second = (pb.ListTablesResponse(tables=[table(table=name)]) for name in ("sales.db.a", "sales.db.b"))
    admin.script("ListTables", first, first, second, Failure("gone", "AMORO-1008", 1))
    result = cli("table", "list", *QUICKLY, "-o", "name")
    assert (result.status, result.out) == (1, "sales.db.a\nsales.db.b\n")


def test_on_a_terminal_each_takes_the_place_of_the_one_before(
    cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "120"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    admin.script("GetProcess", process(status="running"), process(status="success"))
    cli("process", "show", PROCESS, *QUICKLY)
    first, second = screen.getvalue().split("\x1b[H\x1b[2J")[1:]
    assert "status    running" in first
    assert "status    success" in second
    assert "\x1b[3J" not in screen.getvalue()  # what was scrolled off is the user's


def test_without_a_coordinator_nothing_changes_and_it_is_shown_once(
    bare_cli: Cli, admin: FakeAdmin, launcher: FakeLauncher, address: str, home: Path
) -> None:
    launcher.endpoint = Endpoint(address, Secret(TOKEN))
    admin.script("GetProcess", process(status="running"))
    result = bare_cli("process", "show", PROCESS, *QUICKLY, "-o", "name", "--home", str(home))
    assert (result.status, result.out) == (0, f"{PROCESS}\n")
