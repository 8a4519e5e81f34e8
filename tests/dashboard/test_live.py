"""Live updates: which hints a stream gives, how many streams there may be, and fragments that are rendered once."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from amoro_core.dashboard.live import MOST_TOPICS, Streams, Watched, parse
from amoro_core.dashboard.pages.fragments import Fragment, Fragments
from amoro_core.model.processes import ResourceGroup
from amoro_core.revisions import Revisions
from amoro_core.settings import Settings
from tests.dashboard.served import Served, serving

TABLES, GROUPS = ("tables", ""), ("groups", "")


# --- hints ---


def test_subjects_are_topics_with_or_without_an_id() -> None:
    assert parse("processes,tables:17") == [("processes", ""), ("tables", "17")]


@pytest.mark.parametrize("text", ["", ",", "Tables", "tables:", "tables:a b", ",".join(["a"] * (MOST_TOPICS + 1))])
def test_what_is_no_list_of_subjects_is_refused(text: str) -> None:
    assert parse(text) is None


def test_only_what_changed_since_the_page_was_rendered_is_told() -> None:
    known = Revisions()
    known.note([("tables", "1")])
    watched = Watched(known, [TABLES, GROUPS], known.latest)
    assert watched.due(0) == []
    known.note([("groups", "fast")])
    assert watched.due(1) == [(GROUPS, 2)]
    assert watched.due(9) == []


def test_a_page_is_told_once_a_second_at_most_and_nothing_is_left_out() -> None:
    known = Revisions()
    watched = Watched(known, [TABLES], 0)
    known.note([("tables", "1")])
    assert watched.due(0) == [(TABLES, 1)]
    known.note([("tables", "1")])
    assert watched.due(0.99) == []
    assert watched.due(1.0) == [(TABLES, 2)]


def test_a_page_is_told_of_all_its_topics_at_once() -> None:
    known = Revisions()
    watched = Watched(known, [TABLES, GROUPS], 0)
    known.note([("tables", "1")])
    assert watched.due(0) == [(TABLES, 1)]
    known.note([("groups", "fast")])
    known.note([("tables", "1")])
    assert watched.due(0.5) == []
    assert watched.due(1) == [(TABLES, 3), (GROUPS, 2)]


def test_streams_come_to_tell_at_the_same_time() -> None:
    known = Revisions()
    early, late = Watched(known, [TABLES], 0), Watched(known, [TABLES], 0)
    known.note([("tables", "1")])
    assert early.due(0) == late.due(0.5) == [(TABLES, 1)]
    known.note([("tables", "1")])
    assert early.due(1) == late.due(1) == [(TABLES, 2)]


def test_all_streams_of_a_tick_tell_of_one_revision_and_of_later_ones_afterwards() -> None:
    known, streams = Revisions(), Streams(9)
    early, late = Watched(known, [TABLES], 0), Watched(known, [TABLES], 0)
    known.note([("tables", "1")])
    assert early.due(5.0, streams.latest(known, 5.0)) == [(TABLES, 1)]
    known.note([("tables", "1")])
    assert late.due(5.1, streams.latest(known, 5.1)) == [(TABLES, 1)]
    assert late.position == 1
    assert streams.latest(known, 5.4) == 1
    for watched in (early, late):
        assert watched.due(6.0, streams.latest(known, 6.0)) == [(TABLES, 2)]


def test_a_change_of_another_subject_of_the_topic_is_not_told() -> None:
    known = Revisions()
    watched = Watched(known, [("tables", "1")], 0)
    known.note([("tables", "2")])
    assert watched.due(0) == []


def test_a_stream_that_follows_begins_where_nothing_is_missed() -> None:
    known = Revisions()
    watched = Watched(known, [TABLES, GROUPS], 0)
    known.note([("tables", "1"), ("groups", "fast")])
    known.note([("tables", "1")])
    watched.due(0)
    assert watched.position == known.of(*GROUPS)


def test_after_a_restart_everything_is_told() -> None:
    before = Revisions(start=1_000_000)
    before.note([("tables", "1")])
    after = Revisions(start=2_000_000)
    assert Watched(after, [TABLES, ("processes", "x")], before.latest).due(0) == [
        (TABLES, 2_000_000),
        (("processes", "x"), 2_000_000),
    ]


# --- streams of a coordinator ---


@contextmanager
def stream(served: Served, topics: str, since: int, token: str = "") -> Iterator[HTTPResponse]:
    with closing(HTTPConnection("127.0.0.1", served.port, timeout=60)) as connection:
        headers = {"Authorization": f"Bearer {token or served.admin}"}
        connection.request("GET", f"/events/stream?topics={topics}&since={since}", headers=headers)
        yield connection.getresponse()


def hint(answer: HTTPResponse) -> tuple[int, dict[str, object]]:
    """The next hint, with its place in the stream."""
    place = 0
    while line := answer.readline().decode().strip() or "-":
        kind, _, text = line.partition(": ")
        if kind == "id":
            place = int(text)
        if kind == "data":
            return place, json.loads(text)
    raise AssertionError


def test_a_change_is_told_to_those_who_show_it(served: Served) -> None:
    with stream(served, "groups,tables:1", 0) as answer:
        assert answer.status == 200
        assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
        assert answer.getheader("x-accel-buffering") == "no"
        assert answer.getheader("cache-control") == "no-store"
        first = [hint(answer) for _ in range(2)]
        assert [told["topic"] for _, told in first] == ["groups", "tables"]
        served.coordinator.groups.create(ResourceGroup("told-of"))
        place, told = hint(answer)
        assert told["topic"] == "groups"
        assert place > 0
    with stream(served, "groups", int(str(told["revision"]))) as later:
        served.coordinator.groups.remove("told-of")
        assert hint(later)[1]["topic"] == "groups"


def test_a_stream_needs_a_token_and_subjects(served: Served) -> None:
    with stream(served, "groups", 0, "amo_wrong") as answer:
        assert answer.status == 401
    assert served.ask("/events/stream?topics=groups&since=0", token="").status == 401
    for query in ("topics=groups", "since=0", "topics=Groups&since=0", "topics=groups&since=-1"):
        assert served.ask(f"/events/stream?{query}").status == 400, query


def test_streams_are_bounded_and_their_places_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with serving(tmp_path / "home", replace(Settings(), http_streams=2)) as served:
        with stream(served, "groups", 0) as one, stream(served, "groups", 0) as two:
            assert [one.status, two.status] == [200, 200]
            hint(one), hint(two)
            refused = served.ask("/events/stream?topics=groups&since=0")
            assert (refused.status, refused.headers["retry-after"]) == (503, "10")
        for _ in range(200):  # until the server has noticed that they left
            with stream(served, "groups", 0) as again:
                if again.status == 200:
                    hint(again)
                    return
        raise AssertionError("no place was given back")


# --- fragments ---


class Pages:
    """Makes fragments of groups, and counts them."""

    def __init__(self) -> None:
        self.made = 0
        self.meanwhile = lambda: None

    async def __call__(self) -> Fragment | None:
        self.made += 1
        content = f"page {self.made}".encode()
        await asyncio.sleep(0)
        self.meanwhile()
        return Fragment(content, (GROUPS,))


def test_those_who_ask_at_once_share_what_is_rendered() -> None:
    async def run() -> None:
        known, kept, page = Revisions(), Fragments(), Pages()
        asked = [kept.get(("/groups", "viewer"), known, page) for _ in range(50)]
        assert set(await asyncio.gather(*asked)) == {b"page 1"}
        assert await kept.get(("/groups", "admin"), known, page) == b"page 2", "who may do more sees more"

    asyncio.run(run())


def test_a_change_makes_a_fragment_anew() -> None:
    async def run() -> None:
        known, kept, page = Revisions(), Fragments(), Pages()
        key = ("/groups", "viewer")
        await kept.get(key, known, page)
        known.note([("tables", "1")])
        assert await kept.get(key, known, page) == b"page 1"
        known.note([("groups", "fast")])
        assert await kept.get(key, known, page) == b"page 2"

    asyncio.run(run())


def test_what_changed_while_it_was_rendered_is_made_anew_for_who_asks_for_now() -> None:
    async def run() -> None:
        known, kept, page = Revisions(), Fragments(), Pages()
        page.meanwhile = lambda: known.note([("groups", "fast")])
        await kept.get(("/groups",), known, page)
        page.meanwhile = lambda: None
        assert await kept.get(("/groups",), known, page) == b"page 2"

    asyncio.run(run())


def test_pages_that_are_told_at_once_share_a_fragment_while_all_changes_all_the_time() -> None:
    async def run() -> None:
        known, kept, page = Revisions(), Fragments(), Pages()
        page.meanwhile = lambda: known.note([("groups", "fast")])
        page.meanwhile()
        for hint, expected in (
            (1, b"page 1"),
            (1, b"page 1"),
            (2, b"page 2"),
            (2, b"page 2"),
            (1, b"page 2"),
            (9, b"page 3"),
        ):
            assert await kept.get(("/groups",), known, page, hint) == expected
        assert await kept.get(("/groups",), known, page) == b"page 4", "who follows no hint sees what there is now"

    asyncio.run(run())


def test_an_open_page_gets_its_content_alone(served: Served) -> None:
    page = served.ask("/groups")
    assert 'data-topics="groups,optimizers,processes"' in page.body
    part = served.ask("/groups", headers={"Amoro-Fragment": "1"})
    assert part.status == 200
    assert "<html" not in part.body
    assert "Optimizer groups by name" in part.body
    shared = served.ask("/groups", headers={"Amoro-Fragment": "1", "Amoro-Hint": "1"})
    assert shared.body == part.body
    for hint in ("-1", "x", "9" * 30):
        assert served.ask("/groups", headers={"Amoro-Fragment": "1", "Amoro-Hint": hint}).status == 200
    assert served.ask("/settings", headers={"Amoro-Fragment": "1"}).status == 404, "it is not live"
    assert served.ask("/groups", headers={"Amoro-Fragment": "1"}, token="").status == 404, "it leads to the login"


def test_a_stream_ends_whole_when_the_coordinator_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with serving(tmp_path / "home") as served:
        connection = HTTPConnection("127.0.0.1", served.port, timeout=60)
        headers = {"Authorization": f"Bearer {served.admin}"}
        connection.request("GET", "/events/stream?topics=groups&since=0", headers=headers)
        answer = connection.getresponse()
        hint(answer)
    answer.read()  # a stream that was cut off raises IncompleteRead
    connection.close()
