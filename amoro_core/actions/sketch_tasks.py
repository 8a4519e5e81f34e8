"""Statistics of large tables: sketches of columns made by tasks of optimizers, some files each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from amoro_core.actions.contract import PlannedTask
from amoro_core.errors import CheckFailed
from amoro_core.files.sketches import ThetaSketch
from amoro_core.formats.port import Readable
from amoro_core.live.reading import by_partition, reading_works
from amoro_core.model.actions import Case
from amoro_core.model.files import NO_METRICS, ScannedFile, TableScan
from amoro_core.model.rewrite import RewriteInput
from amoro_core.model.work import SKETCH, Work
from amoro_core.protocol import codec
from amoro_core.protocol import maintenance_pb2 as pb

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
        for some in _together(_readings(table, scan, [one for one in scan.files if one.data.spec_id == spec_id]))
    )


def united(case: Case, columns: Iterable[int]) -> Mapping[int, ThetaSketch]:
    """The union of the sketches of all tasks. Raises CheckFailed if a task, or a column in its result, is missing."""
    sketches = dict.fromkeys(sorted(columns), ThetaSketch())
    if len(case.results) < case.tasks:
        raise CheckFailed(f"of {case.tasks} tasks {len(case.results)} have counted their files: the rest is not known")
    for result in case.results:
        said = {one.field_id: one for one in pb.SketchOutput.FromString(result.output).columns}
        for field_id, sketch in sketches.items():
            if field_id not in said:
                raise CheckFailed(f"task {result.number} says nothing of the column {field_id}")
            one = said[field_id]
            part = ThetaSketch(np.frombuffer(one.hashes, "<u8").astype(np.uint64), one.theta)
            sketches[field_id] = sketch.union(part)
    return sketches


def _readings(table: Readable, scan: TableScan, files: Iterable[ScannedFile]) -> Iterator[RewriteInput]:
    for place, some in by_partition(files).items():
        context = table.reading(place.spec_id, [scan])
        for start in range(0, len(some), FILES_OF_A_TASK):
            yield from reading_works(context, some[start : start + FILES_OF_A_TASK])


def _together(readings: Iterable[RewriteInput]) -> Iterator[list[RewriteInput]]:
    """The readings grouped by task; at least one in each."""
    some: list[RewriteInput] = []
    files = size = 0
    for reading in readings:
        more, bytes_more = len(reading.rewritten), sum(one.data.size_bytes for one in reading.rewritten)
        if some and (files + more > FILES_OF_A_TASK or size + bytes_more > BYTES_OF_A_TASK):
            yield some
            some, files, size = [], 0, 0
        some.append(reading)
        files, size = files + more, size + bytes_more
    if some:
        yield some


def _task(readings: list[RewriteInput], columns: list[int]) -> PlannedTask:
    work = pb.SketchWork(columns=columns)
    for reading in readings:
        message = codec.encode_input(_slim(reading))
        work.table.CopyFrom(message.table)
        message.ClearField("table")
        work.readings.append(message)
    files = [one.data for reading in readings for one in reading.rewritten]
    return PlannedTask(
        Work(SKETCH, work.SerializeToString(deterministic=True)),
        cost=sum(one.size_bytes for one in files),
        partition="",
        input_files=len(files),
        input_bytes=sum(one.size_bytes for one in files),
        input_rows=sum(one.record_count for one in files),
    )


def _slim(reading: RewriteInput) -> RewriteInput:
    """The reading without metrics of data files, which only save some comparisons."""
    rewritten = tuple(
        replace(one, data=replace(one.data, metrics=NO_METRICS, split_offsets=())) for one in reading.rewritten
    )
    return replace(reading, rewritten=rewritten)
