"""Column statistics; on large tables sketched by tasks of optimizers, some files each."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Event

import numpy as np

from amoro_core.actions.action_api import (
    ActionDefaults,
    Plan,
    PlannedTask,
    PlanningContext,
    Prepare,
    Request,
    metadata_change,
)
from amoro_core.actions.snapshots import main_history
from amoro_core.documents.formatting import many
from amoro_core.errors import CheckFailed, CommitConflict
from amoro_core.files.hashing import ThetaSketch
from amoro_core.formats.ports import AnyTable, Readable, Role
from amoro_core.maintenance.manifests import is_large
from amoro_core.maintenance.statistics import StatisticsConfig, StatisticsVerdict, evaluate_statistics
from amoro_core.model.commits import ColumnSketch, StatisticsNamed
from amoro_core.model.files import NO_METRICS, ScannedFile, TableScan
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.processes import STATISTICS, Change, Figure, ProcessContext
from amoro_core.model.properties import parse_into
from amoro_core.model.task_payload import SKETCH, RewriteInput, Work
from amoro_core.protocol import codec, rewrite_pb2
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.scan.live_files import by_partition, reading_works, runs_within
from amoro_optimizer.rewrite.engine import sketch_rows

#: Approximate number of files of a task, and of their bytes.
FILES_OF_A_TASK = 10_000
BYTES_OF_A_TASK = 2**30


def sketch_tasks(table: Readable, scan: TableScan, columns: Iterable[int]) -> tuple[PlannedTask, ...]:
    """The tasks that sketch these columns (field ids) over all rows of a snapshot."""
    specs = sorted({file.data.spec_id for file in scan.files})
    wanted = sorted(columns)
    return tuple(
        _task(some, wanted)
        for spec_id in specs
        for few in runs_within(
            _readings(table, scan, [file for file in scan.files if file.data.spec_id == spec_id]),
            lambda reading: len(reading.rewritten),
            FILES_OF_A_TASK,
        )
        for some in runs_within(few, _bytes, BYTES_OF_A_TASK)
    )


def united(case: ProcessContext, columns: Iterable[int]) -> Mapping[int, ThetaSketch]:
    """The union of the sketches of all tasks. Raises CheckFailed if a task, or a column in its result, is missing."""
    sketches = dict.fromkeys(sorted(columns), ThetaSketch())
    if len(case.results) < case.tasks:
        raise CheckFailed(f"only {len(case.results)} of {many(case.tasks, 'task')} counted their files")
    for result in case.results:
        reported = {column.field_id: column for column in pb.SketchOutput.FromString(result.output).columns}
        for field_id, sketch in sketches.items():
            if field_id not in reported:
                raise CheckFailed(f"task {result.number} says nothing of the column {field_id}")
            sketched_column = reported[field_id]
            part = ThetaSketch(np.frombuffer(sketched_column.hashes, "<u8").astype(np.uint64), sketched_column.theta)
            sketches[field_id] = sketch.union(part)
    return sketches


def _readings(table: Readable, scan: TableScan, files: Iterable[ScannedFile]) -> Iterator[RewriteInput]:
    for place, some in by_partition(files).items():
        context = table.reading(place.spec_id, [scan])
        for start in range(0, len(some), FILES_OF_A_TASK):
            yield from reading_works(context, some[start : start + FILES_OF_A_TASK])


def _bytes(reading: RewriteInput) -> int:
    return sum(file.data.size_bytes for file in reading.rewritten)


def _task(readings: list[RewriteInput], columns: list[int]) -> PlannedTask:
    work = pb.SketchWork(columns=columns)
    for reading in readings:
        message = codec.encode(rewrite_pb2.RewriteInput, _slim(reading))
        work.table.CopyFrom(message.table)
        message.ClearField("table")
        work.readings.append(message)
    files = [file.data for reading in readings for file in reading.rewritten]
    sketch = Work(SKETCH, work.SerializeToString(deterministic=True))
    return PlannedTask.reading(sketch, files, cost=sum(file.size_bytes for file in files))


def _slim(reading: RewriteInput) -> RewriteInput:
    """The reading without metrics of data files, which only save some comparisons."""
    rewritten = tuple(
        replace(file, data=replace(file.data, metrics=NO_METRICS, split_offsets=())) for file in reading.rewritten
    )
    return replace(reading, rewritten=rewritten)


NAME = "compute-statistics"
#: Memory of each reading process: delete keys beyond it are spilled to disk.
READING_BYTES = 256 * 1024 * 1024
#: Readers may still open a file that was replaced.
_KEPT = timedelta(days=1)


class ComputeStatistics(ActionDefaults):
    """The action that computes them on schedule or on request; its process pins the snapshot that it reads."""

    name = NAME
    configuration = StatisticsConfig
    lane = STATISTICS
    roles = frozenset({Role.READ, Role.COMMIT, Role.ANALYZE})
    every = timedelta(days=1)
    switch = "maintenance.compute-statistics.enabled"
    needs_gc = False

    def __init__(self) -> None:
        self._interrupted = Event()

    def interrupt(self) -> None:
        """End reading soon, with AttemptAbandoned."""
        self._interrupted.set()

    def plan(
        self, table: AnyTable, situation: PlanningContext, request: Request
    ) -> tuple[StatisticsVerdict, Plan | None]:
        """The head's statistics, if too many rows have changed since the last; on request, if it has none."""
        config = parse_into(StatisticsConfig, situation.properties)
        names = table.countable_columns()
        columns = config.field_ids(names)
        partitions = config.partition and table.is_partitioned()
        history, entries = main_history(table), table.statistics()
        verdict = evaluate_statistics(
            config,
            columns,
            history,
            entries,
            partitions=partitions,
            by_request=request.name is not None,
            force=request.force,
        )
        if not verdict.is_due:
            return verdict, None
        head = history[0]
        snapshots = {snapshot.snapshot_id for snapshot in table.snapshots()}
        replaced = [
            *(column for column in entries.columns if column.snapshot_id == head.snapshot_id and columns),
            *(item for item in entries.partitions if item.snapshot_id == head.snapshot_id and partitions),
            *(statistics_entry for statistics_entry in entries.every if statistics_entry.snapshot_id not in snapshots),
        ]
        stored = [{"path": file.path, "bytes": file.size_bytes, "snapshot_id": file.snapshot_id} for file in replaced]
        detail = {"columns": columns, "partitions": partitions, "replaced": stored}
        document = {
            "snapshot_id": head.snapshot_id,
            "columns": [name for name, field_id in names.items() if field_id in columns],
            "partition_statistics": partitions,
            "replaced_files": [{"path": file.path, "bytes": file.size_bytes} for file in replaced],
        }
        tasks = _tasks(table, head.snapshot_id, columns, request)
        return verdict, self.planned(table, verdict.reason, detail, tasks=tasks, document=document)[1]

    def preparing(self) -> Prepare:
        """A function that reads the snapshot's rows, once for all attempts, and stages its statistics."""
        return self.preparing_while(lambda: True)

    def preparing_while(self, goes_on: Callable[[], bool]) -> Prepare:
        """The same; it stops reading soon after its process has ended."""
        read: list[tuple[ColumnSketch, ...]] = []

        def is_stopped() -> bool:
            return self._interrupted.is_set() or not goes_on()

        def prepare(table: AnyTable, case: ProcessContext, now: datetime) -> Change:
            if not read:
                read.append(self._read(table, case, is_stopped))
            return _change(table, case, read[0], now)

        return prepare

    def _read(self, table: AnyTable, case: ProcessContext, is_stopped: Callable[[], bool]) -> tuple[ColumnSketch, ...]:
        columns = frozenset(case.detail["columns"])
        if not columns:
            return ()
        if case.tasks:
            return _column_sketches(united(case, columns))
        scan = table.scan_of(case.process.snapshot_id)
        if scan is None:
            raise CommitConflict(f"snapshot {case.process.snapshot_id} is not in the table any more")
        sketches = dict.fromkeys(sorted(columns), ThetaSketch())
        for place, files in by_partition(scan.files).items():
            for work in reading_works(table.reading(place.spec_id, [scan]), files):
                parts = sketch_rows(
                    work, table.access(), columns, memory_limit_bytes=READING_BYTES, is_cancelled=is_stopped
                )
                for field_id, part in parts.items():
                    sketches[field_id] = sketches[field_id].union(part)
        return _column_sketches(sketches)

    def condemned(self, table: AnyTable, case: ProcessContext) -> Iterable[Condemned]:
        """The files whose entries were replaced, or belong to removed snapshots, unless they are referenced again."""
        named = {statistics_entry.path for statistics_entry in table.statistics().every}
        for file in case.detail["replaced"]:
            if file["path"] not in named:
                reason = f"statistics of snapshot {file['snapshot_id']}, replaced or of a snapshot that is gone"
                yield Condemned(file["path"], FileKind.STATISTICS, file["bytes"], None, reason)

    def keep(self, case: ProcessContext) -> timedelta:
        """How long replaced files stay."""
        return _KEPT


def _tasks(table: AnyTable, snapshot_id: int, columns: Collection[int], request: Request) -> tuple[PlannedTask, ...]:
    """The tasks that read a large table; none for a preview, which starts nothing."""
    if request.is_preview or not columns or not is_large(table.snapshots()):
        return ()
    scan = table.scan_of(snapshot_id)
    return () if scan is None else sketch_tasks(table, scan, columns)


def _column_sketches(sketches: Mapping[int, ThetaSketch]) -> tuple[ColumnSketch, ...]:
    return tuple(ColumnSketch(key, int(sketch.estimate), sketch.serialized()) for key, sketch in sketches.items())


def _change(table: AnyTable, case: ProcessContext, sketches: tuple[ColumnSketch, ...], now: datetime) -> Change:
    snapshot_id = case.process.snapshot_id
    staged = table.stage_statistics(snapshot_id, sketches, partitions=case.detail["partitions"])
    paths = tuple(statistics_entry.path for statistics_entry in staged.written)
    figures = (
        Figure("columns", len(sketches), ""),
        Figure("partitions", staged.partitions, ""),
        Figure("bytes_written", sum(statistics_entry.size_bytes for statistics_entry in staged.written), "bytes"),
    )
    words, evidence = f"computed statistics of snapshot {snapshot_id}", StatisticsNamed(snapshot_id, paths)
    change = metadata_change(case, staged.payload, evidence, words, figures, now)
    return replace(change, groups=tuple(result.number for result in case.results), metadata_files=paths)
