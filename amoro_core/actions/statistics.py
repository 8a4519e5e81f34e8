"""Statistics of main's head: numbers of distinct values of columns, and partition statistics."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Event
from typing import Any

from amoro_core.actions.contract import Plan, PlannedTask, Prepare, Request, Situation
from amoro_core.actions.sketch_tasks import sketch_tasks, united
from amoro_core.actions.tagging import main_history
from amoro_core.errors import CommitConflict
from amoro_core.files.io import FileAccess
from amoro_core.files.sketches import ThetaSketch
from amoro_core.formats.port import AnyTable, Role
from amoro_core.live.reading import by_partition, reading_works
from amoro_core.maintaining.scale import is_large
from amoro_core.maintaining.statistics import StatisticsConfig, StatisticsVerdict, evaluate_statistics
from amoro_core.model.actions import Case, Change
from amoro_core.model.commits import StatisticsNamed
from amoro_core.model.lanes import STATISTICS
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import Figure, Receipt
from amoro_core.model.properties import parse_into
from amoro_core.model.rewrite import RewriteInput
from amoro_core.model.statistics import ColumnSketch, StatisticsEntry
from amoro_optimizer.rewrite.sketching import sketch_rows

NAME = "compute-statistics"
#: Memory of each reading process: delete keys beyond it are spilled to disk.
READING_BYTES = 256 * 1024 * 1024
#: Readers may still open a file that was replaced.
_KEPT = timedelta(days=1)

#: Sketches columns of the live rows of a task's rewritten files; the last argument tells whether to stop.
Sketch = Callable[[RewriteInput, FileAccess, frozenset[int], Callable[[], bool]], Mapping[int, ThetaSketch]]


def _sketch(
    work: RewriteInput, access: FileAccess, columns: frozenset[int], is_cancelled: Callable[[], bool]
) -> Mapping[int, ThetaSketch]:
    return sketch_rows(work, access, columns, memory_limit_bytes=READING_BYTES, is_cancelled=is_cancelled)


class ComputeStatistics:
    """The action that computes them on schedule or on request."""

    name = NAME
    names = (NAME,)
    configuration = StatisticsConfig
    lane = STATISTICS
    roles = frozenset({Role.READ, Role.COMMIT, Role.ANALYZE})
    every = timedelta(days=1)
    switch = "maintenance.compute-statistics.enabled"
    needs_gc = False

    def __init__(self, sketch: Sketch = _sketch) -> None:
        self._sketch = sketch
        self._interrupted = Event()

    def interrupt(self) -> None:
        """End reading soon, with AttemptAbandoned."""
        self._interrupted.set()

    def enabled(self, properties: Mapping[str, str]) -> bool:
        """Whether those properties switch it on. Raises TableRefused("configuration")."""
        return parse_into(StatisticsConfig, properties).enabled

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[StatisticsVerdict, Plan | None]:
        """The head's statistics, if too many rows have changed since the last; on request, if it has none."""
        config = parse_into(StatisticsConfig, situation.properties)
        names = table.countable_columns()
        columns = config.field_ids(names)
        partitions = config.partition and table.is_partitioned()
        history, known = main_history(table), table.statistics()
        verdict = evaluate_statistics(
            config,
            columns,
            history,
            known,
            partitions=partitions,
            asked=request.name is not None,
            force=request.force,
        )
        if not verdict.is_due:
            return verdict, None
        head = history[0]
        snapshots = {one.snapshot_id for one in table.snapshots()}
        replaced = [
            *(one for one in known.columns if one.snapshot_id == head.snapshot_id and columns),
            *(one for one in known.partitions if one.snapshot_id == head.snapshot_id and partitions),
            *(one for one in known.every if one.snapshot_id not in snapshots),
        ]
        detail = {"columns": columns, "partitions": partitions, "replaced": [_stored(one) for one in replaced]}
        document = {
            "snapshot_id": head.snapshot_id,
            "columns": [name for name, field_id in names.items() if field_id in columns],
            "partition_statistics": partitions,
            "replaced_files": [{"path": one.path, "bytes": one.size_bytes} for one in replaced],
        }
        plan = Plan(
            NAME,
            verdict.reason,
            head.snapshot_id,
            head.sequence_number,
            _tasks(table, head.snapshot_id, columns, request),
            json.dumps(detail),
            document=document,
        )
        return verdict, plan

    def preparing(self) -> Prepare:
        """A function that reads the snapshot's rows, once for all attempts, and stages its statistics."""
        return self.preparing_while(lambda: True)

    def preparing_while(self, goes_on: Callable[[], bool]) -> Prepare:
        """The same; it stops reading soon after its process has ended."""
        read: list[tuple[ColumnSketch, ...]] = []

        def is_stopped() -> bool:
            return self._interrupted.is_set() or not goes_on()

        def prepare(table: AnyTable, case: Case, now: datetime) -> Change:
            if not read:
                read.append(self._read(table, case, is_stopped))
            return _change(table, case, read[0], now)

        return prepare

    def _read(self, table: AnyTable, case: Case, is_stopped: Callable[[], bool]) -> tuple[ColumnSketch, ...]:
        columns = frozenset(_detail(case)["columns"])
        if not columns:
            return ()
        if case.tasks:
            return _told(united(case, columns))
        scan = table.scan_of(case.process.snapshot_id)
        if scan is None:
            raise CommitConflict(f"snapshot {case.process.snapshot_id} is not in the table any more")
        sketches = dict.fromkeys(sorted(columns), ThetaSketch())
        for place, files in by_partition(scan.files).items():
            for work in reading_works(table.reading(place.spec_id, [scan]), files):
                for field_id, part in self._sketch(work, table.access(), columns, is_stopped).items():
                    sketches[field_id] = sketches[field_id].union(part)
        return _told(sketches)

    def condemned(self, table: AnyTable, case: Case) -> Iterable[Condemned]:
        """The files whose entries were replaced, or belong to removed snapshots, unless they are referenced again."""
        named = {one.path for one in table.statistics().every}
        for one in _detail(case)["replaced"]:
            if one["path"] not in named:
                reason = f"statistics of snapshot {one['snapshot_id']}, replaced or of a snapshot that is gone"
                yield Condemned(one["path"], FileKind.STATISTICS, one["bytes"], None, reason)

    def keep(self, case: Case) -> timedelta:
        """How long replaced files stay."""
        return _KEPT

    def optimized(self, case: Case, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        """None: files stay as they are."""
        return frozenset()

    def inputs(self, case: Case) -> tuple[str, ...]:
        """None by path: the snapshot that it reads is pinned by the process."""
        return ()

    def outputs(self, case: Case, groups: frozenset[int]) -> tuple[str, ...]:
        """None: its tasks only read."""
        return ()

    def removals(self, case: Case) -> tuple[str, ...]:
        """None: what was replaced is condemned."""
        return ()

    def receipt(self, case: Case) -> None:
        """None: every process of it commits."""


def _tasks(table: AnyTable, snapshot_id: int, columns: Collection[int], request: Request) -> tuple[PlannedTask, ...]:
    """The tasks that read a large table; none for a preview, which starts nothing."""
    if request.is_preview or not columns or not is_large(table.snapshots()):
        return ()
    scan = table.scan_of(snapshot_id)
    return () if scan is None else sketch_tasks(table, scan, columns)


def _told(sketches: Mapping[int, ThetaSketch]) -> tuple[ColumnSketch, ...]:
    return tuple(ColumnSketch(key, int(one.estimate), one.serialized()) for key, one in sketches.items())


def _stored(entry: StatisticsEntry) -> dict[str, object]:
    return {"path": entry.path, "bytes": entry.size_bytes, "snapshot_id": entry.snapshot_id}


def _detail(case: Case) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(case.process.detail)
    return said


def _change(table: AnyTable, case: Case, sketches: tuple[ColumnSketch, ...], now: datetime) -> Change:
    snapshot_id = case.process.snapshot_id
    staged = table.stage_statistics(snapshot_id, sketches, partitions=_detail(case)["partitions"])
    paths = tuple(one.path for one in staged.written)
    figures = (
        Figure("columns", len(sketches), ""),
        Figure("partitions", staged.partitions, ""),
        Figure("bytes_written", sum(one.size_bytes for one in staged.written), "bytes"),
    )
    words = f"computed statistics of snapshot {snapshot_id}"
    duration = round((now - case.process.created_at).total_seconds() * 1000)
    return Change(
        payload=staged.payload,
        evidence=StatisticsNamed(snapshot_id, paths),
        receipt=replace(Receipt.told(words, snapshot_id, figures), duration_ms=duration),
        groups=tuple(result.number for result in case.results),
        metadata_files=paths,
    )
