"""Processes: the list, one of them, and what may be done with it."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from amoro_core.model.encoded_files import EncodedFiles
from amoro_core.model.processes import Figure, OptimizingTask, ProcessStatus, TaskStatus
from amoro_core.store import processes
from amoro_core.store.database import Connection
from tests.dashboard import states
from tests.dashboard.pages.conftest import Site
from tests.store import builders

RUNNING = "0199aaaa-0001-7000-8000-000000000000"
ENDED = "0199bbbb-0003-7000-8000-000000000000"
FAILED = "0199cccc-0002-7000-8000-000000000000"
UNKNOWN = "0199dddd-0001-7000-8000-000000000000"


def words(page: str) -> str:
    """What the page says, without its marks."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_the_list_has_every_process_the_newest_first(site: Site) -> None:
    page = site("typical").get("/processes").text
    ids = re.findall(r'<td class="short"><a href="/processes/([^"]+)">', page)
    assert ids[0] == RUNNING
    assert len(ids) == 11
    assert "5/12" in page


def test_the_list_is_filtered_by_status_and_table(site: Site) -> None:
    client = site("typical")
    page = client.get("/processes", params={"status": "running", "table": "lake.finance.customers"}).text
    found = re.search(r'/processes/([^"/]+)">', client.get("/processes?status=running").text)
    assert found is not None
    assert found[1] == RUNNING
    assert "No process matches" in page


def test_an_unknown_status_names_the_nearest(site: Site) -> None:
    answer = site("typical").get("/processes?status=runing")
    assert answer.status_code == 400
    assert "Did you mean running?" in answer.text


def test_a_running_process_shows_steps_lanes_and_tasks(site: Site) -> None:
    page = site("typical").get(f"/processes/{RUNNING}").text
    assert re.findall(r'<li class="([a-z-]+)"', page) == ["done", "done", "current", "to-come", "to-come"]
    assert page.count('class="bar ') >= 8
    assert "5 of 12 done" in words(page)
    assert "12 of 12 tasks" in words(page)
    assert "day=2026-01-07" in page


def test_a_unique_prefix_finds_the_process(site: Site) -> None:
    assert site("typical").get("/processes/0199aaaa").status_code == 200


def test_a_process_that_is_not_known_is_not_found(site: Site) -> None:
    answer = site("typical").get("/processes/0199ffff-0001-7000-8000-000000000000")
    assert answer.status_code == 404
    assert "0199ffff" in answer.text


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
    assert "files copied 1 files encoded 2 encoded since its column" in words(page)
    assert "its column &#39;&lt;b&gt;&#39; has no type (2 files)" in page


def test_a_failure_is_told_whole(site: Site) -> None:
    page = site("failing").get(f"/processes/{FAILED}").text
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
    assert "100 of 250 tasks" in words(first)
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following is not None
    second = client.get(following[1].replace("&amp;", "&")).text
    assert '<td class="number">101</td>' in second
    assert '<td class="number">100</td>' not in second


def test_tasks_are_filtered_by_status(site: Site) -> None:
    page = site("typical").get(f"/processes/{RUNNING}?status=planned").text
    assert "4 of 4 tasks" in words(page)


def test_a_process_of_very_many_tasks_shows_how_busy_its_threads_were(site: Site) -> None:
    page = site(lambda db: many(db, 2500)).get(f"/processes/{RUNNING}").text
    assert 'class="load l' in page
    assert 'class="bar ' not in page


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


def test_cancelling_what_has_ended_says_why_not(site: Site) -> None:
    answer = site("typical").post(f"/processes/{ENDED}/cancel")
    assert answer.status_code in (409, 422)
    assert ENDED in answer.text


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


def test_starting_what_runs_is_refused(site: Site) -> None:
    answer = site("typical").post(f"/processes/{RUNNING}/start")
    assert answer.status_code in (409, 422)


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
