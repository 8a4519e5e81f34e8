"""Catalogs that are directories, and uploaded configuration files of catalogs."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.errors import CatalogUnavailable, InvalidArgument, TableNotFound, TableRefused
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.catalog.configuration import LARGEST_BYTES, read_site
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


# Uploaded configuration files: what they stand for, and what is refused


def site(properties: dict[str, str]) -> str:
    pairs = (f"<property><name>{key}</name><value>{value}</value></property>" for key, value in properties.items())
    return f"<?xml version='1.0'?><configuration>{''.join(pairs)}</configuration>"


HIVE = {
    "hive.metastore.uris": "thrift://a:9083,thrift://b:9083",
    "hive.metastore.warehouse.dir": "hdfs://nn/warehouse",
    "hive.metastore.sasl.enabled": "true",
    "hive.metastore.kerberos.principal": "hms/_HOST@EXAMPLE.COM",
    "hive.exec.parallel": "true",
}
CORE = {
    "fs.defaultFS": "hdfs://namenode:8020",
    "fs.s3a.endpoint": "http://minio:9000",
    "fs.s3a.access.key": "env:MINIO_KEY",
    "fs.s3a.secret.key": "hidden",
    "fs.s3a.path.style.access": "true",
    "fs.azure.account.key.lake.dfs.core.windows.net": "abc",
}


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "hive-site.xml",
            site(HIVE),
            {
                "uri": "thrift://a:9083,thrift://b:9083",
                "warehouse": "hdfs://nn/warehouse",
                "hive.kerberos-authentication": "true",
                "hive.kerberos-service-name": "hms",
            },
        ),
        (
            "core-site.xml",
            site(CORE),
            {
                "hdfs.host": "namenode",
                "hdfs.port": "8020",
                "s3.endpoint": "http://minio:9000",
                "s3.access-key-id": "env:MINIO_KEY",
                "s3.secret-access-key": "hidden",
                "s3.force-virtual-addressing": "false",
                "adls.account-name": "lake",
                "adls.account-key": "abc",
            },
        ),
        ("hive-site.xml", site({"fs.defaultFS": "file:///"}), {}),
        (
            "hive-site.xml",
            site({"host": "minio", "port": "${nowhere}", "fs.s3a.endpoint": "http://${host}:9000"}),
            {"s3.endpoint": "http://minio:9000"},
        ),
        ("hive-site.xml", site({"fs.s3a.endpoint": "${nowhere}/a"}), {"s3.endpoint": "${nowhere}/a"}),
        (
            "s3.yaml",
            "s3.endpoint: http://minio:9000\ns3.region: eu\n",
            {"s3.endpoint": "http://minio:9000", "s3.region": "eu"},
        ),
    ],
    ids=["hive", "file systems", "a local file system", "values of others", "values of nobody", "pyiceberg's own"],
)
def test_keys_of_a_configuration_become_pyicebergs(name: str, content: str, expected: dict[str, str]) -> None:
    assert dict(read_site(name, content).properties) == expected


def test_values_in_a_circle_end_and_those_that_multiply_each_other_stay_small() -> None:
    levels = {f"v{level}": f"${{v{level + 1}}}" * 10 for level in range(30)}
    for value, more in (("x${fs.s3a.endpoint}", {}), ("${v0}", levels)):
        found = dict(read_site("hive-site.xml", site({"fs.s3a.endpoint": value, **more})).properties)
        assert len(found["s3.endpoint"]) < 2000


@pytest.mark.parametrize(
    "declaration",
    [
        '<!DOCTYPE configuration [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>',
        '<!DOCTYPE configuration [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE configuration SYSTEM "http://127.0.0.1:9/x.dtd">',
    ],
)
def test_document_types_and_entities_are_refused_unread(declaration: str) -> None:
    entity = "&a;" if "ENTITY" in declaration else ""
    content = f"{declaration}<configuration><property><name>x</name><value>{entity}</value></property></configuration>"
    with pytest.raises(InvalidArgument, match="declares a document type or entities"):
        read_site("hive-site.xml", content)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("hive-site.xml", "<configuration><property>", "is not XML"),
        ("hive-site.xml", "<html/>", "its root is <html>"),
        ("hive-site.xml", "<configuration><property><value>1</value></property></configuration>", "without a <name>"),
        ("s3.yaml", "a: {b: c}", "is not plain YAML"),
        ("s3.yaml", "a:\n  b: c", "nothing nested"),
        ("s3.yaml", "- a", "must hold keys and values"),
        ("s3.yaml", "a: !!python/object:os.system x", "is not plain YAML"),
        ("../hive-site.xml", "<configuration/>", "can't be the name"),
        ("hive-site.json", "{}", "can't be the name"),
        ("s3.yaml", "a: " + "x" * LARGEST_BYTES, "is larger than"),
    ],
)
def test_what_is_no_configuration_is_refused(name: str, content: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        read_site(name, content)
