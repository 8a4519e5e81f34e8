"""Reading Parquet: small files in one request, large ones as a buffered stream of batches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.files.io import FileAccess, reading_parquet

#: Decoded bytes a batch is to have; with the bounds below it decides how many rows are decoded at once.
BATCH_BYTES = 16 << 20
MIN_BATCH_ROWS, MAX_BATCH_ROWS = 256, 65_536
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
    decoded: int = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
    row_bytes = max(1, decoded // max(1, int(metadata.num_rows)))
    return max(MIN_BATCH_ROWS, min(MAX_BATCH_ROWS, BATCH_BYTES // row_bytes))
