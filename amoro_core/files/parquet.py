"""Reading Parquet: small files in one request, large ones as a buffered stream of batches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.files.io import FileAccess, reading_parquet

#: Decoded bytes a batch is to have; with the most rows below it decides how many are decoded at once.
BATCH_BYTES = 16 << 20
MAX_BATCH_ROWS = 65_536
#: What a value has for which a dictionary's chunk tells no bounds: writers leave them out for values as large as this.
_UNTOLD_BYTES = 4096
#: What a column chunk of a large file is read by; without it whole chunks are held in memory.
STREAM_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ParquetInput:
    """An open Parquet file."""

    path: str
    file: pq.ParquetFile

    @property
    def rows(self) -> int:
        return int(self.file.metadata.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the file's columns, with field ids where it has them."""
        return self.file.schema_arrow

    def batches(
        self, columns: Sequence[str], row_groups: Sequence[int] | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches in the file's order, each with the position of its first row; at least these columns.

        With `row_groups` only those, in their order. Raises UnreadableFile.
        """
        if row_groups is None:
            yield from self._batches(columns, None, 0)
            return
        counts = [self.file.metadata.row_group(index).num_rows for index in range(self.file.metadata.num_row_groups)]
        for index in row_groups:
            yield from self._batches(columns, [index], sum(counts[:index]))

    def _batches(
        self, columns: Sequence[str], row_groups: Sequence[int] | None, position: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        with reading_parquet(self.path):
            batches = self.file.iter_batches(
                batch_size=_batch_rows(self.file.metadata),
                row_groups=row_groups,
                columns=list(columns),
                use_threads=False,
            )
            for batch in batches:
                yield position, batch
                position += batch.num_rows


@contextmanager
def open_parquet(access: FileAccess, path: str, content: bytes | None = None) -> Iterator[ParquetInput]:
    """The Parquet file at `path`, open until the block ends; `content` is all of it, where that was fetched.

    Raises DataFileMissing or UnreadableFile.
    """
    if content is not None:
        source = pa.BufferReader(content)
        buffer_bytes = 0
    else:
        source = access.open_input(path)
        buffer_bytes = STREAM_BUFFER_BYTES
    with source:
        with reading_parquet(path):
            file = pq.ParquetFile(
                source,
                buffer_size=buffer_bytes,
                pre_buffer=False,
                coerce_int96_timestamp_unit="us",  # as nanoseconds, dates before 1678 wrap silently
                arrow_extensions_enabled=False,
                page_checksum_verification=True,  # Java writes them; a flipped bit must not be written anew
            )
        yield ParquetInput(path, file)


def _batch_rows(metadata: pq.FileMetaData) -> int:
    groups = metadata.num_row_groups
    decoded = sum(int(metadata.row_group(number).total_byte_size) for number in range(groups))
    row_bytes = decoded // max(1, int(metadata.num_rows))
    sample = (metadata.row_group(number) for number in {0, groups // 2, groups - 1} if 0 <= number < groups)
    row_bytes = max(row_bytes, *(_row_bytes(group) for group in sample), 1)
    return max(1, min(MAX_BATCH_ROWS, BATCH_BYTES // row_bytes))


def _row_bytes(group: pq.RowGroupMetaData) -> int:
    """What a row takes once decoded: a value of a dictionary is stored once and may come back with every row."""
    chunks = (group.column(index) for index in range(group.num_columns))
    return sum(_value_bytes(chunk) * int(chunk.num_values) for chunk in chunks) // max(1, int(group.num_rows))


def _value_bytes(chunk: pq.ColumnChunkMetaData) -> int:
    stored = int(chunk.total_uncompressed_size)
    by_value: int = -(-stored // max(1, chunk.num_values))
    if chunk.physical_type != "BYTE_ARRAY" or not chunk.has_dictionary_page:
        return by_value
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return max(by_value, min(stored, _UNTOLD_BYTES))
    return max(by_value, min(stored, max(len(statistics.min_raw), len(statistics.max_raw))))
