"""Hudi tables as Spark writes them, what two readers say of them, and an optimizer's kind in a process of its own."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
from hudi import HudiTableBuilder

from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.task_payload import PROCEDURE_HUDI, Work
from amoro_core.protocol.maintenance_pb2 import ProcedureOutput, ProcedureWork
from tests.spark.session import HUDI_JAR
from tests.spark_backend.groups import run_of
from tests.spark_backend.spark import open_backend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from amoro_optimizer.backends.spark.driver import SparkBackend

LOCK = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.lock.filesystem.expire": "1",
}
#: How writers share a table; a writer that was killed is known to be gone after four seconds.
SHARED = {
    **LOCK,
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.client.heartbeat.interval_in_ms": "2000",
}
_TABLE = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "number",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.parquet.small.file.limit": "0",  # small files are not rewritten by the writer: it writes logs
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",  # every instant stays to be counted
}
Row = tuple[int, str, int]


def upsert(spark: SparkSession, place: Path, number: int, more: Mapping[str, str] = SHARED) -> None:
    """The commit of that number: the first has a hundred rows, each other one changes twenty."""
    rows = [(one, f"p{one % 2}", name, number) for one, name, number in _rows(number)]
    frame = spark.createDataFrame(rows, "id long, part string, name string, number long")
    frame.write.format("hudi").options(**_TABLE, **more).mode("append").save(str(place))


def _rows(number: int) -> list[Row]:
    ids = range(100) if number == 0 else random.Random(number).sample(range(100), 20)
    return [(one, f"{99 - one:02}-{number}", number) for one in ids]


def written(commits: int) -> list[Row]:
    """The rows after so many commits."""
    return sorted({row[0]: row for number in range(commits) for row in _rows(number)}.values())


def seven_upserts(spark: SparkSession, place: Path, more: Mapping[str, str] = SHARED) -> None:
    """A table with base files, and seven commits of log files over them."""
    for number in range(8):
        upsert(spark, place, number, more)


def state(place: Path, **properties: str) -> None:
    """Add properties to the table's own."""
    with (place / ".hoodie" / "hoodie.properties").open("a") as file:
        file.writelines(f"{key}={value}\n" for key, value in properties.items())
    (place / ".hoodie" / ".hoodie.properties.crc").unlink(missing_ok=True)


def by_spark(spark: SparkSession, place: Path) -> list[Row]:
    found = spark.read.format("hudi").load(str(place)).select("id", "name", "number").collect()
    return sorted(map(tuple, found))


def by_hudi(place: Path) -> list[Row]:
    """The rows as the library without a JVM reads them."""
    read = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(place)).build().read())
    return sorted(zip(*(read[name].to_pylist() for name in ("id", "name", "number")), strict=True))


def log_files(place: Path) -> list[str]:
    """Of the file slices that readers need."""
    slices = HudiTableBuilder.from_base_uri(str(place)).build().get_file_slices()
    return [name for one in slices for name in one.log_file_names]


def timeline(place: Path) -> dict[str, bytes]:
    """The files of the timeline, without checksums."""
    files = (place / ".hoodie" / "timeline").glob("[0-9]*")
    return {file.name: file.read_bytes() for file in files}


def completed(place: Path, action: str) -> dict[str, int]:
    """How often each instant of the action was completed."""
    names = [name for name in timeline(place) if name.endswith(f".{action}")]
    return dict(Counter(name.split("_")[0] for name in names))


def planned(place: Path) -> list[str]:
    """The instants of compactions and clusterings that are not completed."""
    names = [path.name for path in (place / ".hoodie" / "timeline").glob("[0-9]*")]  # files come and go beside a writer
    kinds = (".compaction.requested", ".clustering.requested")
    plans = {name.partition(".")[0] for name in names if name.endswith(kinds)}
    return sorted(plans - {name.partition("_")[0] for name in names if "_" in name})


def service(name: str, place: Path, instant: str = "", options: Mapping[str, str] = MappingProxyType({})) -> Work:
    """The work of a service."""
    asked = ProcedureWork(format="hudi", service=name, table="lake.db.t", location=str(place), instant=instant)
    asked.options.update(options)
    return Work(PROCEDURE_HUDI, asked.SerializeToString())


def execute(
    backend: SparkBackend, work: Work, is_cancelled: Callable[[], bool] = lambda: False, number: int = 1
) -> ProcedureOutput:
    run = run_of(Attempt(TaskId("0199aaaa", number), 1), is_cancelled)
    return ProcedureOutput.FromString(backend.execute(work, "lake.db.t", run).payload)


def execute_apart(directory: Path, name: str, instant: str) -> None:
    """Execute a plan of the table in the directory in an application of this process, once a file `go` is there."""
    with open_backend("local[1]", directory, {"spark.log.level": "ERROR"}, [str(HUDI_JAR)]) as backend:
        (directory / "ready").touch()
        while not (directory / "go").exists():
            time.sleep(0.01)
        output = execute(backend, service(name, directory / "t", instant))
    (directory / "output").write_bytes(output.SerializeToString())


if __name__ == "__main__":
    execute_apart(Path(sys.argv[1]), *sys.argv[2:])
