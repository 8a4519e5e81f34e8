"""Optimizers on Spark as processes, and what their workers are doing."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from amoro_optimizer.backends.spark.driver import SparkBackend, spark_backend
from tests.acceptance.processes import PATIENCE_S, ROOT, Installation, Process, wait_until
from tests.acceptance.tables import assert_nothing_is_left, assert_optimized_once, look, name_of, partitioned_table
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.spark.session import PIPES

SPARK_HOME = Path(pyspark.__file__).parent
#: Where processes find amoro, and the PySpark that the tests run with: it may be another than the environment's.
PYTHON_PATH = os.pathsep.join((str(ROOT), str(SPARK_HOME.parent)))
#: Everything listens on loopback; the JVMs start faster and stay small.
ENVIRONMENT = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONPATH": PYTHON_PATH,
    "AMORO_FAILPOINTS": PIPES,
}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


def spark_optimizer(
    installation: Installation,
    address: str,
    master: str,
    *options: str,
    failpoints: str = "",
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> Process:
    """An optimizer on that master that is registered."""
    given = [f"--spark-conf={key}={value}" for key, value in {**SETTINGS, **(settings or {})}.items()]
    process = installation.start(
        *("optimizer", "run", "--address", address, "--backend", "spark", "--master", master),
        *("--heartbeat-interval", "500ms", *given, *options),
        environment={
            **environment,
            "AMORO_FAILPOINTS": f"{PIPES},{failpoints}",
            "SPARK_LOCAL_DIRS": str(installation.directory),
        },
    )
    process.wait_for("optimizer.registered")
    return process


def optimize_once(installation: Installation, group: str = "default") -> None:
    """Have a table with deletes rewritten by whoever is in the group, with equal rows."""
    table = partitioned_table(installation.catalog, {"self-optimizing.group": group})
    before = look(table)
    outcome = installation.run("optimize", name_of(table), "--type", "full", "--wait")
    assert outcome.status == 0, outcome.stderr
    assert_optimized_once(table, before, files=3)
    assert_nothing_is_left(table)


@contextmanager
def open_backend(
    master: str, directory: Path, settings: Mapping[str, str], jars: Sequence[str] = ()
) -> Iterator[SparkBackend]:
    """An application whose driver is this process, which has no other, for the time of the block."""
    os.environ.update({**ENVIRONMENT, "SPARK_LOCAL_DIRS": str(directory)})
    with spark_backend(master, {**SETTINGS, **settings}, jars) as opened:
        yield opened


_DAEMONS = (["-m", "pyspark.daemon"], ["-m", "amoro_optimizer.backends.spark.daemon"])


def descendants(pid: int) -> set[int]:
    """The processes that this one has started, and theirs; none of one that is gone."""
    with suppress(psutil.Error):
        return {one.pid for one in psutil.Process(pid).children(recursive=True)}
    return set()


def python_workers(pid: int) -> set[int]:
    """The Python workers below a process: not the daemons, which fork them."""
    daemons = {one for one in descendants(pid) if command_of(one)[1:3] in _DAEMONS}
    return {one for one in daemons if parent_of(one) in daemons}


def java_of(pid: int) -> int:
    """The driver's JVM of an optimizer."""
    (found,) = (one for one in descendants(pid) if "org.apache.spark.deploy.SparkSubmit" in command_of(one))
    return found


def executor_of(pid: int) -> int | None:
    """The executor's JVM above a Python worker; None when one of them is gone already."""
    with suppress(psutil.Error):
        for one in psutil.Process(pid).parents():
            if any("CoarseGrainedExecutorBackend" in word for word in one.cmdline()):
                return one.pid
    return None


def writers(directory: Path, pid: int) -> Iterator[tuple[int, Path]]:
    """The processes below `pid` that have a file below the directory open for writing, and the file."""
    for one in descendants(pid):
        with suppress(psutil.Error):
            for file in psutil.Process(one).open_files():
                if Path(file.path).is_relative_to(directory) and file.mode != "r":
                    yield one, Path(file.path)


def opens_a_pipe(pid: int) -> bool:
    """Whether a thread of the process waits until somebody writes to a pipe."""
    with suppress(OSError):
        return any("wait_for_partner" in path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/wchan"))
    return False


def command_of(pid: int) -> list[str]:
    """The command line of a process; empty when it is gone."""
    with suppress(psutil.Error):
        return psutil.Process(pid).cmdline()
    return []


def parent_of(pid: int) -> int | None:
    with suppress(psutil.Error):
        return psutil.Process(pid).ppid()
    return None


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    with suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def kill(pid: int) -> None:
    """SIGKILL to a process that the test has started, directly or not."""
    os.kill(pid, 9)


_COPYING = "self-optimizing.rewrite.use-parquet-row-group-merge"
#: Rows that are encoded are held in memory until they fill a row group; small row groups are copied at once.
_COPIES = {f"{_COPYING}.enabled": "true", f"{_COPYING}.min-avg-row-group-size-bytes": "0"}


@dataclass(frozen=True, slots=True)
class StuckTable:
    """Two files of ten rows; the last file is a pipe that never says a word, until it is mended."""

    table: Table
    pipe: Path
    kept: Path

    @property
    def directory(self) -> Path:
        return self.pipe.parent

    def mend(self) -> None:
        """Put the file back; who reads the pipe goes on waiting."""
        self.kept.replace(self.pipe)

    def writers(self) -> set[int]:
        """The workers below this process that have begun a file."""
        return {pid for pid, _ in writers(self.directory, os.getpid())}

    def wait_for_writer(self) -> tuple[int, Path]:
        """The worker below this process that has begun a file and is stuck, and the file."""

        def stuck() -> tuple[int, Path] | None:
            return next((one for one in writers(self.directory, os.getpid()) if opens_a_pipe(one[0])), None)

        return wait_until(stuck, "a worker has begun a file and opens the pipe")


def stuck_table(catalog: Catalog) -> StuckTable:
    """The new table `db.stuck`."""
    table = writer.make_table(catalog, "db.stuck", SCHEMA, properties=_COPIES)
    for first in (0, 10):
        writer.append(table, [row(first + number) for number in range(10)])
    last = Path(local_path(oracle.live_files(table)[-1].path))
    kept = last.rename(last.with_suffix(".kept"))
    os.mkfifo(last)
    return StuckTable(table, last, kept)


class Call(threading.Thread):
    """A call in a thread of its own, with what it raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)  # one that hangs fails its test, and does not keep pytest
        self._call = call
        self.raised: Exception | None = None

    def run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self.raised = error

    def wait(self) -> None:
        """Until it has ended, however busy the machine is."""
        self.join(PATIENCE_S)
        assert not self.is_alive(), "the call goes on"


@contextmanager
def in_thread(call: Callable[[], object], end: Callable[[], object] = lambda: None) -> Iterator[Call]:
    """The call going on; it is told to end with the block and waited for, but not forever."""
    made = Call(call)
    made.start()
    try:
        yield made
    finally:
        end()
        made.wait()
