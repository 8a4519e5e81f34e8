"""What every page has: parameters that are checked, errors as pages, notices, characters that can't be seen."""

from datetime import timedelta

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from amoro_core.dashboard.pages import site as site_module
from amoro_core.dashboard.pages.kept import Kept
from amoro_core.dashboard.pages.urls import to, to_table, within
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit, whole_number
from amoro_core.dashboard.pages.wording import ago, look, moment, whole
from amoro_core.errors import CommitUnknown, InvalidArgument
from amoro_core.model.tables import OptimizingStatus
from tests.dashboard.pages.conftest import Site


def test_an_unknown_parameter_or_value_is_refused_with_the_nearest(site: Site) -> None:
    client = site("empty")
    for query, hint in (("statsu=idle", "Did you mean status?"), ("status=idel", "Did you mean idle?")):
        answer = client.get(f"/tables?{query}")
        assert answer.status_code == 400
        assert hint in answer.text


def test_an_empty_parameter_is_none(site: Site) -> None:
    assert site("empty").get("/tables?status=&text=").status_code == 200


def test_an_error_of_an_operation_is_a_page_with_its_status_code_and_hint(site: Site) -> None:
    answer = site("empty").get("/tables?catalog=nowhere")
    assert answer.status_code == 404
    assert "catalog &#39;nowhere&#39; is not known" in answer.text
    assert "AMORO-3001" in answer.text


def test_the_page_of_an_error_tells_its_hint_or_its_remedy() -> None:
    told = site_module.failed(CommitUnknown("no answer"))
    assert (told.status, told.values["hint"]) == (409, CommitUnknown.remedy)
    assert site_module.failed(InvalidArgument("no", hint="yes")).values["hint"] == "yes"


def test_who_is_not_known_is_led_to_the_login_and_back(site: Site) -> None:
    client = site("empty")
    del client.headers["Authorization"]
    answer = client.get("/tables?status=idle")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Ftables%3Fstatus%3Didle")


def test_a_number_may_have_as_many_digits_as_ids_of_snapshots_have() -> None:
    assert whole_number(str(2**63 - 1), "snapshot", 2**63 - 1) == 2**63 - 1
    with pytest.raises(InvalidArgument):
        whole_number(str(2**63), "snapshot", 2**63 - 1)


def test_a_notice_is_told_once(site: Site) -> None:
    async def act(visit: Visit) -> Gone:
        return Gone("/shown?text=a", "It is done: <b>", "wait")

    async def show(visit: Visit) -> Shown:
        visit.query(text=())
        return Shown("confirm.html", "Shown", CONFIRMATION)

    client = _of(site("empty"), lambda made: [made.action("/act", act), made.page("/shown", show)])
    assert client.get("/act").status_code == 405
    there = client.post("/act", headers={"Sec-Fetch-Site": "same-origin"})
    assert there.status_code == 303
    first, second = client.get(there.headers["location"]), client.get(there.headers["location"])
    assert '<p class="notice wait" role="status">It is done: &lt;b&gt;</p>' in first.text
    assert second.status_code == 200
    assert "It is done" not in second.text


def test_what_is_kept_goes_with_its_time_and_the_oldest_where_there_is_too_much() -> None:
    now = 0.0
    kept: Kept[str] = Kept(2, timedelta(seconds=10), lambda: now)
    first, second, third = map(kept.add, ("first", "second", "third"))
    assert [kept.find(key) for key in (first, second, third)] == [None, "second", "third"]
    assert (kept.take(third), kept.take(third)) == ("third", None)
    now = 9.9
    assert kept.find(second) == "second"
    now = 10.0
    assert kept.find(second) is None


CONFIRMATION = {"back": "/", "effects": (), "fields": (), "target": "/", "label": "", "same": "", "is_grave": False}


def _of(client: TestClient, routes: "object") -> TestClient:
    """The client of an application with further routes."""
    app = client.app
    app.router.routes.extend(routes(site_module.Site()))
    return client


@pytest.mark.parametrize("text", ["a\u202eb", "a\x1bb", "a\x00b", "\ufeffa", "a\u2028b"])
def test_characters_that_cannot_be_seen_are_shown_escaped(site: Site, text: str) -> None:
    async def show(visit: Visit) -> Shown:
        return Shown("confirm.html", text, {**CONFIRMATION, "effects": (text,)})

    page = _of(site("empty"), lambda made: [made.page("/shown", show)]).get("/shown").text
    assert text not in page
    assert page.count(repr(text)[1:-1]) == 3 + 1  # title, heading, label, effect


def test_paths_are_made_of_encoded_parts() -> None:
    assert to("tables", "a.b c/?#%.t", after="x y", text="") == "/tables/a.b%20c%2F%3F%23%25.t?after=x+y"
    assert to_table("lake.db.t", 7, "files") == "/tables/lake.db.t/files"
    assert to_table("lake.`d/b`.t", 7, "files") == "/tables/7/files"


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/tables?a=b", "/tables?a=b"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_a_path_given_by_a_visitor_stays_on_this_site(path: str, leads_to: str) -> None:
    assert within(path) == leads_to


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "11", "9" * 30, "٣"])
def test_a_number_out_of_its_bounds_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is no score"):
        whole_number(text, "score", 10)


def test_a_number_within_its_bounds_is_taken() -> None:
    assert [whole_number(text, "score", 10) for text in ("", "0", "10")] == [None, 0, 10]


def test_a_form_with_an_unknown_field_is_refused(site: Site) -> None:
    async def act(visit: Visit) -> Gone:
        return Gone("/" + (await visit.form("kind"))["kind"])

    client = _of(site("empty"), lambda made: [made.action("/act", act)])
    own = {"Sec-Fetch-Site": "same-origin"}
    assert client.post("/act", data={"kind": " a "}, headers=own).headers["location"] == "/a"
    refused = client.post("/act", data={"knid": "a"}, headers=own)
    assert (refused.status_code, "Did you mean kind?" in refused.text) == (400, True)


def test_times_are_told_in_utc_and_marked_for_the_script() -> None:
    assert moment(0) == "never"
    assert moment(1000) == '<time datetime="1970-01-01T00:00:01.000+00:00">1970-01-01 00:00:01Z</time>'
    assert 'title="1970-01-01 00:00:01Z"' in ago(1000)
    assert " d ago</time>" in ago(1000)


def test_a_text_of_lines_stays_whole_and_is_escaped() -> None:
    assert whole("a <b>\n\x1b[0m\u202e") == "a &lt;b&gt;\n\\x1b[0m\\u202e"


def test_every_status_of_a_table_has_a_look() -> None:
    assert {status for status in OptimizingStatus if not look(status)} == set()


def test_routes_name_a_page_or_an_action_each() -> None:
    made = site_module.Site()

    async def view(visit: Visit) -> Shown:
        raise NotImplementedError

    page, action = made.page("/a", view), made.action("/a", view)
    assert isinstance(page, Route)
    assert (page.methods, action.methods) == ({"GET", "HEAD"}, {"POST"})
