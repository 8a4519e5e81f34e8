"""Rows on their way through a shuffle: pieces of many batches, collected to blocks for each partition."""

from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa

#: What a block has of rows at most, as they are in memory: Spark holds some of them at once.
BLOCK_BYTES = 32 << 20
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


class Blocks:
    """Collects rows of one schema until they are worth a block, or the memory is full."""

    def __init__(self, memory_bytes: int) -> None:
        """Of rows about so many bytes are held."""
        self.sent_bytes = 0
        self._memory_bytes = memory_bytes
        self._waiting: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._sizes: defaultdict[int, int] = defaultdict(int)
        # Pieces share their batch: it is let go with the last of them only, whatever was sent.
        self._held_bytes = 0

    def add(self, partition: int, piece: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        """Add rows for the partition; the blocks that are to be sent now."""
        size = int(piece.nbytes)
        if self._sizes[partition] and self._sizes[partition] + size > BLOCK_BYTES:
            yield self._block(partition)
        self._waiting[partition].append(piece)
        self._sizes[partition] += size
        self._held_bytes += size
        if self._held_bytes > self._memory_bytes:
            yield from self.drain()

    def drain(self) -> Iterator[tuple[int, bytes]]:
        """Blocks of all that is left."""
        for partition in sorted(self._waiting):
            yield self._block(partition)
        self._held_bytes = 0

    def _block(self, partition: int) -> tuple[int, bytes]:
        pieces = self._waiting.pop(partition)
        del self._sizes[partition]
        rows = pa.Table.from_batches(pieces).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
            stream.write_table(rows)
        block: bytes = sink.getvalue().to_pybytes()
        self.sent_bytes += len(block)
        return partition, block


def rows_of(block: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of a block."""
    with pa.ipc.open_stream(block, options=_READ) as stream:
        yield from stream
