"""The keys of a chain of equality deletes: in an index as long as memory allows, else in files by hash."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from amoro_core.files.deletes import KeyTable
from amoro_optimizer.rewrite.hashing import key_hashes
from amoro_optimizer.rewrite.key_index import HashFilter, KeyColumns, KeyIndex, Levels, build_index
from amoro_optimizer.rewrite.spilling import Partitions, spill_directory

#: What an index and its making take for each key beside twice the key itself: hashes, order, levels, filter.
_BYTES_BY_KEY = 48
_MOST_PARTITIONS = 256

#: Keys with their level, in the columns of `amoro_core.files.keys`.
KeyParts = Iterable[tuple[KeyColumns, int]]


@dataclass(frozen=True, slots=True)
class SpilledKeys:
    """Keys that were too many for the memory, and a filter of all their hashes."""

    partitions: Partitions
    filter: HashFilter
    directory: Path

    def row_partitions(self, more: list[pa.Field]) -> Partitions:
        """Files for rows beside those for keys: the key columns, then `more`."""
        kinds = list(self.partitions.schema)[:-1]
        return Partitions(self.directory, "rows", pa.schema([*kinds, *more]), self.partitions.count)

    def index(self, partition: int) -> KeyIndex | None:
        """The keys of one partition; None when it has none. Each partition can be had once."""
        batches = list(self.partitions.batches(partition))
        if not batches:
            return None
        table = pa.Table.from_batches(batches)
        *columns, levels = (_joined(column.chunks) for column in table.columns)
        return build_index(columns, levels.to_numpy(), self.filter.nbytes)


def gather(
    parts: KeyParts, expected_rows: int, memory_bytes: int, spill_root: str, spills: ExitStack
) -> KeyIndex | SpilledKeys | None:
    """The keys as an index within `memory_bytes`, or in a directory under `spill_root` that `spills` removes.

    None when there is no key. Raises StorageFull, and what `parts` raises.
    """
    source = iter(parts)
    held: list[tuple[KeyColumns, int]] = []
    nbytes = rows = 0
    for columns, level in source:
        if len(columns[0]) == 0:
            continue
        held.append((columns, level))
        rows += len(columns[0])
        nbytes += _cost(columns)
        if nbytes > memory_bytes:
            wanted = nbytes * max(1, -(-expected_rows // rows))
            return _spilled(held, source, _partition_count(wanted, memory_bytes), memory_bytes, spill_root, spills)
    if not held:
        return None
    columns = tuple(_joined(chunks) for chunks in zip(*(part for part, _ in held), strict=True))
    levels = np.concatenate([np.full(len(part[0]), level, np.int32) for part, level in held])
    return build_index(columns, levels, memory_bytes)


def parts_of(table: KeyTable, level: int) -> Iterator[tuple[KeyColumns, int]]:
    """The keys of a decoded delete file, with its level."""
    if table.rows:
        yield from ((chunks, level) for chunks in zip(*(column.chunks for column in table.columns), strict=True))


def _cost(columns: KeyColumns) -> int:
    return sum(2 * int(column.nbytes) for column in columns) + _BYTES_BY_KEY * len(columns[0])


def _partition_count(wanted_bytes: int, memory_bytes: int) -> int:
    """Enough for each to fit with room to spare, a power of two."""
    wanted = -(-3 * wanted_bytes // (2 * max(1, memory_bytes)))
    return min(_MOST_PARTITIONS, 1 << max(1, (wanted - 1).bit_length()))


def _spilled(
    held: list[tuple[KeyColumns, int]],
    rest: KeyParts,
    count: int,
    memory_bytes: int,
    spill_root: str,
    spills: ExitStack,
) -> SpilledKeys:
    directory = spills.enter_context(spill_directory(spill_root))
    kinds = [column.type for column in held[0][0]]
    schema = pa.schema([*(pa.field(f"k{number}", kind) for number, kind in enumerate(kinds)), ("level", pa.int32())])
    partitions = Partitions(directory, "keys", schema, count)
    known = HashFilter(1 << 62, memory_bytes // 4)

    def put(columns: KeyColumns, level: int) -> None:
        hashes = key_hashes(columns)
        known.add(hashes)
        levels: Levels = np.full(len(hashes), level, np.int32)
        partitions.add(hashes, [*columns, pa.array(levels)])

    while held:
        put(*held.pop(0))
    for columns, level in rest:
        put(columns, level)
    partitions.close()
    return SpilledKeys(partitions, known, directory)


def _joined(chunks: Iterable[pa.Array]) -> pa.Array:
    parts = list(chunks)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
