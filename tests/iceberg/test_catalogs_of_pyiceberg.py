import json
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from amoro_core.bootstrap.coordinator_app import running
from amoro_core.bootstrap.settings import Settings
from amoro_core.errors import (
    AmoroError,
    CatalogUnavailable,
    DataFileMissing,
    InvalidArgument,
    InvalidSettings,
    TableNotFound,
    TableRefused,
)
from amoro_core.files.storage.io import ConfinedFileIO
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg import pyiceberg_sandbox
from amoro_core.iceberg.catalog.catalogs import (
    close_catalogs,
    commits_refused,
    load_table,
    locations,
    open_catalog,
    other_names,
    pyiceberg_catalogs,
    resolved,
)
from amoro_core.iceberg.catalog.configuration import LARGEST_BYTES, read_site
from amoro_core.iceberg.catalog.rest import GuardedRestCatalog
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from tests.engine.builders import SCHEMA as PARTED
from tests.engine.builders import row
from tests.engine.writer import append, make_catalog, make_table
from tests.iceberg.scenarios import Answer, change_metadata, http_server, sql_config

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
TABLE = TableIdentifier("cat", ("ns",), "t")


def config(name: str = "cat", **properties: str) -> CatalogConfig:
    return CatalogConfig(name, tuple(sorted((key.replace("_", "-"), value) for key, value in properties.items())))


@pytest.fixture(autouse=True)
def closed_catalogs() -> Iterator[None]:
    yield
    close_catalogs()


@pytest.fixture
def sqlite(tmp_path: Path) -> CatalogConfig:
    """A catalog with the table `ns.t`."""
    catalog = make_catalog(tmp_path)
    make_table(catalog, "ns.t", SCHEMA)
    catalog.close()
    return sql_config(tmp_path)


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty home and an empty current directory, without settings of pyiceberg."""
    for name in [name for name in os.environ if name.lower().startswith("pyiceberg_")]:
        monkeypatch.delenv(name)
    for name in ("home", "here", "named"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_pyiceberg_catalogs_come_from_its_own_home_or_the_home_directory_and_from_variables(
    own_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a file in the current directory says is not read."""
    (own_environment / "here" / ".pyiceberg.yaml").write_text("catalog:\n  evil:\n    uri: http://evil\n")
    assert pyiceberg_catalogs() == []
    (own_environment / "home" / ".pyiceberg.yaml").write_text(
        "catalog:\n  Zoo:\n    URI: http://zoo\n    warehouse: w\n  alpha:\n    ssl:\n      cabundle: /ca\n"
    )
    alpha = CatalogConfig("alpha", (("ssl", '{"cabundle": "/ca"}'),), origin="pyiceberg")
    zoo = CatalogConfig("zoo", (("uri", "http://zoo"), ("warehouse", "w")), origin="pyiceberg")
    assert pyiceberg_catalogs() == [alpha, zoo]
    monkeypatch.setenv("PYICEBERG_CATALOG__ZOO__URI", "http://env")
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__S3__ACCESS_KEY_ID", "id")
    other = CatalogConfig("other", (("s3.access-key-id", "id"),), origin="pyiceberg")
    zoo = CatalogConfig("zoo", (("uri", "http://env"), ("warehouse", "w")), origin="pyiceberg")
    assert pyiceberg_catalogs() == [alpha, other, zoo]
    (own_environment / "named" / ".pyiceberg.yaml").write_text("catalog:\n  named:\n    uri: http://named\n")
    monkeypatch.setenv("PYICEBERG_HOME", str(own_environment / "named"))
    assert "named" in [one.name for one in pyiceberg_catalogs()]
    assert alpha not in pyiceberg_catalogs()


def test_a_malformed_file_is_named(own_environment: Path) -> None:
    (own_environment / "home" / ".pyiceberg.yaml").write_text("catalog: [\n")
    with pytest.raises(InvalidSettings, match=r"home/\.pyiceberg\.yaml"):
        pyiceberg_catalogs()


def test_references_are_resolved_when_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv("CATALOG_SECRET", "from-env")
    references = {"token": f"file:{tmp_path}/token", "secret": "env:CATALOG_SECRET"}
    given = config(**references, warehouse=f"file:{tmp_path}/token")
    assert resolved(given) == {"token": "from-file", "secret": "from-env", "warehouse": f"file:{tmp_path}/token"}


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"type": "rest", "uri": "http://x", "token": "env:NOT_SET_ANYWHERE"}, "catalog cat: token refers to"),
        ({"type": "rest", "uri": "http://x", "token": "file:/not/there/at/all"}, "catalog cat: token refers to"),
        ({}, "neither a type nor a URI"),
        ({"uri": "ftp://x"}, "neither a type nor a URI"),
        ({"py-catalog-impl": "canary_of_amoro.Anything"}, "py-catalog-impl is not allowed"),
    ],
)
def test_what_no_catalog_can_be_opened_by_is_named(canary: "Canary", properties: dict[str, str], words: str) -> None:
    with pytest.raises(CatalogUnavailable, match=words):
        open_catalog(config(**properties))
    assert not canary.was_imported()


@pytest.mark.parametrize(
    ("properties", "word"),
    [
        ({"type": "sql"}, None),
        ({"type": "in-memory"}, None),
        ({"type": "REST"}, None),
        ({"type": "hive"}, None),
        ({"type": "glue"}, None),
        ({"uri": "sqlite:////x.db"}, None),
        ({"uri": "https://x"}, None),
        ({"type": "dynamodb"}, "DynamoDB"),
        ({"type": "bigquery"}, "BigQuery"),
        ({"type": "hadoop"}, "compare and set"),
        ({"type": "filesystem"}, "compare and set"),
        ({"type": "nessie"}, "kind nessie"),
    ],
)
def test_kinds_of_catalogs_that_may_commit(properties: dict[str, str], word: str | None) -> None:
    reason = commits_refused(config(**properties))
    assert (reason is None) if word is None else (reason is not None and word in reason)


def test_each_thread_has_one_catalog_for_each_configuration(sqlite: CatalogConfig) -> None:
    others: list[object] = []

    def open_elsewhere() -> None:
        others.append(open_catalog(sqlite))
        close_catalogs()

    thread = threading.Thread(target=open_elsewhere)
    thread.start()
    thread.join()
    first = open_catalog(sqlite)
    assert open_catalog(sqlite) is first
    assert others[0] is not first
    changed = CatalogConfig("cat", (*sqlite.properties, ("x", "y")))
    assert open_catalog(changed) is not first


def test_a_missing_metadata_file_is_no_missing_table(sqlite: CatalogConfig) -> None:
    path = load_table(sqlite, TABLE).metadata_location
    Path(path.removeprefix("file://")).unlink()
    with pytest.raises(DataFileMissing, match=path.removeprefix("file://")):
        load_table(sqlite, TABLE)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        (b"", "no such table: iceberg_tables"),
        (b"this is no database at all" * 100, "file is not a database"),
    ],
)
def test_a_file_that_is_no_database_of_a_catalog_stays_as_it_is(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "other.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CatalogUnavailable, match=words):
        load_table(config(type="sql", uri=f"sqlite:///{path}"), TABLE)
    assert (path.read_bytes() if path.exists() else None) == content


@pytest.mark.skipif("psycopg2" in sys.modules, reason="psycopg2 is there")
def test_a_missing_extra_is_named() -> None:
    with pytest.raises(CatalogUnavailable) as failed:
        open_catalog(config(type="sql", uri="postgresql+psycopg2://me:topsecret@nowhere/x"))
    assert failed.value.hint == "pip install 'pyiceberg[sql-postgres]'"
    assert "topsecret" not in failed.value.message


def only_for_tables(status: int, body: str) -> Answer:
    return lambda path, headers: (status, {}, body) if "/tables/" in path else (200, {}, EMPTY)


EMPTY = '{"defaults": {}, "overrides": {}}'


NO_TABLE = '{"error": {"message": "no such table", "type": "NoSuchTableException", "code": 404}}'
BUSY = '{"error": {"message": "busy", "type": "Busy", "code": 503}}'


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, NO_TABLE, TableNotFound),
        (404, "<html>wrong address</html>", CatalogUnavailable),
        (404, "", CatalogUnavailable),
        (404, '{"detail": "Not Found"}', CatalogUnavailable),
        (503, BUSY, CatalogUnavailable),
        (200, "<html>proxy</html>", CatalogUnavailable),
    ],
    ids=["catalog's own 404", "html", "empty", "other json", "503", "200 without json"],
)
def test_only_the_catalog_itself_can_say_that_a_table_is_gone(
    status: int, body: str, expected: type[AmoroError]
) -> None:
    with http_server(only_for_tables(status, body)) as uri, pytest.raises(AmoroError) as failed:
        load_table(config(type="rest", uri=uri), TABLE)
    assert type(failed.value) is expected


class Canary:
    """A module on the path that leaves a file when it is imported."""

    def __init__(self, directory: Path) -> None:
        self._mark = directory / "imported"
        self.name = "canary_of_amoro.Anything"
        (directory / "canary_of_amoro.py").write_text(
            f"open({str(self._mark)!r}, 'w').close()\n\n\nclass Anything:\n    pass\n"
        )

    def was_imported(self) -> bool:
        return self._mark.exists() or "canary_of_amoro" in sys.modules


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Canary:
    directory = tmp_path / "modules"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    return Canary(directory)


def set_foreign_property(table: Table, key: str, value: str) -> None:
    """As some other engine would."""
    change_metadata(table, lambda said: said["properties"].update({key: value}))


def test_classes_that_a_table_or_a_server_names_are_not_imported(sqlite: CatalogConfig, canary: Canary) -> None:
    set_foreign_property(load_table(sqlite, TABLE), "py-io-impl", canary.name)
    with pytest.raises(TableRefused, match=f"FileIO {canary.name} is not one of pyiceberg's own") as refused:
        load_table(sqlite, TABLE)
    assert refused.value.reason == "foreign-code"
    auth = f'{{"type": "custom", "impl": "{canary.name}", "custom": {{}}}}'
    answer = f'{{"defaults": {{}}, "overrides": {{"auth": {auth}}}}}'
    with http_server(lambda path, headers: (200, {}, answer)) as uri, pytest.raises((TableRefused, CatalogUnavailable)):
        open_catalog(config(type="rest", uri=uri))
    assert not canary.was_imported()


@pytest.fixture
def own_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Classes of one's own that work, which an administrator has allowed."""
    (tmp_path / "classes_of_amoro.py").write_text(
        "from pyiceberg.catalog.rest.auth import BasicAuthManager\n"
        "from pyiceberg.io.pyarrow import PyArrowFileIO\n\n\n"
        "class OwnFileIO(PyArrowFileIO):\n    pass\n\n\n"
        "class OwnAuth(BasicAuthManager):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    pyiceberg_sandbox.allow_classes(["classes_of_amoro.OwnFileIO", "classes_of_amoro.OwnAuth"])
    yield
    pyiceberg_sandbox.allow_classes([])
    sys.modules.pop("classes_of_amoro", None)


@pytest.mark.usefixtures("own_classes")
def test_what_an_administrator_allows_is_imported(sqlite: CatalogConfig) -> None:
    set_foreign_property(load_table(sqlite, TABLE), "py-io-impl", "classes_of_amoro.OwnFileIO")
    loaded = load_table(sqlite, TABLE).io
    assert isinstance(loaded, ConfinedFileIO)
    assert type(loaded.inner).__name__ == "OwnFileIO"
    custom = {"username": "u", "password": "p"}
    auth = json.dumps({"type": "custom", "impl": "classes_of_amoro.OwnAuth", "custom": custom})
    with http_server(lambda path, headers: (200, {}, EMPTY)) as uri:
        opened = open_catalog(CatalogConfig("own", (("type", "rest"), ("uri", uri), ("auth", auth))))
        assert type(cast("Any", opened)._auth_manager).__name__ == "OwnAuth"


@pytest.mark.usefixtures("own_classes")
def test_a_coordinator_allows_what_its_settings_name_and_nothing_else(tmp_path: Path) -> None:
    wanted = {"py-io-impl": "classes_of_amoro.OwnFileIO"}
    with running(tmp_path / "home", Settings(port=0), watch=False), pytest.raises(TableRefused):
        load_file_io(wanted)
    with running(tmp_path / "home", Settings(port=0, allowed_classes=(wanted["py-io-impl"],)), watch=False):
        assert type(load_file_io(wanted)).__name__ == "OwnFileIO"


@pytest.mark.usefixtures("own_classes")
def test_a_location_provider_is_not_imported_even_so(sqlite: CatalogConfig, canary: Canary) -> None:
    pyiceberg_sandbox.allow_classes([canary.name])
    set_foreign_property(load_table(sqlite, TABLE), "write.py-location-provider.impl", canary.name)
    with pytest.raises(TableRefused, match="location provider"):
        load_table(sqlite, TABLE).location_provider()
    assert not canary.was_imported()


def test_a_tables_own_token_does_not_stay_with_the_catalog() -> None:
    metadata = new_table_metadata(SCHEMA, PartitionSpec(), SortOrder(), "file:///t")
    own = {"token": "of this table only"}
    with http_server(only_for_tables(503, BUSY)) as uri:
        catalog = open_catalog(config(type="rest", uri=uri))
        assert isinstance(catalog, GuardedRestCatalog)
        before = dict(catalog._session.headers)
        table = Table(("ns", "t"), metadata, "file:///t/metadata/1.json", load_file_io(), catalog, own)
        with pytest.raises(NotImplementedError):  # the server has no POST
            catalog.commit_table(table, (), ())
        assert dict(catalog._session.headers) == before


# A catalog in a file of SQLite: whose tables it has, which of several commits wins, and locks of others


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = make_catalog(tmp_path)
    make_table(opened, "db.a", SCHEMA)
    yield opened
    opened.close()
    close_catalogs()


@pytest.fixture
def file(theirs: SqlCatalog, tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def configured(theirs: SqlCatalog, file: Path, timeout_s: float = 5, name: str = "cat") -> CatalogConfig:
    warehouse = theirs.properties["warehouse"]
    return config(name, type="sql", uri=f"sqlite:///{file}?timeout={timeout_s:g}", warehouse=warehouse)


def test_tables_of_another_name_are_not_seen(theirs: SqlCatalog, file: Path) -> None:
    other = configured(theirs, file, name="other")
    assert open_catalog(other).list_namespaces() == []
    assert locations(other, ()) == {}
    assert other_names(other) == ("cat",)


def test_of_commits_to_one_state_one_wins(theirs: SqlCatalog, file: Path) -> None:
    """All have loaded the same state when the first one swaps."""
    together = threading.Barrier(8)
    table = theirs.load_table("db.a")

    def committed(number: int) -> str:
        own: Any = open_catalog(configured(theirs, file, 60))
        write = own._write_metadata

        def writing(*arguments: Any, **named: Any) -> None:
            write(*arguments, **named)
            together.wait(60)

        vars(own)["_write_metadata"] = writing
        try:
            required = AssertTableUUID(uuid=table.metadata.table_uuid)
            own.commit_table(table, (required,), (SetPropertiesUpdate(updates={"p": str(number)}),))
        except CommitFailedException as error:
            return str(error)
        finally:
            close_catalogs()
        return "committed"

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(committed, range(8)))
    assert sorted(done) == ["Table has been updated by another process: db.a"] * 7 + ["committed"]
    assert theirs.load_table("db.a").properties["p"] == str(done.index("committed"))


def test_a_query_holds_no_lock_and_one_that_fails_is_an_error_of_the_catalog(theirs: SqlCatalog, file: Path) -> None:
    impatient = configured(theirs, file, 0.05)
    open_catalog(impatient).load_table("db.a")
    assert locations(impatient, ()) != {}
    with closing(sqlite3.connect(file, 0.05, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(AmoroError, match="the database says: database is locked"):
            locations(impatient, ())
        other.execute("ROLLBACK")
    assert locations(impatient, ()) != {}


# Catalogs that are directories


@pytest.fixture
def lake(tmp_path: Path) -> CatalogConfig:
    """Two tables as Hadoop's catalog lays them out, one of them in a nested namespace.

    Metadata files are named v1, v2, …; the hint is one version behind, as between a writer's two steps.
    """
    catalog = make_catalog(tmp_path / "sql")
    catalog.create_namespace("ns")
    warehouse = tmp_path / "lake"
    for place in ("db/orders", "db/raw/lines"):
        name = f"ns.{place.rpartition('/')[2]}"
        table = catalog.create_table(name, PARTED, location=f"{warehouse.as_uri()}/{place}")
        for number in range(2):
            append(table, [row(number)])
        directory = warehouse / place / "metadata"
        ordered = sorted(directory.glob("*.metadata.json"))
        for number, path in enumerate(ordered, start=1):
            path.rename(path.with_name(f"v{number}.metadata.json"))
        (directory / "version-hint.text").write_text(str(len(ordered) - 1))
    (warehouse / "db" / "_tmp").mkdir()
    (warehouse / "db" / "empty").mkdir()
    catalog.close()
    return CatalogConfig("files", (("type", "hadoop"), ("warehouse", warehouse.as_uri())))


def test_tables_are_listed_and_read_at_their_newest_version(lake: CatalogConfig) -> None:
    tables = IcebergFormat()
    tables.check(lake)
    orders, lines = TableIdentifier("files", ("db",), "orders"), TableIdentifier("files", ("db", "raw"), "lines")
    assert tables.list_tables(lake) == [orders, lines]
    for identifier in (orders, lines):
        found = tables.load(lake, identifier)
        assert found.facts.metadata_location.endswith("/metadata/v3.metadata.json")
        scan = found.scan()
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
