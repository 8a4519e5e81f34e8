"""Writing Parquet files, and the encoding of their columns."""

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.types import BooleanType

from amoro_core.errors import AmoroError
from amoro_core.files.parquet.metrics import column_metrics, nan_counts
from amoro_core.files.schema.schemas import FIELD_ID, arrow_schema
from amoro_core.files.schema.write_options import WriterOptions
from amoro_core.files.storage.io import FileAccess, translated
from amoro_core.model.files import ROW_ID_FIELD_ID, ColumnMetrics

#: Rows sampled to count distinct values, in pieces from all over: of files that are joined, each may have a value once.
SAMPLE_ROWS = 1 << 14
_SAMPLES = 16
_BLOCK_BITS = 8  # bits set by each value in a split block bloom filter


def dictionary_columns(rows: pa.Table, most_bytes: int, encoded: Collection[str] = ()) -> list[str] | bool:
    """The paths of leaf columns worth a dictionary of at most `most_bytes`; True for all, False for none.

    Where nearly all values of a sample are distinct a dictionary would overflow, or spare nothing: without it encoding
    takes a third less CPU. Nested columns are not sampled, nor are fewer rows than `SAMPLE_ROWS`. `encoded`: columns
    that have an encoding of their own.
    """
    unfit = set(encoded)
    if rows.num_rows >= SAMPLE_ROWS:
        length = SAMPLE_ROWS // _SAMPLES
        steps = (rows.num_rows - length) // (_SAMPLES - 1)
        sample = pa.concat_tables(rows.slice(number * steps, length) for number in range(_SAMPLES))
        unfit |= {
            name
            for name, column in zip(sample.column_names, sample.columns, strict=True)
            if name not in unfit and _is_wasted(column, rows.num_rows, most_bytes)
        }
    if not unfit:
        return True
    return [path for column in rows.schema for path in _leaf_paths(column) if path.split(".")[0] not in unfit]


def column_encodings(columns: pa.Schema) -> dict[str, str]:
    """Encodings of columns by name: ids of rows, which mostly follow each other, are stored as differences."""
    row_id = str(ROW_ID_FIELD_ID).encode()
    return {column.name: "DELTA_BINARY_PACKED" for column in columns if (column.metadata or {}).get(FIELD_ID) == row_id}


def _is_wasted(column: pa.ChunkedArray, rows: int, most_bytes: int) -> bool:
    """Whether a dictionary for `rows` rows like the sample's would be far larger than `most_bytes`, or spare nothing.

    Among n values drawn from c distinct ones about n² / 2c repeat, which gives an estimate of c.
    """
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        return False
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
    values = len(column) - column.null_count
    if values < SAMPLE_ROWS // 4:
        return False
    repeated = values - int(pc.count_distinct(column).as_py())
    present = rows * values // len(column)
    different: int = min(present, values * values // (2 * max(1, repeated)))
    needed: int = different * int(column.nbytes) // len(column)
    plain: int = present * int(column.nbytes) // len(column)
    indices = present * different.bit_length() // 8
    return needed > 2 * most_bytes or needed + indices >= plain


def _leaf_paths(column: pa.Field, prefix: str = "") -> list[str]:
    own, kind = prefix + column.name, column.type
    if pa.types.is_struct(kind):
        return [path for inner in kind for path in _leaf_paths(inner, f"{own}.")]
    if pa.types.is_map(kind):
        below = f"{own}.key_value."
        return [
            *_leaf_paths(kind.key_field.with_name("key"), below),
            *_leaf_paths(kind.item_field.with_name("value"), below),
        ]
    if pa.types.is_list(kind):
        return _leaf_paths(kind.value_field.with_name("element"), f"{own}.list.")
    return [own]


def bloom_filter_options(schema: Schema, options: WriterOptions, rows: int) -> Mapping[str, Mapping[str, float]]:
    """The Parquet writer's bloom filter options by path; missing and boolean columns get none."""
    if not options.bloom_filters:
        return {}
    paths = {field_id: path for path, field_id in parquet_path_to_id_mapping(sanitize_column_names(schema)).items()}
    result = {}
    for name, rate in options.bloom_filters.items():
        field_id = schema._name_to_id.get(name)
        if field_id in paths and not isinstance(schema.find_type(field_id), BooleanType):
            most = int(-options.bloom_filter_bytes * math.log(1 - rate ** (1 / _BLOCK_BITS)))
            result[paths[field_id]] = {"ndv": max(1, min(rows, most)), "fpp": rate}
    return result


#: Smaller pages are useless, and below five bytes Arrow loses the only list of a row group that has a dictionary.
_LEAST_PAGE_BYTES = 1024


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that was written and closed."""

    path: str
    size_bytes: int
    record_count: int
    metrics: ColumnMetrics
    split_offsets: tuple[int, ...]


class ParquetOutput:
    """One Parquet file being written; rows are collected until they make a row group."""

    def __init__(
        self,
        access: FileAccess,
        path: str,
        schema: Schema,
        options: WriterOptions,
        *,
        memory_bytes: int | None = None,
        checkpoint: Callable[[], None] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """The file, with `metadata` in its footer; it is created when something is written.

        A row group is written before the collected rows exceed `memory_bytes`. `checkpoint` is called for each piece
        that is written, and may raise.
        """
        self.path = path
        self._schema = schema
        self._arrow = arrow_schema(schema)
        self._options = options
        self._integer_decimals = True
        self._row_group_bytes = min(options.row_group_bytes, memory_bytes or options.row_group_bytes)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in self._arrow], schema=self._arrow)
        self._nan_counts: dict[int, int] = dict.fromkeys(nan_counts(empty), 0)
        self._access = access
        self._metadata = metadata
        self._stream = CheckedStream(lambda: access.create_output(self.path), checkpoint)
        self._writer: pq.ParquetWriter | None = None  # created for the first rows, whose values decide the encoding

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; their columns are the schema's. Raises StorageFull."""
        if batch.num_rows == 0:
            return
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        for field_id, count in nan_counts(batch).items():
            self._nan_counts[field_id] += count
        by_size = self._row_group_bytes * self._pending_rows // max(1, self._pending_bytes)
        group_rows = max(1, min(self._options.row_group_rows, by_size))
        if self._pending_rows >= group_rows:
            self._write_groups(group_rows)

    @property
    def written_bytes(self) -> int:
        """Bytes of the row groups written so far."""
        return int(self._stream.tell())

    def close(self) -> WrittenFile:
        """Write the remaining rows and the footer. Raises StorageFull; the file is then deleted."""
        try:
            if self._pending_rows:
                self._write_table(pa.Table.from_batches(self._pending, self._arrow))
            writer = self._writer or self._open_writer(pa.Table.from_batches([], self._arrow), self._stream)
            with translated(self.path):
                if self._metadata:
                    writer.add_key_value_metadata(dict(self._metadata))
                writer.close()
                size_bytes = int(self._stream.tell())
                self._stream.close()
            metadata = writer.writer.metadata
            metrics, split_offsets = column_metrics(metadata, self._schema, self._options, self._nan_counts)
        except BaseException:
            self.discard()
            raise
        return WrittenFile(self.path, size_bytes, int(metadata.num_rows), metrics, split_offsets)

    def discard(self) -> None:
        """Abandon the file and delete it if possible."""
        self._stream.checkpoint = None
        with suppress(OSError, pa.ArrowException):  # what failed before fails here again
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._stream.close()
        if self._stream.is_created:  # else another's file may have its name
            with suppress(AmoroError):
                self._access.delete(self.path)

    def _open_writer(self, first: pa.Table, sink: Any) -> pq.ParquetWriter:
        more: dict[str, Any] = {}
        if filters := bloom_filter_options(self._schema, self._options, first.num_rows):
            more["bloom_filter_options"] = filters
        with translated(self.path):
            return pq.ParquetWriter(sink, self._arrow, **self._encoding_of(first), **more)

    def _encoding_of(self, rows: pa.Table) -> Mapping[str, Any]:
        options = self._options
        encodings = column_encodings(self._arrow)
        result: dict[str, Any] = {
            "compression": options.codec,
            "compression_level": options.level,
            "data_page_size": max(options.page_bytes, _LEAST_PAGE_BYTES),
            "max_rows_per_page": options.page_rows,
            "use_dictionary": dictionary_columns(rows, options.dictionary_bytes, encodings),
            "dictionary_pagesize_limit": options.dictionary_bytes,
            "store_schema": False,
            "store_decimal_as_integer": self._integer_decimals,
            "write_page_index": True,
            "write_page_checksum": True,
        }
        if encodings:
            result["column_encoding"] = encodings
        return result

    def _write_groups(self, group_rows: int) -> None:
        table = pa.Table.from_batches(self._pending, self._arrow)
        start = 0
        while table.num_rows - start >= group_rows:
            self._write_table(table.slice(start, group_rows))
            start += group_rows
        rest = table.slice(start)
        self._pending = rest.to_batches()
        self._pending_rows = rest.num_rows
        self._pending_bytes = rest.nbytes

    def _write_table(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._open_writer(table, self._stream)
        with translated(self.path):
            self._writer.write_table(table, row_group_size=table.num_rows)


class CheckedStream:
    """A stream that is created for the first write, and calls the checkpoint before each."""

    def __init__(self, create: Callable[[], Any], checkpoint: Callable[[], None] | None) -> None:
        self.checkpoint = checkpoint
        self._create = create
        self._stream: Any = None
        self._written_bytes = 0

    @property
    def is_created(self) -> bool:
        """Whether something was to be written, and the stream could be created."""
        return self._stream is not None

    @property
    def closed(self) -> bool:
        return self._stream is not None and bool(self._stream.closed)

    def write(self, content: Any) -> int:
        """Write it, unless the checkpoint raises."""
        if self.checkpoint is not None:
            self.checkpoint()
        if self._stream is None:
            self._stream = self._create()
        written = int(self._stream.write(content))
        self._written_bytes += written
        return written

    def tell(self) -> int:
        """Bytes written so far."""
        return self._written_bytes

    def flush(self) -> None:
        """Pass on what is buffered."""
        if self._stream is not None:
            self._stream.flush()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
