"""Every link leads somewhere: pages are followed from the overview on."""

import html
import re
from datetime import timedelta

import pytest

from amoro_core.admin import maintaining
from amoro_core.model.journal import About, Event, EventKind
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.store import condemned, events, optimizers
from amoro_core.store.connection import Connection
from tests.dashboard import states
from tests.dashboard.pages.conftest import Site
from tests.dashboard.pages.test_table import OWN
from tests.store import builders

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
        waiting += [
            html.unescape(link).partition("#")[0] or "/" for link in re.findall(r' href="([^"]*)"', answer.text)
        ]
    assert broken == []
    assert {"/tables", "/tables/*", "/tables/*/plan", "/processes/*", "/groups/default", "/queue"} <= seen


ENDED = "0199bbbb-0001-7000-8000-000000000000"
SLASHED = TableIdentifier("lake", ("a/b",), "t")


def test_every_link_to_a_table_with_a_slash_in_its_name_leads_to_its_number(site: Site) -> None:
    """Servers decode %2F before they find the route; a link by such a name would lead nowhere."""

    def fill(db: Connection) -> None:
        (one,) = states.fill(db, 1, identifier=SLASHED)
        for number in (1, 2):
            optimizers.add(db, builders.optimizer(f"optimizer-{number}", registered_at=states.now()))
        states.running(db, one)
        states.ended(db, one, ENDED, type="expire-snapshots", action="expire-snapshots", lane="metadata")
        about = About(one.table_id, str(one.identifier), ENDED)
        events.add(db, Event(EventKind.PLANNED, states.now(), "it was planned", about))
        files, due = [Condemned("s3://lake/1", FileKind.DATA, 9, None, "old")], states.now() + timedelta(days=9)
        condemned.add_many(db, condemned.batches_of(files, ENDED, one.table_id, one.uuid, due))
        condemned.release(db, ENDED)

    client = site(fill)
    of_processes = ("/processes", f"/processes/{ENDED}", "/trash", f"/trash/{ENDED}")
    for path in ("/", "/tables", "/events", "/groups/default", *of_processes):
        page = client.get(path).text
        links = {html.unescape(link) for link in re.findall(r' href="(/tables[/?][^"]*)"', page)}
        assert any(link.startswith("/tables/1") for link in links), path
        assert [link for link in links if "a/b" in link or "a%2Fb" in link] == [], path
        for link in links:
            assert client.get(link).status_code == 200, (path, link)


def test_the_dry_run_of_maintenance_links_to_the_number_of_such_a_table(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = site(lambda db: states.fill(db, 1, identifier=SLASHED))
    services = client.app.state.offered.operations._services  # type: ignore[attr-defined]
    monkeypatch.setattr(services.maintaining, "preview", lambda *_: None)
    for table, link in ((str(SLASHED), "/tables/1"), ("lake.sales.unknown", "/tables/lake.sales.unknown")):
        answer = pb.MaintainTableResponse(table=table, action="expire-snapshots", reason="nothing is old")
        monkeypatch.setattr(maintaining, "_answer", lambda *_, told=answer: told)
        form = {"table": table, "action": "expire-snapshots"}
        page = client.post("/maintenance/preview", data=form, headers=OWN).text
        assert f'<a href="{link}">{table}</a>' in page
