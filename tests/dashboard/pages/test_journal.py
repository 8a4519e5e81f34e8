"""Events, audit and queue."""

import html
import re
from collections import Counter

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


def listed(page: str) -> tuple[list[str], list[str]]:
    """The tables that wait for a plan, and the processes that wait for a thread."""
    pending, _, waiting = page.partition("<h2>Waiting for a thread")
    return (
        re.findall(r'<td class="name"><a href="/tables/([^"]+)"', pending),
        re.findall(r'<a href="/processes/([^"]+)"', waiting),
    )


def following(page: str, noun: str) -> str:
    """The address of the list's next page; "" on its last, and where there is one page only."""
    found = re.search(rf'aria-label="Pages of the list of {noun}">(.*?)</nav>', page, re.DOTALL)
    link = re.search(r'<a rel="next" href="([^"]+)"', found[1]) if found else None
    return html.unescape(link[1]) if link else ""


def test_each_list_of_the_queue_has_pages_of_its_own(site: Site) -> None:
    client = site(states.long_queue)
    page = client.get("/queue").text
    assert "100 of 230 tables, by group" in words(page)
    assert "100 of 130 processes, by group" in words(page)
    first = listed(page)
    onward = client.get(following(page, "processes")).text
    assert (listed(onward)[0], len(listed(onward)[1])) == (first[0], 30)
    assert following(onward, "processes") == ""
    tables, processes = Counter(first[0]), Counter(first[1]) + Counter(listed(onward)[1])
    page = onward
    while address := following(page, "tables"):
        page = client.get(address).text
        tables.update(listed(page)[0])
        assert listed(page)[1] == listed(onward)[1]
    assert (len(tables), len(processes)) == (230, 130)
    assert {*tables.values(), *processes.values()} == {1}
    assert '<td class="number">230</td>' in page
    assert "The queue has moved" not in page
    back = re.findall(r'<a href="([^"]+)">First page</a>', page)
    again = client.get(html.unescape(back[0])).text
    assert (listed(again)[0], listed(again)[1]) == (first[0], listed(onward)[1])


def test_a_queue_that_has_moved_says_so_on_its_next_page(site: Site) -> None:
    client = site(states.long_queue)
    page = client.get("/queue").text
    first, onward = listed(page)[1], following(page, "processes")
    assert client.post(f"/processes/{first[0]}/cancel").status_code == 303
    page = client.get(onward).text
    assert "The queue has moved since the page before" in page
    assert '<a href="/queue">Show it from the start</a>' in page
    assert len({*first, *listed(page)[1]}) == 130


def test_a_cursor_that_is_none_or_of_another_list_is_refused_on_the_page(site: Site) -> None:
    client = site(states.long_queue)
    address = following(client.get("/queue").text, "tables")
    wrong = (address.replace("pending=", "waiting="), f"{address}&group=default", "/queue?pending=nothing")
    for path in wrong:
        answer = client.get(path)
        assert answer.status_code == 400
        assert "start without one" in answer.text
