"""A standalone Spark cluster of processes, from PySpark's own distribution: a master and workers on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.acceptance.processes import PATIENCE_S, wait_until
from tests.spark_backend.spark import PYTHON_PATH, SPARK_HOME

HOST = "127.0.0.1"


@dataclass(slots=True)
class Daemon:
    """A master or a worker, the leader of a process group of its own."""

    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """SIGKILL to this JVM alone; it is gone afterwards."""
        self.popen.kill()
        self.popen.wait(PATIENCE_S)


@dataclass(slots=True)
class Cluster:
    """A running cluster."""

    directory: Path
    environment: Mapping[str, str]
    cores: int  # of each worker
    master_url: str
    master: Daemon
    workers: list[Daemon] = field(default_factory=list)

    def add_worker(self) -> Daemon:
        """One more worker, which registers soon."""
        name = f"worker-{len(self.workers) + 1}"
        options = ("--cores", str(self.cores), "--memory", "2g", "--port", "0")
        options = (*options, "--work-dir", str(self.directory / "work"), self.master_url)
        self.workers.append(_start(self.directory, self.environment, name, "worker.Worker", *options))
        return self.workers[-1]

    def close(self) -> None:
        """End everything that was started, executors included."""
        for daemon in (*self.workers, self.master):
            with suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.popen.wait(PATIENCE_S)


def start_cluster(directory: Path, workers: int, cores: int, *, bare: bool = False) -> Cluster:
    """A master with so many workers that are registered, of so many cores each. `bare`: its machines lack amoro."""
    environment = _environment(directory, bare)
    master = _start(directory, environment, "master", "master.Master", "--port", "0")
    cluster = Cluster(directory, environment, cores, "", master)
    try:
        _wait_for(master, "I have been elected leader")
        cluster.master_url = re.findall(r"Starting Spark master at (spark://\S+)", master.output)[0]
        for _ in range(workers):
            cluster.add_worker()
        for worker in cluster.workers:
            _wait_for(worker, "Successfully registered with master")
    except BaseException:
        cluster.close()
        raise
    return cluster


def _start(directory: Path, environment: Mapping[str, str], name: str, kind: str, *arguments: str) -> Daemon:
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(
            [
                *(str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"),
                *("--host", HOST, "--webui-port", "0", *arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
    return Daemon(popen, log)


def _environment(directory: Path, bare: bool) -> Mapping[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "JAVA_HOME") if key in os.environ}
    python = {} if bare else {"PYTHONPATH": PYTHON_PATH, "PYSPARK_PYTHON": sys.executable}
    return (
        kept
        | python
        | {
            "HOME": str(directory),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(directory),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
        }
    )


def _wait_for(daemon: Daemon, text: str) -> None:
    def said() -> bool:
        if daemon.popen.poll() is not None:
            raise AssertionError(f"{daemon.log.name} ended:\n{daemon.output[-3000:]}")
        return text in daemon.output

    wait_until(said, f"{daemon.log.stem} says {text!r}")
