"""The one Spark session of the tests, with Iceberg's own Java runtime on its class path."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = Path(__file__).parents[2] / "build" / "jars"
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def missing_parts() -> list[str]:
    """What this machine lacks for Spark's tests, by name; empty when they can run."""
    java = shutil.which("java") or (Path(os.environ.get("JAVA_HOME", "/nonexistent")) / "bin" / "java").exists()
    parts = {
        "pyspark": importlib.util.find_spec("pyspark"),
        "a JDK": java,
        "Iceberg's Spark runtime in build/jars": list(JARS.glob("iceberg-spark-runtime-*.jar")),
        "sqlite-jdbc in build/jars": list(JARS.glob("sqlite-jdbc-*.jar")),
        "Iceberg's REST server in build/jars/rest-server": list((JARS / "rest-server").glob("iceberg-open-api-*.jar")),
    }
    return [name for name, found in parts.items() if not found]


def start_session(scratch: Path) -> SparkSession:
    """Return a new local session that writes nothing outside the scratch directory and listens on loopback only.

    Sets variables of the environment that the JVM and Python's workers read at their start.
    """
    # pyspark is not part of every installation: without it the tests are skipped, so nothing imports it on top.
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Spark gives times with a zone as local ones.
    os.environ["TZ"] = "UTC"
    time.tzset()
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Not spark.jars: DriverManager finds SQLite's driver only in the application's own class loader.
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in sorted(JARS.glob("*.jar"))),
        # The queries are many and tiny: compiling them, by Spark or by the JVM, costs more than it gains.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={scratch}",
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("amoro-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
