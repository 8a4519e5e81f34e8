"""What reads a table: its files, its snapshots, its plan, and the plan carried out."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from starlette.testclient import TestClient

from amoro_core.admin import maintaining, optimizing
from amoro_core.dashboard.pages import process_actions
from amoro_core.documents.quantities import format_bytes
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.store import catalogs, tables
from amoro_core.store.connection import Connection
from amoro_core.transactions.listing import new_table
from tests.dashboard import states
from tests.dashboard.pages.conftest import Site
from tests.dashboard.pages.test_table import OWN, words
from tests.engine import oracle, writer, writer3
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
    page = client.get(done.headers["location"]).text
    assert "cat answers: 1 table, listed in" in page
    assert "last look it answered" in words(page)


def test_a_plan_is_kept_and_carried_out_unless_it_has_changed(client: TestClient, table: Table) -> None:
    planned = client.post(f"{AT}/plan", data={"type": "full", "where": ""}, headers=OWN)
    assert planned.status_code == 303, planned.text
    page = client.get(planned.headers["location"]).text
    assert "Full optimizing, 1 task" in words(page)
    assert "<code>amoro plan cat.db.t --type full --explain</code>" in page
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


def test_a_plan_of_an_upgraded_table_tells_vectors_from_what_is_to_be_folded(client: TestClient, table: Table) -> None:
    writer.delete_where(table, lambda item: item["id"] in (0, 1))
    writer3.upgrade(table)
    writer3.delete_rows(table, lambda item: item["id"] == 2)
    (old,) = (one for one in oracle.live_files(table) if one.content == oracle.POSITION_DELETES and not one.is_vector)
    for kind, told in (
        ("full", f"1 {format_bytes(old.file_size_bytes)} to fold, for 2 data files 1"),
        ("cluster", "1 1"),
    ):
        asked = {"type": kind, "columns": "id" if kind == "cluster" else ""}
        planned = client.post(f"{AT}/plan", data=asked, headers=OWN)
        page = words(client.get(planned.headers["location"]).text)
        assert "Position deletes Vectors" in page
        assert f"{kind} 5 0 {told} " in page, page


def test_a_partition_that_is_skipped_is_shown_with_its_size(client: TestClient, table: Table) -> None:
    with table.update_spec() as update:
        update.add_identity("value")
    writer.append(table.refresh(), [row(9, "a", "alone")])
    new = table.refresh().spec().spec_id
    (alone,) = (one.file for one in table.scan().plan_files() if one.file.spec_id == new)
    planned = client.post(f"{AT}/plan", data={"type": "full", "where": ""}, headers=OWN)
    page = words(client.get(planned.headers["location"]).text)
    assert f"skipped 1 0 0 0 {format_bytes(alone.file_size_in_bytes)} - 0 " in page, page


def test_a_plan_is_carried_out_after_a_restart_and_a_second_click_finds_its_process(
    site: Site, client: TestClient
) -> None:
    planned = client.post(f"{AT}/plan", data={"type": "full", "where": ""}, headers=OWN).headers["location"]
    restarted = site(lambda db: None)
    assert "Full optimizing, 1 task" in words(restarted.get(planned).text)
    run = {"kept": planned.partition("kept=")[2]}
    begun, again = (restarted.post(f"{AT}/plan/run", data=run, headers=OWN).headers["location"] for _ in range(2))
    assert begun.startswith("/processes/")
    assert again.split("?")[0] == begun.split("?")[0]


def test_clustering_is_planned_and_carried_out_from_the_page(client: TestClient, table: Table) -> None:
    for _ in range(6):
        writer.append(table, [row(0, "a", "a"), row(9, "a", "z")])
    asked = {"type": "cluster", "columns": " id , value", "strategy": "zorder"}
    made = client.post(f"{AT}/plan", data=asked, headers=OWN)
    assert made.status_code == 303, made.text
    planned = made.headers["location"]
    page = client.get(planned).text
    assert "Clustering, 1 task" in words(page)
    assert "in the order zorder(id, value)" in words(page)
    assert "<code>amoro plan cat.db.t --type cluster --columns id,value --strategy zorder --explain</code>" in page
    assert 'name="columns" type="text" value="id,value"' in page
    run = {"kept": planned.partition("kept=")[2]}
    begun = client.post(f"{AT}/plan/run", data=run, headers=OWN).headers["location"]
    assert "cluster" in words(client.get(begun).text)
    refused = client.post(f"{AT}/plan", data={"type": "full", "columns": "id"}, headers=OWN)
    assert (refused.status_code, "need the type cluster" in refused.text) == (400, True)


def test_a_plan_that_is_not_kept_is_not_carried_out(client: TestClient) -> None:
    refused = client.post(f"{AT}/plan/run", data={"kept": "nothing"}, headers=OWN)
    assert (refused.status_code, "plan the table again" in refused.text) == (404, True)
    assert "plan it again" in client.get(f"{AT}/plan?kept=nothing").text


def test_a_table_is_enabled_and_disabled(client: TestClient) -> None:
    for action, told in (("enable", "is optimized from now on"), ("disable", "is only observed now")):
        done = client.post(f"{AT}/{action}", headers=OWN)
        assert done.status_code == 303, done.text
        assert told in client.get(done.headers["location"]).text


def test_a_table_is_verified_and_what_was_found_is_kept(client: TestClient, table: Table) -> None:
    first, *_, last = [one.snapshot_id for one in table.snapshots()]
    asked = client.get(f"{AT}/verify", params={"before": first, "after": last})
    assert f"The rows of cat.db.t in the snapshots {first} and {last} are read" in words(asked.text)
    assert f"<code>amoro verify cat.db.t --before {first} --after {last}</code>" in asked.text
    done = client.post(f"{AT}/verify", data={"before": "", "after": str(last)}, headers=OWN)
    page = words(client.get(done.headers["location"]).text)
    assert f"All 5 live files of snapshot {last} exist with their sizes" in page
    Path(table.inspect.files()["file_path"][0].as_py().removeprefix("file://")).unlink()
    done = client.post(f"{AT}/verify", headers=OWN)
    page = words(client.get(done.headers["location"]).text)
    assert "It is not as it has to be." in page
    assert page.count(" problem ") == 1
    assert "verify it again" in client.get(f"{AT}/verify?kept=nothing").text
    assert client.get(f"{AT}/verify?before=x").status_code == 400


def test_what_differs_is_told_by_partition(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    found = pb.Verification(table="cat.db.t", snapshot_id=7, files=3, other_snapshots=[6])
    one = found.comparisons.add(before=5, after=7, rows_before=9, rows_after=8, files_in_both=2, disputed_deletes=1)
    for place, rows in (("a=1", 5), ("a=2", 4)):
        one.partitions.add(partition=place, rows_before=4, rows_after=rows, checksum_before="c4", equal=rows == 4)
    monkeypatch.setattr(optimizing, "verification", lambda *_: found)
    services = client.app.state.offered.operations._services  # type: ignore[attr-defined]
    monkeypatch.setattr(services.verifying, "verify", lambda *_: None)
    done = client.post(f"{AT}/verify", headers=OWN)
    page = words(client.get(done.headers["location"]).text)
    assert "It is not as it has to be." in page
    assert "Snapshot 5 → 7 rows 9 ≠ 8 ✗; 2 more data files are in both" in page
    assert "a=1 0 0 4 5 c4 no" in page
    assert "a=2 0 0 4 4 c4 yes" in page
    assert "Not compared, since others changed rows there: snapshots 6" in page


def test_a_verification_that_fails_or_lasts_says_so_where_it_was_asked(client: TestClient, table: Table) -> None:
    unknown = client.post(f"{AT}/verify", data={"before": "5", "after": "7"}, headers=OWN)
    assert "snapshot 5" in words(client.get(unknown.headers["location"]).text)


def test_a_plan_to_undo_is_shown_before_it_is_done(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = "0199bbbb-0001-7000-8000-000000000000"
    client = site(lambda db: states.ended(db, states.fill(db, 1)[0], ended))
    plan = {"snapshots": [5, 7], "rows": 12}
    answer = pb.MaintainTableResponse(
        table="cat.db.t", action="undo", is_due=True, reason="it can be undone", tasks=2, document=json.dumps(plan)
    )
    monkeypatch.setattr(maintaining, "_answer", lambda *_: answer)
    services = client.app.state.offered.operations._services  # type: ignore[attr-defined]
    monkeypatch.setattr(services.maintaining, "preview_undo", lambda process_id: None)
    page = client.post(f"/processes/{ended}/undo/preview", headers=OWN).text
    assert "It would do this now: it can be undone. Nothing was changed." in words(page)
    assert "rows 12" in words(page)
    assert f'<form class="actions" method="post" action="/processes/{ended}/undo">' in page
    answer.is_due = False
    page = client.post(f"/processes/{ended}/undo/preview", headers=OWN).text
    assert "Nothing to undo" in page
    assert "<form" not in page.partition("<main")[2]
    monkeypatch.setattr(process_actions, "PREVIEW_S", 0)
    late = client.post(f"/processes/{ended}/undo/preview", headers=OWN).text
    assert f"amoro undo {ended} --dry-run" in late


def test_other_tables_verifications_are_not_shown(client: TestClient, catalog: SqlCatalog, table: Table) -> None:
    found = client.post(f"{AT}/verify", headers=OWN).headers["location"]
    assert "verify it again" not in client.get(found).text
    other = found.replace("cat.db.t", "cat.db.other")
    assert client.get(other).status_code == 404
