"""A coordinator that is told of a commit looks at the table at once, and plans what it finds."""

import json
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_cli.client import AdminClient
from amoro_cli.launcher import Endpoint
from amoro_cli.main import run
from amoro_core.app import Coordinator
from amoro_core.command import LazyLauncher
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from amoro_core.settings import Settings
from tests.cli.contract import check_document
from tests.engine import writer
from tests.engine.builders import SCHEMA, row

Changed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def changed(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Changed:
    """`amoro table changed` beside the coordinator: its exit status, and what it says on both streams."""
    for name in ("AMORO_HOME", "AMORO_ADDRESS", "AMORO_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = run(LazyLauncher(), ["table", "changed", *arguments, "--home", str(coordinator.home)])
        said = capfd.readouterr()
        check_document(said.out)
        return status, said.out, said.err

    return call


@pytest.fixture
def two_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """To be asked for before the coordinator."""
    monkeypatch.setattr("amoro_core.services.hearing.MOST_A_MINUTE", 2)


def head_of(catalog: SqlCatalog, name: str) -> int:
    found = catalog.load_table(name).metadata.current_snapshot_id
    assert found is not None
    return found


def wait_until_seen(coordinator: Coordinator, name: str, snapshot_id: int) -> None:
    """Fail unless the coordinator sees that head of the table soon."""
    seen = None
    for _ in range(1500):
        seen = coordinator.tables.find_known(parse_table(name)).snapshot_id
        if seen == snapshot_id:
            return
        threading.Event().wait(0.02)
    raise AssertionError(f"{name} was seen at {seen}")


def test_a_table_that_is_told_of_is_looked_at_though_its_time_has_not_come(
    coordinator: Coordinator, catalog: SqlCatalog, changed: Changed
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    known = coordinator.tables.ensure(parse_table("cat.db.t"))
    assert known.snapshot_id is None
    writer.append(table, [row(1)])
    for _ in range(3):
        status, out, err = changed("cat.db.t", "--hint", "appended", "-o", "json")
        assert (status, err) == (0, "")
        assert (json.loads(out)["schema"], json.loads(out)["table"]) == ("amoro.table/v1", "cat.db.t")
    wait_until_seen(coordinator, "cat.db.t", head_of(catalog, "db.t"))
    assert changed("cat.db.t")[0::2] == (0, "")


def test_a_new_table_that_is_told_of_is_found_and_looked_at(
    coordinator: Coordinator, catalog: SqlCatalog, changed: Changed
) -> None:
    writer.append(writer.make_table(catalog, "db.t", SCHEMA), [row(1)])
    assert coordinator.tables.list_tables() == []
    assert changed("cat.db.t")[0] == 0
    wait_until_seen(coordinator, "cat.db.t", head_of(catalog, "db.t"))


def test_a_table_that_does_not_exist_is_named(coordinator: Coordinator, catalog: SqlCatalog, changed: Changed) -> None:
    writer.make_table(catalog, "db.orders", SCHEMA)
    assert changed("cat.db.orders")[0] == 0
    assert changed("cat.db.order") == (
        3,
        "",
        "Error: table cat.db.order does not exist [AMORO-3002]\nHint: Did you mean cat.db.orders?\n",
    )
    assert changed("cta.db.orders")[0] == 3
    assert [str(one.identifier) for one in coordinator.tables.list_tables()] == ["cat.db.orders"]


def test_of_several_tables_those_that_exist_are_looked_at_and_the_others_are_named(
    coordinator: Coordinator, catalog: SqlCatalog, changed: Changed
) -> None:
    for name in ("first", "second"):
        writer.append(writer.make_table(catalog, f"db.{name}", SCHEMA), [row(1)])
    status, out, err = changed("cat.db.first", "cat.db.none", "cat.db.sec*", "cat.db.gone", "-o", "json")
    document = json.loads(out)
    assert (status, document["schema"], document["exit_status"]) == (3, "amoro.selected/v1", 3)
    assert [(one["table"], one["outcome"], one["code"]) for one in document["tables"]] == [
        ("cat.db.first", "idle", ""),
        ("cat.db.none", "not_found", "AMORO-3002"),
        ("cat.db.second", "idle", ""),
        ("cat.db.gone", "not_found", "AMORO-3002"),
    ]
    assert "2 of 4 tables did not succeed; the worst is cat.db.none: table cat.db.none does not exist" in err
    for name in ("first", "second"):
        wait_until_seen(coordinator, f"cat.db.{name}", head_of(catalog, f"db.{name}"))
    status, out, err = changed("cat.db.first", "cat.db.second")
    assert (status, err) == (0, "")
    assert {"cat.db.first", "cat.db.second"} <= {*out.split()}


def test_who_tells_too_much_is_told_so_and_no_table_is_lost(
    two_a_minute: None, coordinator: Coordinator, catalog: SqlCatalog, changed: Changed
) -> None:
    for number in range(4):
        writer.append(writer.make_table(catalog, f"db.t{number}", SCHEMA), [row(1)])
    status, out, err = changed("cat.db.t0", "cat.db.t1", "cat.db.t2", "-o", "json")
    assert status == 5
    assert [(one["table"], one["code"]) for one in json.loads(out)["tables"]] == [
        ("cat.db.t0", ""),
        ("cat.db.t1", ""),
        ("cat.db.t2", "AMORO-5009"),
    ]
    assert "1 of 3 tables did not succeed" in err
    status, out, err = changed("cat.db.t3")
    assert (status, out) == (5, "")
    assert "has told of 2 changed tables within a minute; cat.db.t3 is looked at in its own time [AMORO-5009]" in err
    assert "Hint: Tell again in " in err
    for number in (0, 1):
        wait_until_seen(coordinator, f"cat.db.t{number}", head_of(catalog, f"db.t{number}"))


def test_a_commit_that_is_told_is_planned_without_a_wait_of_the_coordinator(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    coordinator = Coordinator(tmp_path / "home", replace(Settings(), port=0))
    table = writer.make_table(catalog, "db.t", SCHEMA, properties={"self-optimizing.enabled": "true"})
    identifier = parse_table("cat.db.t")
    coordinator.start()
    try:
        coordinator.catalogs.add(CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items())))
        runtime = coordinator.tables.ensure(identifier)
        coordinator.tables.refresh(runtime.table_id)  # its next look is a minute away
        for number in range(12):
            writer.append(table, [row(number)])
        with closing(AdminClient(Endpoint(coordinator.address, coordinator.admin_token))) as client:
            client.table_changed("cat.db.t", "")
        for _ in range(1500):
            if coordinator.optimizing.list_processes(runtime.table_id):
                break
            threading.Event().wait(0.02)
        assert len(coordinator.optimizing.list_processes(runtime.table_id)) == 1
    finally:
        coordinator.stop()
