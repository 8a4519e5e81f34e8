"""The rows that deletes hide: exact, vectorised look-ups of deleted keys and positions."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from amoro_core.errors import CheckFailed
from amoro_core.files.deletes.delete_files import key_batches, key_columns, key_schema, read_positions
from amoro_core.files.deletes.vectors import place_of, read_vectors
from amoro_core.files.file_readers import RowSource
from amoro_core.files.hashing import Hashes, key_hashes
from amoro_core.files.schema.schemas import (
    bind,
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
from amoro_optimizer.rewrite.reading import WatchedAccess
from amoro_optimizer.rewrite.spilling import SpillFiles, spill_directory

Mask = npt.NDArray[np.bool_]
Levels = npt.NDArray[np.int32]
KeyColumns = Sequence[pa.Array]
_Places = npt.NDArray[np.intp]
#: One bit for each row of a file, lowest first.
Bits = npt.NDArray[np.uint8]

#: The level of a row whose key is not among the deleted ones.
ABSENT = np.int32(np.iinfo(np.int32).max)

#: From this size on, sorting the rows first is cheaper than random access to the keys.
_SORT_FROM = 4096


class HashFilter:
    """A Bloom filter of hashes with a fixed size: false positives are possible, false negatives are not."""

    def __init__(self, expected: int, most_bytes: int) -> None:
        wanted = 1 << max(10, int(expected).bit_length() + 1)  # bytes: 16 to 32 bits for each hash
        size = min(wanted, 1 << max(10, int(most_bytes).bit_length() - 1))
        self._bits = np.zeros(size, np.uint8)
        self._shift = np.uint64(64 - (size.bit_length() - 1))

    @property
    def nbytes(self) -> int:
        return int(self._bits.nbytes)

    def add(self, hashes: Hashes) -> None:
        place, bit = self._places(hashes)
        np.bitwise_or.at(self._bits, place, bit)

    def may_hold(self, hashes: Hashes) -> Mask:
        """For each hash, whether it may have been added."""
        place, bit = self._places(hashes)
        result: Mask = (self._bits[place] & bit) != 0
        return result

    def _places(self, hashes: Hashes) -> tuple[Hashes, npt.NDArray[np.uint8]]:
        # The lowest bits are those of partitions, the highest make the place.
        bit = np.left_shift(np.uint8(1), ((hashes >> np.uint64(8)) & np.uint64(7)).astype(np.uint8))
        return hashes >> self._shift, bit


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """Keys sorted by hash; among equal keys the one with the lowest level comes first."""

    hashes: Hashes
    levels: Levels
    columns: tuple[pa.Array, ...]
    filter: HashFilter

    def levels_of(self, rows: KeyColumns, hashes: Hashes | None = None) -> Levels:
        """The lowest level of each row's key, `ABSENT` where the key is not deleted. Null equals null.

        Each column of `rows` has the type of the same column of the keys; `hashes` are theirs, where known.
        """
        result: Levels = np.full(len(rows[0]), ABSENT, np.int32)
        if len(self.hashes) == 0 or len(result) == 0:
            return result
        own = key_hashes(rows) if hashes is None else hashes
        candidates = np.flatnonzero(self.filter.may_hold(own))
        if len(candidates) == 0:
            return result
        wanted = own[candidates]
        if len(candidates) >= _SORT_FROM:
            order = np.argsort(wanted)
            candidates, wanted = candidates[order], wanted[order]
        places = np.searchsorted(self.hashes, wanted)
        while len(candidates):
            within = places < len(self.hashes)
            within[within] = self.hashes[places[within]] == wanted[within]
            candidates, wanted, places = candidates[within], wanted[within], places[within]
            if len(candidates) == 0:
                break
            equal = _are_equal(rows, candidates, self.columns, places)
            result[candidates[equal]] = self.levels[places[equal]]
            # Different keys with the same hash are adjacent.
            candidates, wanted, places = candidates[~equal], wanted[~equal], places[~equal] + 1
        return result


def build_index(columns: KeyColumns, levels: Levels, most_filter_bytes: int) -> KeyIndex:
    """The index of keys with their levels; equal keys in the order of the sort are kept once."""
    hashes = key_hashes(columns)
    order = np.lexsort((levels, hashes))
    sorted_hashes, sorted_levels = hashes[order], levels[order]
    ordered = tuple(column.take(pa.array(order)) for column in columns)
    first = _first_of_equals(sorted_hashes, ordered)
    if not first.all():
        sorted_hashes, sorted_levels = sorted_hashes[first], sorted_levels[first]
        mask = pa.array(first)
        ordered = tuple(column.filter(mask) for column in ordered)
    result = HashFilter(len(sorted_hashes), most_filter_bytes)
    result.add(sorted_hashes)
    return KeyIndex(sorted_hashes, sorted_levels, ordered, result)


def _first_of_equals(hashes: Hashes, columns: KeyColumns) -> Mask:
    """Where a key differs from the one before it; different keys with one hash are all kept."""
    first = np.ones(len(hashes), np.bool_)
    if len(hashes) < 2:
        return first
    repeated = hashes[1:] == hashes[:-1]
    places = np.flatnonzero(repeated) + 1
    if len(places) == 0:
        return first
    first[places[_are_equal(columns, places, columns, places - 1)]] = False
    return first


def _are_equal(columns: KeyColumns, at: _Places, others: KeyColumns, their: _Places) -> Mask:
    """Whether the keys at these places are equal, pair by pair. Null equals null."""
    equal = np.ones(len(at), np.bool_)
    for column, other in zip(columns, others, strict=True):
        left, right = column.take(pa.array(at)), other.take(pa.array(their))
        same = pc.fill_null(pc.equal(left, right), False)
        if left.null_count and right.null_count:
            same = pc.or_(same, pc.and_(left.is_null(), right.is_null()))
        equal &= same.to_numpy(zero_copy_only=False)
    return equal


#: Memory of an index and its construction for each key, beside twice the key itself: hashes, order, levels, filter.
_BYTES_BY_KEY = 48
_MOST_PARTITIONS = 256

#: Keys with their level, in the columns of `amoro_core.files.deletes.delete_files`.
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
        index, result = self.index(0), _Keys()
        result.add(index.columns, index.levels)
        return result

    def drain(self) -> Iterator[tuple[KeyColumns, Levels]]:
        """The parts, each released when the next is requested."""
        while self._parts:
            yield self._parts.pop(0)


@dataclass(frozen=True, slots=True)
class SpilledKeys:
    """Keys that did not fit into memory, and a filter of all their hashes."""

    files: SpillFiles
    count: int  # of the partitions by hash, a power of two
    filter: HashFilter
    directory: Path
    memory_bytes: int

    def row_files(self, more: list[pa.Field]) -> SpillFiles:
        """Files for rows beside those for keys: the key columns, then `more`."""
        return SpillFiles(self.directory, "rows", pa.schema([*list(self.files.schema)[:-1], *more]))

    def index(self, partition: int) -> KeyIndex | None:
        """The keys of one partition; None when it has none. Each partition can be read once.

        Repeated keys share a partition, so it may have far more rows than distinct keys.
        """
        keys, most_bytes = _Keys(), self.memory_bytes
        for batch in self.files.batches(partition):
            *columns, levels = batch.columns
            keys.add(columns, levels.to_numpy())
            if keys.nbytes > most_bytes:
                keys = keys.distinct()
                most_bytes = max(most_bytes, 2 * keys.nbytes)
        return keys.index(self.filter.nbytes) if keys.rows else None


def gather(
    parts: KeyParts, expected_rows: int, memory_bytes: int, spill_root: str, spills: ExitStack
) -> KeyIndex | SpilledKeys | None:
    """The keys as an index in memory, or spilled below `spill_root` until `spills` closes; None without keys."""
    source = iter(parts)
    keys, seen = _Keys(), 0
    for columns, level in source:
        keys.add(columns, _same_level(columns, level))
        seen += len(columns[0])
        if keys.nbytes > memory_bytes:
            before, keys = keys.rows, keys.distinct()
            if 2 * keys.rows > before:  # otherwise keys repeat, and are kept in memory
                wanted = keys.nbytes * max(1, -(-expected_rows // seen))
                # Partitions that fit with room to spare, a power of two of them.
                parts_wanted = -(-3 * wanted // (2 * max(1, memory_bytes)))
                count = min(_MOST_PARTITIONS, 1 << max(1, (parts_wanted - 1).bit_length()))
                return _spilled(keys, source, count, memory_bytes, spill_root, spills)
    return keys.index(memory_bytes) if keys.rows else None


def _same_level(columns: KeyColumns, level: int) -> Levels:
    return np.full(len(columns[0]), level, np.int32)


def _spilled(
    keys: _Keys, rest: KeyParts, count: int, memory_bytes: int, spill_root: str, spills: ExitStack
) -> SpilledKeys:
    directory = spills.enter_context(spill_directory(spill_root))
    files: SpillFiles | None = None
    hash_filter = HashFilter(1 << 62, memory_bytes // 4)
    for columns, levels in itertools.chain(
        keys.drain(), ((columns, _same_level(columns, level)) for columns, level in rest)
    ):
        if files is None:
            kinds = [pa.field(f"k{number}", column.type) for number, column in enumerate(columns)]
            files = SpillFiles(directory, "keys", pa.schema([*kinds, ("level", pa.int32())]))
        hashes = key_hashes(columns)
        hash_filter.add(hashes)
        _spill(files, count, hashes, [*columns, pa.array(levels)])
    if files is None:
        raise ValueError("no key to spill")
    files.close()
    return SpilledKeys(files, count, hash_filter, directory, memory_bytes)


def _spill(files: SpillFiles, count: int, hashes: Hashes, columns: list[pa.Array]) -> None:
    """Add rows to the files of their partitions, which the lowest bits of their hashes name."""
    batch = pa.RecordBatch.from_arrays(columns, schema=files.schema)
    files.add(batch, (hashes & np.uint64(count - 1)).astype(np.int64))


def _joined(chunks: Iterable[pa.Array]) -> pa.Array:
    parts = list(chunks)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


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
    result: dict[tuple[int, ...], set[int]] = {}
    for index in file.deletes:
        if deletes[index].kind is DeleteKind.EQUALITY:
            result.setdefault(tuple(sorted(set(deletes[index].equality_ids))), set()).add(index)
    return {ids: frozenset(indexes) for ids, indexes in result.items()}


def _nested(sets: Iterable[frozenset[int]]) -> list[list[frozenset[int]]]:
    """The distinct sets, in lists in which each contains the one before it."""
    lists: list[list[frozenset[int]]] = []
    for group in sorted(set(sets), key=lambda ids: (len(ids), sorted(ids))):
        fitting = next((other for other in lists if other[-1] <= group), None)
        if fitting is None:
            lists.append([group])
        else:
            fitting.append(group)
    return lists


def _chain(
    ids: tuple[int, ...], sets: Mapping[str, frozenset[int]], chosen: list[frozenset[int]]
) -> EqualityDeleteGroup:
    levels: dict[int, int] = {}
    for level, indexes in enumerate(chosen):
        for index in sorted(indexes):
            levels.setdefault(index, level)
    places = {indexes: level for level, indexes in enumerate(chosen)}
    return EqualityDeleteGroup(
        ids, tuple(levels.items()), {path: places[indexes] for path, indexes in sets.items() if indexes in places}
    )


OpenFile = Callable[[InputFile], AbstractContextManager[RowSource]]

#: The share of the memory limit for keys in an index.
_KEY_SHARE = 4
#: Beyond this size, lookups are faster in partitions from disk, and building an index takes a second.
_MOST_KEY_BYTES = 128 << 20

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
        self._spill_root = spill_root
        self._spills = spills
        self._positions: dict[int, Mapping[str, PositionSet]] = {}
        self._indexes: dict[int, KeyIndex | None] = {}
        self._spilled: dict[int, dict[str, Bits]] = {}
        self._read: set[int] = set()

    @property
    def bytes_read(self) -> int:
        """The size of the delete files read so far."""
        return sum(self._work.deletes[index].identity.size for index in self._read)

    def of(self, file: InputFile, source: RowSource) -> Mask:
        """For each row of the file, whether it is deleted. Raises UnreadableFile, DataFileMissing, TableRefused."""
        mask = self.by_position(file)
        for number, chain in enumerate(self._chains):
            level = chain.classes.get(file.data.path)
            if level is None:
                continue
            index = self._index_of(number)
            if index is not None:
                for first, columns in self._keys_in(chain, file, source):
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
            elif (positions := self._positions_in(index).get(place)) is not None:
                mask |= positions.mask(rows)
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
            result = gather(self._parts(chain), expected, self._key_bytes, self._spill_root, self._spills)
            if isinstance(result, SpilledKeys):
                self._spilled[number] = self._marked(chain, result)
                result = None
            self._indexes[number] = result
        return self._indexes[number]

    def _parts(self, chain: EqualityDeleteGroup) -> KeyParts:
        for index, level in chain.levels:
            delete = self._work.deletes[index]
            self._access.require_readable(delete.path)
            self._read.add(index)
            unknown = self._work.table.once_unknown
            for columns in key_batches(self._access, delete, self._schema, self._mapping, self._checkpoint, unknown):
                yield columns, level

    def _keys_in(
        self, chain: EqualityDeleteGroup, file: InputFile, source: RowSource
    ) -> Iterator[tuple[int, KeyColumns]]:
        """The keys of the file's rows batch by batch, each with the position of its first row."""
        schema = key_schema(self._schema, chain.ids)
        constants = identity_constants(self._spec, file.data.partition, self._schema)
        projection = bind(schema, source.schema, self._mapping, constants, source.path)
        for position, batch in source.batches(projection.columns):
            self._checkpoint()
            with reading_file(source.path):
                columns = key_columns(projection.apply(batch), schema, chain.ids)
            yield position, columns

    def _marked(self, chain: EqualityDeleteGroup, keys: SpilledKeys) -> dict[str, Bits]:
        """The deleted rows of all files of the chain, packed.

        Rows that may have a deleted key are spilled to files; then each partition of keys is matched with its own rows.
        """
        files = [file for file in (*self._work.rewritten, *self._work.converted) if file.data.path in chain.classes]
        rows = keys.row_files([_FILE, _ROW])
        for number, file in enumerate(files):
            with self._open_file(file) as source:
                for first, columns in self._keys_in(chain, file, source):
                    hashes = key_hashes(columns)
                    chosen = np.flatnonzero(keys.filter.may_hold(hashes))
                    if len(chosen):
                        chosen_columns = [column.take(pa.array(chosen)) for column in columns]
                        files_of = pa.array(np.full(len(chosen), number, np.int32))
                        _spill(rows, keys.count, hashes[chosen], [*chosen_columns, files_of, pa.array(chosen + first)])
        rows.close()
        packed = [np.zeros(-(-file.data.record_count // 8), np.uint8) for file in files]
        levels = np.array([chain.classes[file.data.path] for file in files], np.int32)
        for partition in rows.numbers():
            self._checkpoint()
            index = keys.index(partition)
            for batch in rows.batches(partition):
                self._checkpoint()
                if index is not None:
                    _mark(batch, index, levels, packed)
        return {file.data.path: marks for file, marks in zip(files, packed, strict=True)}

    def _positions_in(self, index: int) -> Mapping[str, PositionSet]:
        if index not in self._positions:
            delete = self._work.deletes[index]
            self._access.require_readable(delete.path)
            self._read.add(index)
            self._positions[index] = read_positions(self._access, delete, self._checkpoint, self._rows)
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
    deleted = index.levels_of(columns) <= levels[numbers]
    if not deleted.any():
        return
    numbers, places = numbers[deleted], places[deleted]
    result, starts = np.unique(numbers, return_index=True)  # rows come in the order of their files
    for number, start, end in zip(result, starts, [*starts[1:], len(places)], strict=True):
        hit = places[start:end]
        np.bitwise_or.at(packed[number], hit >> 3, np.left_shift(1, hit & 7).astype(np.uint8))
