"""A catalog that pyiceberg and Iceberg's Java runtime share, with one warehouse and name: a SQLite file or a server."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.acceptance.processes import wait_until

from .session import JARS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SharedCatalog:
    """One catalog, open on both sides."""

    name: str
    root: Path
    spark: SparkSession
    pyiceberg: SqlCatalog | RestCatalog
    server: str = ""

    @property
    def uri(self) -> str:
        """The address that pyiceberg and our own settings take."""
        return sqlite_uri(self.root)

    @property
    def warehouse(self) -> str:
        """The warehouse as a URI, the same on both sides."""
        return warehouse_uri(self.root)

    @property
    def properties(self) -> dict[str, str]:
        """The properties with which a further process opens the same catalog through pyiceberg."""
        if self.server:
            return {"type": "rest", "uri": self.server, "warehouse": self.warehouse}
        return {"type": "sql", "uri": self.uri, "warehouse": self.warehouse}

    def full_name(self, identifier: str) -> str:
        """The table's name in Spark's SQL and in our commands: catalog, namespace, table."""
        return f"{self.name}.{identifier}"

    def load(self, identifier: str) -> Table:
        """Load the table as it stands now through pyiceberg; the identifier is without the catalog's name."""
        return self.pyiceberg.load_table(identifier.removeprefix(f"{self.name}."))


def sqlite_uri(root: Path) -> str:
    """The SQLAlchemy address of the catalog's file under the directory."""
    return f"sqlite:///{root / 'catalog.db'}"


def warehouse_uri(root: Path) -> str:
    """The URI of the warehouse under the directory."""
    return (root / "warehouse").as_uri()


@contextmanager
def shared_catalog(spark: SparkSession, root: Path, name: str, namespace: str = "db") -> Iterator[SharedCatalog]:
    """Offer a fresh catalog, with one namespace, on both sides; closed on pyiceberg's side at the end.

    The name is in lower case and used once per session: Spark keeps a catalog under its name until it ends.
    """
    (root / "warehouse").mkdir(parents=True)
    # pyiceberg goes first: it makes the tables of the file with the columns that Java calls schema V1.
    catalog = SqlCatalog(name, uri=sqlite_uri(root), warehouse=warehouse_uri(root))
    try:
        catalog.create_namespace(namespace)
        register_in_spark(spark, root, name)
        yield SharedCatalog(name, root, spark, catalog)
    finally:
        catalog.close()


@contextmanager
def served_catalog(spark: SparkSession, root: Path, name: str, server: str) -> Iterator[SharedCatalog]:
    """Offer the catalog of a REST server, whose warehouse is under the directory, with one namespace."""
    catalog = RestCatalog(name, uri=server, warehouse=warehouse_uri(root))
    try:
        catalog.create_namespace_if_not_exists("db")
        _set_in_spark(spark, name, {"type": "rest", "uri": server})
        yield SharedCatalog(name, root, spark, catalog, server)
    finally:
        catalog.close()


def register_in_spark(spark: SparkSession, root: Path, name: str) -> None:
    """Make the catalog of the directory known to the running session as a JdbcCatalog."""
    settings = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{root / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse_uri(root),
    }
    _set_in_spark(spark, name, settings)


def _set_in_spark(spark: SparkSession, name: str, settings: dict[str, str]) -> None:
    prefix = f"spark.sql.catalog.{name}"
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    # Else Spark goes on reading the snapshot that it saw first, whatever pyiceberg has committed since.
    for key, value in {**settings, "cache-enabled": "false"}.items():
        spark.conf.set(f"{prefix}.{key}", value)


SERVER_JARS = JARS / "rest-server"
#: As Jetty says on which port it listens.
_LISTENS = re.compile(r"Started .*ServerConnector.*:(\d+)\}")


@contextmanager
def java_rest_server(root: Path) -> Iterator[str]:
    """Start the server, with its catalog and its warehouse under the directory; its URI. It is killed at the end."""
    import pyspark  # not part of every installation; Hadoop's client comes with it

    hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    (root / "warehouse").mkdir(parents=True)
    log = root / "server.log"
    settings = {
        "CATALOG_REST_PORT": "0",
        "CATALOG_WAREHOUSE": warehouse_uri(root),
        "CATALOG_URI": f"jdbc:sqlite:{root / 'catalog.db'}",
    }
    path = os.pathsep.join(map(str, [*SERVER_JARS.glob("*.jar"), *hadoop]))
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", path, "org.apache.iceberg.rest.RESTCatalogServer"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=output, stderr=subprocess.STDOUT)
    try:
        found = wait_until(lambda: _LISTENS.search(log.read_text()) or process.poll(), "the REST server listens")
        assert isinstance(found, re.Match), log.read_text()
        yield f"http://127.0.0.1:{found[1]}"
    finally:
        process.kill()
        process.wait()
