"""Groups, optimizers, settings, the system, maintenance and trash, users and tokens."""

import os
import re
import sqlite3
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote_plus

import pytest
from starlette.testclient import TestClient

from amoro_core.bootstrap.settings import Settings
from amoro_core.errors import InvalidArgument
from amoro_core.model.tables import ActionRecord
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.store import actions
from amoro_core.store.database import Connection
from tests.dashboard import states
from tests.dashboard.conftest import OWN, Site, asked_of, words
from tests.dashboard.states import CONDEMNED
from tests.engine import writer

PAGES = ("/groups", "/groups/default", "/optimizers", "/maintenance", "/trash", "/settings", "/system")


@pytest.mark.parametrize("state", ["empty", "typical", "failing", "refused", "commit unknown"])
def test_each_page_is_shown_in_each_state_and_takes_no_unknown_parameter(site: Site, state: str) -> None:
    client = site(state)
    for path in (*PAGES, "/events", "/report", "/audit", "/queue"):
        answer = client.get(path)
        assert (answer.status_code, "<h1>" in answer.text) == (200, True), path
        refused = client.get(f"{path}?afer=x")
        assert (refused.status_code, "&#39;afer&#39; is not a parameter of this page" in refused.text) == (400, True)


def test_the_system_tells_of_its_state_and_the_last_backup(site: Site, tmp_path: Path) -> None:
    client = site("failing")
    page = words(client.get("/system").text)
    assert f"File {tmp_path / 'amoro.db'} Size" in page
    assert f"Leader process {os.getpid()} holds the lock of the directory, and alone may write" in page
    assert "Last backup none that the audit knows" in page
    assert re.search(rf"SQLite {re.escape(sqlite3.sqlite_version)} Schema [0-9]+ ", page)
    assert re.search(r"Applied .*1 first schema \d{4}-\d\d-\d\d", page)
    client.post("/system/backup", data={"path": str(tmp_path / "copy.db")})
    client.post("/system/backup", data={"path": str(tmp_path / "copy.db")})  # it exists: no backup was made
    client.post("/system/backup", data={"path": "relative.db"})
    page = words(client.get("/system").text)
    assert re.search(rf"Last backup \S+ \S+Z \( \d+ s ago \) to {tmp_path / 'copy.db'} Versions", page)


def of_a_viewer(client: TestClient) -> dict[str, str]:
    """What a viewer sends with a request."""
    made = client.post("/tokens/create", data={"name": "v", "role": "viewer"})
    (token,) = re.findall(r'value="(amo_[^"]+)"', made.text)
    return {"Authorization": f"Bearer {token}"}


def test_a_viewer_sees_nothing_of_the_machine(site: Site, tmp_path: Path) -> None:
    client = site("typical")
    answer = client.get("/system", headers=of_a_viewer(client))
    assert answer.status_code == 200
    assert str(tmp_path) not in answer.text
    assert "/system/backup" not in answer.text


def test_the_actions_of_all_tables_are_listed_what_fails_first(site: Site) -> None:
    def act(db: Connection) -> None:
        first, second = (one.table_id for one in states.fill(db, 2))
        now, hour = states.now(), timedelta(hours=1)
        fails = {"failures": 3, "retry_at": now + hour, "reason": "no answer"}
        actions.save(db, ActionRecord(first, "expire-snapshots", next_at=now + hour, last_at=now - hour))
        actions.save(db, ActionRecord(first, "rewrite-manifests", next_at=now - hour))
        actions.save(db, ActionRecord(second, "clean-orphan-files", **fails))
        actions.save(db, ActionRecord(second, "write-statistics", paused_at=now, paused_for="it changed nothing"))

    client = site(act)
    page = client.get("/maintenance").text
    rows = [words(row) for row in page.split("<tbody>")[-1].split("</tr>")[:-1]]
    assert [row.split()[:3] for row in rows] == [
        ["lake.web.orders", "clean-orphan-files", "failing"],
        ["lake.web.orders", "write-statistics", "paused"],
        ["lake.sales.orders", "rewrite-manifests", "due"],
        ["lake.sales.orders", "expire-snapshots", "scheduled"],
    ]
    assert "3 failures in a row, next try" in rows[0]
    assert "expire-snapshots scheduled 1 h ago in 59 min" in rows[3]
    assert "4 of 4 actions" in words(page)
    of_one = words(client.get("/maintenance?table=lake.web.orders").text)
    assert ("write-statistics" in of_one, "expire-snapshots" in of_one) == (True, False)
    assert "clean-orphan-files failing" in words(client.get("/tables/lake.web.orders/maintenance").text)


def test_a_catalog_is_added_and_a_group_created_by_forms_that_keep_what_was_typed(site: Site, tmp_path: Path) -> None:
    client = site("empty")
    typed = {"name": "lake", "type": "sql", "uri": "", "warehouse": "", "properties": "a line", "allowed_locations": ""}
    wrong = client.post("/catalogs/add", data=typed, headers=OWN)
    assert (wrong.status_code, "&#39;a line&#39; is not a property." in wrong.text) == (400, True)
    assert ">a line</textarea>" in wrong.text
    assert '<option value="sql" selected>' in wrong.text
    catalog = writer.make_catalog(tmp_path)
    right = {**typed, "uri": catalog.properties["uri"], "properties": f"warehouse={catalog.properties['warehouse']}\n"}
    added = client.post("/catalogs/add", data=right, headers=OWN)
    assert (added.status_code, added.headers["location"].split("&")[0]) == (303, "/tables?catalog=lake"), added.text
    assert "lake is added." in client.get(added.headers["location"]).text
    again = client.post("/catalogs/add", data=right, headers=OWN)
    assert (again.status_code, "exists already" in again.text, 'value="lake"' in again.text) == (409, True, True)
    catalog.close()
    group = {"name": "nightly", "scheduling_policy": "balanced", "container": "", "properties": "memory=x"}
    refused = client.post("/create-group", data=group, headers=OWN)
    assert (refused.status_code, "memory has the malformed value" in refused.text) == (400, True)
    created = client.post("/create-group", data={**group, "properties": "memory=2048"}, headers=OWN)
    page = words(client.get(created.headers["location"]).text)
    assert "The group nightly is created." in page
    assert "Policy balanced" in page


def test_trash_is_hurried_only_with_the_name_of_its_table(site: Site) -> None:
    client, name = site(lambda db: states.condemn(db, states.fill(db, 1)[0], CONDEMNED)), "lake.sales.orders"
    assert "Deleted files can&#39;t be restored." in client.get(f"/trash/hurry?table={name}").text
    assert client.post("/trash/hurry", data={"table": name, "confirm": "orders"}).status_code == 400
    right = client.post("/trash/hurry", data={"table": name, "confirm": name})
    assert "2 files due for deletion now." in client.get(right.headers["location"]).text


def test_a_user_gets_another_role_pattern_and_password(site: Site) -> None:
    client = site("typical")
    new = {"name": "ada", "role": "operator", "pattern": "lake.sales.*", "password": "a long enough password"}
    client.post("/users/add", data=new)
    form = client.get("/users/ada/update").text
    assert "ada has the role operator, and acts on lake.sales.*" in words(form)
    wider = client.post("/users/ada/update", data={"role": "operator", "pattern": "lake.**"})
    page = words(client.get(wider.headers["location"]).text)
    assert "ada is operator from now on, for lake.**." in page
    assert "ada operator lake.**" in page
    as_it_was = client.post("/users/ada/update", data={"role": "viewer", "pattern": "lake.**", "before": "lake.**"})
    assert "ada viewer all tables" in words(client.get(as_it_was.headers["location"]).text)
    refused = client.post("/users/ada/update", data={"role": "viewer", "pattern": "lake.sales.*", "before": ""})
    assert (refused.status_code, "a pattern limits what an operator acts on" in refused.text) == (400, True)

    blank = " another password "
    changed = client.post("/users/ada/password", data={"password": blank})
    assert "ada has a new password." in words(client.get(changed.headers["location"]).text)
    del client.headers["Authorization"]
    assert client.post("/login", data={"user": "ada", "password": blank.strip()}, headers=OWN).status_code == 401
    assert client.post("/login", data={"user": "ada", "password": blank}, headers=OWN).status_code == 303


def test_a_token_is_shown_once_and_works_until_it_is_revoked(site: Site) -> None:
    client = site("typical")
    assert "amoro token create NAME --role ROLE --on PATTERN --expires 90d" in client.get("/tokens/create").text
    data = {"name": "nightly", "role": "operator", "pattern": "lake.**", "expires": "90d"}
    made = client.post("/tokens/create", data=data)
    (token,) = re.findall(r'value="(amo_[^"]+)"', made.text)
    assert made.headers["cache-control"] == "no-store"
    assert client.post("/tokens/create", data=data).status_code == 409
    listed = client.get("/users").text
    assert "nightly operator lake.**" in words(listed)
    assert token not in listed + client.get("/audit").text + client.get("/events").text
    assert client.get("/tables", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert "amoro token revoke nightly" in client.get("/tokens/nightly/revoke").text
    revoked = client.post("/tokens/nightly/revoke")
    assert "The token nightly is revoked." in client.get(revoked.headers["location"]).text
    assert client.get("/tables", headers={"Authorization": f"Bearer {token}"}).headers["location"].startswith("/login")


def test_sql_says_that_it_is_off_and_who_may_and_keeps_rows_for_who_asked(site: Site) -> None:
    off = words(site("typical").get("/sql").text)
    assert ("SQL is off here. terminal.enabled: true in amoro.yaml" in off, "Statement" in off) == (True, False)
    client = site(lambda db: None, Settings(terminal_enabled=True))
    viewer = of_a_viewer(client)
    seen = client.get("/sql", headers=viewer).text
    assert ("that takes the role operator" in seen, "<textarea" in seen) == (True, False)
    row, columns = pb.ResultRow(values=[pb.ResultValue(text="1"), pb.ResultValue()]), [pb.ResultColumn(name="a")] * 2
    asked_of(client).answers["RunStatement"] = pb.StatementResult(columns=columns, rows=[row] * 201, is_cut=True)
    kept = client.post("/sql", data={"statement": "SELECT 1"}).headers["location"]
    page = words(client.get(kept).text)
    assert all(text in page for text in ("201 rows in 0.0 s; there are more", "1 NULL", "Not shown: 1 row"))
    assert '"lake"."sales"."orders"' in unquote_plus(client.get("/sql").text)
    at = f"/sql/{kept.partition('=')[2]}/rows.csv"
    assert client.get(at).text == "a,a\r\n" + "1,\r\n" * 201
    assert client.get(at, headers=viewer).status_code == 404
    assert "not kept any more" in client.get("/sql?kept=gone").text
    asked_of(client).answers["RunStatement"] = InvalidArgument("no", hint="write it so")
    refused = client.post("/sql", data={"statement": "SELECT\n\t<1"})
    assert (refused.status_code, "SELECT\n\t&lt;1</textarea>" in refused.text) == (400, True)
    assert "no. write it so AMORO-2001" in words(refused.text)
