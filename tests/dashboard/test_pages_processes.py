"""Processes, events, the audit and the queue."""

import re
from dataclasses import replace
from datetime import timedelta

from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.web.pages.framework import TtlStore
from amoro_core.web.pages.table_files import ReadLimiter
from tests.dashboard import states
from tests.dashboard.conftest import Site, asked_of, words
from tests.store import builders

RUNNING = "0199aaaa-0001-7000-8000-000000000000"
ENDED = "0199bbbb-0003-7000-8000-000000000000"
FAILED = "0199cccc-0002-7000-8000-000000000000"
UNKNOWN = "0199dddd-0001-7000-8000-000000000000"


def test_a_running_process_shows_steps_lanes_and_tasks(site: Site) -> None:
    page = site("typical").get(f"/processes/{RUNNING}").text
    assert re.findall(r'<li class="([a-z-]+)"', page) == ["done", "done", "current", "to-come", "to-come"]
    assert page.count('class="bar ') >= 8
    assert "5 of 12 done" in words(page)
    assert "Tasks: 12 of 12" in words(page)
    assert "day=2026-01-07" in page


def test_a_receipt_balances_its_rows(site: Site) -> None:
    page = words(site("typical").get(f"/processes/{ENDED}").text)
    made = builders.RECEIPT
    assert f"rows {made.rows_before:,} = {made.rows_after:,} ✓" in page
    assert f"--before {made.base_snapshot_id} --after {made.snapshot_id}" in page
    assert f"amoro undo {ENDED}" in page
    assert "does not hold" not in page


def test_a_receipt_whose_rows_differ_says_so(site: Site) -> None:
    unequal = replace(builders.RECEIPT, rows_after=builders.RECEIPT.rows_before - 1)
    client = site(lambda db: states.ended(db, states.fill(db, 1)[0], ENDED, receipt=unequal))
    page = client.get(f"/processes/{ENDED}").text
    assert "≠" in page
    assert "An equation of this receipt does not hold." in page


def test_a_failure_is_told_whole(site: Site) -> None:
    page = site("failing").get(f"/processes/{FAILED}").text
    assert "<h1>minor optimizing of lake.finance.orders</h1>" in page.replace("major", "minor")
    assert page.count("a reason that goes on") >= 40
    assert "AMORO-1002" in page
    assert re.findall(r'<li class="([a-z-]+)"', page)[-1] == "failed"


def test_a_commit_whose_outcome_is_unknown_waits(site: Site) -> None:
    page = words(site("commit unknown").get(f"/processes/{UNKNOWN}").text)
    assert "checking and committing waiting" in page
    assert "the catalog did not answer: connection reset" in page


def test_the_steps_of_a_process_say_where_it_is(site: Site) -> None:
    client = site("typical")
    kept = {"process_id": RUNNING, "table": "lake.logs.orders", "type": "minor", "created_ms": 1, "tasks_total": 3}
    begun = {"task_id": 1, "attempt": 1, "optimizer_id": "o", "outcome": "running", "scheduled_ms": 2, "started_ms": 3}
    for status, more, attempts, looks in (
        ("running", {}, 0, "done current to-come to-come to-come"),
        ("held", {}, 0, "done waiting to-come to-come to-come"),
        ("committing", {"waiting": "no answer"}, 1, "done done done waiting to-come"),
        ("commit_unknown", {}, 1, "done done done waiting to-come"),
        ("success", {"finished_ms": 9}, 1, "done done done done done"),
        ("failed", {"finished_ms": 9}, 1, "done done skipped skipped failed"),
    ):
        process = pb.Process(**kept, status=status, task_counts=pb.TaskCounts(planned=1), **more)
        told = journal.ListAttemptsResponse(attempts=[journal.AttemptInfo(**begun)] * attempts, total=attempts)
        asked_of(client).answers.update(ListTasks=pb.ListTasksResponse(process=process), ListAttempts=told)
        page = client.get(f"/processes/{RUNNING}").text
        assert " ".join(re.findall(r'<li class="([a-z-]+)"', page)) == looks, status
        assert ("waiting for a confirmation" in page) == (status == "held")


def test_an_action_on_a_page_is_in_the_audit(site: Site) -> None:
    client = site("typical")
    assert "Nobody has changed anything yet." in client.get("/audit").text
    client.post(f"/processes/{RUNNING}/cancel")
    page = words(client.get("/audit").text)
    assert "Calls: 1 of 1" in page
    assert "CancelProcess" in page
    assert "page" in page
    assert "No call matches." in client.get("/audit?outcome=refused").text


def test_what_is_kept_goes_with_its_time_and_the_oldest_where_there_is_too_much() -> None:
    now = 0.0
    kept: TtlStore[str] = TtlStore(2, timedelta(seconds=10), lambda: now)
    first, second, third = map(kept.add, ("first", "second", "third"))
    assert [kept.find(key) for key in (first, second, third)] == [None, "second", "third"]
    assert (kept.take(third), kept.take(third)) == ("third", None)
    now = 9.9
    assert kept.find(second) == "second"
    now = 10.0
    assert kept.find(second) is None
    looks: ReadLimiter[str] = ReadLimiter()
    for number in range(65):
        looks.remember((number,), str(number))
    assert looks.recall((0,)) is None
    assert looks.recall((1,)) == "1"
