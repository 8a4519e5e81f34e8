"""A table with everything that other engines do to it, and the rows that each of its refs must hold.

The model is a list of rows for each ref and each snapshot. What an operation does to it follows from plain predicates
over the rows, and from where they lie as far as the specification asks for that (equality deletes hold within one
partition of one spec). Nothing that an optimizer does may change it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.engine import oracle, writer, writer3
from tests.engine.files import PLAIN, partition_of, stored_partition
from tests.engine.values import Row, canonical, rows_of
from tests.engine.writer import make_catalog

MAIN = "main"
#: How properties of copying begin.
COPIES = "self-optimizing.rewrite.use-parquet-row-group-merge"
NAME = "db.t"
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "value", StringType(), required=False),
    NestedField(4, "number", IntegerType(), required=False),
    NestedField(5, "extra", StringType(), required=False),
)

Record = Mapping[str, Any]
ById = Mapping[int, Any]
Where = Callable[[Record], bool]


@dataclass(frozen=True, slots=True)
class Placed:
    """A live row: its values by the current names and by field ids, and the file that holds it."""

    record: Record
    by_id: ById
    path: str
    spec_id: int
    partition: tuple[Any, ...]  # as stored


class Lake:
    """The table `db.t` and the rows of its refs. Operations commit at once and assert that they did what they say."""

    def __init__(
        self,
        catalog: SqlCatalog,
        version: int,
        table: Table,
        rows: dict[str, list[ById]] | None = None,
        history: dict[int, list[ById]] | None = None,
    ) -> None:
        self.catalog = catalog
        self.version = version
        self.table = table
        self.rows = {MAIN: []} if rows is None else rows
        self.history = {} if history is None else history
        self.appends = 0

    @classmethod
    def created(
        cls,
        catalog: SqlCatalog,
        version: int = 2,
        *,
        partitioned: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Self:
        """A new table, without rows."""
        table = writer.make_table(catalog, NAME, SCHEMA, UNPARTITIONED_PARTITION_SPEC, version, properties)
        made = cls(catalog, version, table)
        if partitioned:  # so that there is an unpartitioned spec too, whose equality deletes are global
            made.partition_by_part()
        return made

    # Writing

    def append(self, rows: Sequence[Record], branch: str = MAIN, files: int = 1) -> None:
        """Rows as one file for each partition they fall into, or more; every other time under former column names."""
        before = [one.by_id for one in self.placed(branch)]
        self.appends += 1
        layout = replace(PLAIN, former_names=self.appends % 2 == 0)  # a copied output takes files of one layout
        done = writer.append(self.table, rows, files, layout=layout, branch=branch)
        self._landed(done, branch, [*before, *self._by_id(rows)])

    def append_by_library(self, rows: Sequence[Record]) -> None:
        """Rows by pyiceberg's own append, which merges manifests where the table's properties say so."""
        before = [one.by_id for one in self.placed()]
        schema = schema_to_pyarrow(self.table.refresh().schema(), include_field_ids=False)
        self.table.append(pa.Table.from_pylist([dict(one) for one in rows], schema=schema))
        self._landed(self.table.refresh().current_snapshot(), MAIN, [*before, *self._by_id(rows)])

    def upsert(self, rows: Sequence[Record], key: Sequence[str] = ("id",), branch: str = MAIN) -> None:
        """Rows that replace, by equality, those with their keys in their partitions of the current spec."""
        kept = [one.by_id for one in self.placed(branch) if not self._equals(one, rows, key)]
        last = {(self._place(one), *(one[name] for name in key)): one for one in rows}
        done = writer.upsert(self.table, rows, key, branch=branch)
        self._landed(done, branch, [*kept, *self._by_id(last.values())])

    def delete_equal(self, rows: Sequence[Record], key: Sequence[str] = ("id",), *, everywhere: bool = False) -> None:
        """Equality deletes of the keys: in the partitions of the rows, or in the whole table."""
        spec_id = writer.unpartitioned_spec_id(self.table) if everywhere else self.table.metadata.default_spec_id
        kept = [one.by_id for one in self.placed() if not self._equals(one, rows, key, spec_id)]
        delete = writer.EqualityDelete(key, rows, () if everywhere else None, spec_id)
        self._landed(writer.row_delta(self.table, equality_deletes=[delete]), MAIN, kept)

    def delete_positions(self, where: Where, *, per_file: bool = False, with_bounds: bool = True) -> None:
        """Position deletes for the rows."""
        kept = [one.by_id for one in self.placed() if not where(one.record)]
        if self.version == 3:
            done = writer3.delete_rows(self.table, where)
        else:
            done = writer.delete_where(self.table, where, per_file=per_file, with_bounds=with_bounds)
        self._landed(done, MAIN, kept)

    def compact_position_deletes(self, *, per_file: bool = False) -> None:
        """Position deletes in other files than before."""
        kept = [one.by_id for one in self.placed()]
        if self.version == 3:
            done = writer3.renew_vectors(self.table)
        else:
            done = writer.compact_position_deletes(self.table, per_file=per_file)
        self._landed(done, MAIN, kept)

    def take_back(self, rows: Sequence[Record]) -> None:
        """Live again: those of the rows that are deleted by position. They are as they were written at first."""
        kept = [one.by_id for one in self.placed()]
        table = self.table.refresh()
        hidden = writer3.deleted_by_vector(table) if self.version == 3 else writer.deleted_by_position(table).values()
        deleted = {one["id"] for one in hidden}
        back = [one for one in rows if one["id"] in deleted]
        ids = {one["id"] for one in back}
        if self.version == 3:
            done = writer3.renew_vectors(self.table, lambda one: one["id"] in ids)
        else:
            done = writer.compact_position_deletes(self.table, per_file=True, without=lambda one: one["id"] in ids)
        self._landed(done, MAIN, [*kept, *self._by_id(back, self.table.metadata.schemas[0])])

    def overwrite(self, where: Where, change: Mapping[str, Any] | None = None) -> None:
        """Copy-on-write of the files that hold the rows: without them, or with the change made to them."""
        after: list[ById] = []
        for one in self.placed():
            if not where(one.record):
                after.append(one.by_id)
            elif change is not None:
                after.append({**one.by_id, **self._by_id([change])[0]})
        update = None if change is None else (lambda row: {**row, **change})
        self._landed(writer.copy_on_write(self.table, where, update), MAIN, after)

    def remove_file(self, where: Where) -> None:
        """Remove the data files that hold the rows, with all their rows."""
        placed = self.placed()
        gone = {one.path for one in placed if where(one.record)}
        kept = [one.by_id for one in placed if one.path not in gone]
        self._landed(writer.remove_files(self.table, gone), MAIN, kept)

    # Schema and spec

    def add_column(self, name: str) -> None:
        with self.table.refresh().update_schema() as update:
            update.add_column(name, StringType())

    def rename_column(self, name: str, new: str) -> None:
        with self.table.refresh().update_schema() as update:
            update.rename_column(name, new)

    def promote_column(self, name: str) -> None:
        with self.table.refresh().update_schema() as update:
            update.update_column(name, field_type=LongType())

    def drop_column(self, name: str) -> None:
        with self.table.refresh().update_schema() as update:
            update.delete_column(name)

    def partition_by_part(self) -> None:
        with self.table.refresh().update_spec() as update:
            update.add_identity("part")

    def partition_by_nothing(self) -> None:
        fields = [field.name for field in self.table.refresh().spec().fields]
        with self.table.update_spec() as update:
            for name in fields:
                update.remove_field(name)

    # Refs and history

    @property
    def head(self) -> int:
        found = self.table.refresh().metadata.current_snapshot_id
        assert found is not None
        return found

    def ancestors(self) -> list[int]:
        """Main's snapshots that the metadata still has, the newest first."""
        by_id = {one.snapshot_id: one for one in self.table.refresh().metadata.snapshots}
        found: list[int] = []
        current = self.table.metadata.current_snapshot_id
        while current is not None and current in by_id:
            found.append(current)
            current = by_id[current].parent_snapshot_id
        return found

    def create_branch(self, name: str, snapshot_id: int | None = None) -> None:
        self.observe()
        writer.create_branch(self.table, name, snapshot_id or self.head)
        self.rows[name] = self.history[snapshot_id or self.head]

    def create_tag(self, name: str, snapshot_id: int | None = None) -> None:
        self.observe()
        writer.create_tag(self.table, name, snapshot_id or self.head)
        self.rows[name] = self.history[snapshot_id or self.head]

    def set_main(self, snapshot_id: int) -> None:
        """Roll main back, or set it to a snapshot of another branch."""
        self.observe()
        writer.rollback(self.table, snapshot_id)
        self.rows[MAIN] = self.history[snapshot_id]

    def expire(self) -> None:
        """Take all snapshots but the heads of refs out of the metadata."""
        self.observe()
        writer.expire_snapshots(self.table)

    # What must hold

    def placed(self, branch: str = MAIN) -> list[Placed]:
        """The branch's live rows where they lie, after asserting that they are the model's."""
        metadata = self.table.refresh().metadata
        ref = metadata.refs.get(branch)
        if ref is None:
            return []
        homes = {file.path: file for file in oracle.files_in(metadata, ref.snapshot_id)}
        live = oracle.rows_in(metadata, ref.snapshot_id)
        oracle.assert_same_rows(self.expected(branch), Counter(one.row for one in live))
        ids = {field.name: field.field_id for field in metadata.schema().fields}
        return [
            Placed(
                one.record,
                {ids[name]: value for name, value in one.record.items()},
                one.path,
                homes[one.path].spec_id,
                stored_partition(metadata, homes[one.path].spec_id, homes[one.path].partition),
            )
            for one in live
        ]

    def expected(self, ref: str) -> Counter[Row]:
        """The rows that the ref must hold, under the current schema."""
        fields = self.table.metadata.schema().fields
        return rows_of(
            self.table.metadata.schema(),
            [{field.name: one.get(field.field_id) for field in fields} for one in self.rows[ref]],
        )

    def require(self) -> None:
        """Every ref holds its rows, every file of every snapshot exists, and the line of snapshots is whole."""
        self.observe()
        metadata = self.table.metadata
        assert {MAIN, *metadata.refs} == set(self.rows)
        for name, ref in metadata.refs.items():
            live = oracle.rows_in(metadata, ref.snapshot_id)
            oracle.assert_same_rows(self.expected(name), Counter(one.row for one in live))
        numbers = [one.sequence_number for one in metadata.snapshots if one.sequence_number]  # none in format 1
        assert sorted(set(numbers)) == numbers
        by_id = {one.snapshot_id: one for one in metadata.snapshots}
        for one in metadata.snapshots:
            parent = by_id.get(one.parent_snapshot_id or 0)
            assert process_of(one) is None or parent is None or parent.timestamp_ms < one.timestamp_ms

    def observe(self) -> None:
        """Take note of snapshots that an optimizer made: they hold the rows of their parents."""
        for snapshot in self.table.refresh().metadata.snapshots:
            if snapshot.snapshot_id not in self.history:
                assert process_of(snapshot) is not None
                assert snapshot.parent_snapshot_id is not None
                self.history[snapshot.snapshot_id] = self.history[snapshot.parent_snapshot_id]

    # Parts

    def _landed(self, snapshot: Snapshot | None, branch: str, rows: list[ById]) -> None:
        if snapshot is not None:
            self.rows[branch] = self.history[snapshot.snapshot_id] = rows
        assert len(rows) == len(self.rows[branch])
        self.placed(branch)

    def _by_id(self, rows: Iterable[Record], schema: Schema | None = None) -> list[ById]:
        ids = {field.name: field.field_id for field in (schema or self.table.metadata.schema()).fields}
        return [{ids[name]: value for name, value in row.items()} for row in rows]

    def _place(self, row: Record) -> tuple[Any, ...]:
        return partition_of(self.table.metadata, self.table.spec(), row)

    def _equals(self, one: Placed, rows: Iterable[Record], key: Sequence[str], spec_id: int | None = None) -> bool:
        """Whether an equality delete of the rows' keys, under the spec, takes the live row away."""
        metadata = self.table.metadata
        spec = self.table.spec() if spec_id is None else metadata.specs()[spec_id]
        own = _key(metadata.schema(), one.record, key)
        if oracle.is_unpartitioned(spec):
            return any(own == _key(metadata.schema(), row, key) for row in rows)
        return any(
            own == _key(metadata.schema(), row, key)
            and (one.spec_id, one.partition) == (spec.spec_id, partition_of(metadata, spec, row))
            for row in rows
        )


def _key(schema: Schema, row: Record, key: Sequence[str]) -> tuple[Any, ...]:
    return tuple(canonical(schema.find_field(name).field_type, row.get(name)) for name in key)


def process_of(snapshot: Snapshot) -> str | None:
    """The process of ours that committed the snapshot."""
    return snapshot.summary.additional_properties.get("amoro.process-id") if snapshot.summary else None


def ids_are(*ids: int) -> Where:
    """Whether a row has one of the ids."""
    wanted: Collection[int] = frozenset(ids)
    return lambda row: row["id"] in wanted


def row(id_: int, part: str | None = "a", value: str | None = "v") -> dict[str, Any]:
    """A row of the first three columns."""
    return {"id": id_, "part": part, "value": value}


@dataclass(frozen=True, slots=True)
class _Saved:
    """A table at one moment; its files are never changed, so that its metadata file says everything."""

    catalog: SqlCatalog
    version: int
    metadata_location: str
    rows: dict[str, list[ById]]
    history: dict[int, list[ById]]


class Stages:
    """Prepared tables by name, each in a catalog of its own below the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._saved: dict[str, _Saved] = {}
        self._catalogs = ExitStack()

    def restored(self, name: str, prepare: Callable[[SqlCatalog], Lake]) -> Lake:
        """The table as it was when prepared; of two tests one must have ended before the other begins."""
        if name not in self._saved:
            catalog = make_catalog(self._directory / name)
            self._catalogs.callback(catalog.close)
            lake = prepare(catalog)
            self._saved[name] = _Saved(
                catalog, lake.version, lake.table.refresh().metadata_location, dict(lake.rows), dict(lake.history)
            )
        saved = self._saved[name]
        saved.catalog.drop_table(NAME)
        table = saved.catalog.register_table(NAME, saved.metadata_location)
        return Lake(saved.catalog, saved.version, table, dict(saved.rows), dict(saved.history))

    def close(self) -> None:
        self._catalogs.close()
