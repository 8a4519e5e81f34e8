"""A cache of decoded delete files for the tasks of a process, limited in bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from amoro_core.errors import CheckFailed
from amoro_core.files.deletes.delete_files import (
    Bits,
    KeyTable,
    Positions,
    key_batches,
    key_columns,
    key_schema,
    read_keys,
    read_position_bits,
    read_positions,
    set_bits,
)
from amoro_core.files.deletes.vectors import place_of, read_vectors
from amoro_core.files.file_readers import RowSource
from amoro_core.files.hashing import key_hashes
from amoro_core.files.schema.projection import bind
from amoro_core.files.schema.schemas import (
    identity_constants,
    parse_name_mapping,
    parse_schema,
    parse_spec,
    with_dropped,
)
from amoro_core.files.storage.io import FileAccess, reading_file
from amoro_core.model.files import DeleteFile, DeleteIdentity, DeleteKind
from amoro_core.model.paths import normalise
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.task_payload import InputFile, RewriteInput
from amoro_optimizer.rewrite.delete_keys import KeyColumns, KeyIndex, Mask, Ranges, SpilledKeys, gather, parts_of
from amoro_optimizer.rewrite.reading import WatchedAccess, groups_within

#: While waiting for another thread's work: the interval of checks whether the attempt was cancelled.
_LOOK_S = 0.1


@dataclass(slots=True)
class _Entry:
    value: Any
    nbytes: int


class BoundedCache:
    """An LRU cache of values by key, shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """The size of the cached values."""
        return self._nbytes

    def get(self, key: Hashable) -> Any | None:
        """The value, if it is cached."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry.value

    def put(self, key: Hashable, value: Any, nbytes: int, capacity: int) -> None:
        """Cache the value, evicting others beyond `capacity` bytes in all; a larger value is not cached."""
        with self._lock:
            known = self._entries.pop(key, None)
            if known is not None:
                self._nbytes -= known.nbytes
            if nbytes <= capacity:
                self._entries[key] = _Entry(value, nbytes)
                self._nbytes += nbytes
            while self._nbytes > capacity:
                _, oldest = self._entries.popitem(last=False)
                self._nbytes -= oldest.nbytes

    def get_or_make(
        self, key: Hashable, make: Callable[[], tuple[Any, int]], capacity: int, checkpoint: Callable[[], None]
    ) -> Any:
        """The value; the first caller makes it (value and bytes), while other callers wait.

        If making it fails, waiting callers try themselves. `checkpoint` is called while waiting and may raise.
        """
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        while not making.acquire(timeout=_LOOK_S):
            checkpoint()
        try:
            found = self.get(key)
            if found is None:
                found, nbytes = make()
                self.put(key, found, nbytes, capacity)
            return found
        finally:
            making.release()
            with self._lock:
                self._making.pop(key, None)

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._entries.clear()
            self._nbytes = 0


#: The delete files decoded by this process, for all tasks.
DECODED_DELETES = BoundedCache()


@dataclass(frozen=True, slots=True)
class EqualityDeleteGroup:
    """Deletes with one set of ids, each with a level: a file of class c is subject to those with levels up to c.

    The deletes of a file are a suffix of all by sequence number, so the sets of two files are nested and one chain
    suffices for all; sets that are not nested are in further chains.
    """

    ids: tuple[int, ...]
    levels: tuple[tuple[int, int], ...]  # index of the delete and its level, sorted by level
    classes: Mapping[str, int]  # of each file subject to any of them, by its path


def chains_of(work: RewriteInput) -> tuple[EqualityDeleteGroup, ...]:
    """The chains of all equality deletes that apply to a file of the task."""
    by_ids: dict[tuple[int, ...], dict[str, frozenset[int]]] = {}
    for file in (*work.rewritten, *work.converted):
        for ids, indexes in _equality_deletes(file, work.deletes).items():
            by_ids.setdefault(ids, {})[file.data.path] = indexes
    return tuple(_chain(ids, sets, chosen) for ids, sets in by_ids.items() for chosen in _nested(sets.values()))


def _equality_deletes(file: InputFile, deletes: tuple[DeleteFile, ...]) -> dict[tuple[int, ...], frozenset[int]]:
    found: dict[tuple[int, ...], set[int]] = {}
    for index in file.deletes:
        if deletes[index].kind is DeleteKind.EQUALITY:
            found.setdefault(tuple(sorted(set(deletes[index].equality_ids))), set()).add(index)
    return {ids: frozenset(indexes) for ids, indexes in found.items()}


def _nested(sets: Iterable[frozenset[int]]) -> list[list[frozenset[int]]]:
    """The distinct sets, in lists in which each contains the one before it."""
    lists: list[list[frozenset[int]]] = []
    for one in sorted(set(sets), key=lambda found: (len(found), sorted(found))):
        fitting = next((other for other in lists if other[-1] <= one), None)
        if fitting is None:
            lists.append([one])
        else:
            fitting.append(one)
    return lists


def _chain(
    ids: tuple[int, ...], sets: Mapping[str, frozenset[int]], chosen: list[frozenset[int]]
) -> EqualityDeleteGroup:
    levels: dict[int, int] = {}
    for level, one in enumerate(chosen):
        for index in sorted(one):
            levels.setdefault(index, level)
    places = {one: level for level, one in enumerate(chosen)}
    return EqualityDeleteGroup(
        ids, tuple(levels.items()), {path: places[one] for path, one in sets.items() if one in places}
    )


OpenFile = Callable[[InputFile], AbstractContextManager[RowSource]]

#: Shares of the memory limit: keys in an index, and decoded delete files kept for other tasks.
_KEY_SHARE = 4
_CACHE_SHARE = 8
#: Beyond this size, lookups are faster in partitions from disk, and building an index takes a second.
_MOST_KEY_BYTES = 128 << 20
#: A delete file is cached whole for other tasks if it takes at most this share of the cache.
_CACHED_SHARE = 4
#: The assumed width of a key in a column of variable width, until the file is read.
_GUESSED_WIDTH = 32
#: Memory of a position, when paths are few.
_POSITION_BYTES = 8

_FILE, _ROW = pa.field("file", pa.int32()), pa.field("row", pa.int64())


class DeleteFilter:
    """The deletes of one task. Keys that don't fit into memory are in files until `spills` is closed."""

    def __init__(
        self,
        work: RewriteInput,
        access: FileAccess,
        checkpoint: Callable[[], None],
        open_file: OpenFile,
        *,
        memory_bytes: int,
        spill_root: str,
        spills: ExitStack,
    ) -> None:
        """`checkpoint` is called for each batch and may raise."""
        self._work = work
        self._access = WatchedAccess(access, checkpoint)
        self._checkpoint = checkpoint
        self._open_file = open_file
        self._chains = chains_of(work)
        self._key_bytes = min(memory_bytes // _KEY_SHARE, _MOST_KEY_BYTES) // max(1, len(self._chains))
        self._cache_bytes = memory_bytes // _CACHE_SHARE
        self._spill_root = spill_root
        self._spills = spills
        self._positions: dict[int, Mapping[str, Positions]] = {}
        self._position_bits: dict[int, Mapping[str, Bits]] = {}
        self._indexes: dict[int, KeyIndex | None] = {}
        self._spilled: dict[int, dict[str, Bits]] = {}
        self._read: set[int] = set()

    @property
    def bytes_read(self) -> int:
        """The size of the delete files read so far, without those that were cached."""
        return sum(self._work.deletes[index].identity.size for index in self._read)

    def of(self, file: InputFile, source: RowSource) -> Mask:
        """For each row of the file, whether it is deleted.

        Raises UnreadableFile, DataFileMissing or TableRefused for what the files are, StorageFull.
        """
        mask = self.by_position(file)
        for number, chain in enumerate(self._chains):
            level = chain.classes.get(file.data.path)
            if level is None:
                continue
            index = self._index_of(number)
            if index is not None:
                for first, columns in self._keys_in(chain, file, source, index.ranges):
                    mask[first : first + len(columns[0])] |= index.levels_of(columns) <= level
            elif number in self._spilled:
                packed = self._spilled[number].get(file.data.path)
                if packed is not None:
                    mask |= _unpacked(packed, len(mask))
        return mask

    def by_position(self, file: InputFile) -> Mask:
        """For each row of the file, whether a position delete removes it; the file itself is not read."""
        rows = file.data.record_count
        mask = np.zeros(rows, np.bool_)
        place = normalise(file.data.path)
        for index in file.deletes:
            delete = self._work.deletes[index]
            if delete.kind is not DeleteKind.POSITION:
                continue
            if delete.is_vector:
                mask |= self._vector(delete, place).mask(rows)
            elif delete.record_count * _POSITION_BYTES > self._cache_bytes // _CACHED_SHARE:
                packed = self._position_bits_in(index).get(place)
                if packed is not None:
                    mask |= _unpacked(packed, rows)
            else:
                positions = self._positions_in(index).get(place)
                if positions is not None:
                    mask[positions[positions < rows]] = True
        return mask

    def _vector(self, delete: DeleteFile, place: str) -> PositionSet:
        """The positions in a vector of the data file at that normalised path."""
        if normalise(delete.referenced_data_file or "") != place:
            raise CheckFailed(f"the deletion vector at {place_of(delete)} names another file than {place}")
        return self._vectors[delete.identity]

    @cached_property
    def _vectors(self) -> Mapping[DeleteIdentity, PositionSet]:
        """All vectors of the task, which take at most a bit for each row of its files."""
        files = (*self._work.rewritten, *self._work.converted)
        used = sorted({index for file in files for index in file.deletes if self._work.deletes[index].is_vector})
        for index in used:
            self._access.require_readable(self._work.deletes[index].path)
        self._read.update(used)
        vectors = [self._work.deletes[index] for index in used]
        return read_vectors(self._access, vectors, self._rows, self._checkpoint)

    def _index_of(self, number: int) -> KeyIndex | None:
        """The index of a chain; None when it has no keys, or so many that all marks were made at once."""
        if number not in self._indexes:
            chain = self._chains[number]
            expected = sum(self._work.deletes[index].record_count for index, _ in chain.levels)
            found = gather(self._parts(chain), expected, self._key_bytes, self._spill_root, self._spills)
            if isinstance(found, SpilledKeys):
                self._spilled[number] = self._marked(chain, found)
                found = None
            self._indexes[number] = found
        return self._indexes[number]

    def _parts(self, chain: EqualityDeleteGroup) -> Iterator[tuple[KeyColumns, int]]:
        for index, level in chain.levels:
            delete = self._work.deletes[index]
            self._access.require_readable(delete.path)
            if delete.record_count * self._key_width(chain.ids) > self._cache_bytes // _CACHED_SHARE:
                self._read.add(index)
                unknown = self._work.table.once_unknown
                for columns in key_batches(
                    self._access, delete, self._schema, self._mapping, self._checkpoint, unknown
                ):
                    yield columns, level
            else:
                yield from parts_of(self._cached_keys(index), level)

    def _cached_keys(self, index: int) -> KeyTable:
        delete = self._work.deletes[index]

        def read() -> tuple[KeyTable, int]:
            self._read.add(index)
            unknown = self._work.table.once_unknown
            table = read_keys(self._access, delete, self._schema, self._mapping, self._checkpoint, unknown)
            return table, table.nbytes

        types = str(key_schema(self._schema, delete.equality_ids))
        names = self._work.table.name_mapping_json
        key = ("keys", normalise(delete.path), *delete.identity[1:], delete.record_count, types, names)
        found: KeyTable = DECODED_DELETES.get_or_make(key, read, self._cache_bytes, self._checkpoint)
        return found

    def _key_width(self, ids: tuple[int, ...]) -> int:
        kinds = [column.type for column in self._empty_keys(ids)]
        return sum(_GUESSED_WIDTH if pa.types.is_binary(kind) else kind.bit_width // 8 + 1 for kind in kinds)

    def _empty_keys(self, ids: tuple[int, ...]) -> KeyColumns:
        schema = key_schema(self._schema, ids)
        projection = bind(schema, pa.schema([]), NameMapping([]), {}, "")
        return key_columns(projection.apply(pa.record_batch([], schema=pa.schema([]))), schema, ids)

    def _keys_in(
        self, chain: EqualityDeleteGroup, file: InputFile, source: RowSource, ranges: Ranges = ()
    ) -> Iterator[tuple[int, KeyColumns]]:
        """The keys of the file's rows batch by batch, each with the position of its first row.

        Row groups whose statistics exclude keys within `ranges` are skipped.
        """
        schema = key_schema(self._schema, chain.ids)
        constants = identity_constants(self._spec, file.data.partition, self._schema)
        projection = bind(schema, source.schema, self._mapping, constants, source.path)
        chosen = groups_within(source, projection, dict(zip(chain.ids, ranges, strict=False)), file.data.metrics)
        for position, batch in source.batches(projection.columns, chosen):
            self._checkpoint()
            with reading_file(source.path):
                columns = key_columns(projection.apply(batch), schema, chain.ids)
            yield position, columns

    def _marked(self, chain: EqualityDeleteGroup, keys: SpilledKeys) -> dict[str, Bits]:
        """The deleted rows of all files of the chain, packed.

        Rows that may have a deleted key are spilled to files; then each partition of keys is matched with its own rows.
        """
        files = [file for file in (*self._work.rewritten, *self._work.converted) if file.data.path in chain.classes]
        rows = keys.row_partitions([_FILE, _ROW])
        for number, file in enumerate(files):
            with self._open_file(file) as source:
                for first, columns in self._keys_in(chain, file, source):
                    hashes = key_hashes(columns)
                    chosen = np.flatnonzero(keys.filter.may_hold(hashes))
                    if len(chosen):
                        taken = [column.take(pa.array(chosen)) for column in columns]
                        files_of = pa.array(np.full(len(chosen), number, np.int32))
                        rows.add(hashes[chosen], [*taken, files_of, pa.array(chosen + first)])
        rows.close()
        packed = [np.zeros(-(-file.data.record_count // 8), np.uint8) for file in files]
        levels = np.array([chain.classes[file.data.path] for file in files], np.int32)
        for partition in range(rows.count):
            self._checkpoint()
            index = keys.index(partition)
            for batch in rows.batches(partition):
                self._checkpoint()
                if index is not None:
                    _mark(batch, index, levels, packed)
        return {file.data.path: marks for file, marks in zip(files, packed, strict=True)}

    def _position_bits_in(self, index: int) -> Mapping[str, Bits]:
        """The positions of a delete file that has too many to be cached for other tasks."""
        if index not in self._position_bits:
            delete = self._work.deletes[index]
            self._access.require_readable(delete.path)
            self._read.add(index)
            self._position_bits[index] = read_position_bits(self._access, delete, self._rows, self._checkpoint)
        return self._position_bits[index]

    def _positions_in(self, index: int) -> Mapping[str, Positions]:
        if index not in self._positions:
            delete = self._work.deletes[index]
            self._access.require_readable(delete.path)

            def read() -> tuple[Mapping[str, Positions], int]:
                self._read.add(index)
                found = read_positions(self._access, delete, self._checkpoint)
                return found, sum(len(path) + positions.nbytes for path, positions in found.items())

            key = ("positions", normalise(delete.path), *delete.identity[1:], delete.record_count)
            self._positions[index] = DECODED_DELETES.get_or_make(key, read, self._cache_bytes, self._checkpoint)
        return self._positions[index]

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        files = (*self._work.rewritten, *self._work.converted)
        return {normalise(file.data.path): file.data.record_count for file in files}

    @cached_property
    def _schema(self) -> Schema:
        table = self._work.table
        return with_dropped(parse_schema(table.schema_json), table.dropped_fields_json)

    @cached_property
    def _mapping(self) -> NameMapping | None:
        return parse_name_mapping(self._work.table.name_mapping_json)

    @cached_property
    def _spec(self) -> PartitionSpec:
        return parse_spec(self._work.table.spec_json)


def _unpacked(bits: Bits, rows: int) -> Mask:
    return np.unpackbits(bits, count=rows, bitorder="little").astype(np.bool_)


def _mark(batch: pa.RecordBatch, index: KeyIndex, levels: npt.NDArray[np.int32], packed: list[Bits]) -> None:
    *columns, files, rows = batch.columns
    numbers, places = files.to_numpy(), rows.to_numpy()
    gone = index.levels_of(columns) <= levels[numbers]
    if not gone.any():
        return
    numbers, places = numbers[gone], places[gone]
    found, starts = np.unique(numbers, return_index=True)  # rows come in the order of their files
    for number, start, end in zip(found, starts, [*starts[1:], len(places)], strict=True):
        set_bits(packed[number], places[start:end])
