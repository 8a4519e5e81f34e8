"""Finds rows of rewritten files in the outputs, by row id or by every value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from amoro_core.files.deletes.delete_files import comparable, key_batches, key_columns, key_ids, key_schema
from amoro_core.files.file_readers import Positions, RowReader, RowsTooLarge
from amoro_core.files.hashing import NULL_HASH, Hashes, key_hashes, mixed
from amoro_core.files.schema.schemas import key_path, lineage_of, parse_schema, select_ids, with_dropped, written_schema
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.files import FORMAT_WITH_LINEAGE, DataFile, DeleteFile, DeleteKind
from amoro_core.model.row_positions import NO_POSITIONS, PositionSet
from amoro_core.model.task_payload import InputFile, RewriteInput

#: Values up to this length are hashed whole by `key_hashes`.
_LONG = 256

Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """One hash for each row: equal rows have equal hashes."""
    return _combined([value_hashes(column) for column in batch.columns], batch.num_rows)


def same_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> Mask:
    """For each row, whether it is the same on both sides, which have the same columns and as many rows.

    Null equals null, NaN equals NaN, −0.0 differs from 0.0, and maps are compared in the order of their entries.
    """
    same = np.ones(left.num_rows, np.bool_)
    for column, other in zip(left.columns, right.columns, strict=True):
        same &= same_values(column, other)
    return same


def same_values(left: pa.Array, right: pa.Array) -> Mask:
    """For each value, nested ones too, whether it is the same in both arrays, which have one type and length."""
    if isinstance(left.type, pa.BaseExtensionType):
        return same_values(left.storage, right.storage)
    missing = left.is_null().to_numpy(zero_copy_only=False), right.is_null().to_numpy(zero_copy_only=False)
    both = ~(missing[0] | missing[1])
    same: Mask = missing[0] & missing[1]
    if not both.any():
        return same
    if not both.all():
        left, right = left.filter(pa.array(both)), right.filter(pa.array(both))
    same[both] = _same_present(left, right)
    return same


def _same_present(left: pa.Array, right: pa.Array) -> Mask:
    if pa.types.is_struct(left.type):
        same = np.ones(len(left), np.bool_)
        for child, other in zip(left.flatten(), right.flatten(), strict=True):
            same &= same_values(child, other)
        return same
    if pa.types.is_map(left.type) or pa.types.is_list(left.type) or pa.types.is_large_list(left.type):
        lengths = np.diff(left.offsets.to_numpy())
        as_long: Mask = lengths == np.diff(right.offsets.to_numpy())
        if not as_long.all():
            left, right, lengths = left.filter(pa.array(as_long)), right.filter(pa.array(as_long)), lengths[as_long]
        within = np.ones(len(lengths), np.bool_)
        for child, other in zip(_elements(left), _elements(right), strict=True):
            within[np.repeat(np.arange(len(lengths)), lengths)[~same_values(child, other)]] = False
        as_long[as_long] = within
        return as_long
    result: Mask = pc.equal(comparable(left), comparable(right)).to_numpy(zero_copy_only=False)
    return result


def _elements(array: pa.Array) -> list[pa.Array]:
    """The values within lists or maps that have no null, one after the other."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    parts = (array.keys, array.items) if pa.types.is_map(array.type) else (array.values,)
    return [_within(part, offsets) for part in parts]


def value_hashes(array: pa.Array) -> Hashes:
    """One hash for each value, also nested ones: equal values have equal hashes, whatever the order within maps."""
    if isinstance(array.type, pa.BaseExtensionType):
        return value_hashes(array.storage)
    if pa.types.is_struct(array.type):
        hashes = _combined([value_hashes(child) for child in array.flatten()], len(array))
    elif pa.types.is_map(array.type):
        offsets = array.offsets.to_numpy().astype(np.int64)
        inner = [value_hashes(_within(child, offsets)) for child in (array.keys, array.items)]
        hashes = _sums(mixed(_combined(inner, len(inner[0]))), offsets)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = value_hashes(_within(array.values, offsets))
        places = np.arange(len(values), dtype=np.int64) - np.repeat(offsets[:-1] - offsets[0], np.diff(offsets))
        hashes = _sums(mixed(values + mixed(places.astype(np.uint64))), offsets)
    else:
        return _primitive(comparable(array))
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
    return hashes


def _primitive(column: pa.Array) -> Hashes:
    hashes = key_hashes([column])
    if pa.types.is_binary(column.type) or pa.types.is_fixed_size_binary(column.type):
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy()
        for row in np.flatnonzero(lengths > _LONG):
            hashes[row] = int.from_bytes(blake2b(column[row].as_buffer(), digest_size=8).digest())
    return hashes


def _combined(columns: Sequence[Hashes], rows: int) -> Hashes:
    hashes = np.zeros(rows, np.uint64)
    for column in columns:
        hashes = mixed(mixed(hashes + np.uint64(1)) + column)
    return hashes


def _within(child: pa.Array, offsets: Offsets) -> pa.Array:
    """The part of a list's values that its offsets refer to."""
    return child.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _sums(hashes: Hashes, offsets: Offsets) -> Hashes:
    """For each list the hash of the sum of its elements' hashes and of its length."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    places = offsets - offsets[0]
    return mixed(sums[places[1:]] - sums[places[:-1]] + mixed(np.diff(offsets).astype(np.uint64)))


#: A row: the number of its file among the inputs or among the outputs, and its position in it.
RowPosition = tuple[int, int]

#: The rows of a group that are looked for take at most so much memory.
MOST_BYTES = 128 << 20
#: Equality delete files with more keys are not compared with the rows that are looked for.
MOST_KEYS = 5_000_000


class RowsMissing(ValueError):
    """The reason why rows can't be found."""


def look_up(
    access: FileAccess,
    work: RewriteInput,
    outputs: Sequence[DataFile],
    keys: Sequence[int],
    wanted: Mapping[int, PositionSet],
    used: Mapping[int, PositionSet],
) -> dict[RowPosition, RowPosition]:
    """The place in the outputs of each wanted row of the rewritten files.

    `keys`: ids of columns, not within lists or maps, by which the outputs are ordered. `wanted`: positions by the
    number of the input, without rows that the plan's position deletes hid. `used`: by the number of the output, rows
    that were found for others before. Rows that an equality delete of the plan hit are in no output, and missing.
    Raises RowsMissing where another is not there, or rows are too many bytes or can't be told apart; DataFileMissing,
    UnreadableFile, TableRefused.
    """
    search = _Search(access, work, tuple(keys))
    try:
        rest = {at: search.without_deleted(work.rewritten[at], positions) for at, positions in sorted(wanted.items())}
        rows = search.rows_of({at: positions for at, positions in rest.items() if len(positions)})
    except RowsTooLarge as error:
        raise RowsMissing(str(error)) from error
    if rows is None:
        return {}
    result = search.by_id(rows, outputs) if search.has_ids else search.by_value(rows, outputs, used)
    if len(result) < len(rows.places):
        at, position = next(place for place in rows.places if place not in result)
        lost = len(rows.places) - len(result)
        raise RowsMissing(f"{lost} of {len(rows.places)} are in none, as row {position} of {_path(work, at)}")
    return result


def _path(work: RewriteInput, at: int) -> str:
    return work.rewritten[at].data.path


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Rows that are looked for, at least one."""

    places: list[RowPosition]
    rows: pa.RecordBatch  # with ids: the columns of the order and lineage; without: all columns
    keys: Mapping[int, pa.Array]  # the columns of the order by id

    def may_be_in(self, output: DataFile) -> Mask:
        """For each row, whether the bounds of the output admit it."""
        result = np.ones(len(self.places), np.bool_)
        for field_id, values in self.keys.items():
            lower, upper = output.metrics.lower_bounds.get(field_id), output.metrics.upper_bounds.get(field_id)
            if lower is not None and upper is not None:
                result &= _may_be_within(values, lower, upper)
        return result


class _Search:
    """The files of one group, and how its rows are told apart."""

    def __init__(self, access: FileAccess, work: RewriteInput, keys: tuple[int, ...]) -> None:
        self._access, self._work, self._keys = access, work, keys
        self._reader = RowReader(access, work)
        self._written = written_schema(self._reader.schema, work.table.format_version)
        self._key_schema = select_ids(self._reader.schema, keys)

    @property
    def has_ids(self) -> bool:
        """Whether the rows of the table have ids."""
        return self._work.table.format_version >= FORMAT_WITH_LINEAGE

    def without_deleted(self, file: InputFile, positions: PositionSet) -> Positions:
        """The positions, ascending, of rows that none of the plan's equality deletes hit."""
        rest = positions.ascending()
        for index in file.deletes:
            delete = self._work.deletes[index]
            if delete.kind is DeleteKind.EQUALITY and len(rest):
                rest = rest[~self._hit(file.data, rest, delete)]
        return rest

    def _hit(self, file: DataFile, positions: Positions, delete: DeleteFile) -> Mask:
        if delete.record_count > MOST_KEYS:
            raise RowsMissing(f"{delete.path} has {delete.record_count} keys, of which at most {MOST_KEYS} are read")
        table = self._work.table
        schema = with_dropped(parse_schema(table.schema_json), table.dropped_fields_json)
        ids = key_ids(delete)
        wanted = key_schema(schema, ids)
        columns = key_columns(self._reader.rows_at(file, positions, wanted, MOST_BYTES), wanted, ids)
        self._access.require_readable(delete.path)
        hit = np.zeros(len(positions), np.bool_)
        for keys in key_batches(self._access, delete, schema, self._reader.mapping, lambda: None):
            hit |= _among(columns, keys)
        return hit

    def rows_of(self, positions: Mapping[int, Positions]) -> _Wanted | None:
        """The rows of the inputs at these positions; None where there are none."""
        if not positions:
            return None
        schema = Schema(*self._key_schema.fields, *lineage_of(self._written).fields) if self.has_ids else self._written
        parts: list[pa.RecordBatch] = []
        for at, some in positions.items():
            room = MOST_BYTES - sum(int(part.nbytes) for part in parts)
            parts.append(self._reader.rows_at(self._work.rewritten[at].data, some, schema, room))
        rows = pa.concat_batches(parts)
        places = [(at, position) for at, some in positions.items() for position in some.tolist()]
        return _Wanted(places, rows, {field_id: _leaf(rows, schema, field_id) for field_id in self._keys})

    def by_id(self, wanted: _Wanted, outputs: Sequence[DataFile]) -> dict[RowPosition, RowPosition]:
        """Where rows of these ids are. Raises RowsMissing for rows that have none yet."""
        row_ids = wanted.rows.column(wanted.rows.num_columns - 2)
        if row_ids.null_count:
            raise RowsMissing(f"{row_ids.null_count} of {len(row_ids)} have no id yet")
        ids, schema = row_ids.to_numpy(), Schema(lineage_of(self._written).fields[0])
        result: dict[RowPosition, RowPosition] = {}
        is_open = np.ones(len(ids), np.bool_)
        for number, output in enumerate(outputs):
            sought = np.flatnonzero(is_open & wanted.may_be_in(output))
            if not len(sought):
                continue
            sought = sought[np.argsort(ids[sought])]
            with self._reader.opened(output, schema) as opened:
                for first, batch in opened.batches():
                    stored = opened.projected(batch).column(0).fill_null(-1).to_numpy()
                    at = np.minimum(np.searchsorted(ids[sought], stored), len(sought) - 1)
                    for row in np.flatnonzero(ids[sought][at] == stored).tolist():
                        result[wanted.places[sought[at[row]]]] = (number, first + row)
            is_open[sought] = [wanted.places[row] not in result for row in sought.tolist()]
        return result

    def by_value(
        self, wanted: _Wanted, outputs: Sequence[DataFile], used: Mapping[int, PositionSet]
    ) -> dict[RowPosition, RowPosition]:
        """Where rows of the same values are, each another one. Raises RowsMissing where hashes can't tell them."""
        hashes, keys = row_hashes(wanted.rows), key_hashes([comparable(wanted.keys[key]) for key in self._keys])
        result: dict[RowPosition, RowPosition] = {}
        is_open = np.ones(len(hashes), np.bool_)
        for number, output in enumerate(outputs):
            admitted = is_open & wanted.may_be_in(output)
            if not admitted.any():
                continue
            candidates = PositionSet.of(self._of_keys(output, np.unique(keys[admitted])))
            candidates -= used.get(number, NO_POSITIONS)
            for position, rows in self._reader.batches_at(output, candidates.ascending(), self._written):
                sought, at = _pairs(hashes, np.flatnonzero(admitted & is_open), row_hashes(rows))
                if not len(sought):
                    continue
                if not same_rows(wanted.rows.take(pa.array(sought)), rows.take(pa.array(at))).all():
                    raise RowsMissing("different rows have one hash")
                is_open[sought] = False
                for wanted_row, row in zip(sought.tolist(), at.tolist(), strict=True):
                    result[wanted.places[wanted_row]] = (number, int(position[row]))
        return result

    def _of_keys(self, output: DataFile, hashes: Hashes) -> Positions:
        """The positions of the output's rows whose columns of the order have one of these hashes."""
        result = [np.zeros(0, np.int64)]
        with self._reader.opened(output, self._key_schema) as opened:
            for first, batch in opened.batches():
                own = key_hashes(key_columns(opened.projected(batch), self._key_schema, self._keys))
                result.append(np.flatnonzero(np.isin(own, hashes)) + first)
        return np.concatenate(result)


def _leaf(rows: pa.RecordBatch, schema: Schema, field_id: int) -> pa.Array:
    """The values of a column that may lie within structs; null where one of these is."""
    path = key_path(schema.fields, field_id)
    if path is None:
        raise ValueError(f"no column {field_id}")
    result = rows.column(path[0])
    for at in path[1:]:
        result = result.flatten()[at]
    return result


def _pairs(wanted: Hashes, left: Positions, given: Hashes) -> tuple[Positions, Positions]:
    """The indexes of wanted and given rows of the same hash, each in one pair at most; `left`: wanted ones to pair."""
    left = left[np.argsort(wanted[left], kind="stable")]
    order = np.argsort(given, kind="stable")
    sought, ordered = wanted[left], given[order]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)  # among given rows of one hash
    first = np.searchsorted(sought, ordered)
    is_paired = rank < np.searchsorted(sought, ordered, side="right") - first
    return left[(first + rank)[is_paired]], order[is_paired]


def _among(rows: Sequence[pa.Array], keys: Sequence[pa.Array]) -> Mask:
    """For each row of these key columns, whether it is one of the keys."""
    hashes, own = key_hashes(rows), key_hashes(keys)
    order = np.argsort(own)
    at = np.searchsorted(own[order], hashes)
    result: Mask = at < len(own)
    result[result] = own[order][at[result]] == hashes[result]
    chosen, others = pa.array(np.flatnonzero(result)), pa.array(order[at[result]])
    for row, key in zip(rows, keys, strict=True):
        if not same_values(row.take(chosen), key.take(others)).all():
            raise RowsMissing("different keys have one hash")
    return result


def _may_be_within(values: pa.Array, lower: bytes, upper: bytes) -> Mask:
    """For each value, whether bounds, which may be cut for text, admit it; true for null and other types."""
    kind, compared = values.type, comparable(values)
    least: int | bytes
    most: int | bytes
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        least, most = (int.from_bytes(bound, "little", signed=True) for bound in (lower, upper))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        least, most = lower, upper
    else:
        return np.ones(len(values), np.bool_)
    low, high = pa.scalar(least, compared.type), pa.scalar(most, compared.type)
    inside = pc.and_(pc.greater_equal(compared, low), pc.less_equal(compared, high))
    result: Mask = pc.fill_null(inside, True).to_numpy(zero_copy_only=False)
    return result
