"""A table's pages: health by parts, reasons, processes, properties, and what may be done."""

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest

from amoro_core.dashboard.pages import table_actions, table_verifying
from amoro_core.dashboard.pages.reasons import Reason, reasons
from amoro_core.dashboard.pages.table_verifying import Verifications
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit
from amoro_core.errors import TableBusy
from amoro_core.formats.tables import Formats, Tables
from amoro_core.model.blockers import BlockedOperation, Blocker
from amoro_core.model.journal import About, Event, EventKind
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.store import blockers, catalogs, events, tables
from amoro_core.store.connection import Connection
from tests.dashboard import states
from tests.dashboard.pages.conftest import Site
from tests.store import builders

OWN = {"Sec-Fetch-Site": "same-origin"}
NOW = 1_000_000


def words(page: str) -> str:
    """What the page says, without its marks."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def _one(**fields: object) -> Callable[[Connection], object]:
    """A database with the table lake.sales.orders, which is number 1."""
    return lambda db: states.fill(db, 1, **fields)


def test_health_is_told_by_parts_with_what_mends_each(site: Site) -> None:
    files, health = states.summary(3)
    page = words(site(_one(summary=files, health=health)).get("/tables/lake.sales.orders").text)
    assert "Health: 73 of 100" in page
    assert "small files 25 of 40 15 9 fragments and 3 undersized of 23 data files Merging them" in page
    assert "equality deletes 31 of 40 9 6 files" in page
    assert "position deletes 17 of 20 3 3 files, 29 kB with equality deletes, 1 of all deletes dangling" in page


@pytest.mark.parametrize(("number", "told"), [(3, ["coarse 1 file, 105 MB"]), (0, [])])
def test_what_minor_only_copied_is_told_where_there_is_any(site: Site, number: int, told: list[str]) -> None:
    files, health = states.summary(number)
    page = words(site(_one(summary=files, health=health)).get("/tables/lake.sales.orders").text)
    assert re.findall(r"coarse .* MB(?= rows)", page) == told


def test_nothing_mends_what_is_not_wrong(site: Site) -> None:
    files, health = states.summary(0)
    page = words(site(_one(summary=files, health=health)).get("/tables/lake.sales.orders").text)
    assert page.count("nothing is wrong") == 3


def test_a_table_that_was_not_evaluated_has_no_score(site: Site) -> None:
    assert "not evaluated yet" in site("refused").get("/tables/lake.sales.orders").text


@pytest.mark.parametrize(
    "below", ["", "/processes", "/properties", "/plan", "/enable", "/disable", "/block", "/optimize"]
)
def test_a_table_is_named_or_numbered(site: Site, below: str) -> None:
    slashed = TableIdentifier("lake", ("a/b",), "t ?#%")
    client = site(_one(identifier=slashed))
    answer = client.get(f"/tables/1{below}")
    assert answer.status_code == 200, answer.text
    assert "lake.a/b.`t ?#%`" in answer.text
    assert "/tables/1" in answer.text
    assert "%2F" not in answer.text


def test_a_table_with_a_name_of_other_signs_is_led_to_by_its_name(site: Site) -> None:
    odd = TableIdentifier("lake", ("a b",), "t.?#%\n")
    client = site(_one(identifier=odd))
    (link,) = re.findall(r'<td class="name"><a href="([^"]*)">', client.get("/tables").text)
    page = client.get(link)
    assert page.status_code == 200
    assert "lake.`a b`.`t.?#%\\n`" in page.text


@pytest.mark.parametrize("name", ["lake.sales.nothing", "nowhere.sales.orders", "99", "x"])
def test_a_table_that_is_not_there_is_not_found(site: Site, name: str) -> None:
    answer = site(_one()).get(f"/tables/{name}")
    assert answer.status_code == (400 if name == "x" else 404)


def test_the_processes_of_a_table_are_its_own(site: Site) -> None:
    def fill(db: Connection) -> None:
        first, second = states.fill(db, 2)
        for number in range(60):
            states.ended(db, first, f"0199bbbb-{number:04}-7000-8000-000000000000")
        states.ended(db, second, "0199eeee-0000-7000-8000-000000000000")

    client = site(fill)
    page = client.get("/tables/lake.sales.orders/processes").text
    assert "50 of 60 processes" in page
    (following,) = re.findall(r'<a rel="next" href="([^"]*)"', page)
    rest = client.get(following.replace("&amp;", "&")).text
    assert "10 of 60 processes" in rest
    assert "0199eeee" not in page + rest
    assert (
        "No process of this table has this status"
        in client.get("/tables/lake.sales.orders/processes?status=failed").text
    )


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


def test_malformed_properties_are_told_in_place(site: Site) -> None:
    answer = site(_one(properties={"self-optimizing.enabled": "maybe"})).get("/tables/1/properties")
    assert answer.status_code == 200
    assert "maybe" in answer.text


def test_an_action_is_confirmed_first_with_its_command(site: Site) -> None:
    client = site(_one())
    for action, command in (
        ("enable", "amoro table enable lake.sales.orders"),
        ("disable", "amoro table disable lake.sales.orders"),
        ("block", "amoro table block lake.sales.orders --for 60m --reason WHY"),
        ("optimize", "amoro optimize lake.sales.orders"),
    ):
        page = client.get(f"/tables/lake.sales.orders/{action}").text
        assert f'<form class="form" method="post" action="/tables/lake.sales.orders/{action}">' in page
        assert f"<code>{command}</code>" in page


def test_a_table_is_blocked_and_released(site: Site) -> None:
    client = site(_one())
    done = client.post("/tables/1/block", data={"minutes": "30", "reason": "nightly <load>"}, headers=OWN)
    assert (done.status_code, done.headers["location"].split("?")[0]) == (303, "/tables/lake.sales.orders")
    page = client.get(done.headers["location"]).text
    assert "nightly &lt;load&gt;" in page
    assert "is blocked by" in page


@pytest.mark.parametrize("minutes", ["0", "-1", "x", "100000", ""])
def test_a_block_for_no_time_is_refused(site: Site, minutes: str) -> None:
    answer = site(_one()).post("/tables/1/block", data={"minutes": minutes, "reason": "why"}, headers=OWN)
    assert answer.status_code == 400 if minutes not in ("", "0") else 303


def test_a_blocker_is_released_after_a_confirmation(site: Site) -> None:
    blocker_id = "0199aaaa-0000-7000-8000-000000000000"

    def fill(db: Connection) -> None:
        (one,) = states.fill(db, 1)
        held = Blocker(
            blocker_id,
            one.table_id,
            frozenset({BlockedOperation.OPTIMIZE}),
            states.now(),
            states.now() + timedelta(hours=1),
            timedelta(hours=1),
        )
        blockers.add(db, held)

    client = site(fill)
    assert f"/tables/lake.sales.orders/unblock/{blocker_id}" in client.get("/tables/1").text
    assert f"amoro table unblock {blocker_id}" in client.get(f"/tables/1/unblock/{blocker_id}").text
    assert client.post(f"/tables/1/unblock/{blocker_id}", headers=OWN).status_code == 303
    assert "unblock" not in client.get("/tables/1").text


# Why it is optimized or not


def _table(**fields: object) -> pb.Table:
    return pb.Table(**{"table": "c.n.t", "status": "idle", "enabled": True, "enabled_origin": "the table", **fields})


ENABLED, IDLE = Reason("good", "It is enabled", "the table"), ("good", "There is nothing to do")


def _titles(table: pb.Table, group: pb.Group | None = None) -> list[tuple[str, str]]:
    return [(one.look, one.title) for one in reasons(table, group, NOW)]


def test_an_idle_table_has_nothing_to_do() -> None:
    assert reasons(_table(status_reason="2 fragments"), None, NOW) == (
        ENABLED,
        Reason("good", "There is nothing to do", "2 fragments"),
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": "refused", "status_reason": "encryption: keys"}, ("bad", "It is refused")),
        ({"enabled": False}, ("wait", "It is only observed")),
        ({"status": "pending"}, ("wait", "It waits for its plan.")),
        ({"status": "minor_optimizing", "process_id": "p"}, ("busy", "It is being optimized: minor.")),
        ({"process_id": "p"}, ("busy", "A process has not ended.")),
        ({"retry_at_ms": NOW + 1}, ("wait", "It is tried again at 1970-01-01 00:16:40Z")),
        ({"failure": "no file"}, ("bad", "The last try failed")),
        ({"late_deletes": "snapshot 7"}, ("bad", "Rows that another application deleted came back")),
        ({"no_optimizer": "start one"}, ("bad", "No optimizer takes its tasks")),
        ({"next_due_ms": NOW + 1}, ("", "Next due at 1970-01-01 00:16:40Z")),
        (
            {"blockers": [pb.Blocker(operations=["optimize"], expires_ms=NOW)]},
            ("wait", "Blocked: optimize"),
        ),
    ],
)
def test_each_reason_is_told(fields: dict[str, object], reason: tuple[str, str]) -> None:
    assert reason in _titles(_table(**fields))
    assert reason not in _titles(_table(retry_at_ms=NOW, next_due_ms=NOW))


def test_a_group_without_room_is_a_reason() -> None:
    full = pb.Group(name="g", threads=2, running_tasks=2)
    used = pb.Group(threads=9, uses=[pb.GroupUse(table="c.n.t", limit=2, running_tasks=2, quota=0.5)])
    others = pb.Group(threads=9, uses=[pb.GroupUse(table="c.n.other", limit=2, running_tasks=2)])
    assert ("wait", "Its group has no free thread") in _titles(_table(), full)
    assert ("wait", "Its quota is used up") in _titles(_table(), used)
    assert _titles(_table(), others) == _titles(_table())


# Requests


class Scripted(Visit):
    """A visit that answers as scripted."""

    answers: dict[str, Callable[[], object]]

    async def ask(self, method: str, message: object, answer: type[object]) -> object:
        return await self.answers[method]()

    def named(self, name: str) -> str:
        return "c.n.t"


def _visit(**answers: Callable[[], object]) -> Visit:
    made = Scripted.__new__(Scripted)
    object.__setattr__(made, "request", SimpleNamespace())
    object.__setattr__(made, "answers", answers)
    return made


async def _busy() -> object:
    raise TableBusy("it is busy")


async def _known() -> object:
    return pb.Table(table="c.n.t", table_id=1, status="minor_optimizing", process_id="p-1")


def test_a_second_request_leads_to_the_process_of_the_first() -> None:
    asked = pb.OptimizeTableRequest(table="c.n.t")
    made = asyncio.run(
        table_actions.Requests().begin(_visit(OptimizeTable=_busy, GetTable=_known), pb.Table(table="c.n.t"), asked)
    )
    assert (made.path, made.kind) == ("/processes/p-1", "wait")


def test_planning_that_takes_long_goes_on_while_the_visitor_goes_on() -> None:
    async def run() -> tuple[Gone, bool]:
        release, planned = asyncio.Event(), asyncio.Event()

        async def plan() -> object:
            await release.wait()
            planned.set()
            return pb.OptimizeTableResponse(process_id="p-1")

        requests = table_actions.Requests(patience_s=0)
        asked = pb.OptimizeTableRequest(table="c.n.t")
        made = await requests.begin(_visit(OptimizeTable=plan), pb.Table(table="c.n.t"), asked)
        release.set()
        await asyncio.wait_for(planned.wait(), 10)
        return made, planned.is_set()

    made, went_on = asyncio.run(run())
    assert (made.path, made.notice, went_on) == ("/tables/c.n.t", "c.n.t is being planned; that goes on.", True)


def _sent(**fields: str) -> Visit:
    """A visit with that form, to a coordinator whose verification never ends."""

    async def never() -> object:
        return await asyncio.Event().wait()

    async def form(*known: str) -> dict[str, str]:
        return {name: fields.get(name, "") for name in known}

    made = _visit(GetTable=_known, VerifyTable=never)
    object.__setattr__(made, "form", form)
    object.__setattr__(made, "query", lambda **known: {name: fields.get(name, "") for name in known})
    return made


def test_a_verification_that_lasts_goes_on_while_its_visitor_looks_again() -> None:
    async def run() -> tuple[Shown, Shown]:
        verifications = Verifications(patience_s=0, deadline_s=0.05)
        led = await verifications.begin(_sent())
        key = led.path.partition("kept=")[2]
        shown = await verifications.ask(_sent(kept=key))
        await asyncio.wait(verifications._running)
        return shown, await verifications.ask(_sent(kept=key))

    before, after = asyncio.run(run())
    assert (before.values["found"], before.values["error"], before.values["is_over"]) == (None, None, False)
    error = after.values["error"]
    assert str(error.message) == "c.n.t was not verified within 0.05 s"
    assert error.hint == "The command line waits longer: amoro verify c.n.t"


def test_partitions_that_differ_are_shown_first_and_not_too_many() -> None:
    made = pb.Comparison()
    for number in range(250):
        made.partitions.add(partition=str(number), equal=number != 249)
    shown = list(table_verifying._shown(made))
    assert (len(shown), shown[0].partition, shown[1].partition) == (200, "249", "0")


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


def test_no_page_of_a_table_that_is_not_known_asks_its_catalog(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*asked: object) -> None:
        raise AssertionError("the catalog is asked")

    monkeypatch.setattr(Formats, "list_tables", ask)
    monkeypatch.setattr(Tables, "open", ask)
    client = site(lambda db: states.fill(db, 0))
    for below in ("", "/files", "/plan", "/processes", "/properties", "/snapshots", "/enable"):
        assert client.get(f"/tables/lake.sales.orders{below}").status_code == 404, below


def test_trends_are_drawn_for_a_range_that_is_chosen(site: Site) -> None:
    client = site(_one())
    page = client.get("/tables/1?range=7d").text
    assert "<strong>7d</strong>" in page
    assert "Health over time" in page
    assert client.get("/tables/1?range=8d").status_code == 400
