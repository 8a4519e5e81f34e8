"""Rows that wait on disk, split into ranges by points: LZ4 in Arrow's files, which vanish with their directory."""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from amoro_core.errors import StorageFull
from amoro_core.files.storage.io import translated
from amoro_optimizer.cluster.range_partitioner import pieces
from amoro_optimizer.cluster.sort_keys import Counts

#: Bytes that are collected before they are split.
_COLLECTED_BYTES = 8 << 20
#: Files that are open at once at most; ranges that are too large are split again.
MOST_RANGES = 256
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


def free_disk(directory: str) -> int:
    """The bytes that are free where the directory is, or is to be."""
    place = Path(directory)
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def require_free(directory: str, needed: int, free: int) -> None:
    """Raise StorageFull, with what is needed and what is free, where that is less."""
    if free < needed:
        raise StorageFull(
            f"sorting needs about {needed:,} bytes of spill in {directory}, and {free:,} are free",
            hint="Free some space there, point TMPDIR elsewhere, give the optimizer more --memory, or lower"
            " self-optimizing.cluster.max-group-bytes.",
        )


def spilled_size(batches: Sequence[pa.RecordBatch]) -> int:
    """What the batches take on disk."""
    if not batches:
        return 0
    sink = pa.MockOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema, options=_COMPRESSED) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return int(sink.size())


class Ranges:
    """Batches spread over the files of numbered ranges, in which rows stand in the order in which they came."""

    def __init__(self, directory: Path, name: str, schema: pa.Schema) -> None:
        """Files are made in the directory when their first rows come."""
        self.spilled_bytes = 0
        self._directory = directory
        self._name = name
        self._schema = schema
        self._writers: dict[int, pa.RecordBatchFileWriter] = {}
        self._waiting: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch, numbers: Counts) -> None:
        """Add rows, each to the range of its number. Raises StorageFull."""
        for number, piece in pieces(batch, numbers):
            self._waiting[number].append(piece)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _COLLECTED_BYTES:
            self._flush()

    def close(self) -> None:
        """End the files; then they can be read."""
        self._flush()
        for number, writer in self._writers.items():
            with translated(str(self._directory)):
                writer.close()
                self.spilled_bytes += os.stat(self._path(number)).st_size

    def numbers(self) -> list[int]:
        """The ranges that have rows, ascending."""
        return sorted(self._writers)

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one range, whose file is deleted once it was read to its end."""
        path = self._path(number)
        with translated(path), pa.OSFile(path) as source:
            reader = pa.ipc.open_file(source, options=_READ)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
        os.unlink(path)

    def _flush(self) -> None:
        for number, waiting in self._waiting.items():
            rows = pa.Table.from_batches(waiting, self._schema).combine_chunks()
            with translated(self._path(number)):
                writer = self._writers.get(number)
                if writer is None:
                    writer = self._writers[number] = pa.ipc.new_file(
                        self._path(number), self._schema, options=_COMPRESSED
                    )
                writer.write_table(rows)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _path(self, number: int) -> str:
        return str(self._directory / f"{self._name}-{number}.arrow")
