"""A group of files with deletes, clustered by a backend; what is seen of it, and of the parts of its job."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from amoro_core.model.clustering import CLUSTER, ClusterInput, ClusterOutput, Layout, LayoutKey, Strategy
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import RewriteInput, RewriteOutput, Work
from amoro_core.protocol.codec import decode_cluster_output, encode_cluster_input
from amoro_optimizer.backends.spark import clustering
from amoro_optimizer.backends.spark.driver_channel import Job
from amoro_optimizer.execution import Backend
from amoro_optimizer.work_kinds import Run
from tests.acceptance.tables import name_of
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.services.world import World
from tests.spark_backend.spark import kill
from tests.work import rewrite_input, rewrite_output, rewrite_work

FILES, FILE_ROWS, OUTPUTS = 6, 150, 4
LINEAR = Layout(Strategy.LINEAR, (LayoutKey(3, descending=True, nulls_last=True), LayoutKey(1)))
HILBERT = Layout(Strategy.HILBERT, (LayoutKey(1), LayoutKey(3)))


def group_table(catalog: Catalog, name: str = "db.group") -> Table:
    """Six files with rows in no order, some of which equality and position deletes remove."""
    chance = random.Random(16)
    table = writer.make_table(catalog, name, SCHEMA)
    numbers = list(range(FILES * FILE_ROWS))
    chance.shuffle(numbers)
    for file in range(FILES):
        chosen = numbers[file * FILE_ROWS : (file + 1) * FILE_ROWS]
        writer.append(table, [row(one, value=f"value {one % 5}" if one % 13 else None) for one in chosen])
    writer.upsert(table, [row(number, value="anew") for number in range(0, 300, 7)], ["id"])
    writer.delete_where(table, lambda record: record["id"] % 11 == 5)
    return table


def group_of(world: World, table: Table, layout: Layout, outputs: int = OUTPUTS) -> tuple[Attempt, ClusterInput]:
    """All files of the table, to be clustered into so many outputs."""
    attempt, work = only_task(world, table)
    return attempt, ClusterInput(replace(work, output_count=outputs), layout, "0123456789ab", seed=7)


def only_task(world: World, table: Table) -> tuple[Attempt, RewriteInput]:
    """All files of the table as one rewrite."""
    world.begin(OptimizingType.FULL, name_of(table))
    (task,) = world.poll(world.optimizer())
    return task.attempt, rewrite_input(task.work)


def run_of(
    attempt: Attempt,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    memory_bytes: int = 1 << 28,
    **more: Any,
) -> Run:
    return Run(attempt, {}, memory_bytes, on_progress, is_cancelled, **more)


def rewritten(backend: Backend, work: RewriteInput, attempt: Attempt, **run: Any) -> RewriteOutput:
    """What the backend makes of the rewrite."""
    return rewrite_output(backend.execute(rewrite_work(work), work.table.table, run_of(attempt, **run)))


def clustered(backend: Backend, work: ClusterInput, attempt: Attempt, **run: Any) -> ClusterOutput:
    """What the backend makes of the group."""
    asked = Work(CLUSTER, encode_cluster_input(work))
    return decode_cluster_output(backend.execute(asked, work.rewrite.table.table, run_of(attempt, **run)).payload)


def another(attempt: Attempt) -> Attempt:
    """An attempt of another task, whose files have other names."""
    return Attempt(TaskId(attempt.task_id.process_id, attempt.task_id.number + 1), attempt.number)


def rows_of(output: ClusterOutput) -> list[list[dict[str, Any]]]:
    """The rows of each file, in their order."""
    return [pq.read_table(local_path(file.path)).to_pylist() for file in output.rewrite.data_files]


def files_of(table: Table) -> set[str]:
    """The names of all files in the table's data directory."""
    return {path.name for path in Path(local_path(table.location()), "data").rglob("*") if path.is_file()}


@dataclass(frozen=True, slots=True)
class Told:
    """What an execution of a part said."""

    stage: str
    part: str
    execution: int
    what: str  # "file", "facts" or "failed"
    job: Job


class Watch:
    """All that parts say, and what is done before they are answered, for which they wait."""

    def __init__(
        self,
        patch: Any,
        before: Callable[[Told], None] = lambda told: None,
        as_heard: Callable[[Told, Mapping[str, Any]], Mapping[str, Any]] = lambda told, said: said,
    ) -> None:
        """For the time of `patch`, a MonkeyPatch, in this process: it has the driver, which hears `as_heard`."""
        self.told: list[Told] = []
        answer = Job._answer

        def watched(job: Job, line: Any, part: str, execution: int, said: Mapping[str, Any]) -> None:
            one = Told(part.split()[0], part, execution, next(iter(said)), job)
            self.told.append(one)
            before(one)
            answer(job, line, part, execution, as_heard(one, said))

        patch.setattr(Job, "_answer", watched)

    def executions(self, stage: str) -> dict[str, set[int]]:
        """Of each part of the stage that said something those who did."""
        found: dict[str, set[int]] = {}
        for one in self.told:
            if one.stage == stage:
                found.setdefault(one.part, set()).add(one.execution)
        return found


def small_slices(patch: Any, most_bytes: int = 1) -> None:
    """Each file is a part of its own, as if it were large; for the time of `patch`, a MonkeyPatch.

    With row groups in a file, and more bytes than one, it is read in pieces.
    """
    for name in ("_LEAST_SLICE_BYTES", "SLICE_BYTES"):
        patch.setattr(clustering, name, most_bytes)


def kill_quietly(pids: set[int]) -> None:
    """SIGKILL to processes, of which some may be gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            kill(pid)
