"""What every page has: checked parameters, errors, notices, links, foreign texts; the overview and the catalogs."""

import html
import re
import time
from html.parser import HTMLParser

from amoro_core.errors import CommitUnknown, InvalidArgument
from amoro_core.model.history_events import About, Event, EventKind
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.store import events, groups
from amoro_core.store.connection import Connection
from amoro_core.web import pages
from tests.dashboard import states
from tests.dashboard.conftest import OWN, Site, asked_of, words
from tests.dashboard.strangers import PAYLOADS
from tests.store import builders
from tests.tiers import sample

# What every page has: parameters that are checked, errors as pages, notices, characters that can't be seen


def test_an_error_of_an_operation_is_a_page_with_its_status_code_and_hint_or_remedy(site: Site) -> None:
    client = site("empty")
    answer = client.get("/tables?catalog=nowhere")
    assert answer.status_code == 404
    assert "catalog &#39;nowhere&#39; is not known" in answer.text
    assert "AMORO-3001" in answer.text
    wrong = InvalidArgument("no", hint="write it so")
    for error, status, told in ((CommitUnknown(""), 409, CommitUnknown.remedy), (wrong, 400, "write it so")):
        asked_of(client).answers["ListCatalogs"] = error
        answer = client.get("/catalogs")
        assert (answer.status_code, told in words(answer.text)) == (status, True)


def test_an_error_stands_in_the_red_box_with_its_sentence_and_a_link(site: Site) -> None:
    client = site("typical")
    asked_of(client).answers["ListGroups"] = RuntimeError("boom")
    for path, status, told, on in (
        ("/processes/0199ffff-ffff", 404, "0199ffff-ffff", "/processes"),
        ("/tables?sort=none", 400, "&#39;none&#39; is not a value of sort.", "/tables"),
        ("/no/such/page", 404, "there is no page /no/such/page.", "/"),
        ("/maintenance/run", 405, "/maintenance/run is no page: a form is sent there.", "/maintenance"),
        ("/groups", 500, "internal error: RuntimeError: boom.", "/groups"),
        ("/tables/lake.sales.orders/files/list", 500, "", "/tables/lake.sales.orders"),
    ):
        answer = client.get(path, headers={"Accept": "text/html"})
        box = answer.text.partition('<div class="notice bad" role="alert">')[2].partition("</div>")[0]
        assert (answer.status_code, told in box, f'<a href="{on}">' in box) == (status, True, True), answer.text
        assert '<nav class="nav side"' in answer.text
    plain = client.get("/no/such/page", headers={"Accept": "*/*"})
    assert (plain.status_code, plain.text) == (404, "Not Found")
    del client.headers["Authorization"]
    for path in ("/login", "/no/such/page"):
        assert "<nav" not in client.get(path, headers={"Accept": "text/html"}).text, "no menu for who is not known"


def test_each_form_says_what_is_wrong_and_where_its_catalog_has_stopped(site: Site) -> None:
    client, headers = site("typical"), {**OWN, "Accept": "text/html"}
    held = {"table": "lake.sales.orders", "process": "0199aaaa-0001-7000-8000-000000000000", "catalog": "lake"}
    held |= {"group": "default", "optimizer": "optimizer-1", "instance": "i", "user": "u", "token": "t", "blocker": "b"}
    held |= {"statement_id": "s"}
    told = {}
    for route in pages.routes():
        if "POST" not in route.methods or route.path.startswith("/log"):
            continue
        path = re.sub(r"\{(\w+)\}", lambda name: held[name[1]], route.path)
        for form in ({"no_field": "x"}, {}):
            answer = client.post(path, data=form, headers=headers)
            page = client.get(answer.headers["location"]) if answer.status_code == 303 else answer
            box = re.search(r'class="notice \w+" role="(?:alert|status)"[^>]*>(.*?)</(?:div|p)>', page.text, re.DOTALL)
            told[route.path, *form] = (answer.status_code, words(box[1]) if box else page.text)
    for (path, *form), (status, text) in told.items():
        assert 400 <= status < 500 or not form, (path, text)
        assert "internal error" not in text, (path, text)
        assert 3 <= len(text.split()) < 200, (path, form, status, text)
    assert "the database /w/c.db does not exist" in told["/tables/{table}/schema",][1]


def test_an_action_takes_forms_alone_and_no_unknown_field_and_its_notice_is_told_once(site: Site) -> None:
    client = site("typical")
    assert client.get("/optimizers/optimizer-1/release").status_code == 200
    assert client.get("/system/check").status_code == 405
    refused = client.post("/tables/1/block", data={"mintues": "5"}, headers=OWN)
    assert (refused.status_code, "Did you mean minutes?" in refused.text) == (400, True)
    there = client.post("/tables/1/block", data={"minutes": "5", "reason": "<b>"}, headers=OWN)
    first, second = client.get(there.headers["location"]), client.get(there.headers["location"])
    assert '<p class="notice ' in first.text
    assert second.status_code == 200
    assert '<p class="notice ' not in second.text


def test_characters_that_cannot_be_seen_are_shown_escaped(site: Site) -> None:
    client, signs = site("typical"), ("\u202e", "\x1b", "\ufeff", "\u2028")
    listed = [pb.Group(name=f"a{sign}b") for sign in signs]
    asked_of(client).answers["ListGroups"] = pb.ListGroupsResponse(groups=listed, total=len(listed))
    page = client.get("/groups").text
    assert [sign for sign in signs if sign in page or repr(f"a{sign}b")[1:-1] not in page] == []


def test_levels_of_groups_are_added_step_by_step(site: Site) -> None:
    client = site("typical")
    start = int(time.time()) // 600 * 600_000 - 3_600_000

    def point(minutes: int, *values: int) -> journal.SeriesPoint:
        return journal.SeriesPoint(from_ms=start + minutes * 60_000, n=len(values), sum=sum(values))

    series = [
        journal.Series(name="threads-busy", label="a", points=[point(0, 2, 4), point(10, 1)]),
        journal.Series(name="threads-busy", label="b", points=[point(10, 3, 4), point(20, 9)]),
    ]
    asked_of(client).answers["GetSeries"] = journal.GetSeriesResponse(step_s=600, series=series)
    figures = re.findall(r"\d\d:\d\d (9|4\.5|3) ", words(client.get("/").text))
    assert figures == ["9", "4.5", "3"]  # the newest first


def test_the_overview_counts_with_links_to_the_rows(site: Site) -> None:
    client = site("typical")
    page = client.get("/").text
    tiles = dict(re.findall(r'<a class="tile" href="([^"]*)"><span class="figure">([^<]*)</span>', page))
    assert tiles["/tables"] == "30"
    assert tiles["/processes?status=running"] == "1"
    for url, figure in tiles.items():
        if url.startswith("/tables"):
            total = re.search(r"Tables: \S+ of ([\d,+]+)", client.get(url.replace("&amp;", "&")).text)
            assert (total[1] if total else "0") == figure, url
    assert "0199aaaa-0001-7000" in page


def test_a_catalog_that_does_not_answer_is_told_by_its_check(site: Site) -> None:
    client = site(lambda db: states.fill(db, 1))
    assert "last look not asked since the start" in words(client.get("/catalogs").text)
    done = client.post("/catalogs/lake/check", headers=OWN)
    assert "last look no answer" in words(client.get("/catalogs").text)
    assert done.status_code == 303
    page = client.get(done.headers["location"]).text
    assert '<p class="notice bad" role="status">lake: [AMORO-' in page
    assert client.post("/catalogs/nothing/check", headers=OWN).status_code == 404


#: Links of which one stands for all that differ in the numbers and names within.
_ALIKE = re.compile(r"(?<=/tables/)[^/?#]+|(?<=/processes/)[^/?#]+|(?<=[?&])(?:after|table|process)=[^&]*")


def test_every_link_leads_to_a_page(site: Site) -> None:
    client, waiting, seen, broken = site("typical"), ["/"], set[str](), []
    while waiting:
        path = waiting.pop()
        shape = _ALIKE.sub("*", path)
        # The list of files reads the table, whose catalog is not there.
        if shape in seen or path.endswith("/files/list") or not path.startswith("/"):
            continue
        seen.add(shape)
        answer = client.get(path)
        if answer.status_code != 200:
            broken.append((path, answer.status_code))
            continue
        links = re.findall(r' href="([^"]*)"', answer.text)
        waiting += [html.unescape(link).partition("#")[0] or "/" for link in links]
    assert broken == []
    assert {"/tables", "/tables/*", "/tables/*/plan", "/processes/*", "/groups/default", "/queue"} <= seen


ENDED = "0199bbbb-0001-7000-8000-000000000000"


def test_every_link_to_a_table_with_a_slash_in_its_name_leads_to_its_number(site: Site) -> None:
    """Servers decode %2F before they find the route; a link by such a name would lead nowhere."""

    def fill(db: Connection) -> None:
        (one,) = states.fill(db, 1, identifier=TableIdentifier("lake", ("a/b",), "t"))
        for number in (1, 2):
            groups.add_optimizer(db, builders.optimizer(f"optimizer-{number}", registered_at=states.now()))
        states.running(db, one)
        about = About(one.table_id, str(one.identifier), ENDED)
        events.add(db, Event(EventKind.PLANNED, states.now(), "it was planned", about))
        states.condemn(db, one, ENDED)

    client = site(fill)
    of_processes = ("/processes", f"/processes/{ENDED}", "/trash", f"/trash/{ENDED}")
    for path in ("/", "/tables", "/events", "/groups/default", *of_processes):
        page = client.get(path).text
        links = {html.unescape(link) for link in re.findall(r' href="(/tables[/?][^"]*)"', page)}
        assert any(link.startswith("/tables/1") for link in links), path
        assert [link for link in links if "a/b" in link or "a%2Fb" in link] == [], path
        for link in links:
            assert client.get(link).status_code == 200, (path, link)


class Marks(HTMLParser):
    """The elements of a page that foreign text must not make, and attributes that run or lead elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "script" and not (given.get("src") or "").startswith("/static/"):
            self.wrong.append(f"script {given}")
        if tag in ("img", "iframe", "object", "embed", "base"):
            self.wrong.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.wrong.append(f"{tag} {name}")
            if name in ("href", "src", "action") and not re.match(r"/(?!/)|#|\?", value or ""):
                self.wrong.append(f"{tag} {name}={value}")


def test_what_a_visitor_sends_is_text(site: Site) -> None:
    client = site("typical")
    for payload in sample(PAYLOADS, every=7):
        for answer in (
            client.get("/tables", params={"text": payload, "namespace": "a"}),
            client.get("/tables", params={"status": payload}),
            client.get("/tables", params={payload: payload}),
            client.get(f"/tables/{payload.replace('/', '')}"),
            client.get("/tables/1/plan", params={"kept": payload}),
            client.post("/tables/1/block", data={"minutes": payload, "reason": payload}, headers=OWN),
        ):
            assert answer.status_code < 500, answer.text
            assert Marks(answer.text).wrong == []
