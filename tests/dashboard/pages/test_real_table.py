"""What reads a table: its files, its snapshots, its plan, and the plan carried out."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from starlette.testclient import TestClient

from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from amoro_core.store import catalogs, tables
from amoro_core.store.connection import Connection
from amoro_core.transactions.listing import new_table
from tests.dashboard import states
from tests.dashboard.pages.conftest import Site
from tests.dashboard.pages.test_table import OWN, words
from tests.engine import writer
from tests.engine.builders import SCHEMA, row

AT = "/tables/cat.db.t"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = writer.make_catalog(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """A table of five small files, each of its own commit."""
    made = writer.make_table(catalog, "db.t", SCHEMA)
    for number in range(5):
        writer.append(made, [row(number, "a")])
    return made


@pytest.fixture
def client(site: Site, catalog: SqlCatalog, table: Table) -> TestClient:
    def fill(db: Connection) -> None:
        catalogs.add(db, CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items())))
        tables.add(db, new_table(parse_table("cat.db.t"), states.now()))

    return site(fill)


def test_files_are_listed_on_request(client: TestClient) -> None:
    page = client.get(f"{AT}/files/list").text
    assert "5 of 5 live files of snapshot" in words(page)
    assert page.count('<td class="short">data</td>') == 5


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


def test_a_catalog_that_answers_says_so_at_its_check(client: TestClient) -> None:
    done = client.post("/catalogs/cat/check", headers=OWN)
    assert "cat answers: 1 table, listed in" in client.get(done.headers["location"]).text


def test_a_plan_is_kept_and_carried_out_unless_it_has_changed(client: TestClient, table: Table) -> None:
    planned = client.post(f"{AT}/plan", data={"type": "full", "where": ""}, headers=OWN)
    assert planned.status_code == 303, planned.text
    page = client.get(planned.headers["location"]).text
    assert "Full optimizing, 1 task" in words(page)
    assert "<code>amoro plan cat.db.t --type full --explain</code>" in page
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


def test_a_plan_that_is_not_kept_is_not_carried_out(client: TestClient) -> None:
    refused = client.post(f"{AT}/plan/run", data={"kept": "nothing"}, headers=OWN)
    assert (refused.status_code, "not kept any more" in refused.text) == (400, True)
    assert "plan it again" in client.get(f"{AT}/plan?kept=nothing").text


def test_a_table_is_enabled_and_disabled(client: TestClient) -> None:
    for action, told in (("enable", "is optimized from now on"), ("disable", "is only observed now")):
        done = client.post(f"{AT}/{action}", headers=OWN)
        assert done.status_code == 303, done.text
        assert told in client.get(done.headers["location"]).text
