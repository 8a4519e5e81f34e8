"""A Spark application for optimizing: its settings, and what must be installed for it."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext

from amoro_core.errors import InvalidSettings

DEFAULT_MASTER = "local[*]"

#: Settings that are ours, whatever Spark's configuration says.
FIXED = {
    # Tasks of many tables share the cores; a one-task job behind a long one would wait under FIFO.
    "spark.scheduler.mode": "FAIR",
    # A failed execution is a failed attempt: the coordinator counts and repeats, not Spark.
    "spark.task.maxFailures": "1",
    # A copy of a rewrite is work for nothing; only the newest execution may write anyway.
    "spark.speculation": "false",
}
DEFAULTS = {
    "spark.app.name": "amoro-optimizer",
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
}


def open_context(master: str | None, settings: Mapping[str, str]) -> SparkContext:
    """Start the application, or enter the one that spark-submit has prepared.

    `settings` stand above those of spark-submit and spark-defaults.conf. Raises InvalidSettings.
    """
    if clashing := sorted(key for key, value in settings.items() if FIXED.get(key, value) != value):
        told = ", ".join(f"{key}={FIXED[key]}" for key in clashing)
        raise InvalidSettings(f"an optimizer on Spark needs {told}", hint="Leave these settings out.")
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    if not under_submit:
        require_java()
    # Properties of a job, such as its group, belong to the thread that starts it.
    os.environ["PYSPARK_PIN_THREAD"] = "true"
    conf = SparkConf()
    for key, value in DEFAULTS.items():
        conf.setIfMissing(key, value)
    for key, value in {**settings, **FIXED}.items():
        conf.set(key, value)
    # Only spark-submit looks at this setting.
    os.environ.setdefault("PYSPARK_PYTHON", conf.get("spark.pyspark.python") or sys.executable)
    if not conf.get("spark.submit.pyFiles"):
        # The daemon is started before files of --py-files are on its path.
        conf.setIfMissing("spark.python.daemon.module", "amoro_optimizer.backends.spark.daemon")
    if master is not None:
        conf.setMaster(master)
    elif not under_submit:
        conf.setIfMissing("spark.master", DEFAULT_MASTER)
    try:
        return SparkContext(conf=conf)
    except Exception as error:
        raise InvalidSettings(
            f"Spark does not start with master {conf.get('spark.master')}: {reason_of(error)}",
            hint="Spark's own messages above say more; amoro runs on Java 17.",
        ) from error


def require_java() -> None:
    """Raise InvalidSettings unless there is a Java runtime that Spark will find."""
    home = os.environ.get("JAVA_HOME")
    found = (Path(home) / "bin" / "java").exists() if home else shutil.which("java") is not None
    if not found:
        raise InvalidSettings(
            f"Spark needs Java, and {f'JAVA_HOME={home} has no bin/java' if home else 'there is none on the PATH'}",
            hint="Install JDK 17, such as openjdk-17-jre-headless, and set JAVA_HOME where it is not on the PATH.",
        )


def reason_of(error: Exception) -> str:
    """What Spark says of a failure, in one line: neither its stack nor ours.

    Where that line only announces what comes (a traceback, what Python said), the first error below it is added.
    """
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() or java.toString()) if java is not None else str(error)
    first, *rest = text.split("most recent failure: ")[-1].strip().splitlines() or [type(error).__name__]
    below = next((found for line in rest if (found := _ERROR.search(line))), None)
    return f"{first.rstrip()} {below.group()}" if below and first.rstrip().endswith(":") else first


#: An error by its class and message, the parenthesis that Python may put around it left out.
_ERROR = re.compile(r"\b[A-Za-z]\w*(?:Error|Exception): .*[^\s)]")
