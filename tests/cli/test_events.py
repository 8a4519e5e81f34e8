"""amoro event list and amoro task attempts: what is asked of the coordinator, and what is told of its answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amoro_core.protocol import journal_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON

PROCESS = "01997a4c-aaaa-7aaa-8aaa-aaaaaaaaaaaa"
EVENT = pb.Event(
    event_id=7,
    happened_ms=NOON,
    kind="failed",
    table="sales.db.orders",
    process_id=PROCESS,
    text="minor failed: no\ndisk",
    data={"tasks": "3"},
)
ATTEMPT = pb.AttemptInfo(
    task_id=3,
    attempt=2,
    optimizer_id="o-1",
    thread_id=4,
    outcome="failed",
    scheduled_ms=NOON,
    started_ms=NOON + 1000,
    finished_ms=NOON + 5000,
    failure_code="AMORO-1",
    failure="no disk",
    input_rows=1000,
    input_bytes=2048,
)


def test_filters_are_asked_for(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListEvents", pb.ListEventsResponse(events=[EVENT], total=9, next="5-7", total_is_exact=True))
    words = ("--kind", "failed", "--kind", "LOST", "--table", "sales.db.orders", "--process", "01997a", "--limit", "1")
    result = cli("event", "list", *words, "--after", "6-8")
    (asked,) = admin.asked("ListEvents")
    assert asked == pb.ListEventsRequest(
        kinds=["failed", "lost"], table="sales.db.orders", process_id="01997a", limit=1, after="6-8"
    )
    header, line, more = result.out.splitlines()
    assert header.split() == ["EVENT", "AT", "KIND", "TABLE", "PROCESS", "TEXT"]
    assert line.split()[0] == "7"
    assert line.endswith("minor failed: no disk")
    assert more == "and more: see --limit"


def test_since_is_a_time_before_now(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListEvents", pb.ListEventsResponse())
    assert cli("event", "list", "--since", "1d").out == "No events.\n"
    assert admin.asked("ListEvents")[0].since_ms > NOON


def test_programs_get_every_field(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListEvents", pb.ListEventsResponse(events=[EVENT], total=1))
    (told,) = json.loads(cli("event", "list", "-o", "json").out)["events"]
    assert told["event_id"] == 7
    assert told["data"] == {"tasks": "3"}
    assert told["happened_at"].startswith("20")
    assert cli("event", "list", "-o", "name").out == "7\n"


def test_events_are_followed_from_the_last_one_in_their_order(
    cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later(number: int) -> pb.Event:
        return pb.Event(event_id=number, happened_ms=NOON, kind="lost", text=f"event {number}")

    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("amoro_cli.commands.events.time.sleep", wait)
    answers: list[Any] = [
        pb.ListEventsResponse(events=[later(9), EVENT], last_event_id=9, total_is_exact=True),
        pb.ListEventsResponse(events=[later(10), later(11)], last_event_id=12),
        pb.ListEventsResponse(events=[later(12)], last_event_id=12, total_is_exact=True),
        pb.ListEventsResponse(last_event_id=12, total_is_exact=True),
    ]
    admin.script("ListEvents", *answers)
    result = cli("event", "list", "--follow", "--interval", "3s")
    assert result.status == 0
    assert [line.split()[-1] for line in result.out.splitlines()] == ["disk", "9", "10", "11", "12"]
    assert [request.newer_than for request in admin.asked("ListEvents")] == [0, 9, 11, 12]
    assert waits == [3.0, 3.0, 3.0]


@pytest.mark.parametrize("words", [("--after", "1-1"), ("--sort-by", "AT"), ("--columns", "AT")])
def test_what_is_followed_has_no_other_order(cli: Cli, words: tuple[str, ...]) -> None:
    result = cli("event", "list", "--follow", *words)
    assert result.status == 2
    assert "--follow goes by the time" in result.err


def test_a_kind_that_there_is_not_is_refused_with_those_known(cli: Cli) -> None:
    result = cli("event", "list", "--kind", "faild")
    assert result.status == 2
    assert "failed" in result.err


@pytest.mark.parametrize(
    ("of", "process", "task"),
    [
        ("01997a", "01997a", 0),
        ("01997a-3", "01997a", 3),
        (PROCESS, PROCESS, 0),
        (f"{PROCESS}-12", PROCESS, 12),
        ("01997a4c-aaaa-7", "01997a4c-aaaa-7", 0),
    ],
)
def test_attempts_are_those_of_a_process_or_of_a_task(
    cli: Cli, admin: FakeAdmin, of: str, process: str, task: int
) -> None:
    admin.script("ListAttempts", pb.ListAttemptsResponse(process_id=PROCESS, attempts=[ATTEMPT], total=1))
    result = cli("task", "attempts", of)
    assert admin.asked("ListAttempts") == [pb.ListAttemptsRequest(process_id=process, task_id=task)]
    line = result.out.splitlines()[1].split()
    assert line[:3] == ["3", "2", "failed"]
    assert line[-5:] == ["kB", "o-1/4", "[AMORO-1]", "no", "disk"]
    assert "4.0 s" in result.out
    assert cli("task", "attempts", of, "-o", "name").out == f"{PROCESS}-3-2\n"


def test_a_process_without_attempts_has_none(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListAttempts", pb.ListAttemptsResponse(process_id=PROCESS))
    assert cli("task", "attempts", "01997a").out == "No attempts.\n"
    told = json.loads(cli("task", "attempts", "01997a", "-o", "json").out)
    assert told == {
        "schema": "amoro.attempts/v1",
        "process_id": PROCESS,
        "attempts": [],
        "total": 0,
        "next": None,
    }
