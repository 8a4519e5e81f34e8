"""Reading Parquet files, and facts of their footers."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.errors import UnreadableFile
from amoro_core.files.deletes.vectors import VECTOR, blobs_in, positions_in
from amoro_core.files.parquet.metrics import null_count
from amoro_core.files.row_groups.checks import TAIL_BYTES, sound_metadata
from amoro_core.files.schema.schemas import leaf_ids
from amoro_core.files.storage.io import FileAccess, reading_file
from amoro_core.model.clustering import METADATA_KEY, Layout, parse_layout_text
from amoro_core.model.commits import FileFacts, VectorFacts
from amoro_core.model.files import FileFormat

#: Target of decoded bytes in a batch; with the row limit it decides how many rows are decoded at once.
BATCH_BYTES = 16 << 20
MAX_BATCH_ROWS = 65_536
#: The assumed size of a value in a dictionary chunk without bounds: writers omit bounds for values as large as this.
_UNTOLD_BYTES = 4096
#: The read buffer of a column chunk of a large file; without it whole chunks are held in memory.
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
        """Batches of at least these columns, in file order or that of `row_groups`, with the first row's position."""
        if row_groups is None:
            yield from self._batches(columns, None, 0)
            return
        counts = [self.file.metadata.row_group(index).num_rows for index in range(self.file.metadata.num_row_groups)]
        for index in row_groups:
            yield from self._batches(columns, [index], sum(counts[:index]))

    def piece(self, number: int, pieces: int) -> tuple[list[int], int]:
        """The row groups that begin in one of `pieces` pieces of about the same size, from 0, and their rows."""
        groups = [self.file.metadata.row_group(index) for index in range(self.file.metadata.num_row_groups)]
        starts = list(accumulate((int(group.total_byte_size) for group in groups), initial=0))
        total = max(1, starts.pop())
        result = [index for index, start in enumerate(starts) if start * pieces // total == number]
        return result, sum(int(groups[index].num_rows) for index in result)

    def _batches(
        self, columns: Sequence[str], row_groups: Sequence[int] | None, position: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        with reading_file(self.path):
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
    """The Parquet file, open until the block ends; from `content` if given. Raises DataFileMissing, UnreadableFile."""
    if content is not None:
        source = pa.BufferReader(content)
        buffer_bytes = 0
    else:
        source = access.open_input(path)
        buffer_bytes = STREAM_BUFFER_BYTES
    with source:
        with reading_file(path):
            file = pq.ParquetFile(
                source,
                metadata=_metadata(source),
                buffer_size=buffer_bytes,
                pre_buffer=False,
                coerce_int96_timestamp_unit="us",  # as nanoseconds, dates before 1678 wrap silently
                arrow_extensions_enabled=False,
                page_checksum_verification=True,  # Java writes checksums; a flipped bit must not be copied
            )
        yield ParquetInput(path, file)


def _metadata(source: pa.NativeFile) -> pq.FileMetaData:
    """The footer, without statistics by which Arrow would end the process. Raises UnreadableFile and Arrow's errors."""
    metadata = pq.read_metadata(source)
    source.seek(-TAIL_BYTES - metadata.serialized_size, os.SEEK_END)
    try:
        return sound_metadata(metadata, source.read(metadata.serialized_size))
    except (ValueError, TypeError, AttributeError) as error:
        raise UnreadableFile(f"its footer contradicts itself: {error}") from error


def _batch_rows(metadata: pq.FileMetaData) -> int:
    groups = metadata.num_row_groups
    decoded = sum(int(metadata.row_group(number).total_byte_size) for number in range(groups))
    row_bytes = decoded // max(1, int(metadata.num_rows))
    sample = (metadata.row_group(number) for number in {0, groups // 2, groups - 1} if 0 <= number < groups)
    row_bytes = max(row_bytes, *(_row_bytes(group) for group in sample), 1)
    return max(1, min(MAX_BATCH_ROWS, BATCH_BYTES // row_bytes))


def _row_bytes(group: pq.RowGroupMetaData) -> int:
    """The decoded size of a row: a dictionary's value is stored once but may repeat in every row."""
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


#: How many rows the data file of a vector has is not known here.
_MOST_ROWS = 2**63


def read_facts(access: FileAccess, path: str) -> FileFacts:
    """Size, rows, and counts of the leaf columns by field id, from the footer alone; the vectors of a Puffin file.

    Leaves in lists and maps are left out: writers count empty lists differently. Raises DataFileMissing or
    UnreadableFile.
    """
    if path.endswith(f".{FileFormat.PUFFIN}"):
        return _facts_of_vectors(access.read_bytes(path), path)
    size = access.size(path)
    with access.open_input(path) as source, reading_file(path):
        metadata = _metadata(source)
        leaves = leaf_ids(metadata.schema.to_arrow_schema())
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    for index, (field_id, repeated) in enumerate(leaves):
        if field_id is None or repeated:
            continue
        chunks = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        values[field_id] = sum(chunk.num_values for chunk in chunks)
        if (count := null_count(chunks)) is not None:
            nulls[field_id] = count
    return FileFacts(size, metadata.num_rows, values, nulls)


def _facts_of_vectors(content: bytes, path: str) -> FileFacts:
    result = {}
    for offset, blob in blobs_in(content, path).items():
        stored = blob.properties.get("cardinality", "")
        if blob.type != VECTOR or not stored.isdecimal():
            raise UnreadableFile(f"{path} has a blob at {offset} that is no deletion vector")
        positions = positions_in(blob.payload, int(stored), _MOST_ROWS, f"{path} at {offset}")
        names = blob.properties.get("referenced-data-file", "")
        result[offset] = VectorFacts(names, len(blob.payload), len(positions), positions.last)
    return FileFacts(len(content), sum(vector_facts.record_count for vector_facts in result.values()), {}, {}, result)


def read_layout(access: FileAccess, path: str) -> tuple[str, Layout] | None:
    """Group and layout in a data file's footer; None where it has none. Raises DataFileMissing, UnreadableFile."""
    with access.open_input(path) as source, reading_file(path):
        stored = pq.read_metadata(source).metadata or {}
    text = stored.get(METADATA_KEY.encode())
    if text is None:
        return None
    try:
        return parse_layout_text(text.decode(errors="replace"))
    except ValueError:
        return None
