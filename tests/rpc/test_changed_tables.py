"""A coordinator that is told of a commit looks at the table at once, and plans what it finds."""

import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_cli.client import AdminClient
from amoro_cli.launcher import Endpoint
from amoro_core.app import Coordinator
from amoro_core.errors import TableNotFound
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from amoro_core.settings import Settings
from tests.engine import writer
from tests.engine.builders import SCHEMA, row


def test_a_table_that_is_told_of_is_looked_at_though_its_time_has_not_come(
    coordinator: Coordinator, catalog: SqlCatalog
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    with closing(AdminClient(Endpoint(coordinator.address, coordinator.admin_token))) as client:
        with pytest.raises(TableNotFound, match=r"cat\.db\.t"):
            client.table_changed("cat.db.t", "")
        known = coordinator.tables.ensure(parse_table("cat.db.t"))
        assert known.snapshot_id is None
        writer.append(table, [row(1)])
        head = catalog.load_table("db.t").metadata.current_snapshot_id
        for _ in range(3):
            assert client.table_changed("cat.db.t", "appended").table == "cat.db.t"
        for _ in range(1000):
            if coordinator.tables.find_known(known.identifier).snapshot_id == head:
                break
            threading.Event().wait(0.02)
        assert coordinator.tables.find_known(known.identifier).snapshot_id == head


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
