"""Which rows of a data file its deletes remove."""

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from amoro_core.files.deletes import KeyTable, Positions, read_keys, read_positions
from amoro_core.files.io import FileAccess, reading_parquet
from amoro_core.files.keys import key_columns, key_schema
from amoro_core.files.locations import normalise
from amoro_core.files.parquet import ParquetInput
from amoro_core.files.partitions import identity_constants
from amoro_core.files.projection import bind
from amoro_core.files.schema import parse_name_mapping, parse_schema, parse_spec, with_dropped
from amoro_core.model.files import DeleteKind
from amoro_core.model.rewrite import InputFile, RewriteInput
from amoro_optimizer.rewrite.anti_join import Mask, rows_with_keys

#: Rows and bytes of key columns that are looked up at once: each look-up builds its hash table anew.
_LOOKUP_ROWS = 1 << 20
_LOOKUP_BYTES = 64 << 20


class Marks:
    """The deletes of one task: each delete file is read once, when a data file first needs it."""

    def __init__(self, work: RewriteInput, access: FileAccess, checkpoint: Callable[[], None]) -> None:
        """`checkpoint` is called for each batch and may raise."""
        self._work = work
        self._access = access
        self._checkpoint = checkpoint
        self._positions: dict[int, Mapping[str, Positions]] = {}
        self._keys: dict[int, KeyTable] = {}
        self._joined: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[pa.ChunkedArray, ...]]] = {}

    @property
    def bytes_read(self) -> int:
        """The size of the delete files read so far."""
        return sum(self._work.deletes[index].size_bytes for index in (*self._positions, *self._keys))

    def of(self, file: InputFile, source: ParquetInput) -> Mask:
        """For each row of the file whether it is deleted.

        Raises UnreadableFile, DataFileMissing or TableRefused for what the files are.
        """
        mask = self.by_position(file)
        by_ids: dict[tuple[int, ...], list[int]] = {}
        for index in file.deletes:
            delete = self._work.deletes[index]
            if delete.kind is DeleteKind.EQUALITY:
                by_ids.setdefault(tuple(sorted(set(delete.equality_ids))), []).append(index)
        for indexes in by_ids.values():
            self._mark_keys(mask, file, source, tuple(indexes))
        return mask

    def by_position(self, file: InputFile) -> Mask:
        """For each row of the file whether a position delete removes it; the file itself is not read."""
        rows = file.data.record_count
        mask = np.zeros(rows, np.bool_)
        place = normalise(file.data.path)
        for index in file.deletes:
            if self._work.deletes[index].kind is DeleteKind.POSITION:
                positions = self._positions_in(index).get(place)
                if positions is not None:
                    mask[positions[positions < rows]] = True
        return mask

    def _mark_keys(self, mask: Mask, file: InputFile, source: ParquetInput, indexes: tuple[int, ...]) -> None:
        ids, keys = self._keys_of(indexes)
        if not keys:
            return
        schema = key_schema(self._schema, ids)
        constants = identity_constants(self._spec, file.data.partition, self._schema)
        projection = bind(schema, source.schema, self._mapping, constants, source.path)
        pending: list[tuple[pa.Array, ...]] = []
        first = end = size = 0
        for position, batch in source.batches(projection.columns):
            self._checkpoint()
            with reading_parquet(source.path):
                pending.append(key_columns(projection.apply(batch), schema, ids))
            end = position + batch.num_rows
            size += batch.nbytes
            if end - first >= _LOOKUP_ROWS or size >= _LOOKUP_BYTES:
                mask[first:end] |= _looked_up(pending, keys)
                pending, first, size = [], end, 0
        if pending:
            mask[first:end] |= _looked_up(pending, keys)

    def _positions_in(self, index: int) -> Mapping[str, Positions]:
        if index not in self._positions:
            delete = self._work.deletes[index]
            self._positions[index] = read_positions(self._access, delete, self._places, self._checkpoint)
        return self._positions[index]

    def _keys_of(self, indexes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[pa.ChunkedArray, ...]]:
        """The ids and the joined keys of deletes by the same ids; the last ones are kept, files often share them."""
        tables = [self._keys_in(index) for index in indexes]
        ids = tables[0].ids
        known = self._joined.get(ids)
        if known is None or known[0] != indexes:
            held = [table.columns for table in tables if table.rows]
            columns = tuple(
                pa.chunked_array([chunk for column in parts for chunk in column.chunks])
                for parts in zip(*held, strict=True)
            )
            known = self._joined[ids] = (indexes, columns)
        return ids, known[1]

    def _keys_in(self, index: int) -> KeyTable:
        if index not in self._keys:
            self._keys[index] = read_keys(
                self._access, self._work.deletes[index], self._schema, self._mapping, self._checkpoint
            )
        return self._keys[index]

    @cached_property
    def _places(self) -> frozenset[str]:
        return frozenset(normalise(file.data.path) for file in (*self._work.rewritten, *self._work.converted))

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


def _looked_up(pending: list[tuple[pa.Array, ...]], keys: tuple[pa.ChunkedArray, ...]) -> Mask:
    rows = [pa.chunked_array([part[index] for part in pending]) for index in range(len(keys))]
    return rows_with_keys(rows, keys)
