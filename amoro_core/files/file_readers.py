"""Readers of data and delete files of every format, as batches of rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import orc
from pyiceberg.schema import Schema

from amoro_core.errors import UnreadableFile
from amoro_core.files.parquet.reading import BATCH_BYTES, MAX_BATCH_ROWS, ParquetInput, open_parquet
from amoro_core.files.schema.schemas import (
    FIELD_ID,
    Projection,
    bind,
    has_lineage,
    identity_constants,
    parse_name_mapping,
    parse_rows_schema,
    parse_spec,
    with_lineage,
)
from amoro_core.files.storage.io import FileAccess, reading_file
from amoro_core.model.files import DataFile, DeleteFile, FileFormat
from amoro_core.model.task_payload import RewriteInput
from amoro_core.model.text_sanitizing import briefly

_ORC_ID = b"iceberg.id"
#: The assumed ratio of decoded to stored size.
_DECODED = 8


@dataclass(frozen=True, slots=True)
class OrcInput:
    """An open ORC file."""

    path: str
    file: orc.ORCFile
    fragment: ds.Fragment
    schema: pa.Schema  # with field ids in the way of Parquet files

    @property
    def rows(self) -> int:
        return int(self.file.nrows)

    def batches(
        self, columns: Sequence[str], row_groups: Sequence[int] | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of these columns in the file's order, each with the position of its first row.

        Raises UnreadableFile, also for timestamps that do not fit in nanoseconds: Arrow reads them as such.
        """
        names = [name for name in self.schema.names if name in columns]
        kind = pa.schema([self.schema.field(name) for name in names])
        position = 0
        with _reading(self.path):
            for batch in self._whole_stripes() if _has_dots(self.schema) else self._pieces(names):
                arrays = [batch.column(batch.schema.get_field_index(name)) for name in names]
                yield position, pa.RecordBatch.from_arrays(arrays, schema=kind) if names else batch.select([])
                position += batch.num_rows

    def _pieces(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Parts of stripes, which may be large: only the dataset reader decodes them in parts."""
        chosen = list(names) or self.schema.names[:1]
        yield from self.fragment.to_batches(
            columns=chosen, batch_size=self._batch_rows(), batch_readahead=0, use_threads=False
        )

    def _batch_rows(self) -> int:
        """Estimated from the stored size of a row: ORC does not record the decoded size."""
        row_bytes = _DECODED * int(self.file.content_length) // max(1, self.rows)
        return max(1, min(MAX_BATCH_ROWS, BATCH_BYTES // max(1, row_bytes)))

    def _whole_stripes(self) -> Iterator[pa.RecordBatch]:
        """All columns: Arrow takes a selected name with a dot for a path, and reads another column or nulls."""
        for index in range(self.file.nstripes):
            stripe = self.file.read_stripe(index)
            for start in range(0, stripe.num_rows, MAX_BATCH_ROWS):
                yield stripe.slice(start, MAX_BATCH_ROWS)


@contextmanager
def open_orc(access: FileAccess, path: str, content: bytes | None = None) -> Iterator[OrcInput]:
    """The ORC file, open until the block ends; from `content` if given. Raises DataFileMissing, UnreadableFile."""
    with access.open_input(path) if content is None else pa.BufferReader(content) as source:
        with _reading(path):
            file = orc.ORCFile(source)
            schema = pa.schema([_identified(field) for field in file.schema])
            fragment = ds.OrcFileFormat().make_fragment(source)
        yield OrcInput(path, file, fragment, schema)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(f"{path} cannot be read as ORC: {briefly(str(error))}") from error


def _identified(field: pa.Field) -> pa.Field:
    result = (field.metadata or {}).get(_ORC_ID)
    metadata = None if result is None else {FIELD_ID: result}
    return pa.field(field.name, _with_ids(field.type), nullable=field.nullable, metadata=metadata)


def _with_ids(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_identified(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_identified(kind.key_field), _identified(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_identified(kind.value_field))
    return kind


def _has_dots(fields: pa.Schema | pa.StructType) -> bool:
    return any("." in field.name or _within(field.type) for field in fields)


def _within(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return _has_dots(kind)
    if pa.types.is_map(kind):
        return _within(kind.key_type) or _within(kind.item_type)
    return bool(pa.types.is_list(kind)) and _within(kind.value_type)


#: Files up to this size are fetched whole: one request instead of one for each column chunk.
SMALL_FILE_BYTES = 32 << 20


class RowSource(Protocol):
    """An open file; its schema carries field ids in the way of Parquet files."""

    @property
    def path(self) -> str:
        """The file's location."""

    @property
    def rows(self) -> int:
        """How many rows it holds."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns, with field ids."""

    def batches(
        self, columns: Sequence[str], row_groups: Sequence[int] | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of at least these columns in the file's order, each with the position of its first row.

        `row_groups`, for Parquet files only, restricts them to these. Raises UnreadableFile.
        """
        ...


def fetched(access: FileAccess, file: DataFile | DeleteFile) -> bytes | None:
    """The content of a small file, in one request; None for a larger one. Raises DataFileMissing."""
    return access.read_bytes(file.path) if file.size_bytes <= SMALL_FILE_BYTES else None


@contextmanager
def open_rows(access: FileAccess, file: DataFile | DeleteFile, content: bytes | None) -> Iterator[RowSource]:
    """The file, open until the block ends; from `content` if given. Raises DataFileMissing, UnreadableFile."""
    match file.file_format:
        case FileFormat.AVRO:
            from amoro_core.files.avro import open_avro

            with open_avro(access, file.path, content) as avro:
                yield avro
        case FileFormat.ORC:
            with open_orc(access, file.path, content) as orc:
                yield orc
        case FileFormat.PARQUET:
            with open_parquet(access, file.path, content) as parquet:
                yield parquet


Positions = npt.NDArray[np.int64]


class RowsTooLarge(ValueError):
    """Rows take more memory than they may."""


class RowReader:
    """Reads rows of the inputs and outputs of one group."""

    def __init__(self, access: FileAccess, work: RewriteInput) -> None:
        self.schema = parse_rows_schema(work.table.schema_json)
        self.mapping = parse_name_mapping(work.table.name_mapping_json)
        self._access = access
        partition = work.rewritten[0].data.partition  # all files share one
        self._constants = identity_constants(parse_spec(work.table.spec_json), partition, self.schema)

    def rows_at(self, file: DataFile, positions: Positions, schema: Schema, most_bytes: int) -> pa.RecordBatch:
        """The rows at these positions, ascending, in the columns of the schema; with lineage where it has that.

        Raises RowsTooLarge beyond `most_bytes`, UnreadableFile, DataFileMissing, TableRefused("field-ids").
        """
        parts: list[pa.RecordBatch] = []
        size = 0
        for chosen, rows in self.batches_at(file, positions, schema):
            parts.append(with_lineage(rows, chosen, file) if has_lineage(schema) else rows)
            size += int(rows.nbytes)
            if size > most_bytes:
                raise RowsTooLarge(f"{len(positions)} rows of {file.path} take more than {most_bytes} bytes")
        result = pa.concat_batches(parts)
        if result.num_rows != len(positions):
            raise UnreadableFile(f"{file.path} has {result.num_rows} of the {len(positions)} rows that are looked for")
        return result

    def batches_at(
        self, file: DataFile, positions: Positions, schema: Schema
    ) -> Iterator[tuple[Positions, pa.RecordBatch]]:
        """The rows at these positions, ascending, batch by batch, with their positions."""
        if not len(positions):
            return
        with self.opened(file, schema) as opened:
            for first, batch in opened.batches(positions):
                start, end = np.searchsorted(positions, [first, first + batch.num_rows])
                chosen = positions[start:end]
                yield chosen, opened.projected(batch.take(pa.array(chosen - first)))

    @contextmanager
    def opened(self, file: DataFile, schema: Schema) -> Iterator["OpenedRows"]:
        """The file, open until the block ends, to be read in the columns of the schema."""
        with open_rows(self._access, file, None) as source:
            if source.rows != file.record_count:
                raise UnreadableFile(f"{file.path} has {source.rows} rows, but the manifest says {file.record_count}")
            yield OpenedRows(source, bind(schema, source.schema, self.mapping, self._constants, file.path))


@dataclass(frozen=True, slots=True)
class OpenedRows:
    """An open file with the columns in which its rows are wanted."""

    source: RowSource
    projection: Projection

    def batches(self, positions: Positions | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches as they are stored, each with the position of its first row.

        Those that hold any of the positions, which are ascending; None: all.
        """
        columns = self.projection.columns or self.source.schema.names[:1]  # of no column there are no rows
        if positions is None:
            yield from self.source.batches(columns)
            return
        for first, batch in self.source.batches(columns, self._groups_of(positions)):
            start, end = np.searchsorted(positions, [first, first + batch.num_rows])
            if start < end:
                yield first, batch

    def projected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a stored batch in the columns that are wanted."""
        with reading_file(self.source.path):
            return self.projection.apply(batch)

    def _groups_of(self, positions: Positions) -> Sequence[int] | None:
        if not isinstance(self.source, ParquetInput):
            return None
        metadata = self.source.file.metadata
        ends = list(accumulate(metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)))
        result: list[int] = np.unique(np.searchsorted(ends, positions, side="right")).tolist()
        return result
