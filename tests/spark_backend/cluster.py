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

from tests.acceptance.processes import Process
from tests.spark_backend.spark import PYTHON_PATH, SPARK_HOME

HOST = "127.0.0.1"


@dataclass(slots=True)
class Cluster:
    """A running cluster."""

    directory: Path
    environment: Mapping[str, str]
    cores: int  # of each worker
    master_url: str
    master: Process
    workers: list[Process] = field(default_factory=list)

    def add_worker(self) -> Process:
        """One more worker, which registers soon."""
        name = f"worker-{len(self.workers) + 1}"
        options = ("--cores", str(self.cores), "--memory", "2g", "--work-dir", str(self.directory / "work"))
        worker = _start(self.directory, self.environment, name, "worker.Worker", *options, self.master_url)
        self.workers.append(worker)
        return worker

    def close(self) -> None:
        """End everything that was started, executors included."""
        for daemon in (*self.workers, self.master):
            with suppress(ProcessLookupError):
                os.killpg(daemon.popen.pid, signal.SIGKILL)
            daemon.wait()


def start_cluster(directory: Path, workers: int, cores: int, *, bare: bool = False) -> Cluster:
    """A master with so many workers that are registered, of so many cores each. `bare`: its machines lack amoro."""
    environment = {
        **{key: os.environ[key] for key in ("PATH", "JAVA_HOME") if key in os.environ},
        **({} if bare else {"PYTHONPATH": PYTHON_PATH, "PYSPARK_PYTHON": sys.executable}),
        "HOME": str(directory),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    }
    master = _start(directory, environment, "master", "master.Master")
    cluster = Cluster(directory, environment, cores, "", master)
    try:
        master.wait_for("I have been elected leader")
        cluster.master_url = re.findall(r"Starting Spark master at (spark://\S+)", master.output)[0]
        for _ in range(workers):
            cluster.add_worker()
        for worker in cluster.workers:
            worker.wait_for("Successfully registered with master")
    except BaseException:
        cluster.close()
        raise
    return cluster


def _start(directory: Path, environment: Mapping[str, str], name: str, kind: str, *arguments: str) -> Process:
    """A master or a worker, the leader of a process group of its own."""
    log, command = directory / f"{name}.log", [str(SPARK_HOME / "bin" / "spark-class")]
    command += [f"org.apache.spark.deploy.{kind}", "--host", HOST, "--port", "0", "--webui-port", "0", *arguments]
    with log.open("wb") as output:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
    return Process(name, popen, log)
