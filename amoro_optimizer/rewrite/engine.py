"""Rewrites a task's files: copied or decoded, without deleted rows; reads live rows, their checksums and sketches."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from amoro_core.errors import AmoroError, AttemptAbandoned, CheckFailed, UnreadableFile
from amoro_core.files.deletes.row_matcher import row_hashes
from amoro_core.files.file_readers import RowSource, open_rows
from amoro_core.files.hashing import ThetaSketch, mixed, value_hashes
from amoro_core.files.parquet.metrics import CopiedFile
from amoro_core.files.row_groups.checks import (
    ColumnLayout,
    CopySource,
    NotCopied,
    OtherLayout,
    Read,
    compared_columns,
    open_source,
    require_consistent_statistics,
)
from amoro_core.files.schema.schemas import (
    FIELD_ID,
    Constants,
    Projection,
    bind,
    has_lineage,
    identity_constants,
    parse_name_mapping,
    parse_rows_schema,
    parse_spec,
    with_lineage,
    written_schema,
)
from amoro_core.files.schema.write_options import WriterOptions, require_parquet, writer_options
from amoro_core.files.storage.io import FileAccess, reading_file
from amoro_core.model.clustering import is_copied
from amoro_core.model.files import DataFile, DeleteKind, FileFormat
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.task_payload import CopyRule, InputFile, RewriteInput, RewriteOutput
from amoro_core.model.verification import RowsDigest
from amoro_optimizer.rewrite.delete_filter import DeleteFilter, Mask
from amoro_optimizer.rewrite.output_files import Labels, Outputs
from amoro_optimizer.rewrite.reading import ReadAhead, WatchedAccess
from amoro_optimizer.rewrite.spilling import budget, choose_pool, default_spill_root, give_back, resident_bytes

_MIB = 1 << 20
_MOST_REASONS = 20  # that a result tells: of broken files each may have its own


class Sources:
    """Opens files of a task as sources of copies, as the rule allows."""

    def __init__(
        self, access: WatchedAccess, rule: CopyRule, options: WriterOptions, schema: Schema, mapping: NameMapping | None
    ) -> None:
        self._access = access
        self._rule = rule
        self._options = options
        self._table = schema
        mapped = mapping.root if mapping is not None else ()
        self._names = {name.encode(): field.field_id for field in mapped for name in field.names}

    def open(self, data: DataFile, content: bytes | None, closing: ExitStack) -> CopySource:
        """The file as a source of copies. Raises NotCopied, DataFileMissing, UnreadableFile for other rows."""
        if data.file_format is not FileFormat.PARQUET:
            raise NotCopied(f"its format is {data.file_format}")
        rule, limit = self._rule, self._options.row_group_rows
        # Without the file's own size: files are counted by their reasons.
        small = f"its row groups are smaller than {rule.min_row_group_bytes / _MIB:.3g} MiB on average"
        if data.record_count and rule.is_coarse(data.size_bytes, data.record_count, 1, limit):
            raise NotCopied(small)
        source = open_source(*self._reader(data, content, closing), content, self._names)
        rows = source.rows
        if sum(rows) != data.record_count:
            raise UnreadableFile(f"{data.path} has {sum(rows)} rows, but the manifest says {data.record_count}")
        groups = sum(count > 0 for count in rows)
        if groups and rule.is_coarse(data.size_bytes, data.record_count, groups, limit):
            raise NotCopied(small)
        # Of a file into which not all row groups of another were copied, the bounds are those of the other.
        columns = compared_columns(source, self._table)
        require_consistent_statistics(source, columns, self._table, data.metrics, are_reached=not is_copied(data.path))
        return source

    def _reader(self, data: DataFile, content: bytes | None, closing: ExitStack) -> tuple[Read, int]:
        if content is not None:
            return (lambda at, length: content[at : at + length]), len(content)
        stream = self._access.open_stream(data.path)
        closing.callback(stream.close)

        def read(at: int, length: int) -> bytes:
            with reading_file(data.path):
                stream.seek(at)
                return stream.read(length)

        return read, data.size_bytes


#: The share of the memory limit for rows collected into a row group: a whole command of two threads that rewrite texts
#: stays below 400 MB. Larger ones take more CPU.
_ROW_GROUP_SHARE = 12

#: To ask the system for the memory in use takes longer than many a step.
_MEMORY_LOOK_S = 0.01

#: A mask of rows, eight to a byte.
Packed = npt.NDArray[np.uint8]


def rewrite(
    work: RewriteInput,
    access: FileAccess,
    attempt: Attempt,
    *,
    on_progress: Callable[[int, int], None],
    is_cancelled: Callable[[], bool],
    memory_limit_bytes: int,
    spill_root: str | None = None,
    labels: Labels | None = None,
    options: WriterOptions | None = None,
) -> RewriteOutput:
    """Write the live rows of the task's rewritten files anew, and the deletes of its converted files as positions.

    `on_progress` receives rows done and rows in all. Delete keys beyond the memory limit are spilled to files under
    `spill_root` (by default a directory for temporary files), which are removed when this ends. Data files are marked
    with `labels`, and written by `options` (by default those of the table's properties).
    Every file written is deleted again when this raises: AttemptAbandoned soon after `is_cancelled` says so,
    DataFileMissing, UnreadableFile (also for files whose rows are not those of the manifest), StorageFull, TableRefused
    for what is not handled, CheckFailed.
    """
    started = time.monotonic()
    refuse_unfit(work)
    options = options or writer_options(work.table.properties)
    memory_bytes = budget(memory_limit_bytes)
    choose_pool()
    run = RewriteRun(work, access, attempt, on_progress, is_cancelled, memory_bytes)
    with cancelled_first(run), ExitStack() as spills:
        marks = run.delete_filter(spills, spill_root)
        masks = masks_ahead(run, marks) if work.output_count > 1 else {}
        live_rows = (
            sum(live_count(file, masks.get(number)) for number, file in enumerate(work.rewritten)) if masks else None
        )
        with run.outputs(options, _ROW_GROUP_SHARE, live_rows, labels) as outputs:
            rule = outputs.copy_rule
            sources = Sources(run.watched, rule, options, run.schema, run.mapping) if rule is not None else None
            totals = _Totals(keeps_positions=work.tells_left_out)

            def rewrite_one(number: int, waits: bool) -> tuple[Mask, list[str]]:
                file = work.rewritten[number]
                return _rewrite_file(run, marks, outputs, file, masks.get(number), sources, waits=waits)

            order = _rewrite_files(run, outputs, totals, rewrite_one)
            outputs.finish_file()
            position_map = outputs.write_map(totals.left_out, order) if work.tells_left_out else None
            positions = sum(_convert_file(run, marks, outputs, file) for file in work.converted)
            outputs.finish_deletes()
            rows_read = sum(file.data.record_count for file in work.rewritten)
            rows_written = sum(file.record_count for file in outputs.data_files)
            if rows_read - totals.rows_deleted != rows_written:
                raise CheckFailed(f"{rows_read} rows read, {totals.rows_deleted} deleted, but {rows_written} written")
            run.checkpoint()
    return RewriteOutput(
        data_files=tuple(outputs.data_files),
        delete_files=tuple(outputs.delete_files),
        rows_read=rows_read,
        rows_deleted=totals.rows_deleted,
        rows_written=rows_written,
        positions_written=positions,
        bytes_read=run.bytes_read + marks.bytes_read,
        duration_ms=round((time.monotonic() - started) * 1000),
        peak_memory_bytes=max(run.peak_memory, resident_bytes()),
        files_copied=totals.files_copied,
        encoded_because=next(iter(totals.encoded_files), ""),
        encoded_files=totals.encoded_files,
        position_map=position_map,
    )


class _Totals:
    """What became of the rewritten files: how many were copied, why others were not, and the rows left out."""

    def __init__(self, *, keeps_positions: bool) -> None:
        self.files_copied = 0
        self.rows_deleted = 0
        self.left_out: list[tuple[int, PositionSet]] = []  # by the number of the input, without those that lost none
        self._reasons: Counter[str] = Counter()
        self._keeps_positions = keeps_positions

    def add(self, number: int, mask: Mask, reasons: list[str]) -> None:
        """Count a file: copied if there is no reason against it."""
        if reasons:
            self._reasons[reasons[0]] += 1
        else:
            self.files_copied += 1
        deleted = int(np.count_nonzero(mask))
        self.rows_deleted += deleted
        if deleted and self._keeps_positions:
            self.left_out.append((number, PositionSet.of(np.flatnonzero(mask))))

    @property
    def encoded_files(self) -> dict[str, int]:
        """How many files were not copied for each of the commonest reasons, most files first."""
        return {reason: count for reason, count in self._reasons.most_common(_MOST_REASONS) if reason}


@dataclass
class RewriteRun:
    """One running attempt."""

    work: RewriteInput
    access: FileAccess
    attempt: Attempt
    on_progress: Callable[[int, int], None]
    is_cancelled: Callable[[], bool]
    memory_bytes: int
    rows_done: int = 0
    bytes_read: int = 0
    peak_memory: int = 0
    _next_look_s: float = 0.0

    def checkpoint(self) -> None:
        """Note the memory in use now and then. Raises AttemptAbandoned when the attempt was cancelled."""
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self.peak_memory = max(self.peak_memory, resident_bytes())
            self._next_look_s = now_s + _MEMORY_LOOK_S
        if self.is_cancelled():
            raise AttemptAbandoned(f"attempt {self.attempt} was cancelled")

    def advance(self, rows: int) -> None:
        """Report rows that are done, and check whether to continue."""
        self.rows_done += rows
        self.on_progress(self.rows_done, self._rows_in_all)
        self.checkpoint()

    def bound(self, source: RowSource, schema: Schema | None = None) -> Projection:
        """The projection of the file's rows onto the outputs' schema, or another one."""
        return bind(schema or self.schema, source.schema, self.mapping, self._constants, source.path)

    @cached_property
    def _rows_in_all(self) -> int:
        return sum(file.data.record_count for file in (*self.work.rewritten, *self.work.converted))

    @cached_property
    def _ahead(self) -> ReadAhead:
        files = [file.data for file in (*self.work.rewritten, *self.work.converted)]
        return ReadAhead(self.access, files, self.checkpoint, self.memory_bytes)

    def expect(self, files: Sequence[InputFile]) -> None:
        """Read these files ahead instead, in this order."""
        self._ahead = ReadAhead(self.access, [file.data for file in files], self.checkpoint, self.memory_bytes)

    @cached_property
    def schema(self) -> Schema:
        """The schema of the outputs: the table's, with the rows' lineage where its format has that."""
        return written_schema(self._schema, self.work.table.format_version)

    @cached_property
    def _schema(self) -> Schema:
        return parse_rows_schema(self.work.table.schema_json)

    @cached_property
    def mapping(self) -> NameMapping | None:
        """The table's name mapping, for files without field ids."""
        return parse_name_mapping(self.work.table.name_mapping_json)

    @cached_property
    def _constants(self) -> Constants:
        """The same for all files, which share one partition."""
        first = (*self.work.rewritten, *self.work.converted)[0].data
        return identity_constants(parse_spec(self.work.table.spec_json), first.partition, self._schema)

    def delete_filter(self, spills: ExitStack, spill_root: str | None = None) -> DeleteFilter:
        """The deletes of the work; keys that do not fit into memory are in files until `spills` is closed."""
        return DeleteFilter(
            self.work,
            self.access,
            self.checkpoint,
            self.open,
            memory_bytes=self.memory_bytes,
            spill_root=spill_root or default_spill_root(),
            spills=spills,
        )

    @contextmanager
    def outputs(
        self, options: WriterOptions, share: int, live_rows: int | None = None, labels: Labels | None = None
    ) -> Iterator[Outputs]:
        """The files that the attempt writes, with row groups of at most 1/`share` of the memory; all are deleted again
        when the block raises."""
        memory_bytes = self.memory_bytes // share
        outputs = Outputs(
            self.work,
            self.access,
            self.attempt,
            options,
            self.checkpoint,
            live_rows=live_rows,
            memory_bytes=memory_bytes,
            labels=labels,
        )
        try:
            yield outputs
        except BaseException:
            outputs.abandon()
            raise
        finally:
            give_back()

    @contextmanager
    def open(self, file: InputFile) -> Iterator[RowSource]:
        """The data file, opened after checking its number of rows against the manifest's."""
        with self.opened(file, self.fetch(file)) as source:
            yield source

    def fetch(self, file: InputFile) -> bytes | None:
        """The content of a small file; None for one to be read as a stream. Raises DataFileMissing."""
        self.checkpoint()
        self.bytes_read += file.data.size_bytes
        return self._ahead.take(file.data)

    @property
    def watched(self) -> WatchedAccess:
        """Access whose reads end with the attempt."""
        return WatchedAccess(self.access, self.checkpoint)

    @contextmanager
    def opened(self, file: InputFile, content: bytes | None) -> Iterator[RowSource]:
        """Like `open`, with what `fetch` returned."""
        data = file.data
        with open_rows(self.watched, data, content) as source:
            if source.rows != data.record_count:
                raise UnreadableFile(f"{data.path} has {source.rows} rows, but the manifest says {data.record_count}")
            yield source


@contextmanager
def cancelled_first(run: RewriteRun) -> Iterator[None]:
    """Raise AttemptAbandoned for any failure in the block once the attempt was cancelled.

    Arrow's ORC reader hides the reason: it reports a read that was abandoned as an unreadable file.
    """
    try:
        yield
    except AmoroError:
        run.checkpoint()
        raise


def refuse_unfit(work: RewriteInput) -> None:
    """Raise TableRefused("format") if another format than Parquet is required, CheckFailed for several partitions."""
    require_parquet(work.table.properties)
    partitions = {(file.data.spec_id, file.data.partition) for file in (*work.rewritten, *work.converted)}
    if len(partitions) > 1:
        raise CheckFailed(f"the files of one task lie in {len(partitions)} partitions")


def masks_ahead(run: RewriteRun, marks: DeleteFilter) -> dict[int, Packed]:
    """The deleted rows of each rewritten file by its number, packed: even outputs need the live rows beforehand."""
    masks = {}
    for number, file in enumerate(run.work.rewritten):
        if any(run.work.deletes[index].kind is DeleteKind.EQUALITY for index in file.deletes):
            with run.open(file) as source:
                mask = marks.of(file, source)
        else:
            mask = marks.by_position(file)
        masks[number] = np.packbits(mask)
    return masks


def live_count(file: InputFile, packed: Packed | None) -> int:
    """The rows of the file that its mask of deleted ones leaves."""
    deleted = 0 if packed is None else int(np.unpackbits(packed).sum())
    return file.data.record_count - deleted


def _rewrite_files(
    run: RewriteRun, outputs: Outputs, totals: "_Totals", rewrite_one: Callable[[int, bool], tuple[Mask, list[str]]]
) -> tuple[int, ...]:
    """Write the live rows of all files; returns their order by number, if it is not that of the task.

    Files whose columns are stored in another way than those before them come last, two or more together in outputs of
    their own. A single one is encoded: of as many outputs as inputs the next plan would make as many again.
    """
    files, order = run.work.rewritten, list[int]()
    waiting: dict[ColumnLayout, list[int]] = {}
    for number in range(len(files)):
        try:
            totals.add(number, *rewrite_one(number, run.work.may_reorder))
            order.append(number)
        except OtherLayout as other:
            waiting.setdefault(other.layout, []).append(number)
    if not waiting:
        return ()
    rest = sorted(waiting.values(), key=lambda numbers: len(numbers) > 1)
    run.expect([*(files[number] for numbers in rest for number in numbers), *run.work.converted])
    for numbers in rest:
        if len(numbers) > 1:
            outputs.finish_file()
        for number in numbers:
            totals.add(number, *rewrite_one(number, False))
        order += numbers
    return tuple(order)


def _rewrite_file(
    run: RewriteRun,
    marks: DeleteFilter,
    outputs: Outputs,
    file: InputFile,
    packed: Packed | None,
    sources: Sources | None,
    *,
    waits: bool,
) -> tuple[Mask, list[str]]:
    """Write the live rows of one file; returns which rows are deleted, and why it was not copied: "" if never meant.

    Raises OtherLayout before anything was written, if the file `waits` for an output of its layout.
    """
    reasons = [""] if sources is None else []
    with ExitStack() as closing:
        content = run.fetch(file)
        decoder = _Decoder(run, file, content, closing)
        mask = _mask(run, marks, file, decoder, packed)
        source = None
        if sources is not None:
            try:
                if mask.any() and not mask.all():
                    raise NotCopied("rows of it are deleted")
                source = sources.open(file.data, content, closing)
            except NotCopied as reason:
                reasons.append(str(reason))
        if source is None:
            decoder.write(outputs, mask)
        elif mask.any():  # all rows are deleted
            run.advance(file.data.record_count)
        else:
            _copy_groups(run, outputs, source, decoder, reasons, waits=waits)
    return mask, reasons


def _copy_groups(
    run: RewriteRun, outputs: Outputs, source: CopySource, decoder: "_Decoder", reasons: list[str], *, waits: bool
) -> None:
    """Copy the row groups of a file without deleted rows in order; one that turns out not to be copied is decoded."""
    data = decoder.file.data
    copied = CopiedFile(data.metrics, data.record_count)
    for number, rows in enumerate(source.rows):
        try:
            outputs.copy(source, number, copied)
            waits = waits and not rows
            run.advance(rows)
        except NotCopied as reason:
            if waits and isinstance(reason, OtherLayout):
                raise
            waits = False
            reasons.append(str(reason))
            decoder.write(outputs, np.zeros(data.record_count, np.bool_), number, rows)


def _mask(run: RewriteRun, marks: DeleteFilter, file: InputFile, decoder: "_Decoder", packed: Packed | None) -> Mask:
    """For each row of the file, whether it is deleted; the file is opened only if its keys must be read."""
    if packed is not None:
        return np.unpackbits(packed, count=file.data.record_count).astype(np.bool_)
    if any(run.work.deletes[index].kind is DeleteKind.EQUALITY for index in file.deletes):
        return marks.of(file, decoder.source)
    return marks.by_position(file)


class _Decoder:
    """Decodes a file, opened when it is needed first."""

    def __init__(self, run: RewriteRun, file: InputFile, content: bytes | None, closing: ExitStack) -> None:
        self.file = file
        self._run, self._content, self._closing = run, content, closing

    @cached_property
    def source(self) -> RowSource:
        """The open file."""
        return self._closing.enter_context(self._run.opened(self.file, self._content))

    @cached_property
    def _projection(self) -> Projection:
        return self._run.bound(self.source)

    def write(self, outputs: Outputs, mask: Mask, row_group: int | None = None, rows: int | None = None) -> None:
        """Write the live rows of one row group, or of the whole file. Raises UnreadableFile."""
        groups = None if row_group is None else [row_group]
        for _, deleted, batch in live_rows_in(self.source, self.file.data, mask, self._projection, groups, rows):
            outputs.write(batch)
            self._run.advance(len(deleted))


def live_rows_in(
    source: RowSource,
    file: DataFile,
    deleted: Mask,
    projection: Projection,
    row_groups: Sequence[int] | None = None,
    rows: int | None = None,
) -> Iterator[tuple[int, Mask, pa.RecordBatch]]:
    """The rows of a file that are not deleted, as the projection wants them, with their lineage where it has that.

    Batch by batch: the position of its first stored row, which of its stored rows are deleted, and the live rows.
    `rows`: of the row groups; None: of the file. Raises UnreadableFile for another number.
    """
    expected, rows_read = file.record_count if rows is None else rows, 0
    for first, batch in source.batches(projection.columns, row_groups):
        mask = deleted[first : first + batch.num_rows]
        with reading_file(file.path):
            live = projection.apply(batch.filter(pa.array(~mask)) if mask.any() else batch)
        if has_lineage(projection.schema):
            live = with_lineage(live, np.flatnonzero(~mask) + first, file)
        yield first, mask, live
        rows_read += batch.num_rows
    if rows_read != expected:
        raise UnreadableFile(f"{file.path} ends after {rows_read} of {expected} rows")


def _convert_file(run: RewriteRun, marks: DeleteFilter, outputs: Outputs, file: InputFile) -> int:
    """Write a file's deletes as positions, if it has any or a mark is required; returns the number of positions."""
    with run.open(file) as source:
        positions = np.flatnonzero(marks.of(file, source))
    if len(positions) or run.work.marks_converted:
        outputs.write_deletes(file.data, positions)
    run.advance(file.data.record_count)
    return len(positions)


def live_batches(
    work: RewriteInput,
    access: FileAccess,
    *,
    memory_limit_bytes: int,
    is_cancelled: Callable[[], bool],
    columns: frozenset[int] | None = None,
    lineage: bool = False,
    spill_root: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The live rows of the work's rewritten files, file by file; `columns` are ids of top-level columns, None: all.

    With `lineage` the columns of row lineage follow, if the table's format has them. Spills and raises like `rewrite`.
    """
    attempt = Attempt(TaskId("reading", 1), 1)
    run = RewriteRun(work, access, attempt, lambda done, total: None, is_cancelled, budget(memory_limit_bytes))
    schema = run.schema if lineage else parse_rows_schema(work.table.schema_json)
    if columns is not None:
        schema = _only(schema, columns)
    with cancelled_first(run), ExitStack() as spills:
        marks = run.delete_filter(spills, spill_root)
        for file in work.rewritten:
            with run.open(file) as source:
                deleted = marks.of(file, source)
                for _, _, batch in live_rows_in(source, file.data, deleted, run.bound(source, schema)):
                    yield batch
                    run.checkpoint()


def _only(schema: Schema, columns: frozenset[int]) -> Schema:
    return Schema(*(field for field in schema.fields if field.field_id in columns))


_SECOND_SUM = np.uint64(0x5851F42D4C957F2D)


def digest_rows(
    work: RewriteInput,
    access: FileAccess,
    *,
    memory_limit_bytes: int,
    is_cancelled: Callable[[], bool],
    lineage: bool = False,
    spill_root: str | None = None,
) -> RowsDigest:
    """The digest of the live rows of the rewritten files, read under the schema of the work; with their `lineage` also.

    Every value of every column is read and hashed; no statistics are used. Spills and raises like `rewrite`.
    """
    digest = RowsDigest()
    for batch in live_batches(
        work,
        access,
        memory_limit_bytes=memory_limit_bytes,
        is_cancelled=is_cancelled,
        lineage=lineage,
        spill_root=spill_root,
    ):
        digest += digest_of(batch)
    return digest


def digest_of(batch: pa.RecordBatch) -> RowsDigest:
    """The digest of the batch's rows."""
    hashes = row_hashes(batch)
    return RowsDigest(len(hashes), int(hashes.sum(dtype=np.uint64)), int(mixed(hashes ^ _SECOND_SUM).sum()))


def sketch_rows(
    work: RewriteInput,
    access: FileAccess,
    columns: frozenset[int],
    *,
    memory_limit_bytes: int,
    is_cancelled: Callable[[], bool],
) -> Mapping[int, ThetaSketch]:
    """A sketch of each of these top-level primitive columns; no others are read but those that deletes compare."""
    sketches = dict.fromkeys(sorted(columns), ThetaSketch())
    batches = live_batches(
        work, access, memory_limit_bytes=memory_limit_bytes, is_cancelled=is_cancelled, columns=columns
    )
    for batch in batches:
        for field, values in zip(batch.schema, batch.columns, strict=True):
            field_id = int(field.metadata[FIELD_ID])
            sketches[field_id] = sketches[field_id].updated(value_hashes(values))
    return sketches
