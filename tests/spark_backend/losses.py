"""A large table on a cluster that loses an executor, a machine's worker and the driver while it is optimized."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from amoro_core.errors import UnreadableFile
from amoro_core.files.deletes.vectors import blobs_in
from amoro_core.model.task_payload import MAP_ENDING
from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import assert_optimized_once, is_optimized, look, name_of, unreferenced_files
from tests.engine import writer
from tests.engine.builders import BY_PART
from tests.engine.parquet_rows import local_path
from tests.spark_backend.cluster import Cluster
from tests.spark_backend.spark import descendants, executor_of, is_alive, java_of, kill, spark_optimizer, writers

PARTS = tuple("abcdefghijkl")
ROWS, PAYLOAD_BYTES = 20, 40_000  # of a file; the payload is noise, so that bytes in memory are bytes on disk
COMMIT_BYTES = len(PARTS) * ROWS * PAYLOAD_BYTES
MB = 1_000_000
_TYPES = {"id": "long", "part": "string", "payload": "binary"}
SCHEMA = Schema(*(NestedField(at, name, kind, required=False) for at, (name, kind) in enumerate(_TYPES.items(), 1)))
#: Executors that stay small: the tests' machine has two cores for all of it.
SETTINGS = {"spark.executor.memory": "512m"}


def large_table(
    installation: Installation, name: str, megabytes: int, level: int, more: Mapping[str, str] = MappingProxyType({})
) -> Table:
    """Twelve partitions with files of 0.8 MB, with equality and position deletes; they are compressed at that level."""
    noise = random.Random(name)
    # A level that takes its time: there must be something left to be killed.
    properties = {"write.parquet.compression-level": str(level), **more}
    table = writer.make_table(installation.catalog, name, SCHEMA, BY_PART, properties=properties)
    for commit in range(math.ceil(megabytes * MB / COMMIT_BYTES)):
        ids = range(commit * ROWS, (commit + 1) * ROWS)
        rows = [{"id": id_, "part": part, "payload": noise.randbytes(PAYLOAD_BYTES)} for id_ in ids for part in PARTS]
        writer.append(table, rows)
    writer.upsert(table, [{"id": id_, "part": part, "payload": b"new"} for id_ in (3, 37) for part in PARTS], ["id"])
    writer.delete_where(table, lambda record: record["id"] == 15)
    return table


def threads(installation: Installation) -> list[int]:
    return [one["threads"] for one in installation.ask("optimizer", "list")["optimizers"]]


def data_directory(table: Table) -> Path:
    return Path(local_path(table.location()), "data")


def executor_that_writes(cluster: Cluster, table: Table, but: int = 0) -> Callable[[], int | None]:
    """Asked again and again: the executor, other than that one, of a worker that has a file of the table under way."""

    def found() -> int | None:
        for worker in cluster.workers:
            for pid, _ in writers(data_directory(table), worker.popen.pid):
                if (executor := executor_of(pid)) not in (None, but):
                    return executor
        return None

    return found


def unreported(table: Table, lost: Collection[str]) -> bool:
    """Whether each file that no snapshot has is a whole one of the first attempt at a task of `lost`.

    Its result can have been on its way to the coordinator when the driver was killed (docs/spark.md).
    """
    names = unreferenced_files(table)
    of_first = all(any(name.startswith(f"{task}-1-") for task in lost) for name in names)
    return of_first and all(_is_whole(path) for name in names for path in data_directory(table).rglob(name))


def _is_whole(path: Path) -> bool:
    try:
        if path.name.endswith(MAP_ENDING):
            blobs_in(path.read_bytes(), path.name)
        else:
            pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid, UnreadableFile):  # it is being written, or was removed meanwhile
        return False
    return True


def lose_everything_once(
    installation: Installation, cluster: Cluster, table: Table, asked: Sequence[str] = ("--type", "full")
) -> Counter[str]:
    """Optimize the table as asked on a cluster of two workers, killing an executor, a worker and the driver; another
    driver ends it. Counts what was done, all of it in one commit.

    Fails unless one commit came with equal rows, what was done at the driver's death was not done again, nothing else
    was repeated than what was lost, and no file stays but of results that were on their way.
    """
    address = address_of(installation.up())
    optimizer = spark_optimizer(installation, address, cluster.master_url, settings=SETTINGS)

    def tasks_now() -> list[dict[str, Any]]:
        return list(installation.ask("process", "show", planned)["tasks"])

    before = look(table)
    wait_until(lambda: threads(installation) == [4], "a thread for each core")
    # The whole table in one process: by default threads bound what one reads, and each file counts 4 MB more.
    installation.ask("group", "update", "default", "--property", "max-input-file-size-per-thread=8GB")
    planned = installation.ask("optimize", name_of(table), *asked)["process_id"]

    executor = wait_until(executor_that_writes(cluster, table), "an executor writes")
    kill(executor)
    another = wait_until(executor_that_writes(cluster, table, but=executor), "another executor writes")
    (victim,) = [worker for worker in cluster.workers if another in descendants(worker.popen.pid)]
    victim.kill()
    wait_until(lambda: not is_alive(another), "the worker's executor ends with it")
    wait_until(executor_that_writes(cluster, table), "the executor that is left writes")
    java = java_of(optimizer.popen.pid)
    wait_until(lambda: any(task["status"] == "success" for task in tasks_now()), "a task is done")
    optimizer.kill()
    kill(java)
    tasks = tasks_now()
    # A lost executor costs no attempt: Spark runs its tasks again.
    assert {task["attempt"] for task in tasks if task["status"] != "planned"} == {1}
    assert {task["attempt"] for task in tasks} <= {0, 1}
    done = {task["task_id"]: task["attempt"] for task in tasks if task["status"] == "success"}
    assert len(done) < len(tasks), "the driver died too late"

    spark_optimizer(installation, address, cluster.master_url, settings=SETTINGS)
    wait_until(lambda: is_optimized(table), "the second driver's process commits")
    process = wait_until(lambda: installation.ended(planned), "the process ends")
    attempts = {task["task_id"]: task["attempt"] for task in process["tasks"]}
    # A partition is one task or more, each of which makes one file.
    assert (process["status"], len(attempts)) == ("success", len(tasks)), process
    assert {task: attempts[task] for task in done} == done
    # What the driver's four threads held.
    repeated = sum(attempts.values()) - len(attempts)
    assert 1 <= repeated <= 4
    assert_optimized_once(table, before, files=len(tasks))
    lost = {f"{planned}-{task}" for task, number in attempts.items() if number > 1}
    wait_until(lambda: unreported(table, lost), "no file is left over but those whose result was on its way")

    # A result is one file, and the map of the rows that it left out.
    def left() -> Counter[bool]:
        return Counter(name.endswith(MAP_ENDING) for name in unreferenced_files(table))

    wait_until(lambda: left()[True] <= repeated, "no map of what was committed is left over")
    assert left()[False] <= repeated
    figures = {"megabytes optimized": round(before.size_bytes / MB), "files": sum(before.files.values())}
    done = {"tasks": len(attempts), "attempts repeated": repeated, "executors, workers and drivers killed": 3}
    return Counter(figures | done)
