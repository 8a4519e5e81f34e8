"""The keys of a chain of equality deletes: in an index if memory suffices, else in files partitioned by hash."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from amoro_core.files.deletes import KeyTable
from amoro_core.files.hashing import key_hashes
from amoro_core.records import record
from amoro_optimizer.rewrite.key_index import HashFilter, KeyColumns, KeyIndex, Levels, build_index
from amoro_optimizer.rewrite.spilling import Partitions, spill_directory

#: Memory of an index and its construction for each key, beside twice the key itself: hashes, order, levels, filter.
_BYTES_BY_KEY = 48
_MOST_PARTITIONS = 256

#: Keys with their level, in the columns of `amoro_core.files.keys`.
KeyParts = Iterable[tuple[KeyColumns, int]]


class _Keys:
    """Collected keys, with the estimated size of their index."""

    def __init__(self) -> None:
        self.rows = self.nbytes = 0
        self._parts: list[tuple[KeyColumns, Levels]] = []

    def add(self, columns: KeyColumns, levels: Levels) -> None:
        if len(levels) == 0:
            return
        self._parts.append((columns, levels))
        self.rows += len(levels)
        self.nbytes += sum(2 * int(column.nbytes) for column in columns) + _BYTES_BY_KEY * len(levels)

    def index(self, most_filter_bytes: int) -> KeyIndex:
        columns = tuple(_joined(chunks) for chunks in zip(*(part for part, _ in self._parts), strict=True))
        return build_index(columns, np.concatenate([levels for _, levels in self._parts]), most_filter_bytes)

    def distinct(self) -> "_Keys":
        """Each key once, with its lowest level."""
        index, found = self.index(0), _Keys()
        found.add(index.columns, index.levels)
        return found

    def drain(self) -> Iterator[tuple[KeyColumns, Levels]]:
        """The parts, each released when the next is requested."""
        while self._parts:
            yield self._parts.pop(0)


@record
class SpilledKeys:
    """Keys that did not fit into memory, and a filter of all their hashes."""

    partitions: Partitions
    filter: HashFilter
    directory: Path
    memory_bytes: int

    def row_partitions(self, more: list[pa.Field]) -> Partitions:
        """Files for rows beside those for keys: the key columns, then `more`."""
        kinds = list(self.partitions.schema)[:-1]
        return Partitions(self.directory, "rows", pa.schema([*kinds, *more]), self.partitions.count)

    def index(self, partition: int) -> KeyIndex | None:
        """The keys of one partition; None when it has none. Each partition can be read once.

        Repeated keys share a partition, so it may have far more rows than distinct keys.
        """
        keys, most_bytes = _Keys(), self.memory_bytes
        for batch in self.partitions.batches(partition):
            *columns, levels = batch.columns
            keys.add(columns, levels.to_numpy())
            if keys.nbytes > most_bytes:
                keys = keys.distinct()
                most_bytes = max(most_bytes, 2 * keys.nbytes)
        return keys.index(self.filter.nbytes) if keys.rows else None


def gather(
    parts: KeyParts, expected_rows: int, memory_bytes: int, spill_root: str, spills: ExitStack
) -> KeyIndex | SpilledKeys | None:
    """The keys as an index within `memory_bytes`, or in a directory under `spill_root` that `spills` removes.

    None when there is no key. Raises StorageFull, and what `parts` raises.
    """
    source = iter(parts)
    held, seen = _Keys(), 0
    for columns, level in source:
        held.add(columns, _same_level(columns, level))
        seen += len(columns[0])
        if held.nbytes > memory_bytes:
            before, held = held.rows, held.distinct()
            if 2 * held.rows > before:  # otherwise keys repeat, and are kept in memory
                wanted = held.nbytes * max(1, -(-expected_rows // seen))
                return _spilled(held, source, _partition_count(wanted, memory_bytes), memory_bytes, spill_root, spills)
    return held.index(memory_bytes) if held.rows else None


def parts_of(table: KeyTable, level: int) -> Iterator[tuple[KeyColumns, int]]:
    """The keys of a decoded delete file, with its level."""
    if table.rows:
        yield from ((chunks, level) for chunks in zip(*(column.chunks for column in table.columns), strict=True))


def _same_level(columns: KeyColumns, level: int) -> Levels:
    return np.full(len(columns[0]), level, np.int32)


def _partition_count(wanted_bytes: int, memory_bytes: int) -> int:
    """Enough for each to fit with room to spare, a power of two."""
    wanted = -(-3 * wanted_bytes // (2 * max(1, memory_bytes)))
    return min(_MOST_PARTITIONS, 1 << max(1, (wanted - 1).bit_length()))


def _spilled(
    held: _Keys, rest: KeyParts, count: int, memory_bytes: int, spill_root: str, spills: ExitStack
) -> SpilledKeys:
    directory = spills.enter_context(spill_directory(spill_root))
    partitions: Partitions | None = None
    known = HashFilter(1 << 62, memory_bytes // 4)
    for columns, levels in chain(held.drain(), ((columns, _same_level(columns, level)) for columns, level in rest)):
        if partitions is None:
            kinds = [pa.field(f"k{number}", column.type) for number, column in enumerate(columns)]
            partitions = Partitions(directory, "keys", pa.schema([*kinds, ("level", pa.int32())]), count)
        hashes = key_hashes(columns)
        known.add(hashes)
        partitions.add(hashes, [*columns, pa.array(levels)])
    if partitions is None:
        raise ValueError("no key to spill")
    partitions.close()
    return SpilledKeys(partitions, known, directory, memory_bytes)


def _joined(chunks: Iterable[pa.Array]) -> pa.Array:
    parts = list(chunks)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
