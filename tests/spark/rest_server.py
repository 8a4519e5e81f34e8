"""The REST server of Iceberg's own project, over a catalog in a SQLite file: a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.processes import wait_until

from .catalogs import warehouse_uri
from .session import JARS

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
