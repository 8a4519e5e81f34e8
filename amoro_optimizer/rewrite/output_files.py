"""The output files of a task: names, even sizes, and removal on failure."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter

import pyarrow as pa
from pyiceberg.schema import Schema

from amoro_core.errors import AmoroError
from amoro_core.failpoints import failpoint
from amoro_core.files.deletes.delete_files import Positions, write_position_deletes
from amoro_core.files.deletes.vectors import vectors_file, write_vectors
from amoro_core.files.parquet.metrics import CopiedFile
from amoro_core.files.parquet.writing import ParquetOutput, WrittenFile
from amoro_core.files.row_groups.checks import CopySource, NotCopied
from amoro_core.files.row_groups.merge import SplicedOutput
from amoro_core.files.row_groups.parquet_format import MISSING_CODEC
from amoro_core.files.schema.schemas import parse_rows_schema, parse_spec, partition_path, with_dropped, written_schema
from amoro_core.files.schema.write_options import WriterOptions
from amoro_core.files.storage.io import FileAccess, new_location
from amoro_core.model.clustering import SUFFIX
from amoro_core.model.files import FORMAT_WITH_VECTORS, DataFile, DeleteFile, FileFormat, Partition
from amoro_core.model.processes import Attempt
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.task_payload import DeletedRows, PositionMap, RewriteInput

#: The share of an output's rows by which it may differ from the others so that a row group can be copied whole.
_UNEVENNESS = 0.05
#: The factor by which a file may exceed the target before the next is begun, if row widths vary much.
_OVERSIZE = 1.5


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of all data files of an attempt."""

    suffix: str = ""  # of their names, before the extension
    sort_order_id: int = 0  # 0: the order of sorted inputs is not kept
    metadata: Mapping[str, str] | None = None  # in their footers


class Outputs:
    """The outputs of one attempt, one file if `live_rows` is None. `checkpoint`, called for each page, may raise."""

    def __init__(
        self,
        work: RewriteInput,
        access: FileAccess,
        attempt: Attempt,
        options: WriterOptions,
        checkpoint: Callable[[], None],
        *,
        live_rows: int | None,
        memory_bytes: int,
        labels: Labels | None = None,
    ) -> None:
        self.data_files: list[DataFile] = []
        self.delete_files: list[DeleteFile] = []
        self._map_path = ""
        self._work = work
        self._access = access
        self._attempt = attempt
        self._options = options
        self._checkpoint = checkpoint
        self._memory_bytes = memory_bytes
        self._labels = labels or Labels()
        #: What is labelled has an order and layout of its own.
        self.copy_rule = work.copy if labels is None else None
        self._schema = parse_rows_schema(work.table.schema_json)
        self._written = written_schema(self._schema, work.table.format_version)
        self._rows_left = live_rows
        self._room: int | None = None  # rows that still fit into the open file
        self._even_rows = 0  # that it has when it is full
        self._open: ParquetOutput | None = None
        self._vectors: list[tuple[DataFile, PositionSet]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add live rows, in the columns of the table's schema and with their lineage where its format has that."""
        while batch.num_rows:
            if isinstance(self._open, SplicedOutput) and not self._open.takes_rows:
                self.finish_file()
            output = self._open if self._open is not None else self._begin()
            rows = batch.num_rows if self._room is None else min(self._room, batch.num_rows)
            output.write(batch.slice(0, rows))
            batch = batch.slice(rows)
            self._take(output, rows)

    def copy(self, source: CopySource, number: int, file: CopiedFile) -> None:
        """Add a row group as it is. Raises OtherLayout, and NotCopied, also where outputs are to be even."""
        rows = source.rows[number]
        if self._room is not None and self._open is not None and rows > self._room:
            slack = int(self._even_rows * _UNEVENNESS)
            if self._room <= slack:
                self.finish_file()
            elif rows > self._room + slack:
                raise NotCopied("its rows belong to two outputs")
        output = self._open if self._open is not None else self._begin()
        if not isinstance(output, SplicedOutput):
            raise NotCopied("nothing is to be copied")
        if self._room is not None and rows > self._room + int(self._even_rows * _UNEVENNESS):
            raise NotCopied("its rows belong to two outputs")
        output.copy(source, number, file)
        self._take(output, rows)

    def _take(self, output: ParquetOutput, rows: int) -> None:
        """Count rows that the open file has taken, and close it when it is full."""
        if self._room is None or self._rows_left is None:
            return
        self._room -= rows
        self._rows_left -= rows
        if self._room <= 0 or output.written_bytes > _OVERSIZE * self._work.target_size_bytes:
            self.finish_file()

    def finish_file(self) -> None:
        """Close the open data file, if there is one."""
        if self._open is None:
            return
        output, self._open = self._open, None
        self.data_files.append(self._data_file(output.close()))
        failpoint("task.after_file")

    def write_deletes(self, data: DataFile, positions: Positions) -> None:
        """Write the position delete file of a converted data file; in format 3 `finish_deletes` writes its vector."""
        if self._work.table.format_version >= FORMAT_WITH_VECTORS:
            self._vectors.append((data, PositionSet.of(positions)))
            return
        path = self._new_path(data.partition, "-deletes")
        written = write_position_deletes(
            self._access, path, data, positions, self._work.sequence_number, self._options, self._checkpoint
        )
        self.delete_files.append(written)
        failpoint("task.after_file")

    def finish_deletes(self) -> None:
        """Write the one file of all vectors, if there are any."""
        if not self._vectors:
            return
        vectors, self._vectors = self._vectors, []
        path = self._new_path(vectors[0][0].partition, "-deletes", "puffin")
        number = self._work.sequence_number
        self.delete_files += write_vectors(self._access, path, vectors, number, self._checkpoint)
        failpoint("task.after_file")

    def write_map(self, left_out: Sequence[tuple[int, PositionSet]], order: tuple[int, ...]) -> PositionMap:
        """Write which rows of the rewritten files are left out, by number, and their `order`; no file where none is."""
        if not left_out:
            return PositionMap("", 0, (), order)
        files, left_out = self._work.rewritten, sorted(left_out, key=itemgetter(0))
        content, parts = vectors_file([(files[at].data.path, rows) for at, rows in left_out])
        self._map_path = path = self._new_path(files[0].data.partition, "-applied", "puffin")
        self._access.write_bytes(path, content)
        failpoint("task.after_file")
        rows = (
            DeletedRows(at, part.offset, part.size_bytes, len(positions))
            for (at, positions), part in zip(left_out, parts, strict=True)
        )
        return PositionMap(path, len(content), tuple(rows), order)

    def abandon(self) -> None:
        """Delete everything written, as far as possible."""
        if self._open is not None:
            self._open.discard()
            self._open = None
        paths = [file.path for file in self.data_files] + [file.path for file in self.delete_files]
        for path in dict.fromkeys([*paths, *([self._map_path] if self._map_path else [])]):
            with suppress(AmoroError):
                self._access.delete(path)

    def _begin(self) -> ParquetOutput:
        if self._rows_left is not None:
            files_left = max(1, self._work.output_count - len(self.data_files))
            self._even_rows = self._room = max(1, -(-self._rows_left // files_left))
        partition = self._work.rewritten[0].data.partition
        path = self._new_path(partition, self._labels.suffix)
        if self.copy_rule is not None and not MISSING_CODEC:
            copies_small = not self.copy_rule.min_row_group_bytes
            self._open = SplicedOutput(
                self._access,
                path,
                self._written,
                self._options,
                memory_bytes=self._memory_bytes,
                checkpoint=self._checkpoint,
                copied_path=self._new_path(partition, SUFFIX) if copies_small else None,
                rule=self.copy_rule,
            )
            return self._open
        self._open = ParquetOutput(
            self._access,
            path,
            self._written,
            self._options,
            memory_bytes=self._memory_bytes,
            checkpoint=self._checkpoint,
            metadata=self._labels.metadata,
        )
        return self._open

    def _new_path(self, partition: Partition, suffix: str, extension: str = "parquet") -> str:
        table = self._work.table
        schema: Schema = with_dropped(self._schema, table.dropped_fields_json)
        name = f"{self._attempt.task_id}-{self._attempt.number}-{uuid.uuid4()}{suffix}.{extension}"
        directory = partition_path(parse_spec(table.spec_json), partition, schema)
        return new_location(table.location, table.data_location, directory, name, table.properties)

    def _data_file(self, written: WrittenFile) -> DataFile:
        first = self._work.rewritten[0].data
        return DataFile(
            path=written.path,
            file_format=FileFormat.PARQUET,
            spec_id=first.spec_id,
            partition=first.partition,
            record_count=written.record_count,
            size_bytes=written.size_bytes,
            sequence_number=self._work.sequence_number,
            metrics=written.metrics,
            sort_order_id=self._labels.sort_order_id,
            split_offsets=written.split_offsets,
        )
