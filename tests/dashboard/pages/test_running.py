"""Groups, optimizers, instances, settings, the system, maintenance and trash."""

import os
import re
import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.series import Sample
from amoro_core.settings import Settings
from amoro_core.store import processes, series
from amoro_core.store.database import Connection
from amoro_core.store.migrations import MIGRATIONS
from tests.dashboard import states
from tests.dashboard.pages.conftest import Site
from tests.dashboard.pages.test_processes import words
from tests.dashboard.states import CONDEMNED
from tests.store import builders

HELD = "0199aaaa-0002-7000-8000-000000000000"
PAGES = ("/groups", "/groups/default", "/optimizers", "/maintenance", "/trash", "/settings", "/system")


@pytest.mark.parametrize("state", states.STATES)
@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_shown_in_each_state(site: Site, path: str, state: str) -> None:
    answer = site(state).get(path)
    assert answer.status_code == 200
    assert "<h1>" in answer.text


@pytest.mark.parametrize("path", PAGES)
def test_a_parameter_that_is_not_known_is_refused(site: Site, path: str) -> None:
    answer = site("empty").get(f"{path}?afer=x")
    assert answer.status_code == 400
    assert "&#39;afer&#39; is not a parameter of this page" in answer.text


def test_a_group_shows_its_threads_and_its_optimizers(site: Site) -> None:
    page = site("typical").get("/groups/default").text
    assert "3 of 8 busy" in words(page)
    assert "optimizer-1" in page
    assert "optimizer-2" in page


def test_a_group_that_is_not_known_is_not_found(site: Site) -> None:
    answer = site("typical").get("/groups/nightli")
    assert answer.status_code == 404
    assert "nightli" in answer.text


def test_scaling_a_group_whose_optimizers_start_elsewhere_is_refused(site: Site) -> None:
    client = site("typical")
    asked = client.get("/groups/default/scale")
    assert "amoro group scale default N" in asked.text
    answer = client.post("/groups/default/scale", data={"instances": "2"})
    assert answer.status_code == 400
    assert "external" in answer.text
    assert client.post("/groups/default/scale", data={"instances": "many"}).status_code == 400


def test_optimizers_are_filtered_by_group(site: Site) -> None:
    client = site("typical")
    assert "2 of 2 optimizers" in words(client.get("/optimizers?group=default").text)
    assert "No optimizer is registered." in client.get("/optimizers?group=nightly").text


def test_an_optimizer_is_drained_after_it_was_confirmed(site: Site) -> None:
    client = site("typical")
    assert "amoro optimizer drain optimizer-1" in client.get("/optimizers/optimizer-1/drain").text
    answer = client.post("/optimizers/optimizer-1/drain")
    assert answer.status_code == 303
    assert "optimizer-1 is draining." in client.get(answer.headers["location"]).text


def test_a_released_optimizer_is_gone_and_its_tasks_are_planned_again(site: Site) -> None:
    client = site("typical")
    answer = client.post("/optimizers/optimizer-1/release")
    assert answer.status_code == 303
    page = words(client.get(answer.headers["location"]).text)
    assert re.search(r"optimizer-1 is released; \d tasks are planned again", page)
    assert "1 of 1 optimizers" in page


def test_an_instance_that_is_not_known_is_not_found(site: Site) -> None:
    client = site("typical")
    for answer in (client.get("/instances/nowhere-1/logs"), client.post("/instances/nowhere-1/kill")):
        assert answer.status_code == 404


def test_settings_are_found_by_their_key(site: Site) -> None:
    client = site("typical", Settings().with_values("file /h/amoro.yaml", maintenance_threads=5))
    page = words(client.get("/settings?text=maintenance-threads").text)
    assert "maintenance-threads 5 2 file /h/amoro.yaml" in page
    assert "port 1261 same default" in words(client.get("/settings?text=port").text)
    assert "No setting has such a key." in client.get("/settings?text=nothing-has-this").text


def test_the_system_is_checked_and_backed_up(site: Site, tmp_path: Path) -> None:
    client = site("typical")
    assert "The state database is sound." in client.post("/system/check").text
    target = tmp_path / "copy.db"
    answer = client.post("/system/backup", data={"path": str(target)})
    assert answer.status_code == 303
    assert str(target) in client.get(answer.headers["location"]).text
    assert target.stat().st_size > 0
    assert client.post("/system/backup", data={"path": str(target)}).status_code == 409


def test_the_system_tells_of_its_state_and_the_last_backup(site: Site, tmp_path: Path) -> None:
    client = site("failing")
    page = words(client.get("/system").text)
    assert f"File {tmp_path / 'amoro.db'} Size" in page
    assert f"Leader process {os.getpid()} holds the lock of the directory, and alone may write" in page
    assert "Last backup none that the audit knows" in page
    assert f"SQLite {sqlite3.sqlite_version} Schema {len(MIGRATIONS)} " in page
    last = MIGRATIONS[-1].__name__.replace("_", " ")
    assert re.search(rf"Applied {len(MIGRATIONS)} {last} \d{{4}}-\d\d-\d\d", page)
    client.post("/system/backup", data={"path": str(tmp_path / "copy.db")})
    client.post("/system/backup", data={"path": str(tmp_path / "copy.db")})  # it exists: no backup was made
    client.post("/system/backup", data={"path": "relative.db"})
    page = words(client.get("/system").text)
    assert re.search(rf"Last backup \S+ \S+Z \( \d+ s ago \) to {tmp_path / 'copy.db'} Versions", page)


def test_the_system_tells_what_is_wrong_now(site: Site) -> None:
    page = words(site("commit unknown").get("/system").text)
    assert re.search(r"Diagnosis commit-unknown .*State database", page)
    assert "nothing is known to be wrong" not in page
    assert "What a report of a problem needs, without secrets: amoro doctor" in page


def test_a_viewer_sees_nothing_of_the_machine(site: Site, tmp_path: Path) -> None:
    client = site("typical")
    made = client.post("/tokens/create", data={"name": "v", "role": "viewer"})
    (token,) = re.findall(r'value="(amo_[^"]+)"', made.text)
    answer = client.get("/system", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    assert str(tmp_path) not in answer.text
    assert "/system/backup" not in answer.text


def test_what_is_held_is_listed_for_a_person(site: Site) -> None:
    page = site(hold).get("/maintenance").text
    assert f'href="/processes/{HELD}"' in page


def test_maintenance_runs_only_where_the_tables_name_was_typed(site: Site) -> None:
    data = {"table": "lake.sales.orders", "action": "expire-snapshots", "confirm": "lake.sales.order"}
    answer = site("typical").post("/maintenance/run", data=data)
    assert answer.status_code == 400
    assert "Type lake.sales.orders to run expire-snapshots." in answer.text


def test_condemned_files_are_listed_and_restored(site: Site) -> None:
    client = site(condemn)
    assert "1 of 1 processes" in words(client.get("/trash").text)
    page = client.get(f"/trash/{CONDEMNED}").text
    assert "s3://lake/old-1.parquet" in page
    assert "amoro trash restore" in client.get(f"/trash/{CONDEMNED}/restore").text
    answer = client.post(f"/trash/{CONDEMNED}/restore")
    assert answer.status_code == 303
    after = words(client.get(answer.headers["location"]).text)
    assert "2 files of lake.sales.orders are restored." in after
    assert "Nothing is condemned." in after


def test_trash_is_hurried_only_with_the_name_of_its_table(site: Site) -> None:
    client = site(condemn)
    asked = client.get("/trash/hurry?table=lake.sales.orders")
    assert "Deleted files can&#39;t be restored." in asked.text
    wrong = client.post("/trash/hurry", data={"table": "lake.sales.orders", "confirm": "orders"})
    assert wrong.status_code == 400
    right = client.post("/trash/hurry", data={"table": "lake.sales.orders", "confirm": "lake.sales.orders"})
    assert "2 files are due for deletion now." in client.get(right.headers["location"]).text


def hold(db: Connection) -> None:
    """A process that a guard has stopped."""
    (one,) = states.fill(db, 1)
    made = builders.process(one, HELD, type="expire-snapshots", action="expire-snapshots")
    processes.add(db, replace(made, status=ProcessStatus.HELD, lane="metadata"))


def condemn(db: Connection) -> None:
    """Two files that a process has condemned."""
    (one,) = states.fill(db, 1)
    states.condemn(db, one, CONDEMNED)


def sampled(db: Connection) -> None:
    """Two hours of a group's threads with an hour between them of which nothing is known."""
    states.fill(db, 1)
    for minute in (*range(60), *range(120, 180)):
        at = states.now() - timedelta(minutes=190 - minute)
        series.add(db, [Sample("threads", 8, "default"), Sample("threads-busy", minute % 5, "default")], at)


def test_a_group_shows_its_load_with_gaps(site: Site) -> None:
    client = site(sampled)
    page = client.get("/groups/default?range=6h").text
    paths = re.findall(r'<path d="([^"]+)" class="line', page)
    assert len(paths) == 2
    assert [path.count("M") for path in paths] == [2, 2], "an hour without values is a gap"
    assert 'href="/groups/default?range=7d"' in page
    assert client.get("/groups/default?range=2h").status_code == 400
    assert len(re.findall(r'class="line s0"', client.get("/optimizers?range=6h").text)) >= 1
