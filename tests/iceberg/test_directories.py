"""File-system catalogs: what lies below a warehouse is read, and nothing is ever committed."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.errors import CatalogUnavailable, TableNotFound, TableRefused
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from tests.engine.builders import SCHEMA, row
from tests.engine.writer import append, make_catalog, make_table


@pytest.fixture
def lake(tmp_path: Path) -> CatalogConfig:
    """Two tables as Hadoop's catalog lays them out, one of them in a nested namespace."""
    catalog = make_catalog(tmp_path / "sql")
    warehouse = tmp_path / "lake"
    for place in ("db/orders", "db/raw/lines"):
        table = _made(catalog, place, warehouse)
        for number in range(2):
            append(table, [row(number)])
        _as_hadoop(warehouse / place, table)
    (warehouse / "db" / "_tmp").mkdir()
    (warehouse / "db" / "empty").mkdir()
    catalog.close()
    return CatalogConfig("files", (("type", "hadoop"), ("warehouse", warehouse.as_uri())))


def _made(catalog: SqlCatalog, place: str, warehouse: Path) -> Table:
    make_table(catalog, f"ns.{place.rpartition('/')[2]}", SCHEMA)
    name = f"ns.{place.rpartition('/')[2]}_"
    return catalog.create_table(name, SCHEMA, location=f"{warehouse.as_uri()}/{place}")


def _as_hadoop(place: Path, table: Table) -> None:
    """Metadata files named v1, v2, …; the hint is one version behind, as between a writer's two steps."""
    ordered = sorted((place / "metadata").glob("*.metadata.json"))
    for number, path in enumerate(ordered, start=1):
        path.rename(path.with_name(f"v{number}.metadata.json"))
    (place / "metadata" / "version-hint.text").write_text(str(len(ordered) - 1))


def test_tables_are_listed_and_read_at_their_newest_version(lake: CatalogConfig) -> None:
    tables = IcebergFormat()
    tables.check(lake)
    orders, lines = TableIdentifier("files", ("db",), "orders"), TableIdentifier("files", ("db", "raw"), "lines")
    assert tables.list_tables(lake) == [orders, lines]
    for identifier in (orders, lines):
        found = tables.load(lake, identifier)
        assert found.facts.metadata_location.endswith("/metadata/v3.metadata.json")
        scan = found.scan()
        assert scan is not None
        assert [file.data.record_count for file in scan.files] == [1, 1]


def test_nothing_can_be_committed_there_by_name(lake: CatalogConfig) -> None:
    tables = IcebergFormat()
    table = tables.load(lake, TableIdentifier("files", ("db",), "orders"))
    with pytest.raises(TableRefused, match="can't compare and set") as refused:
        table.refuse_unsupported()
    assert refused.value.reason == "catalog"
    assert "can't compare and set" in (tables.commits_refused(lake) or "")


@pytest.mark.parametrize("namespace", [("db",), ("nowhere",), ("..",), ("db", "..", "db")])
def test_what_is_not_there_is_not_found(lake: CatalogConfig, namespace: tuple[str, ...]) -> None:
    with pytest.raises(TableNotFound):
        IcebergFormat().load(lake, TableIdentifier("files", namespace, "orders" if ".." in namespace else "none"))


def test_a_warehouse_that_is_missing_or_not_named_is_said(tmp_path: Path) -> None:
    for properties in ((), (("warehouse", (tmp_path / "none").as_uri()),)):
        with pytest.raises(CatalogUnavailable, match=r"warehouse is missing|NoSuchNamespaceError"):
            IcebergFormat().check(CatalogConfig("files", (("type", "hadoop"), *properties)))
