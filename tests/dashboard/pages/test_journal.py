"""Events, audit and queue."""

import pytest

from amoro_core.model.journal import About, Event, EventKind
from amoro_core.store import events, optimizers
from amoro_core.store.database import Connection
from tests.dashboard import states
from tests.dashboard.pages.conftest import Site
from tests.dashboard.pages.test_processes import RUNNING, words
from tests.store import builders


@pytest.mark.parametrize("state", states.STATES)
@pytest.mark.parametrize("path", ["/events", "/audit", "/queue"])
def test_each_page_is_shown_in_each_state(site: Site, path: str, state: str) -> None:
    answer = site(state).get(path)
    assert answer.status_code == 200
    assert "The same as a command:" in answer.text


def happen(db: Connection) -> None:
    (one,) = states.fill(db, 1)
    for name in ("optimizer-1", "optimizer-2"):
        optimizers.add(db, builders.optimizer(name))
    states.running(db, one)
    for number in range(150):
        kind = EventKind.FAILED if number % 50 == 0 else EventKind.PLANNED
        about = About(1, "lake.sales.orders", process_id=RUNNING)
        events.add(db, Event(kind, states.now(), f"event {number}", about))


def test_events_come_a_hundred_on_a_page_the_newest_first(site: Site) -> None:
    client = site(happen)
    first = words(client.get("/events").text)
    assert "100 of 150 events" in first
    assert first.index("event 149") < first.index("event 148")


def test_events_are_filtered_by_kind_table_and_process(site: Site) -> None:
    client = site(happen)
    assert "3 of 3 events" in words(client.get("/events?kind=failed&table=lake.sales.orders").text)
    assert "amoro event list --kind=failed" in client.get("/events?kind=failed").text
    assert "150" in words(client.get(f"/events?process={RUNNING}").text)
    wrong = client.get("/events?kind=faild")
    assert wrong.status_code == 400
    assert "Did you mean failed?" in wrong.text


def test_an_action_on_a_page_is_in_the_audit(site: Site) -> None:
    client = site("typical")
    assert "Nobody has changed anything yet." in client.get("/audit").text
    client.post(f"/processes/{RUNNING}/cancel")
    page = words(client.get("/audit").text)
    assert "1 of 1 calls" in page
    assert "CancelProcess" in page
    assert "page" in page
    assert "No call matches." in client.get("/audit?outcome=refused").text


def test_what_waits_is_listed_in_its_order(site: Site) -> None:
    client = site("typical")
    page = words(client.get("/queue").text)
    assert "1 of 1 tables, by group" in page
    assert "18 fragments, 2 partitions" in page
    assert "1 of 1 processes, by group" in page
    assert "default" in page
    assert "No table waits for a plan." in client.get("/queue?group=nightly").text
