"""The REST server of Iceberg's own project, over a catalog in a SQLite file: a process of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from tests.acceptance.processes import free_port, wait_until

from .catalogs import warehouse_uri
from .session import JARS

SERVER_JARS = JARS / "rest-server"


@contextmanager
def java_rest_server(root: Path) -> Iterator[str]:
    """Start the server, with its catalog and its warehouse under the directory; its URI. It is killed at the end."""
    import pyspark  # not part of every installation; Hadoop's client comes with it

    hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    (root / "warehouse").mkdir(parents=True)
    port, log = free_port(), root / "server.log"
    settings = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": warehouse_uri(root),
        "CATALOG_URI": f"jdbc:sqlite:{root / 'catalog.db'}",
    }
    path = os.pathsep.join(map(str, [*SERVER_JARS.glob("*.jar"), *hadoop]))
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", path, "org.apache.iceberg.rest.RESTCatalogServer"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: process.poll() is not None or _answers(port), "the REST server answers")
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/v1/config")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
