"""The one Spark application of a test process, whose JVM has Iceberg's Java runtime, and the catalogs that both share.

All tests of `tests/spark` and `tests/spark_backend` that run in this process share it: catalogs get names of their own.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.model.processes import CatalogConfig
from tests.acceptance.processes import wait_until

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from amoro_optimizer.backends.spark.driver import SparkBackend
    from amoro_optimizer.backends.spark.procedures import Jar

ROOT = Path(__file__).parents[2]
JARS = ROOT / "build" / "jars"
FORMAT_JARS = ROOT / "build" / "format-jars"
#: For Spark 3.5.
HUDI_JAR = FORMAT_JARS / "hudi-spark3.5-bundle_2.12-1.2.0.jar"
#: Two cores. Spark runs again what is lost, and gives a task up that was lost for the third time.
FAILURES = 3
MASTER = f"local[2,{FAILURES}]"
#: Workers read a pipe as they read a file: a reader that is stuck is what many tests of the backend are about.
PIPES = "file.pipe=allow"


def lacking_for_backend() -> list[str]:
    """What this machine lacks for optimizers on Spark, by name."""
    java = shutil.which("java") or (Path(os.environ.get("JAVA_HOME", "/nonexistent")) / "bin" / "java").exists()
    parts = {"pyspark": importlib.util.find_spec("pyspark"), "a JDK": java}
    return [name for name, found in parts.items() if not found]


def missing_parts() -> list[str]:
    """What it lacks for tables of Iceberg's Java runtime; empty when they can be made."""
    parts = {
        "Iceberg's Spark runtime in build/jars": list(JARS.glob("iceberg-spark-runtime-*.jar")),
        "sqlite-jdbc in build/jars": list(JARS.glob("sqlite-jdbc-*.jar")),
        "Iceberg's REST server in build/jars/rest-server": list((JARS / "rest-server").glob("iceberg-open-api-*.jar")),
    }
    return [*lacking_for_backend(), *(name for name, found in parts.items() if not found)]


def require(missing: list[str]) -> None:
    """Skip by name; where CI says that all must run, fail."""
    if not missing:
        return
    reason = f"Spark's tests need {', '.join(missing)}: run make test"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class Application:
    """A Spark application in this process, from its first use on."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    @cached_property
    def context(self) -> SparkContext:
        """Started as an optimizer starts it; it writes nothing outside the scratch directory."""
        # pyspark is not part of every installation.
        import pyspark

        from amoro_optimizer.backends.spark.shuffle import open_context

        # The JVM and Python's workers get it at their start; other processes do not.
        environment = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.scratch),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(Path(pyspark.__file__).parents[1]))),
            "TZ": "UTC",
        }
        with pytest.MonkeyPatch.context() as patch:
            for key, value in environment.items():
                patch.setenv(key, value)
            context = open_context(MASTER, _settings(self.scratch))
        # PySpark cancels jobs by it; all other tests of this process count on Python's own.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return context

    @cached_property
    def session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        assert self.context is not None  # the session is of the context that there is
        return SparkSession.builder.getOrCreate()

    @cached_property
    def backend(self) -> SparkBackend:
        """An optimizer's backend in this application."""
        from amoro_optimizer.backends.spark.driver import SparkBackend

        return SparkBackend(self.context, engines()[1])

    def close(self) -> None:
        if "backend" in vars(self):
            self.backend.close()
        elif "context" in vars(self):
            self.context.stop()


_applications: list[Application] = []


def application(factory: pytest.TempPathFactory) -> Application:
    """The application of this process."""
    if not _applications:
        _applications.append(Application(factory.mktemp("spark")))
    return _applications[0]


def close_application() -> None:
    while _applications:
        _applications.pop().close()


def start_session(scratch: Path) -> SparkSession:
    """A session for a program that is no test, and lives in UTC from then on."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    return Application(scratch).session


def _settings(scratch: Path) -> Mapping[str, str]:
    import pyspark

    settings = {
        "spark.app.name": "amoro-tests",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.AMORO_FAILPOINTS": PIPES,
        # The queries are many and tiny: compiling them, by Spark or by the JVM, costs more than it gains.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={scratch}",
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.ui.enabled": "false",
    }
    if pyspark.__version__.startswith("4.0."):  # Iceberg's runtime is of that series
        # Not spark.jars: DriverManager finds SQLite's driver only in the application's own class loader.
        settings["spark.driver.extraClassPath"] = os.pathsep.join(str(jar) for jar in sorted(JARS.glob("*.jar")))
        settings["spark.sql.extensions"] = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    elif of_hudi := engines()[0]:
        settings |= of_hudi
        settings["spark.sql.extensions"] = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.hudi.catalog.HoodieCatalog"
    return settings


def engines() -> tuple[dict[str, str], list[Jar]]:
    """What an optimizer makes of Hudi's jar, where the PySpark of the tests is of its series and it was fetched."""
    import pyspark

    from amoro_optimizer.backends.spark.procedures import settings_for

    is_there = pyspark.__version__.startswith("3.5.") and HUDI_JAR.exists()
    return settings_for([str(HUDI_JAR)] if is_there else [], pyspark.__version__)


@contextmanager
def conversation(log: Path, *command: object) -> Iterator[Callable[[str], str]]:
    """A program that answers each line with a line, for the time of the block; its errors go to the log."""
    pipe = subprocess.PIPE
    with (
        log.open("w") as errors,
        subprocess.Popen([*map(str, command)], stdin=pipe, stdout=pipe, stderr=errors, text=True, cwd=ROOT) as process,
    ):

        def ask(line: str) -> str:
            """The answer; without a line, what it says by itself."""
            assert process.stdin is not None
            assert process.stdout is not None
            if line:
                print(line, file=process.stdin, flush=True)
            return process.stdout.readline().strip()

        yield ask


def jobs_of(context: SparkContext, group: str) -> list[Any]:
    """Spark's own records of the jobs of that group."""
    jobs = items_of(context._jsc.sc().statusStore().jobsList(None))
    return [job for job in jobs if job.jobGroup().isDefined() and job.jobGroup().get() == group]


def items_of(scala_sequence: Any) -> list[Any]:
    return [scala_sequence.apply(number) for number in range(scala_sequence.size())]


@dataclass(frozen=True, slots=True)
class SharedCatalog:
    """One catalog, open on both sides."""

    name: str
    spark: SparkSession
    pyiceberg: SqlCatalog | RestCatalog
    config: CatalogConfig  # with which our own services open it
    root: Path

    @property
    def table(self) -> str:
        """The name in Spark's SQL and in our commands of a table that the tests make."""
        return f"{self.name}.db.t"

    def load(self, table: str) -> Table:
        """Load the table as it stands now through pyiceberg."""
        return self.pyiceberg.load_table(table.removeprefix(f"{self.name}."))


def warehouse_uri(root: Path) -> str:
    """The URI of the warehouse under the directory, the same on both sides."""
    return (root / "warehouse").as_uri()


@contextmanager
def shared_catalog(spark: SparkSession, root: Path, name: str) -> Iterator[SharedCatalog]:
    """Offer a fresh catalog, with the namespace `db`, on both sides; closed on pyiceberg's side at the end.

    The name is in lower case and used once per session: Spark keeps a catalog under its name until it ends.
    """
    (root / "warehouse").mkdir(parents=True)
    # pyiceberg goes first: it makes the tables of the file with the columns that Java calls schema V1.
    properties = {"uri": f"sqlite:///{root / 'catalog.db'}", "warehouse": warehouse_uri(root)}
    with closing(SqlCatalog(name, **properties)) as catalog:
        catalog.create_namespace("db")
        java = {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "jdbc.schema-version": "V1"}
        set_in_spark(spark, name, properties | java | {"uri": f"jdbc:sqlite:{root / 'catalog.db'}"})
        config = CatalogConfig(name, (("type", "sql"), *properties.items()))
        yield SharedCatalog(name, spark, catalog, config, root)


@contextmanager
def served_catalog(spark: SparkSession, root: Path, name: str, server: str) -> Iterator[SharedCatalog]:
    """Offer the catalog of a REST server, whose warehouse is under the directory, with the namespace `db`."""
    properties = {"type": "rest", "uri": server, "warehouse": warehouse_uri(root)}
    with closing(RestCatalog(name, **properties)) as catalog:
        catalog.create_namespace_if_not_exists("db")
        set_in_spark(spark, name, {"type": "rest", "uri": server})
        yield SharedCatalog(name, spark, catalog, CatalogConfig(name, tuple(properties.items())), root)


@contextmanager
def set_for_now(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The settings of the session for the time of the block."""
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)


def set_in_spark(spark: SparkSession, name: str, settings: dict[str, str]) -> None:
    """Make a catalog of Iceberg known to the running session under that name."""
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
