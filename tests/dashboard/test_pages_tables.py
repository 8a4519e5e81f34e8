"""Tables: the list, one of them by its pages, and what may be done with it."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table
from starlette.testclient import TestClient

from amoro_core.model.history_events import About, Event, EventKind
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import Saving, TableIdentifier, parse_table
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.store import catalogs, events, tables
from amoro_core.store.connection import Connection
from amoro_core.transactions.table_registry import new_table
from amoro_core.web.pages.tables import TABS
from tests.acceptance.tables import config_of
from tests.dashboard import states
from tests.dashboard.conftest import OWN, Site, asked_of, words
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.store import builders


def _names(page: str) -> list[str]:
    return re.findall(r'<td class="name"[^>]*><a href="[^"]*">([^<]*)</a>', page)


def _followed(client: TestClient, path: str) -> list[str]:
    """The names on the page and on all that follow it."""
    names = []
    while path:
        page = client.get(path)
        assert page.status_code == 200, page.text
        names += _names(page.text)
        following = re.search(r'<a rel="next" href="([^"]*)"', page.text)
        path = following[1].replace("&amp;", "&") if following else ""
    return names


def test_tables_are_listed_fifty_on_a_page_and_each_once(site: Site) -> None:
    client = site(lambda db: states.fill(db, 120))
    first = client.get("/tables").text
    assert len(_names(first)) == 50
    assert "Tables: 50 of 120" in first
    names = _followed(client, "/tables")
    assert len(names) == len(set(names)) == 120
    assert names == sorted(names)


def test_filters_are_those_of_the_operation_and_of_its_command(site: Site) -> None:
    client = site(lambda db: states.fill(db, 1))
    given = "catalog=lake&namespace=web&text=ORDERS&state=failing&refused=encryption&enabled=no&health_below=80&group=g"
    page = client.get(f"/tables?{given}").text
    (asked,) = [one for one in asked_of(client).requests if isinstance(one, pb.ListTablesRequest)]
    assert asked == pb.ListTablesRequest(
        catalog="lake", namespace="web", text="ORDERS", state="failing", refusal="encryption", enabled=False,
        health_below=80, group="g", limit=50,
    )  # fmt: skip
    assert "No known table matches" in page
    assert "<code>amoro table list --text ORDERS --catalog lake --namespace web --state failing --group g" in page


def _one(**fields: object) -> Callable[[Connection], object]:
    """A database with the table lake.sales.orders, which is number 1."""
    return lambda db: states.fill(db, 1, **fields)


def test_a_table_says_what_optimizing_would_save_and_lists_rank_by_it(site: Site) -> None:
    def fill(db: Connection) -> None:
        for number, saved in enumerate((3, 11, 0)):
            fields = dict(zip(("summary", "health"), states.summary(3), strict=True))
            name = TableIdentifier("lake", ("sales",), f"t{number}")
            tables.add(db, states.table(number, identifier=name, saving=Saving(saved, saved << 20), **fields))

    client = site(lambda db: (states.fill(db, 0), fill(db)))
    ranked = ["lake.sales.t1", "lake.sales.t0", "lake.sales.t2"]
    assert _names(client.get("/tables?sort=saving&order=desc").text) == ranked
    listed = words(client.get("/tables").text)
    assert "11 files of 11 MB 12 of 23" in listed, "and small files of files"
    page = words(client.get("/tables/lake.sales.t1").text)
    assert "it would save 11 files, by rewriting 11 MB small files 12 of 23 deletes 6 equality, 3 position" in page
    assert "it would save nothing now" in words(client.get("/tables/lake.sales.t2").text)
    worst = client.get("/").text.partition("The worst tables")[2]
    assert _names(worst) == ranked[:2]


def test_a_table_is_found_by_its_name_or_its_number(site: Site) -> None:
    client = site(_one(identifier=TableIdentifier("lake", ("a/b",), "t ?#%")))
    for below in ("", "/processes", "/enable", "/optimize"):
        answer = client.get(f"/tables/1{below}")
        assert (answer.status_code, "lake.a/b.`t ?#%`" in answer.text) == (200, True), answer.text
        assert ("/tables/1" in answer.text, "%2F" in answer.text) == (True, False)
    for name, status in (("lake.sales.nothing", 404), ("nowhere.sales.orders", 404), ("99", 404), ("x", 400)):
        assert client.get(f"/tables/{name}").status_code == status


def test_a_table_with_a_name_of_other_signs_is_led_to_by_its_name(site: Site) -> None:
    odd = TableIdentifier("lake", ("a b",), "t.?#%\n")
    client = site(_one(identifier=odd))
    (link,) = re.findall(r'<td class="name"[^>]*><a href="([^"]*)">', client.get("/tables").text)
    page = client.get(link)
    assert (page.status_code, "lake.`a b`.`t.?#%\\n`" in page.text) == (200, True)


def test_properties_are_those_of_the_last_look_with_defaults_and_origins(site: Site) -> None:
    def fill(db: Connection) -> None:
        catalogs.add(db, builders.catalog("lake", properties=(("table.self-optimizing.group", "nightly"),)))
        own = {"self-optimizing.quota": "0.9", "self-optimizing.filter": "a > 1", "self-optimizing.colour": "blue"}
        tables.add(db, states.table(0, properties=own))

    client = site(fill)
    page = words(client.get("/tables/1/properties").text)
    assert "self-optimizing.quota 0.9 0.5 table" in page
    assert "self-optimizing.group nightly default catalog" in page
    assert "self-optimizing.filter a &gt; 1 none table" in page
    assert "self-optimizing.max-file-count 10000 same default" in page
    assert "self-optimizing.colour blue none unknown: it has no effect" in page
    assert 'href="/tables/lake.sales.orders/disable"' in client.get("/tables/1/properties").text
    of_the_catalog = words(client.get("/tables/1/properties?origin=catalog").text)
    assert "self-optimizing.group nightly" in of_the_catalog
    assert "self-optimizing.quota" not in of_the_catalog
    wrong = client.get("/tables/1/properties?origin=catalogue")
    assert (wrong.status_code, "Did you mean catalog?" in wrong.text) == (400, True)


def test_a_table_is_blocked_and_released(site: Site) -> None:
    client = site(_one())
    done = client.post("/tables/1/block", data={"minutes": "30", "reason": "nightly <load>"}, headers=OWN)
    assert (done.status_code, done.headers["location"].split("?")[0]) == (303, "/tables/lake.sales.orders")
    page = client.get(done.headers["location"]).text
    assert "nightly &lt;load&gt;" in page
    assert "is blocked by" in page


def test_a_table_that_is_gone_tells_what_became_of_it(site: Site) -> None:
    def fill(db: Connection) -> None:
        states.fill(db, 1)
        name = TableIdentifier("lake", ("sales",), "old")
        text = "it is not in its catalog any more"
        events.add(db, Event(EventKind.GONE, states.now(), text, About(table_id=9, table=str(name))))

    client = site(fill)
    answer = client.get("/tables/lake.sales.old")
    assert answer.status_code == 404
    assert "it is not in its catalog any more" in answer.text
    assert '<a href="/tables?text=old">' in answer.text
    never = client.get("/tables/lake.sales.order").text
    assert "Nothing is known of a table lake.sales.order:" in never
    assert "Did you mean lake.sales.orders?" in never


AT = "/tables/cat.db.t"


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    """A table of five small files, each of its own commit."""
    catalog = writer.make_catalog(tmp_path)
    made = writer.make_table(catalog, "db.t", SCHEMA)
    for number in range(5):
        writer.append(made, [row(number, "a")])
    yield made
    catalog.close()


@pytest.fixture
def client(site: Site, table: Table) -> TestClient:
    def fill(db: Connection) -> None:
        catalogs.add(db, config_of(table.catalog))
        tables.add(db, new_table(parse_table("cat.db.t"), states.now()))

    return site(fill)


def test_the_catalog_the_schema_and_actions_are_read_on_request(client: TestClient) -> None:
    done = client.post("/catalogs/cat/check", headers=OWN)
    page = client.get(done.headers["location"]).text
    assert "cat answers: 1 table, listed in" in page
    assert "last look it answered" in words(page)
    assert "Read the schema" in client.get(f"{AT}/schema").text
    done = client.post(f"{AT}/schema", headers=OWN)
    assert (done.status_code, done.headers["location"]) == (303, f"{AT}/schema")
    page = words(client.get(f"{AT}/schema").text)
    first = SCHEMA.fields[0]
    assert f"{first.field_id} {first.name} {first.field_type}" in page
    assert "The table is not partitioned." in page
    assert "No action was scheduled or run on this table yet." in client.get(f"{AT}/maintenance").text
    page = words(client.post(f"{AT}/maintenance", headers=OWN).text)
    assert "expire-snapshots" in page
    assert "As the table is now." in page


def test_snapshots_are_read_remembered_compared_and_their_fates_told(client: TestClient, table: Table) -> None:
    done = client.post(f"{AT}/snapshots", headers=OWN)
    assert (done.status_code, done.headers["location"]) == (303, f"{AT}/snapshots")
    page = words(client.get(f"{AT}/snapshots").text)
    assert "5 of 5 snapshots, as read at" in page
    assert "The next expiry takes none of them" in page
    assert "stays:" in page
    first, *_, last = [one.snapshot_id for one in table.refresh().snapshots()]
    page = words(client.get(f"{AT}/snapshots", params={"before": first, "after": last}).text)
    assert "data files 1 5 +4" in page


def test_a_plan_is_kept_and_carried_out_unless_it_has_changed(client: TestClient, table: Table) -> None:
    planned = client.post(f"{AT}/plan", data={"type": "full", "where": ""}, headers=OWN)
    assert planned.status_code == 303, planned.text
    page = client.get(planned.headers["location"]).text
    assert "Full optimizing, 1 task" in words(page)
    assert "<code>amoro plan cat.db.t --explain --type full</code>" in page
    assert "Copying: every row is encoded anew: the row groups of each file are smaller than 8 MiB" in words(page)
    key = planned.headers["location"].partition("kept=")[2]

    writer.append(table.refresh(), [row(9, "a")])
    changed = client.post(f"{AT}/plan/run", data={"kept": key}, headers=OWN)
    page = words(client.get(changed.headers["location"]).text)
    assert "The plan has changed: nothing was begun." in page
    assert "The table: full of 6 data files, it was full of 5." in page

    key = changed.headers["location"].partition("kept=")[2].partition("&")[0]
    begun = client.post(f"{AT}/plan/run", data={"kept": key}, headers=OWN)
    assert begun.headers["location"].startswith("/processes/"), client.get(begun.headers["location"]).text
    again = client.post(f"{AT}/optimize", data={"type": "full", "where": ""}, headers=OWN)
    assert again.headers["location"].split("?")[0] == begun.headers["location"].split("?")[0]


def test_a_plan_is_carried_out_once_after_a_restart(site: Site, client: TestClient) -> None:
    planned = client.post(f"{AT}/plan", data={"type": "full", "where": ""}, headers=OWN).headers["location"]
    restarted = site(lambda db: None)
    assert "Full optimizing, 1 task" in words(restarted.get(planned).text)
    run = {"kept": planned.partition("kept=")[2]}
    begun, again = (restarted.post(f"{AT}/plan/run", data=run, headers=OWN).headers["location"] for _ in range(2))
    assert begun.startswith("/processes/")
    assert again.split("?")[0] == begun.split("?")[0]


def test_what_is_not_kept_is_not_carried_out_and_of_another_table_not_shown(client: TestClient) -> None:
    refused = client.post(f"{AT}/plan/run", data={"kept": "nothing"}, headers=OWN)
    assert (refused.status_code, "plan the table again" in refused.text) == (404, True)
    assert "plan it again" in client.get(f"{AT}/plan?kept=nothing").text
    found = client.post(f"{AT}/verify", headers=OWN).headers["location"]
    assert "verify it again" not in client.get(found).text
    other = found.replace("cat.db.t", "cat.db.other")
    assert client.get(other).status_code == 404


def test_a_table_is_verified_and_what_was_found_is_kept(client: TestClient, table: Table) -> None:
    first, *_, last = [one.snapshot_id for one in table.snapshots()]
    asked = client.get(f"{AT}/verify", params={"before": first, "after": last})
    assert f"The rows of cat.db.t in the snapshots {first} and {last} are read" in words(asked.text)
    assert f"<code>amoro verify cat.db.t --before {first} --after {last}</code>" in asked.text
    done = client.post(f"{AT}/verify", data={"before": "", "after": str(last)}, headers=OWN)
    page = words(client.get(done.headers["location"]).text)
    assert f"5 live files of snapshot {last}: all exist with their sizes" in page
    Path(table.inspect.files()["file_path"][0].as_py().removeprefix("file://")).unlink()
    done = client.post(f"{AT}/verify", headers=OWN)
    page = words(client.get(done.headers["location"]).text)
    assert "It is not as it has to be." in page
    assert page.count(" problem ") == 1
    assert "verify it again" in client.get(f"{AT}/verify?kept=nothing").text
    assert client.get(f"{AT}/verify?before=x").status_code == 400


FAR_MS = 9_999_999_999_000


@pytest.mark.parametrize(
    ("method", "path", "passes_s", "told"),
    [
        ("OptimizeTable", "/optimize", 16, "cat.db.t is being planned; that goes on."),
        ("PlanTable", "/plan", 3600, "cat.db.t was not planned within"),
        ("ListSnapshots", "/snapshots", 3600, "was not read within"),
        ("VerifyTable", "/verify", 3600, "cat.db.t was not verified within"),
    ],
)
def test_nobody_waits_for_what_lasts(client: TestClient, method: str, path: str, passes_s: float, told: str) -> None:
    with client:  # its event loop goes on between requests
        asked_of(client).hold(method, passes_s)
        form = {"type": "full"} if method in ("OptimizeTable", "PlanTable") else {}
        answer = client.post(f"{AT}{path}", data=form, headers=OWN)
        page = client.get(answer.headers["location"]) if answer.status_code == 303 else answer
        asked_of(client).release()
        assert told in words(page.text)


def test_no_page_of_a_table_that_is_not_known_asks_its_catalog(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as catalog:
        catalog.settimeout(0)
        properties = (("type", "rest"), ("uri", f"http://127.0.0.1:{catalog.getsockname()[1]}"))
        client = site(lambda db: catalogs.add(db, CatalogConfig("lake", properties)))
        for below in ("", *(f"/{key}" for key, _ in TABS if key), "/enable"):
            assert client.get(f"/tables/lake.sales.orders{below}").status_code == 404, below
        with pytest.raises(BlockingIOError):
            catalog.accept()


def test_what_undoing_would_do_is_shown_before_it_is_done(site: Site) -> None:
    ended = "0199bbbb-0001-7000-8000-000000000000"
    client = site(lambda db: states.ended(db, states.fill(db, 1)[0], ended))
    answer = pb.MaintainTableResponse(table="cat.db.t", action="undo", is_due=True, reason="it can be undone", tasks=2)
    answer.document = json.dumps({"snapshots": [5, 7], "rows": 12})
    asked_of(client).answers["PreviewUndo"] = answer
    page = client.post(f"/processes/{ended}/undo/preview", headers=OWN).text
    assert "It would do this now: it can be undone. Nothing was changed." in words(page)
    assert "rows 12" in words(page)
    assert f'<form class="actions" method="post" action="/processes/{ended}/undo">' in page
    answer.is_due = False
    page = client.post(f"/processes/{ended}/undo/preview", headers=OWN).text
    assert "Nothing to undo" in page
    assert "<form" not in page.partition("<main")[2]
    with client:
        asked_of(client).hold("PreviewUndo", 61)
        late = client.post(f"/processes/{ended}/undo/preview", headers=OWN).text
        asked_of(client).release()
        assert f"amoro undo {ended} --dry-run" in late


# Why it is optimized or not


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"state": "due", "status_reason": "13 small files, 12 are enough"}, "It is due 13 small files, 12 are enough"),
        ({"enabled": False, "enabled_origin": ""}, "It is only observed It was never enabled."),
        ({"retry_at_ms": FAR_MS}, "It is tried again at 2286-11-20"),
        ({"failure": "no file"}, "The last try failed no file"),
        ({"blockers": [pb.Blocker(operations=["optimize"], expires_ms=FAR_MS)]}, "Blocked: optimize"),
        ({"group": "full"}, "Its group has no free thread full has 2 threads, and each has a task."),
        ({"group": "used"}, "Its quota is used up It runs 2 tasks; its quota of 0.5 allows 2 threads now."),
    ],
)
def test_a_table_says_why_it_is_optimized_or_not(site: Site, fields: dict[str, object], told: str) -> None:
    client = site(_one())
    base = {"table": "lake.sales.orders", "table_id": 1, "status": "idle", "enabled": True, "health_score": -1}
    asked = asked_of(client)
    asked.answers["GetGroup"] = pb.Group(name="default", threads=9)
    asked.answers["GetTable"] = pb.Table(**{**base, "group": "default", "retry_at_ms": 1, "next_due_ms": 1})
    assert told not in words(client.get("/tables/1").text)
    asked.answers["GetTable"] = pb.Table(**{**base, "group": "default", **fields})
    if fields.get("group") == "full":
        asked.answers["GetGroup"] = pb.Group(name="full", threads=2, running_tasks=2)
    if fields.get("group") == "used":
        use = pb.GroupUse(table="lake.sales.orders", limit=2, running_tasks=2, quota=0.5)
        other = pb.GroupUse(table="lake.sales.other", limit=2, running_tasks=2)
        asked.answers["GetGroup"] = pb.Group(name="used", threads=9, uses=[other, use])
    assert told in words(client.get("/tables/1").text)
