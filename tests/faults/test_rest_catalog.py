"""The whole job through a REST catalog, and the test's catalog itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table.update import AssertRefSnapshotId

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.model.processes import CatalogConfig, CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, SPECS, row
from tests.faults.rest import RestServer
from tests.faults.system import TABLE, System
from tests.faults.world import World
from tests.tiers import sample


@pytest.fixture
def client(server: RestServer) -> Catalog:
    return RestCatalog("cat", uri=server.uri)


def test_tables_made_and_written_through_rest_are_those_of_the_catalog_beneath(
    client: Catalog, catalog: SqlCatalog
) -> None:
    made = writer.make_table(client, "db.t", SCHEMA, BY_PART, 2, {"owner": "x"})
    writer.append(made, [row(1), row(2, "b")])
    beneath = catalog.load_table("db.t")
    assert beneath.metadata == made.refresh().metadata
    assert beneath.metadata.properties["owner"] == "x"
    assert client.list_tables("db") == [("db", "t")]
    assert client.list_namespaces() == [("db",)]
    assert client.table_exists("db.t")
    assert not client.table_exists("db.u")


def test_errors_arrive_as_pyiceberg_knows_them(client: Catalog) -> None:
    table = writer.make_table(client, "db.t", SCHEMA)
    with pytest.raises(TableAlreadyExistsError):
        client.create_table("db.t", SCHEMA)
    with pytest.raises(NamespaceAlreadyExistsError):
        client.create_namespace("db")
    with pytest.raises(NoSuchTableError):
        client.load_table("db.u")
    with pytest.raises(NoSuchNamespaceError):
        client.list_tables("dc")
    with pytest.raises(CommitFailedException, match="main is missing"):
        client.commit_table(table, (AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": 1}),), ())


def test_our_catalog_lists_and_loads_through_rest(over_rest: CatalogConfig, catalog: SqlCatalog) -> None:
    writer.make_table(catalog, "db.t", SCHEMA)
    tables = IcebergFormat()
    tables.check(over_rest)
    assert tables.list_tables(over_rest) == [TABLE]
    assert tables.load(over_rest, TABLE).facts.uuid == str(catalog.load_table("db.t").metadata.table_uuid)


@pytest.mark.parametrize("spec", sample(sorted(SPECS), every=2))
def test_minor_major_and_full_are_committed_through_rest(
    over_rest: CatalogConfig, catalog: SqlCatalog, tmp_path: Path, spec: str
) -> None:
    world = World(catalog, SPECS[spec])
    with System(tmp_path / "home", catalog, over_rest) as system:
        for kind in OptimizingType:
            world.fill()
            process = system.optimized(kind)
            assert process.type == kind
            assert process.status is ProcessStatus.SUCCESS
            assert world.require_ended(system, process.process_id) is ProcessStatus.SUCCESS
            assert [attempt.outcome for attempt in system.attempts(process.process_id)] == [CommitOutcome.DONE]


def test_format_1_is_committed_through_rest(over_rest: CatalogConfig, catalog: SqlCatalog, tmp_path: Path) -> None:
    world = World(catalog, version=1)
    with System(tmp_path / "home", catalog, over_rest) as system:
        world.fill()
        process = system.optimized()
        assert world.require_ended(system, process.process_id) is ProcessStatus.SUCCESS
