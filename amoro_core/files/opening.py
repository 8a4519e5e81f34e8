"""Opening a data or delete file as a source of rows, whatever its format."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa

from amoro_core.files.io import FileAccess
from amoro_core.files.parquet import open_parquet
from amoro_core.model.files import DataFile, DeleteFile, FileFormat

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


def fetched(access: FileAccess, file: DataFile | DeleteFile, most_bytes: int = SMALL_FILE_BYTES) -> bytes | None:
    """The content of a file of at most `most_bytes`, in one request; None for a larger one. Raises DataFileMissing."""
    return access.read_bytes(file.path) if file.size_bytes <= most_bytes else None


@contextmanager
def open_rows(access: FileAccess, file: DataFile | DeleteFile, content: bytes | None) -> Iterator[RowSource]:
    """The file, open until the block ends: from its content if that was fetched, else as a stream.

    Raises DataFileMissing or UnreadableFile.
    """
    match file.file_format:
        case FileFormat.AVRO:
            from amoro_core.files.avro import open_avro  # few tables have such files, and fastavro is slow to load

            with open_avro(access, file.path, content) as avro:
                yield avro
        case FileFormat.ORC:
            from amoro_core.files.orc import open_orc  # nor is Arrow's reader of these needed by others

            with open_orc(access, file.path, content) as orc:
                yield orc
        case FileFormat.PARQUET:
            with open_parquet(access, file.path, content) as parquet:
                yield parquet
