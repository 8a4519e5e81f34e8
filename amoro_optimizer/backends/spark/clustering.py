"""A group that a whole application clusters: the driver's side of its stages.

Two jobs: one takes the sample, of which the driver makes the cuts, once; the other splits the rows by them and writes.
A part that Spark repeats has the same cuts and makes the same of its rows.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark import SparkContext

from amoro_core.errors import AttemptAbandoned, CheckFailed
from amoro_core.model.clustering import ClusterInput, ClusterOutput, StageFacts
from amoro_core.model.files import DeleteKind, FileFormat
from amoro_core.model.task_payload import InputFile, RewriteInput, RewriteOutput
from amoro_core.protocol import codec, rewrite_pb2
from amoro_core.protocol.codec import decode_cluster_input, encode_cluster_input
from amoro_optimizer.backends.spark.driver_channel import Job
from amoro_optimizer.backends.spark.shuffle import shuffled
from amoro_optimizer.backends.spark.worker import Assignment, Slice, joined, sampled, split, table_of, written
from amoro_optimizer.cluster.engine import SAMPLE, SPLIT, STAGES, WRITE, order_of
from amoro_optimizer.cluster.range_partitioner import make_cuts, sample_rows
from amoro_optimizer.rewrite.engine import refuse_unfit

#: What one part reads at most, as files are stored: decoded about four times as much. Larger files are read in pieces.
SLICE_BYTES = 64 << 20
#: Less is not worth a part of its own.
_LEAST_SLICE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Application:
    """Where the stages run."""

    context: SparkContext
    slots: int  # parts at a time
    begin_stage: Callable[[str], None]  # told the stage before its job


def cluster(application: Application, assignment: Assignment, job: Job) -> ClusterOutput:
    """Do the work of the assignment, a group of files.

    Raises TableRefused("configuration") for a layout that is not handled, CheckFailed, and whatever Spark raises.
    """
    started = time.monotonic()
    work = decode_cluster_input(assignment.work)
    refuse_unfit(work.rewrite)
    if work.rewrite.converted:
        raise CheckFailed("the files of a group are all written anew; none is converted")
    slices = slices_of(work, assignment, application.slots)
    cuts = _cuts(application, work, slices)
    _require_requested(job)
    parts = _rewritten(application, work, slices, assignment, cuts)
    _require_requested(job)
    stages = tuple(_stage(job, name) for name in STAGES)
    facts = [stored for name in STAGES for stored in job.facts(name).values()]
    rows_read = sum(stored["rows_read"] for stored in job.facts(SPLIT).values())
    live_rows = sum(stored["rows"] for stored in job.facts(SPLIT).values())
    output = RewriteOutput(
        data_files=tuple(file for part in parts for file in part.data_files),
        delete_files=(),
        rows_read=rows_read,
        rows_deleted=rows_read - live_rows,
        rows_written=sum(part.rows_written for part in parts),
        positions_written=0,
        bytes_read=sum(stored.get("bytes_read", 0) for stored in facts),
        duration_ms=round((time.monotonic() - started) * 1000),
        peak_memory_bytes=max(stored["peak"] for stored in facts),
    )
    if output.rows_written != live_rows or rows_read != sum(file.data.record_count for file in work.rewrite.rewritten):
        raise CheckFailed(f"{rows_read} rows read, {output.rows_deleted} deleted, but {output.rows_written} written")
    return ClusterOutput(
        output,
        cuts,
        stages,
        shuffle_bytes=sum(stored.get("sent_bytes", 0) for stored in facts),
        spill_bytes=sum(stored.get("spill_bytes", 0) for stored in facts),
    )


def _require_requested(job: Job) -> None:
    # Parts that were told to stop have ended as if there were no more.
    if job.is_over:
        raise AttemptAbandoned("the attempt was cancelled, or one of its parts has failed")


def slices_of(work: ClusterInput, assignment: Assignment, slots: int) -> list[Slice]:
    """The group's files as parts, which have the deletes that they need and no others; larger files as pieces."""
    files = work.rewrite.rewritten
    share = sum(file.data.size_bytes for file in files) // max(1, slots)
    most = max(_LEAST_SLICE_BYTES, min(SLICE_BYTES, share))
    starts, size = [0], 0
    for number, file in enumerate(files):
        if size and size + file.data.size_bytes > most:
            starts.append(number)
            size = 0
        size += file.data.size_bytes
    ends = [*starts[1:], len(files)]
    result = []
    for start, end in zip(starts, ends, strict=True):
        whole = Slice(start, _assigned(work, _part_of(work.rewrite, files[start:end]), assignment))
        count = _pieces_of(work.rewrite, files[start], most) if end - start == 1 else 1
        result += [replace(whole, piece=(number, count)) for number in range(count)] if count > 1 else [whole]
    return result


def _pieces_of(work: RewriteInput, file: InputFile, most: int) -> int:
    """In how many pieces a file is read: one where equality deletes apply, whose keys each part would read."""
    if any(work.deletes[index].kind is DeleteKind.EQUALITY for index in file.deletes):
        return 1
    is_parquet = file.data.file_format is FileFormat.PARQUET
    return min(-(-file.data.size_bytes // most), len(file.data.split_offsets)) if is_parquet else 1


def _part_of(work: RewriteInput, files: Sequence[InputFile]) -> RewriteInput:
    needed = sorted({index for file in files for index in file.deletes})
    places = {index: place for place, index in enumerate(needed)}
    chosen = tuple(replace(file, deletes=tuple(places[index] for index in file.deletes)) for file in files)
    return replace(work, rewritten=chosen, deletes=tuple(work.deletes[index] for index in needed))


def _assigned(work: ClusterInput, part: RewriteInput, assignment: Assignment) -> Assignment:
    return replace(assignment, work=encode_cluster_input(replace(work, rewrite=part)))


def _cuts(application: Application, work: ClusterInput, slices: Sequence[Slice]) -> bytes:
    context, outputs = application.context, work.rewrite.output_count
    application.begin_stage(SAMPLE)
    source = context.parallelize(slices, len(slices))
    with shuffled(context, source, sampled, 1) as samples:
        result = context.runJob(samples, partial(joined, sample_rows(outputs)))
    return make_cuts(order_of(work), table_of(result[0]) if result else None, outputs).serialized()


def _rewritten(
    application: Application, work: ClusterInput, slices: Sequence[Slice], assignment: Assignment, cuts: bytes
) -> list[RewriteOutput]:
    context, outputs = application.context, work.rewrite.output_count
    # Of the files one is enough to write by: it tells the partition.
    writing = _assigned(work, _part_of(work.rewrite, [replace(work.rewrite.rewritten[0], deletes=())]), assignment)
    shared = context.broadcast(cuts)
    try:
        application.begin_stage(SPLIT)
        source = context.parallelize(slices, len(slices))
        with shuffled(context, source, partial(split, shared), outputs) as blocks:
            application.begin_stage(WRITE)
            result = context.runJob(blocks, partial(written, shared, writing))
    finally:
        shared.destroy()
    return [codec.decode(RewriteOutput, rewrite_pb2.RewriteOutput.FromString(part)) for part in result]


def _stage(job: Job, name: str) -> StageFacts:
    """What the parts of a stage told; those that were repeated count once."""
    stored = job.facts(name).values()
    return StageFacts(name, sum(facts["core_ms"] for facts in stored), sum(item["rows"] for item in stored))
