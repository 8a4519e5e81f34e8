"""Where rows of a group's inputs lie in its outputs, whose rows stand in another order.

From format 3 on a row is found by its id. Before that rows have no identity, and a table is a multiset of rows: one
that is equal in every column is as good as another, and of equal rows as many are found as are looked for.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from amoro_core.files.deletes import key_batches, key_ids
from amoro_core.files.hashing import Hashes, key_hashes
from amoro_core.files.io import FileAccess
from amoro_core.files.keys import comparable, key_columns, key_schema
from amoro_core.files.lineage import lineage_of, written_schema
from amoro_core.files.row_hashes import Mask, row_hashes, same_rows, same_values
from amoro_core.files.row_reading import Positions, RowReader, RowsTooLarge
from amoro_core.files.schema import key_path, parse_schema, select_ids, with_dropped
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind
from amoro_core.model.lineage import FORMAT_WITH_LINEAGE
from amoro_core.model.rewrite import InputFile, RewriteInput
from amoro_core.positions import NO_POSITIONS, PositionSet
from amoro_core.records import record

#: A row: the number of its file among the inputs or among the outputs, and its position in it.
Place = tuple[int, int]

#: The rows of a group that are looked for take at most so much memory.
MOST_BYTES = 128 << 20
#: Equality delete files with more keys are not compared with the rows that are looked for.
MOST_KEYS = 5_000_000


class RowsNotFound(ValueError):
    """The reason why rows can't be found."""


def look_up(
    access: FileAccess,
    work: RewriteInput,
    outputs: Sequence[DataFile],
    keys: Sequence[int],
    wanted: Mapping[int, PositionSet],
    taken: Mapping[int, PositionSet],
) -> dict[Place, Place]:
    """The place in the outputs of each wanted row of the rewritten files.

    `keys`: ids of columns, not within lists or maps, by which the outputs are ordered. `wanted`: positions by the
    number of the input, without rows that the plan's position deletes hid. `taken`: by the number of the output, rows
    that were found for others before. Rows that an equality delete of the plan hit are in no output, and missing.
    Raises RowsNotFound where another is not there, or rows are too many bytes or can't be told apart; DataFileMissing,
    UnreadableFile, TableRefused.
    """
    search = _Search(access, work, tuple(keys))
    try:
        left = {at: search.without_deleted(work.rewritten[at], positions) for at, positions in sorted(wanted.items())}
        rows = search.rows_of({at: positions for at, positions in left.items() if len(positions)})
    except RowsTooLarge as error:
        raise RowsNotFound(str(error)) from error
    if rows is None:
        return {}
    found = search.by_id(rows, outputs) if search.has_ids else search.by_value(rows, outputs, taken)
    if len(found) < len(rows.places):
        at, position = next(place for place in rows.places if place not in found)
        lost = len(rows.places) - len(found)
        raise RowsNotFound(f"{lost} of {len(rows.places)} are in none, as row {position} of {_path(work, at)}")
    return found


def _path(work: RewriteInput, at: int) -> str:
    return work.rewritten[at].data.path


@record
class _Wanted:
    """Rows that are looked for, at least one."""

    places: list[Place]
    rows: pa.RecordBatch  # with ids: the columns of the order and lineage; without: all columns
    keys: Mapping[int, pa.Array]  # the columns of the order by id

    def may_be_in(self, output: DataFile) -> Mask:
        """For each row, whether the bounds of the output admit it."""
        found = np.ones(len(self.places), np.bool_)
        for field_id, values in self.keys.items():
            lower, upper = output.metrics.lower_bounds.get(field_id), output.metrics.upper_bounds.get(field_id)
            if lower is not None and upper is not None:
                found &= _may_be_within(values, lower, upper)
        return found


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
        left = positions.ascending()
        for index in file.deletes:
            delete = self._work.deletes[index]
            if delete.kind is DeleteKind.EQUALITY and len(left):
                left = left[~self._hit(file.data, left, delete)]
        return left

    def _hit(self, file: DataFile, positions: Positions, delete: DeleteFile) -> Mask:
        if delete.record_count > MOST_KEYS:
            raise RowsNotFound(f"{delete.path} has {delete.record_count} keys, of which at most {MOST_KEYS} are read")
        table = self._work.table
        schema = with_dropped(parse_schema(table.schema_json), table.dropped_fields_json)
        ids = key_ids(delete)
        wanted = key_schema(schema, ids)
        columns = key_columns(self._reader.rows_at(file, positions, wanted, MOST_BYTES), wanted, ids)
        self._access.require_readable(delete.path)
        hit = np.zeros(len(positions), np.bool_)
        for keys in key_batches(self._access, delete, schema, self._reader.mapping, _nothing):
            hit |= _among(columns, keys)
        return hit

    def rows_of(self, positions: Mapping[int, Positions]) -> _Wanted | None:
        """The rows of the inputs at these positions; None where there are none."""
        if not positions:
            return None
        schema = Schema(*self._key_schema.fields, *lineage_of(self._written).fields) if self.has_ids else self._written
        parts: list[pa.RecordBatch] = []
        for at, some in positions.items():
            left = MOST_BYTES - sum(int(part.nbytes) for part in parts)
            parts.append(self._reader.rows_at(self._work.rewritten[at].data, some, schema, left))
        rows = pa.concat_batches(parts)
        places = [(at, position) for at, some in positions.items() for position in some.tolist()]
        return _Wanted(places, rows, {field_id: _leaf(rows, schema, field_id) for field_id in self._keys})

    def by_id(self, wanted: _Wanted, outputs: Sequence[DataFile]) -> dict[Place, Place]:
        """Where rows of these ids are. Raises RowsNotFound for rows that have none yet."""
        told = wanted.rows.column(wanted.rows.num_columns - 2)
        if told.null_count:
            raise RowsNotFound(f"{told.null_count} of {len(told)} have no id yet")
        ids, schema = told.to_numpy(), Schema(lineage_of(self._written).fields[0])
        found: dict[Place, Place] = {}
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
                        found[wanted.places[sought[at[row]]]] = (number, first + row)
            is_open[sought] = [wanted.places[one] not in found for one in sought.tolist()]
        return found

    def by_value(
        self, wanted: _Wanted, outputs: Sequence[DataFile], taken: Mapping[int, PositionSet]
    ) -> dict[Place, Place]:
        """Where rows of the same values are, each another one. Raises RowsNotFound where hashes can't tell them."""
        hashes, keys = row_hashes(wanted.rows), key_hashes([comparable(wanted.keys[one]) for one in self._keys])
        found: dict[Place, Place] = {}
        is_open = np.ones(len(hashes), np.bool_)
        for number, output in enumerate(outputs):
            admitted = is_open & wanted.may_be_in(output)
            if not admitted.any():
                continue
            candidates = PositionSet.of(self._of_keys(output, np.unique(keys[admitted])))
            candidates -= taken.get(number, NO_POSITIONS)
            for position, rows in self._rows_in(output, candidates.ascending()):
                sought, at = _pairs(hashes, np.flatnonzero(admitted & is_open), row_hashes(rows))
                if not len(sought):
                    continue
                if not same_rows(wanted.rows.take(pa.array(sought)), rows.take(pa.array(at))).all():
                    raise RowsNotFound("different rows have one hash")
                is_open[sought] = False
                for one, row in zip(sought.tolist(), at.tolist(), strict=True):
                    found[wanted.places[one]] = (number, int(position[row]))
        return found

    def _rows_in(self, output: DataFile, positions: Positions) -> Iterator[tuple[Positions, pa.RecordBatch]]:
        """Rows at these positions, batch by batch, with their positions."""
        if not len(positions):
            return
        with self._reader.opened(output, self._written) as opened:
            for first, batch in opened.batches(positions):
                start, end = np.searchsorted(positions, [first, first + batch.num_rows])
                chosen = positions[start:end]
                yield chosen, opened.projected(batch.take(pa.array(chosen - first)))

    def _of_keys(self, output: DataFile, hashes: Hashes) -> Positions:
        """The positions of the output's rows whose columns of the order have one of these hashes."""
        found = [np.zeros(0, np.int64)]
        with self._reader.opened(output, self._key_schema) as opened:
            for first, batch in opened.batches():
                own = key_hashes(key_columns(opened.projected(batch), self._key_schema, self._keys))
                found.append(np.flatnonzero(np.isin(own, hashes)) + first)
        return np.concatenate(found)


def _leaf(rows: pa.RecordBatch, schema: Schema, field_id: int) -> pa.Array:
    """The values of a column that may lie within structs; null where one of these is."""
    path = key_path(schema.fields, field_id)
    if path is None:
        raise ValueError(f"no column {field_id}")
    found = rows.column(path[0])
    for at in path[1:]:
        found = found.flatten()[at]
    return found


def _pairs(wanted: Hashes, left: Positions, given: Hashes) -> tuple[Positions, Positions]:
    """Rows that are looked for and given ones of the same hash, each in one pair at most.

    `left`: the indexes of those that are looked for still. Returns the indexes of both sides.
    """
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
    found: Mask = at < len(own)
    found[found] = own[order][at[found]] == hashes[found]
    chosen, others = pa.array(np.flatnonzero(found)), pa.array(order[at[found]])
    for row, key in zip(rows, keys, strict=True):
        if not same_values(row.take(chosen), key.take(others)).all():
            raise RowsNotFound("different keys have one hash")
    return found


def _may_be_within(values: pa.Array, lower: bytes, upper: bytes) -> Mask:
    """For each value, whether bounds in single-value serialization admit it; null, and what has no exact ones, may be.

    Bounds of text and bytes may be cut; they are then no greater and no less than the values.
    """
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
    found: Mask = pc.fill_null(inside, True).to_numpy(zero_copy_only=False)
    return found


def _nothing() -> None:
    """No checkpoint."""
