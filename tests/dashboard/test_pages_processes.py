"""Processes, events, the audit and the queue."""

import html
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from amoro_core.model.clustering import EncodedFiles
from amoro_core.model.history_events import About, Event, EventKind
from amoro_core.model.metrics import TableFigures
from amoro_core.model.processes import Figure, OptimizingTask, ProcessStatus, TaskStatus
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.store import events, groups, processes, tables, time_series
from amoro_core.store.database import Connection
from amoro_core.web.pages.framework import TtlStore
from amoro_core.web.pages.table_files import ReadLimiter
from tests.dashboard import states
from tests.dashboard.conftest import Site, asked_of, words
from tests.store import builders

RUNNING = "0199aaaa-0001-7000-8000-000000000000"
ENDED = "0199bbbb-0003-7000-8000-000000000000"
FAILED = "0199cccc-0002-7000-8000-000000000000"
EARLY = "0199eeee-0009-7000-8000-0000000000ea"
UNKNOWN = "0199dddd-0001-7000-8000-000000000000"


def test_the_list_is_filtered_by_status_and_table(site: Site) -> None:
    client = site("typical")
    page = client.get("/processes", params={"status": "running", "table": "lake.finance.customers"}).text
    found = re.search(r'/processes/([^"/]+)"', client.get("/processes?status=running").text)
    assert found is not None
    assert found[1] == RUNNING
    assert "No process matches" in page


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
    def unequal(db: Connection) -> None:
        (one,) = states.fill(db, 1)
        states.ended(db, one, ENDED, receipt=replace(builders.RECEIPT, rows_after=builders.RECEIPT.rows_before - 1))

    page = site(unequal).get(f"/processes/{ENDED}").text
    assert "≠" in page
    assert "An equation of this receipt does not hold." in page


def test_a_receipt_says_why_files_were_encoded(site: Site) -> None:
    def encoded(db: Connection) -> None:
        (one,) = states.fill(db, 1)
        more = (Figure("files_copied", 1, "files"), Figure("files_encoded", 2, "files"))
        why = (EncodedFiles("its column '<b>' has no type", 2),)
        states.ended(db, one, ENDED, receipt=replace(builders.RECEIPT, more=more, encoded=why))

    page = site(encoded).get(f"/processes/{ENDED}").text
    assert "files copied 1 files encoded 2 not copied" in words(page)
    assert "2 files: its column &#39;&lt;b&gt;&#39; has no type" in page


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


def test_tasks_come_in_pages_of_a_hundred(site: Site) -> None:
    client = site(lambda db: many(db, 250))
    first = client.get(f"/processes/{RUNNING}").text
    assert "Tasks: 100 of 250" in words(first)
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following is not None
    second = client.get(following[1].replace("&amp;", "&")).text
    assert '<td class="number" data-label="Task">101</td>' in second
    assert '<td class="number" data-label="Task">100</td>' not in second


def test_cancelling_asks_first_and_then_ends_the_process(site: Site) -> None:
    client = site("typical")
    asked = client.get(f"/processes/{RUNNING}/cancel")
    assert asked.status_code == 200
    assert f"amoro process cancel {RUNNING}" in asked.text
    assert client.get(f"/processes/{RUNNING}").text.count("to-come") == 2, "asking changes nothing"
    done = client.post(f"/processes/{RUNNING}/cancel")
    assert done.status_code == 303
    page = client.get(done.headers["location"]).text
    assert "The process is closed." in page
    assert "Attempts by optimizer thread" in page


@pytest.mark.parametrize(
    ("action", "target", "command"),
    [
        ("start", "start", f"amoro process start {ENDED}"),
        ("confirm", "confirm", "amoro table maintain"),
        ("undo", "undo/preview", f"amoro undo {ENDED} --dry-run"),
    ],
)
def test_each_action_has_a_confirmation_with_its_command(site: Site, action: str, target: str, command: str) -> None:
    page = site("typical").get(f"/processes/{ENDED}/{action}").text
    assert f'action="/processes/{ENDED}/{target}"' in page
    assert "The same as a command:" in page
    assert f"<code>{command}" in page


def test_a_held_process_goes_on_only_with_the_name_of_its_table(site: Site) -> None:
    def held(db: Connection) -> None:
        (one,) = states.fill(db, 1)
        made = builders.process(one, RUNNING, type="expire-snapshots", action="expire-snapshots")
        processes.add(db, replace(made, status=ProcessStatus.HELD, lane="metadata"))

    client = site(held)
    answer = client.post(f"/processes/{RUNNING}/confirm", data={"confirm": "lake.sales.order"})
    assert answer.status_code == 400
    assert "lake.sales.orders" in answer.text


def many(db: Connection, count: int) -> None:
    """A running process of so many tasks, all of which have succeeded."""
    (one,) = states.fill(db, 1)
    made = builders.process(one, RUNNING, created_at=states.now() - timedelta(hours=1))
    processes.add(db, made)
    done = states.done(made)

    def task(number: int) -> OptimizingTask:
        at = made.created_at + timedelta(seconds=number)
        times = {"scheduled_at": at, "acked_at": at, "finished_at": at + timedelta(seconds=1)}
        return done._replace(task_id=done.task_id._replace(number=number), status=TaskStatus.SUCCESS, **times)

    states.keep(db, [task(number) for number in range(1, count + 1)])


@pytest.mark.parametrize(
    ("status", "more", "is_begun", "looks"),
    [
        ("running", {}, False, "done current to-come to-come to-come"),
        ("running", {}, True, "done done current to-come to-come"),
        ("running", {"tasks_total": 0}, False, "done current to-come"),
        ("held", {}, False, "done waiting to-come to-come to-come"),
        ("requested", {}, False, "done waiting to-come to-come to-come"),
        ("committing", {}, True, "done done done current to-come"),
        ("committing", {"waiting": "no answer"}, True, "done done done waiting to-come"),
        ("commit_unknown", {}, True, "done done done waiting to-come"),
        ("clearing", {}, True, "done done done current to-come"),
        ("success", {"finished_ms": 9}, True, "done done done done done"),
        ("failed", {"finished_ms": 9}, True, "done done skipped skipped failed"),
        ("of_a_plugin", {"finished_ms": 9}, False, "done skipped skipped skipped failed"),
    ],
)
def test_the_steps_of_a_process_say_where_it_is(
    site: Site, status: str, more: dict[str, Any], is_begun: bool, looks: str
) -> None:
    client = site("typical")
    kept = {"process_id": RUNNING, "table": "lake.logs.orders", "type": "minor", "created_ms": 1, "tasks_total": 3}
    answers = asked_of(client).answers
    process = pb.Process(**{**kept, "status": status, "task_counts": pb.TaskCounts(planned=1), **more})
    answers["ListTasks"] = pb.ListTasksResponse(process=process)
    begun = {"task_id": 1, "attempt": 1, "optimizer_id": "o", "outcome": "running", "scheduled_ms": 2, "started_ms": 3}
    attempts = [journal.AttemptInfo(**begun)] if is_begun else []
    answers["ListAttempts"] = journal.ListAttemptsResponse(attempts=attempts, total=len(attempts))
    page = client.get(f"/processes/{RUNNING}").text
    assert " ".join(re.findall(r'<li class="([a-z-]+)"', page)) == looks
    assert ("waiting for a confirmation" in page) == (status == "held")


def happen(db: Connection) -> None:
    (one,) = states.fill(db, 1)
    for name in ("optimizer-1", "optimizer-2"):
        groups.add_optimizer(db, builders.optimizer(name))
    states.running(db, one)
    for number in range(150):
        kind = EventKind.FAILED if number % 50 == 0 else EventKind.PLANNED
        about = About(1, "lake.sales.orders", process_id=RUNNING)
        events.add(db, Event(kind, states.now(), f"event {number}", about))


def test_events_are_filtered_by_kind_table_and_process(site: Site) -> None:
    client = site(happen)
    assert "Events: 3 of 3" in words(client.get("/events?kind=failed&table=lake.sales.orders").text)
    assert "amoro event list --kind failed" in client.get("/events?kind=failed").text
    assert "150" in words(client.get(f"/events?process={RUNNING}").text)
    wrong = client.get("/events?kind=faild")
    assert wrong.status_code == 400
    assert "Did you mean failed?" in wrong.text


def test_processes_and_events_are_filtered_by_time_and_type(site: Site) -> None:
    client = site(happen_early)
    late = words(client.get("/processes?type=major&status=failed&since=3d").text)
    assert "Processes: 12 of 12" in late
    every, recent = (words(client.get(f"/processes{of}").text) for of in ("", "?since=3d"))
    assert _total(every) == _total(recent) + 1
    assert "Processes: 1 of 1" in words(client.get("/processes?until=3d").text)
    assert "No process matches." in client.get("/processes?type=full&since=3d").text
    assert "Events: 1 of 1" in words(client.get("/events?since=5d&until=3d").text)
    assert "--until 3d" in client.get("/events?until=3d").text
    wrong = client.get("/processes?since=yesterday")
    assert (wrong.status_code, "write 12h for 12 hours ago" in wrong.text) == (400, True)


def _total(page: str) -> int:
    found = re.search(r"Processes: \d+ of (\d+)", page)
    assert found is not None
    return int(found[1])


def happen_early(db: Connection) -> None:
    """Twelve failures of today, and a process and an event of four days ago."""
    states._failing(db)
    early = states.now() - timedelta(days=4)
    states.ended(db, tables.get(db, 1), EARLY, created_at=early, finished_at=early + timedelta(hours=1))
    events.add(db, Event(EventKind.PLANNED, early, "long ago", About(1, "lake.sales.orders", process_id=EARLY)))


def test_the_report_shows_what_was_done_what_failed_and_what_got_worse(site: Site) -> None:
    def fill(db: Connection) -> None:
        states._failing(db)
        for days, small in ((2, 2), (0.01, 113)):
            figures = TableFigures(50, 90, small, 0, 1, 1)
            time_series.add_figures(db, 3, figures, states.now() - timedelta(days=days))
        states.ended(db, tables.get(db, 2), EARLY)

    client = site(fill)
    page = client.get("/report?since=3d").text
    assert "AMORO-1002: 12 failures of 12 tables" in words(page)
    assert re.search(f'<a class="code" href="/processes/{FAILED}"[^>]*>{FAILED[-8:]}</a>', page)
    assert "major success 1 1 12 → 1 3 → 0 1.2 kB → 1.0 kB" in words(page)
    assert "2 → 113" in words(page)
    (link,) = re.findall(r'href="(/processes\?type=major&amp;status=failed&amp;[^"]*)"', page)
    assert "Processes: 12 of 12" in words(client.get(html.unescape(link)).text)
    assert "amoro report --since 3d" in page
    none = words(client.get("/report?since=5d&until=4d&table=lake.*").text)
    assert "0 processes ended from" in none
    assert none.count("Nothing failed. ") == none.count("No table got worse. ") == 1
    assert client.get("/report?table=*.nowhere.*").status_code == 404
    assert '<a href="/report">Report</a>' in client.get("/").text


def test_an_action_on_a_page_is_in_the_audit(site: Site) -> None:
    client = site("typical")
    assert "Nobody has changed anything yet." in client.get("/audit").text
    client.post(f"/processes/{RUNNING}/cancel")
    page = words(client.get("/audit").text)
    assert "Calls: 1 of 1" in page
    assert "CancelProcess" in page
    assert "page" in page
    assert "No call matches." in client.get("/audit?outcome=refused").text


def test_what_waits_is_listed_in_its_order(site: Site) -> None:
    client = site("typical")
    page = words(client.get("/queue").text)
    assert "1 of 1 table, by group" in page
    assert "18 fragments, 2 partitions" in page
    assert "1 of 1 process, by group" in page
    assert "default" in page
    assert "No table waits for a plan." in client.get("/queue?group=nightly").text


def test_a_value_goes_with_its_time_and_the_oldest_where_there_are_too_many() -> None:
    now = 0.0
    kept: TtlStore[str] = TtlStore(2, timedelta(seconds=10), lambda: now)
    first, second, third = map(kept.add, ("first", "second", "third"))
    assert [kept.find(key) for key in (first, second, third)] == [None, "second", "third"]
    assert (kept.take(third), kept.take(third)) == ("third", None)
    now = 9.9
    assert kept.find(second) == "second"
    now = 10.0
    assert kept.find(second) is None


def test_what_was_read_of_the_longest_ago_is_forgotten() -> None:
    looks: ReadLimiter[str] = ReadLimiter()
    for number in range(65):
        looks.remember((number,), str(number))
    assert looks.recall((0,)) is None
    assert looks.recall((1,)) == "1"
