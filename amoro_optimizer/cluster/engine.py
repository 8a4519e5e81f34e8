"""Clusters one group of files; also rewrites files of one group in the order that they have."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from amoro_core.errors import AmoroError, AttemptAbandoned, CheckFailed, TableRefused
from amoro_core.failpoints import failpoint
from amoro_core.files.parquet.reading import ParquetInput, read_layout
from amoro_core.files.schema.schemas import arrow_schema, parse_rows_schema
from amoro_core.files.schema.write_options import WriterOptions, with_bounds, writer_options
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.clustering import (
    METADATA_KEY,
    ClusterInput,
    ClusterOutput,
    StageFacts,
    Strategy,
    group_of,
    group_suffix,
    layout_text,
)
from amoro_core.model.files import FileFormat
from amoro_core.model.processes import Attempt
from amoro_core.model.task_payload import RewriteInput, RewriteOutput
from amoro_core.protocol.codec import decode_cluster_input, decode_cluster_output, encode_cluster_output
from amoro_optimizer.cluster.range_partitioner import (
    TAG_BYTES,
    Cuts,
    Sample,
    make_cuts,
    places_of,
    row_hashes,
    sample_rows,
    split_points,
)
from amoro_optimizer.cluster.sort_keys import Order, Positions, Words, flat
from amoro_optimizer.cluster.writing import (
    RangeWriter,
    collected,
    drained,
    free_disk,
    require_free,
    sort_bytes,
    spilled_size,
)
from amoro_optimizer.execution import Run as KindRun
from amoro_optimizer.execution import access_for
from amoro_optimizer.rewrite.engine import (
    Packed,
    RewriteRun,
    cancelled_first,
    live_count,
    live_rows_in,
    masks_ahead,
    refuse_unfit,
    rewrite,
)
from amoro_optimizer.rewrite.output_files import Labels, Outputs
from amoro_optimizer.rewrite.reading import WatchedAccess
from amoro_optimizer.rewrite.spilling import (
    budget,
    choose_pool,
    default_spill_root,
    give_back,
    resident_bytes,
    spill_directory,
)


def rewrite_in_order(
    work: RewriteInput,
    access: FileAccess,
    attempt: Attempt,
    *,
    on_progress: Callable[[int, int], None],
    is_cancelled: Callable[[], bool],
    memory_limit_bytes: int,
) -> RewriteOutput:
    """Rewrite as `rewrite` does; where all rewritten files are of one group, its outputs are, too, in its order.

    They have the group's suffix, its layout in their footers, and the sort order id that all inputs have. A group
    whose columns are gone, or whose layout is not known here, is rewritten as any other files. Raises as `rewrite`.
    """

    def checkpoint() -> None:
        if is_cancelled():
            raise AttemptAbandoned(f"attempt {attempt} was cancelled")

    group = preserved_group(work, WatchedAccess(access, checkpoint))
    if group is None or len(work.rewritten) == 1:
        return rewrite(
            work,
            access,
            attempt,
            on_progress=on_progress,
            is_cancelled=is_cancelled,
            memory_limit_bytes=memory_limit_bytes,
            # The rows of one file are in order already.
            labels=None if group is None else labels_of(group),
            options=None if group is None else bounded_options(order_of(group), work.table.properties),
        )
    sorted_output = cluster(
        group,
        access,
        attempt,
        on_progress=on_progress,
        is_cancelled=is_cancelled,
        memory_limit_bytes=memory_limit_bytes,
    ).rewrite
    if not work.converted:
        return sorted_output
    try:
        converted = rewrite(
            replace(work, rewritten=()),
            access,
            attempt,
            on_progress=on_progress,
            is_cancelled=is_cancelled,
            memory_limit_bytes=memory_limit_bytes,
        )
    except BaseException:
        for file in sorted_output.data_files:
            with suppress(AmoroError):
                access.delete(file.path)
        raise
    return replace(
        sorted_output,
        delete_files=converted.delete_files,
        positions_written=converted.positions_written,
        bytes_read=sorted_output.bytes_read + converted.bytes_read,
        duration_ms=sorted_output.duration_ms + converted.duration_ms,
        peak_memory_bytes=max(sorted_output.peak_memory_bytes, converted.peak_memory_bytes),
    )


def preserved_group(work: RewriteInput, access: FileAccess) -> ClusterInput | None:
    """The rewritten files as work on their group, sampled by its id; None unless all are of one known group."""
    groups = {group_of(file.data.path) for file in work.rewritten}
    first = next(iter(work.rewritten), None)
    group_id = next(iter(groups), None)
    if len(groups) != 1 or group_id is None or first is None or first.data.file_format is not FileFormat.PARQUET:
        return None
    stored = read_layout(access, first.data.path)
    if stored is None or stored[0] != group_id:
        return None
    orders = {file.data.sort_order_id or 0 for file in work.rewritten}
    sort_order_id = orders.pop() if len(orders) == 1 else 0
    group = ClusterInput(replace(work, converted=()), stored[1], group_id, int(group_id, 16), sort_order_id)
    with suppress(TableRefused):
        order_of(group)
        return group
    return None


def order_of(group: ClusterInput) -> Order:
    """The order of the group's rows."""
    return Order(parse_rows_schema(group.rewrite.table.schema_json), group.layout)


#: The stages, in their order.
STAGES = SAMPLE, SPLIT, WRITE = "sample", "split", "write"

_MS = 1_000_000


def rows_through(done: Mapping[str, int], rows: int) -> int:
    """The progress of all stages together, in rows of all: each counts a third, however its rows are counted."""
    return sum(min(of_stage, rows) for of_stage in done.values()) // len(STAGES)


class Stages:
    """The stages of one thread's work; one begins where the other ends."""

    def __init__(
        self, rows: int, on_progress: Callable[[int, int], None], on_stage: Callable[[str, int], None]
    ) -> None:
        """Each stage is about so many rows. `on_stage` is told the stage and all core time so far, in ms."""
        self._rows = rows
        self._on_progress = on_progress
        self._on_stage = on_stage
        self._taken: dict[str, list[int]] = {}  # ns and rows of each
        self._began = self._now = time.thread_time_ns()
        self._name = ""

    def begin(self, name: str) -> None:
        """From here on it is this stage, which may have been before."""
        self._settle()
        self._name = name
        self._taken.setdefault(name, [0, 0])

    def advance(self, rows: int) -> None:
        """So many more rows of the stage are done."""
        self._settle()
        self._taken[self._name][1] += rows
        self._on_progress(rows_through({name: times[1] for name, times in self._taken.items()}, self._rows), self._rows)
        self._on_stage(self._name, (self._now - self._began) // _MS)

    def facts(self) -> tuple[StageFacts, ...]:
        """What each stage has taken."""
        self._settle()
        return tuple(StageFacts(name, ns // _MS, rows) for name, (ns, rows) in self._taken.items())

    def _settle(self) -> None:
        now = time.thread_time_ns()
        if self._name:
            self._taken[self._name][0] += now - self._now
        self._now = now


def placed_batches(
    run: RewriteRun, masks: Mapping[int, Packed], *, schema: Schema | None = None, piece: "Piece | None" = None
) -> Iterator[tuple[int, Positions, pa.RecordBatch]]:
    """The live rows of the work's rewritten files, batch by batch: the file's number, their positions in it, they.

    In the table's schema or in another; of a piece of the only file where that is given. `masks` has the deleted rows
    of each file by its number. Raises AttemptAbandoned, DataFileMissing, UnreadableFile.
    """
    for number, file in enumerate(run.work.rewritten):
        deleted = np.unpackbits(masks[number], count=file.data.record_count).astype(np.bool_)
        with run.open(file) as source:
            groups, rows = (None, None) if piece is None else (piece.row_groups, piece.rows)
            batches = live_rows_in(source, file.data, deleted, run.bound(source, schema), groups, rows)
            for first, mask, batch in batches:
                yield number, np.flatnonzero(~mask) + first, batch
                run.checkpoint()


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of a Parquet file."""

    row_groups: tuple[int, ...]
    rows: int


def piece_of(run: RewriteRun, number: int, pieces: int) -> Piece:
    """One of so many pieces of the work's only file, counted from 0. Raises DataFileMissing, UnreadableFile."""
    (file,) = run.work.rewritten
    with run.open(file) as source:
        if not isinstance(source, ParquetInput):
            raise CheckFailed(f"{source.path} is no Parquet file: it is read as a whole")
        groups, rows = source.piece(number, pieces)
    return Piece(tuple(groups), rows)


def add_to_sample(sample: Sample, order: Order, hashes: Words, places: Words, batch: pa.RecordBatch) -> None:
    """Add rows with these hashes and places, in the columns of the order, to the sample."""
    rows = sample.wanted(hashes)
    if len(rows):  # what orders the others is not computed
        sample.add(hashes[rows], places[rows], flat(order.parts(batch.take(pa.array(rows)))))


#: Memory beside the rows that a rewrite has not: keys, places and what the allocator keeps between steps (measured).
_UNCOUNTED_BYTES = 24 << 20
#: Shares of the memory limit: rows sorted at once, of which a column is in memory twice, and those of a row group;
#: encoding needs as much again (measured).
_SORT_SHARE, _ROW_GROUP_SHARE = 5, 8
#: What a spill may take beyond what its first rows say, in hundredths.
_SPILL_MARGIN = 110

_Placed = tuple[int, Positions, pa.RecordBatch]


def cluster(
    work: ClusterInput,
    access: FileAccess,
    attempt: Attempt,
    *,
    on_progress: Callable[[int, int], None],
    is_cancelled: Callable[[], bool],
    memory_limit_bytes: int,
    on_stage: Callable[[str, int], None] = lambda stage, core_ms: None,
    spill_root: str | None = None,
    free: Callable[[str], int] = free_disk,
) -> ClusterOutput:
    """Write the live rows of the group's files anew, in the order of its layout, as even files.

    What doesn't fit into the memory waits in files under `spill_root`, as in `rewrite`; `free` tells its free bytes.
    `on_progress` receives rows done through all stages and rows in all, `on_stage` the stage and the core time in ms.
    Every file written is deleted again when this raises: TableRefused("configuration") for an unfit layout,
    StorageFull, and what `rewrite` raises.
    """
    started = time.monotonic()
    rewritten = work.rewrite
    refuse_unfit(rewritten)
    if rewritten.converted:
        raise CheckFailed("the files of a group are all written anew; none is converted")
    order = Order(parse_rows_schema(rewritten.table.schema_json), work.layout)
    memory_bytes = planning_bytes(memory_limit_bytes)
    choose_pool()
    run = RewriteRun(rewritten, access, attempt, on_progress, is_cancelled, memory_bytes)
    root = spill_root or default_spill_root()
    with cancelled_first(run), ExitStack() as spills:
        marks = run.delete_filter(spills, root)
        stages = Stages(sum(file.data.record_count for file in rewritten.rewritten), on_progress, on_stage)
        stages.begin(SPLIT)
        masks = masks_ahead(run, marks)
        live_rows = sum(live_count(file, masks[number]) for number, file in enumerate(rewritten.rewritten))
        options = bounded_options(order, rewritten.table.properties)
        with run.outputs(options, _ROW_GROUP_SHARE, labels=labels_of(work)) as outputs:
            group = _Group(work, run, order, stages, outputs, masks, live_rows)
            group.write(sort_bytes(memory_bytes // _SORT_SHARE), root, free)
            rows_read = sum(file.data.record_count for file in rewritten.rewritten)
            rows_written = sum(file.record_count for file in outputs.data_files)
            if live_rows != rows_written:
                raise CheckFailed(f"{rows_read} rows read, {rows_read - live_rows} deleted, but {rows_written} written")
            run.checkpoint()
    output = RewriteOutput(
        data_files=tuple(outputs.data_files),
        delete_files=(),
        rows_read=rows_read,
        rows_deleted=rows_read - live_rows,
        rows_written=rows_written,
        positions_written=0,
        bytes_read=sum(file.data.size_bytes for file in rewritten.rewritten) + marks.bytes_read,
        duration_ms=round((time.monotonic() - started) * 1000),
        peak_memory_bytes=max(run.peak_memory, resident_bytes()),
    )
    return ClusterOutput(output, group.cuts.serialized(), stages.facts(), spill_bytes=group.spilled_bytes)


def planning_bytes(limit_bytes: int) -> int:
    """What a group may plan with: a rewrite's budget less what else is in memory, but at least half of it."""
    planned = budget(limit_bytes)
    return max(planned // 2, planned - _UNCOUNTED_BYTES)


def labels_of(work: ClusterInput) -> Labels:
    """How the group's files are marked: only a linear order is one of the table's sort orders."""
    sort_order_id = work.sort_order_id if work.layout.strategy is Strategy.LINEAR else 0
    metadata = {METADATA_KEY: layout_text(work.layout, work.group_id)}
    return Labels(group_suffix(work.group_id), sort_order_id, metadata)


def bounded_options(order: Order, properties: Mapping[str, str]) -> WriterOptions:
    """The table's options for writing, with bounds for the columns of the order wherever they stand."""
    names = (order.schema.find_column_name(key.field_id) for key in order.layout.keys)
    return with_bounds(writer_options(properties), [name for name in names if name is not None])


@dataclass
class _Group:
    """The rows of a group, from their files into their outputs."""

    work: ClusterInput
    run: RewriteRun
    order: Order
    stages: Stages
    outputs: Outputs
    masks: dict[int, Packed]
    live_rows: int
    spilled_bytes: int = 0
    cuts: Cuts = field(init=False)

    def write(self, share_bytes: int, root: str, free: Callable[[str], int]) -> None:
        """Sort in memory where all rows fit into the share, else by ranges that wait on disk."""
        placed, rest = collected(self._read(), _size, share_bytes)
        if rest is None:  # of rows in memory: the same as of their keys alone
            sample = self._sampled(placed, self.order)
        else:
            keys = self.order.of_keys()
            sample = self._sampled(placed_batches(self.run, self.masks, schema=keys.schema), keys)
        self.cuts = make_cuts(self.order, sample.table(), self.work.rewrite.output_count)
        schema = self.cuts.tagged_schema(arrow_schema(self.run.schema))
        writer = RangeWriter(
            self.cuts,
            self.outputs,
            share_bytes=share_bytes,
            spill=lambda: spill_directory(root),
            checkpoint=self.run.checkpoint,
            on_rows=self._written,
        )
        if rest is None:
            self.stages.begin(WRITE)
            writer.write(self._tagged(placed, None))
        else:
            row_bytes, row_spill = self._row_sizes(placed)
            require_free(root, self.live_rows * row_spill * _SPILL_MARGIN // 100, free(root))
            self.stages.begin(SPLIT)
            give_back()
            points = split_points(self.cuts, sample.table(), writer.pieces(self.live_rows * row_bytes))
            writer.write_split(self._tagged(placed, rest), schema, points)
        writer.finish()
        self.spilled_bytes = writer.spilled_bytes

    def _read(self) -> Iterator[_Placed]:
        for placed in placed_batches(self.run, self.masks):
            self.stages.advance(placed[2].num_rows)
            yield placed

    def _tagged(self, placed: list[_Placed], rest: Iterator[_Placed] | None) -> Iterator[pa.RecordBatch]:
        """All rows with what orders them; `placed` is emptied."""
        for number, positions, batch in drained(placed, rest):
            yield self.cuts.tagged(batch, places_of(number, positions))

    def _sampled(self, batches: Iterable[_Placed], order: Order) -> Sample:
        self.stages.begin(SAMPLE)
        sample = Sample(sample_rows(self.work.rewrite.output_count))
        for number, positions, batch in batches:
            self.run.checkpoint()
            hashes = row_hashes(self.run.work.rewritten[number].data.path, positions, self.work.seed)
            add_to_sample(sample, order, hashes, places_of(number, positions), batch)
            self.stages.advance(batch.num_rows)
        return sample

    def _row_sizes(self, placed: list[_Placed]) -> tuple[int, int]:
        """What a row takes in memory and on disk, at least a byte."""
        some = [placed[at] for at in sorted({0, len(placed) // 2, len(placed) - 1})]
        rows = max(1, sum(batch.num_rows for _, _, batch in some))
        tags = rows * TAG_BYTES
        in_memory = sum(map(_size, some))
        return -(-in_memory // rows), -(-(spilled_size([batch for _, _, batch in some]) + tags) // rows)

    def _written(self, rows: int) -> None:
        self.stages.begin(WRITE)
        self.stages.advance(rows)


def _size(placed: _Placed) -> int:
    return int(placed[2].nbytes) + TAG_BYTES * int(placed[2].num_rows)


class ClusterKind:
    """Work of the kind `cluster`: a group of files written anew, in the order of a layout."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        return access_for(decode_cluster_input(payload).rewrite, io_properties)

    def execute(self, payload: bytes, access: FileAccess, run: KindRun) -> bytes:
        failpoint("task.before_write")
        output = cluster(
            decode_cluster_input(payload),
            access,
            run.attempt,
            on_progress=run.on_progress,
            on_stage=run.on_stage,
            is_cancelled=run.is_cancelled,
            memory_limit_bytes=run.memory_bytes,
        )
        return encode_cluster_output(output)

    def files(self, result: bytes) -> frozenset[str]:
        return frozenset(file.path for file in decode_cluster_output(result).rewrite.data_files)
