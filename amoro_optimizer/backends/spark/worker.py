"""The code that runs in Spark's Python workers: whole tasks, and stages of a group that an application clusters."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyspark import Broadcast, TaskContext

from amoro_core.errors import AmoroError, OptimizerError
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.clustering import ClusterInput
from amoro_core.model.task_payload import RewriteOutput, WorkResult
from amoro_core.model.text_sanitizing import briefly, without_secrets
from amoro_core.protocol import codec, rewrite_pb2
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.protocol.codec import decode_cluster_input
from amoro_optimizer.backends.spark.driver_channel import Superseded, WorkerLine, connected
from amoro_optimizer.backends.spark.shuffle import Blocks, rows_of, stream_of
from amoro_optimizer.cluster.engine import (
    SAMPLE,
    SPLIT,
    WRITE,
    Piece,
    add_to_sample,
    bounded_options,
    labels_of,
    order_of,
    piece_of,
    placed_batches,
)
from amoro_optimizer.cluster.range_partitioner import Sample, parse_cuts, places_of, row_hashes, sample_rows
from amoro_optimizer.cluster.writing import RangeWriter
from amoro_optimizer.execution import steady_s
from amoro_optimizer.rewrite.delete_filter import DeleteFilter
from amoro_optimizer.rewrite.engine import Packed, RewriteRun, cancelled_first, masks_ahead
from amoro_optimizer.rewrite.output_files import Outputs
from amoro_optimizer.rewrite.spilling import (
    budget,
    choose_pool,
    default_spill_root,
    give_back,
    pieces,
    resident_bytes,
    spill_directory,
)
from amoro_optimizer.work_kinds import Kind, Run, installed_kinds

#: The only part of a job of one task.
WHOLE = "task"
#: How long a worker whose executor has ended may take to remove what it wrote.
HANG_UP_S = 30


@dataclass(frozen=True, slots=True, repr=False)
class Assignment:
    """What is sent to a worker: messages of the contract, and where the driver listens."""

    attempt: bytes  # TaskAttempt
    kind: str
    work: bytes  # the kind's message
    io_properties: Mapping[str, str]
    memory_bytes: int
    driver: tuple[str, int]
    key: bytes
    job: str
    blob: bytes = b""  # that the kind needs

    def __repr__(self) -> str:
        return f"Assignment({self.job})"  # credentials and key stay out of tracebacks


def run_partition(assignments: Iterable[Assignment]) -> Iterator[bytes]:
    """The result of each assignment, as a TaskResult."""
    context = _task_context()
    for assignment in assignments:
        with hang_up_noted() as is_hung_up:
            result = run_assignment(assignment, context.taskAttemptId(), is_hung_up)
        yield result


def _task_context() -> TaskContext:
    """What runs here. An executor has one worker for each core: Arrow must not take all cores in each of them."""
    context = TaskContext.get()
    if context is None:
        raise OptimizerError("this runs in Spark's Python workers only")
    pa.set_cpu_count(max(1, context.cpus()))
    return context


@contextmanager
def hang_up_noted() -> Iterator[Callable[[], bool]]:
    """Defer SIGHUP to the end of the block; yields a predicate whether it was received.

    Spark's daemon sends it when the executor has ended: only workers can then remove files they have begun. A stuck
    worker is ended all the same.
    """
    heard: list[int] = []  # a handler takes no lock

    def note(number: int, frame: object) -> None:
        heard.append(number)
        signal.alarm(HANG_UP_S)

    before = signal.signal(signal.SIGHUP, note)
    try:
        yield lambda: bool(heard)
    finally:
        signal.signal(signal.SIGHUP, before)
        if heard:
            os.kill(os.getpid(), signal.SIGHUP)


def run_assignment(assignment: Assignment, execution: int, is_hung_up: Callable[[], bool]) -> bytes:
    """Do the work, as that execution of the driver's job; the TaskResult says what came of it, failures too.

    Failures are values, so that Spark repeats what was lost only. Raises Superseded, which Spark must not take for one.
    """
    result = pb.TaskResult(attempt=pb.TaskAttempt.FromString(assignment.attempt))
    try:
        with connected(assignment.driver, assignment.key, assignment.job, WHOLE, execution) as line:
            try:
                kind, access, run = _opened(assignment, result.attempt, line, is_hung_up)
                run = replace(run, fetch=lambda name: assignment.blob, age_s=_age(line))
                codec.put_result(result, WorkResult(assignment.kind, kind.execute(assignment.work, access, run)))
            except AmoroError:
                if line.is_superseded:
                    raise Superseded(f"a newer execution of {WHOLE} has begun") from None
                raise
    except Superseded:
        raise
    except Exception as error:
        code, message = failure_of(error)
        result.failure.CopyFrom(pb.TaskFailure(code=code, message=message))
    return result.SerializeToString()


def failure_of(error: Exception) -> tuple[str, str]:
    """A failure's code, and message with hint, without secrets; an unexpected one also goes to the executor's log."""
    if isinstance(error, AmoroError):
        return error.code, error.full_text
    if isinstance(error, MemoryError):
        return OptimizerError.code, "out of memory"
    sys.stderr.write(without_secrets(traceback.format_exc()))
    return OptimizerError.code, without_secrets(briefly(f"{type(error).__name__}: {error}", 1000))


def _opened(
    assignment: Assignment, attempt: pb.TaskAttempt, line: WorkerLine, is_hung_up: Callable[[], bool]
) -> tuple[Kind, FileAccess, Run]:
    """The kind of the work, access to the table's files that names each to the driver first, and the execution."""
    kind = installed_kinds().of(assignment.kind)
    access = kind.open(assignment.work, assignment.io_properties)
    access.on_create = line.announce
    run = Run(
        codec.decode_attempt(attempt),
        assignment.io_properties,
        assignment.memory_bytes,
        on_progress=line.progress,
        is_cancelled=lambda: is_hung_up() or line.is_stopped,
    )
    return kind, access, run


def _age(line: WorkerLine) -> Callable[[], float]:
    """The age of the attempt's ack: requested from the driver on first use, and counted locally from then on.

    Local counting starts before the request, so that the age is never too low, whatever the machines' clocks.
    """
    requested: list[float] = []

    def age_s() -> float:
        if not requested:
            asked_s = steady_s()
            requested.append(asked_s - line.ask_age())
        return steady_s() - requested[0]

    return age_s


Made = TypeVar("Made")


class StageAttempt:
    """One execution of a part."""

    def __init__(self, assignment: Assignment, line: WorkerLine, is_hung_up: Callable[[], bool]) -> None:
        self.work = decode_cluster_input(assignment.work)
        attempt = pb.TaskAttempt.FromString(assignment.attempt)
        _, self.access, self.run = _opened(assignment, attempt, line, is_hung_up)
        self._line = line
        self._began = time.monotonic()

    def rewrite_run(self) -> RewriteRun:
        """The reading and writing of this part."""
        run = self.run
        memory_bytes = budget(run.memory_bytes)
        return RewriteRun(self.work.rewrite, self.access, run.attempt, run.on_progress, run.is_cancelled, memory_bytes)

    def conclude(self, facts: Mapping[str, int]) -> None:
        """Report at the end what the part did and for how long it had a core. Raises AttemptAbandoned."""
        core_ms = round((time.monotonic() - self._began) * 1000)
        self._line.conclude({**facts, "core_ms": core_ms})


def in_part(stage: str, assignment: Assignment, do: Callable[[StageAttempt], Iterator[Made]]) -> Iterator[Made]:
    """What `do` makes in this partition of the stage, as one execution of that part.

    A failure is reported to the driver, which ends the job, and the part ends as if nothing more came, so that Spark
    repeats nothing. What the driver does not receive, or what ends with its executor, is raised: Spark repeats it.
    """
    context = _task_context()
    name = f"{stage} {context.partitionId()}"
    choose_pool()
    with (
        hang_up_noted() as is_hung_up,
        connected(assignment.driver, assignment.key, assignment.job, name, context.taskAttemptId()) as line,
    ):
        try:
            yield from do(StageAttempt(assignment, line, is_hung_up))
        except Exception as error:
            if line.is_superseded:
                raise Superseded(f"a newer execution of {name} has begun") from None
            if is_hung_up():  # its executor has ended, and with it this execution alone
                raise
            code, message = failure_of(error)
            if not (line.is_over or line.fail(code, message)):
                raise OptimizerError(f"the driver is not reached: {message}") from None


#: Shares of the memory limit: rows that wait for a block, rows that are sorted at once, and those of a row group.
_BLOCKS_SHARE, _SORT_SHARE, _ROW_GROUP_SHARE = 4, 5, 6


@dataclass(frozen=True, slots=True, repr=False)
class Slice:
    """Files of a group that one part reads, or a piece of one; the first has that number in the group."""

    first: int
    assignment: Assignment  # its work has these files alone
    piece: tuple[int, int] | None = None  # of the only file: which one, counted from 0, of how many


def sampled(slices: Iterable[Slice]) -> Iterator[tuple[int, bytes]]:
    """The sample of each slice's live rows, all for one place; none where it has no rows."""
    for part in slices:
        for sample in in_part(SAMPLE, part.assignment, partial(_sampled, part)):
            yield 0, sample


def joined(rows: int, samples: Iterable[bytes]) -> Iterator[bytes]:
    """One sample of at most `rows` rows, of all that come."""
    sample = Sample(rows)
    for item in samples:
        sample.join(table_of(item))
    table = sample.table()
    if table is not None:
        yield stream_of(table)


def split(cuts: "Broadcast[bytes]", slices: Iterable[Slice]) -> Iterator[tuple[int, bytes]]:
    """Blocks of each slice's live rows, for the outputs that the cuts say."""
    for part in slices:
        yield from in_part(SPLIT, part.assignment, partial(_split, part, cuts.value))


def written(cuts: "Broadcast[bytes]", assignment: Assignment, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """What was written of the blocks of one output: a RewriteOutput with its files. The work's files are not read."""
    yield from in_part(WRITE, assignment, partial(_written, cuts.value, blocks))


def _sampled(slice_: Slice, part: StageAttempt) -> Iterator[bytes]:
    work, order = part.work, order_of(part.work)
    keys, sample = order.of_keys(), Sample(sample_rows(work.rewrite.output_count))
    with _reading(part) as (run, masks, marks):
        piece, done = _piece(run, slice_), 0
        for number, positions, batch in placed_batches(run, masks, schema=order.key_schema(), piece=piece):
            path, places = work.rewrite.rewritten[number].data.path, places_of(slice_.first + number, positions)
            add_to_sample(sample, keys, row_hashes(path, positions, work.seed), places, batch)
            done += batch.num_rows
            part.run.on_progress(done, _rows(work, piece))
        part.conclude({"rows": done, "bytes_read": marks.bytes_read, "peak": run.peak_memory})
    table = sample.table()
    if table is not None:
        yield stream_of(table)


def _split(slice_: Slice, cut_points: bytes, part: StageAttempt) -> Iterator[tuple[int, bytes]]:
    work, cuts = part.work, parse_cuts(order_of(part.work), cut_points)
    with _reading(part) as (run, masks, marks):
        blocks, piece, done = Blocks(run.memory_bytes // _BLOCKS_SHARE), _piece(run, slice_), 0
        rows = _rows(work, piece)
        for number, positions, batch in placed_batches(run, masks, piece=piece):
            tagged = cuts.tagged(batch, places_of(slice_.first + number, positions))
            for output, chosen in pieces(tagged, cuts.output_numbers(tagged)):
                yield from blocks.add(output, chosen)
            done += batch.num_rows
            part.run.on_progress(done, rows)
        yield from blocks.drain()
        facts = {"rows": done, "rows_read": rows, "bytes_read": _bytes_read(run, piece) + marks.bytes_read}
        part.conclude({**facts, "sent_bytes": blocks.sent_bytes, "peak": run.peak_memory})


def _written(cut_points: bytes, blocks: Iterable[bytes], part: StageAttempt) -> Iterator[bytes]:
    work, order, run = part.work, order_of(part.work), part.rewrite_run()
    cuts = parse_cuts(order, cut_points)
    options = bounded_options(order, work.rewrite.table.properties)
    with cancelled_first(run), run.outputs(options, _ROW_GROUP_SHARE, labels=labels_of(work)) as outputs:
        writer = RangeWriter(
            cuts,
            outputs,
            share_bytes=run.memory_bytes // _SORT_SHARE,
            spill=lambda: spill_directory(default_spill_root()),
            checkpoint=run.checkpoint,
            on_rows=run.advance,
        )
        writer.write(batch for block in blocks for batch in rows_of(block))
        writer.finish()
        rows = sum(file.record_count for file in outputs.data_files)
        part.conclude({"rows": rows, "spill_bytes": writer.spilled_bytes, "peak": run.peak_memory})
    yield codec.encode(rewrite_pb2.RewriteOutput, _output_of(outputs, rows)).SerializeToString(deterministic=True)


@contextmanager
def _reading(part: StageAttempt) -> Iterator[tuple[RewriteRun, Mapping[int, Packed], DeleteFilter]]:
    """The reading of the part's files, which of their rows are deleted, and by what."""
    run = part.rewrite_run()
    with cancelled_first(run), ExitStack() as spills:
        spills.callback(give_back)
        marks = run.delete_filter(spills)
        yield run, masks_ahead(run, marks), marks


def _piece(run: RewriteRun, slice_: Slice) -> Piece | None:
    return None if slice_.piece is None else piece_of(run, *slice_.piece)


def _bytes_read(run: RewriteRun, piece: Piece | None) -> int:
    if piece is None:
        return run.bytes_read
    (file,) = run.work.rewritten
    return file.data.size_bytes * piece.rows // max(1, file.data.record_count)


def _rows(work: ClusterInput, piece: Piece | None) -> int:
    return piece.rows if piece is not None else sum(file.data.record_count for file in work.rewrite.rewritten)


def table_of(stream: bytes) -> pa.Table:
    """The table that `stream_of` wrote."""
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()


def _output_of(outputs: Outputs, rows: int) -> RewriteOutput:
    return RewriteOutput(
        data_files=tuple(outputs.data_files),
        delete_files=(),
        rows_read=0,
        rows_deleted=0,
        rows_written=rows,
        positions_written=0,
        bytes_read=0,
        duration_ms=0,
        peak_memory_bytes=resident_bytes(),
    )
