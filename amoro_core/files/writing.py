"""Writing Parquet files that are correct for Iceberg."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from amoro_core.errors import AmoroError
from amoro_core.files.encoding import (
    SAMPLE_ROWS,
    bloom_filter_options,
    column_encodings,
    compression_levels,
    dictionary_columns,
)
from amoro_core.files.io import FileAccess, translated
from amoro_core.files.metrics import column_metrics, nan_counts
from amoro_core.files.options import WriterOptions
from amoro_core.files.schema import arrow_schema
from amoro_core.model.files import ColumnMetrics
from amoro_core.records import record

#: Smaller pages are useless, and below five bytes Arrow loses the only list of a row group that has a dictionary.
_LEAST_PAGE_BYTES = 1024


@record
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

        A row group is written before the collected rows exceed `memory_bytes`.

        `checkpoint` is called for each piece that is written, and may raise: encoding a row group takes seconds.
        """
        self.path = path
        self._schema = schema
        self._arrow = arrow_schema(schema)
        self._options = options
        self._row_group_bytes = min(options.row_group_bytes, memory_bytes or options.row_group_bytes)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._nan_counts: dict[int, int] = dict.fromkeys(_float_ids(self._arrow), 0)
        self._access = access
        self._metadata = metadata
        self._stream = CheckedStream(lambda: access.create_output(self.path), checkpoint)
        self._writer: pq.ParquetWriter | None = None  # created for the first rows, whose values decide the encoding
        self._sampled_rows = 0  # of the row group that decided how columns are encoded
        self._encoding: Mapping[str, Any] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; their columns are the schema's. Raises StorageFull."""
        if batch.num_rows == 0:
            return
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        for field_id, count in nan_counts(batch).items():
            self._nan_counts[field_id] += count
        group_rows = self._group_rows()
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
        """How columns are encoded: as in a row group before, unless that had far fewer rows.

        To sample every row group took 3 % of a rewrite's CPU where rows are texts.
        """
        if not SAMPLE_ROWS <= rows.num_rows <= 2 * self._sampled_rows:
            found = self._sampled_encoding(rows)
            if rows.num_rows < SAMPLE_ROWS:
                return found
            self._sampled_rows, self._encoding = rows.num_rows, found
        return self._encoding

    def _sampled_encoding(self, rows: pa.Table) -> Mapping[str, Any]:
        options = self._options
        encodings = column_encodings(self._arrow)
        found: dict[str, Any] = {
            "compression": options.codec,
            "data_page_size": max(options.page_bytes, _LEAST_PAGE_BYTES),
            "max_rows_per_page": options.page_rows,
            "use_dictionary": dictionary_columns(rows, options.dictionary_bytes, encodings),
            "dictionary_pagesize_limit": options.dictionary_bytes,
            "store_schema": False,
            "store_decimal_as_integer": True,
            "write_page_index": True,
            "write_page_checksum": True,
        }
        if encodings:
            found["column_encoding"] = encodings
        found["compression_level"] = options.level
        if options.level is not None and options.lower_level is not None:
            found["compression_level"] = compression_levels(rows, options.lower_level, options.level, found)
        return found

    def _group_rows(self) -> int:
        by_size = self._row_group_bytes * self._pending_rows // max(1, self._pending_bytes)
        return max(1, min(self._options.row_group_rows, by_size))

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
        """Whether it was closed."""
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
        """Close the stream below, if there is one."""
        if self._stream is not None:
            self._stream.close()


def _float_ids(columns: pa.Schema) -> list[int]:
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, column.type) for column in columns], schema=columns)
    return list(nan_counts(empty))
