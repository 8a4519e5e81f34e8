"""Random tables: a schema, then appends, deletes and evolution in any order, as other engines would do them."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.engine import oracle, writer
from tests.engine.files import Layout

_TRANSFORMS: dict[type[IcebergType], tuple[Transform, ...]] = {
    IntegerType: (BucketTransform(3),),  # truncating the least number would leave the type's range
    LongType: (BucketTransform(3),),
    StringType: (BucketTransform(2), TruncateTransform(1)),
    DateType: (MonthTransform(), YearTransform()),
    TimestampType: (DayTransform(), HourTransform()),
    TimestamptzType: (DayTransform(),),
}
#: What pyarrow's Parquet writer can do otherwise than Java's.
_WRITERS = {
    "data_page_version": ["2.0"],
    "version": ["1.0", "2.4"],
    "use_dictionary": [False],
    "dictionary_pagesize_limit": [1, 20],
    "data_page_size": [1024],
    "write_batch_size": [1, 7],
    "use_deprecated_int96_timestamps": [True],
    "use_compliant_nested_type": [False],
    "write_statistics": [False],
    "store_schema": [True],
    "store_decimal_as_integer": [False],
}
_NAMED_TYPES = (DecimalType, FixedType, UUIDType)
_LONG_PATHS = (StringType, BinaryType)


@dataclass(slots=True)
class RandomTable:
    """A table under construction; `protected` are fields that may not be dropped, `sources` those of partitions."""

    table: Table
    chance: random.Random
    is_mapped: bool
    sources: set[int]
    protected: set[int] = field(default_factory=set)
    names: int = 0
    steps: list[str] = field(default_factory=list)

    def new_name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    # Files

    def _rows(self, most: int) -> list[dict[str, object]]:
        return random_rows(self.chance, self.table.schema(), self.chance.randint(1, most), self.sources)

    def append(self) -> None:
        chance = self.chance
        layout = Layout(
            file_format=chance.choice([FileFormat.PARQUET] * 4 + [FileFormat.AVRO, FileFormat.ORC]),
            codec=chance.choice(["snappy", "zstd", "gzip", "brotli", "lz4", "none"]),
            options=tuple((key, chance.choice(values)) for key, values in _WRITERS.items() if chance.random() < 0.3),
            row_group_rows=chance.choice([3, 10, 1 << 20]),
            with_field_ids=not self.is_mapped or chance.random() < 0.4,
            omitted_columns=self._omitted(),
        )
        writer.append(self.table, self._rows(40), files=chance.randint(1, 3), layout=layout)

    def _omitted(self) -> frozenset[str]:
        """Columns that files may lack: identity sources, whatever they are, and others that may be null."""
        if self.chance.random() < 0.5:
            return frozenset()
        identities = {one.source_id for one in self.table.spec().fields if isinstance(one.transform, IdentityTransform)}
        fields = self.table.schema().fields
        found = [one.name for one in fields if one.field_id in identities or not one.required]
        chosen = self.chance.sample(found, self.chance.randint(0, len(found)))
        return frozenset(chosen if len(chosen) < len(fields) else chosen[1:])

    def delete_positions(self) -> None:
        chance = self.chance
        share, per_file = chance.choice([0.05, 0.3, 0.9]), chance.random() < 0.5
        writer.delete_where(
            self.table,
            lambda row: chance.random() < share,
            per_file=per_file,
            with_bounds=chance.random() < 0.5,
            with_rows=chance.random() < 0.4,
        )

    def delete_some_positions(self) -> None:
        """Positions in any order, some twice, some deleted before."""
        files = [file for file in oracle.live_files(self.table) if file.content == oracle.DATA]
        deletes = []
        for file in self.chance.sample(files, self.chance.randint(0, len(files))):
            count = self.chance.randint(1, 2 * file.record_count)
            deletes.append((file.path, [self.chance.randrange(file.record_count) for _ in range(count)]))
        writer.row_delta(self.table, position_deletes=deletes, per_file=self.chance.random() < 0.5, sort=False)

    def _keys(self) -> list[str]:
        """Names of one to three primitive fields outside lists and maps."""
        found = [
            place
            for place in places(self.table.schema())
            if place.field.field_type.is_primitive and not place.is_repeated
        ]
        chosen = self.chance.sample(found, min(len(found), self.chance.choice([1, 1, 2, 3])))
        return [place.name for place in chosen]

    def delete_keys(self) -> None:
        keys, spec_id = self._keys(), None
        if self.chance.random() < 0.3:
            with suppress(ValueError):  # the table was partitioned from the start
                spec_id = writer.unpartitioned_spec_id(self.table)
        if keys:
            writer.row_delta(
                self.table,
                self._rows(5) if self.chance.random() < 0.3 else (),
                [writer.EqualityDelete(keys, self._rows(6), spec_id=spec_id)],
            )

    def upsert(self) -> None:
        if keys := self._keys():
            writer.upsert(self.table, self._rows(8), keys)

    def update(self) -> None:
        chance = self.chance
        writer.copy_on_write(self.table, lambda row: chance.random() < 0.1)

    # Partitions

    def partition(self) -> None:
        """Add or remove a partition field."""
        table, chance = self.table, self.chance
        spec: PartitionSpec = table.spec()
        if spec.fields and chance.random() < 0.4:
            with table.update_spec() as update:
                update.remove_field(spec.fields[0].name)
            return
        used = {one.source_id for one in spec.fields}
        kinds = {table.schema().find_type(one) for one in used if one in table.schema().field_ids}
        found = [
            place
            for place in places(table.schema())
            if place.field.field_type.is_primitive
            and not place.is_repeated
            and place.field.field_id not in used
            # pyiceberg, which writes these manifests, gives two such types one name, which no Avro reader accepts
            and not (isinstance(place.field.field_type, _NAMED_TYPES) and place.field.field_type in kinds)
            and not (place.parents and place.field.required)  # pyiceberg can't write the null of a struct that is null
        ]
        if not found or len(used) == 2:
            return
        place = chance.choice(found)
        is_new = place.field.field_id not in self.sources
        if is_new and isinstance(place.field.field_type, _LONG_PATHS) and table.current_snapshot() is not None:
            return  # huge values may have been written
        self.sources.add(place.field.field_id)
        self.protected.update((*place.parents, place.field.field_id))
        other = _TRANSFORMS.get(type(place.field.field_type), ())
        transform = chance.choice([IdentityTransform(), IdentityTransform(), *other])
        with table.update_spec() as update:
            update.add_field(place.name, transform, f"p{self.new_name()}")

    # Schemas

    def evolve(self) -> None:
        self.table.refresh()
        steps = (self._add, self._add, self._rename, self._drop, self._drop_and_add, self._promote, self._promote)
        step = self.chance.choice((*steps, self._move, self._relax, self.partition))
        self.steps[-1] += step.__name__
        step()

    def _parent(self) -> tuple[str, ...]:
        """The path of a struct to add to, that of the schema itself in the first place."""
        structs = [place.path[:-1] for place in places(self.table.schema())]
        return self.chance.choice([(), *structs])

    def _add(self) -> None:
        ids: Callable[[], int] = iter(range(10_000, 20_000)).__next__
        path = (*self._parent(), self.new_name())
        with self.table.update_schema() as update:
            update.add_column(path, random_type(self.chance, ids, len(path)))

    def _any(self, *, droppable: bool = False) -> Place | None:
        every = places(self.table.schema())
        siblings = [place.path[:-1] for place in every]
        found = [
            one
            for one in every
            if not droppable
            or (one.field.field_id not in self.protected and siblings.count(one.path[:-1]) > 1 and self._is_free(one))
        ]
        return self.chance.choice(found) if found else None

    def _is_free(self, place: Place) -> bool:
        """Whether nothing below the field is protected."""
        below = (one for one in places(self.table.schema()) if place.field.field_id in one.parents)
        return all(one.field.field_id not in self.protected for one in below)

    def _rename(self) -> None:
        if place := self._any():
            with self.table.update_schema() as update:
                update.rename_column(place.path, self.new_name())

    def _drop(self) -> Place | None:
        if place := self._any(droppable=True):
            with self.table.update_schema() as update:
                update.delete_column(place.path)
        return place

    def _drop_and_add(self) -> None:
        """A new column under an old name; not where files are read by names: the old values would come back."""
        place = self._drop()
        if place is not None and not self.is_mapped:
            self.table.refresh()
            with self.table.update_schema() as update:
                update.add_column(place.path, primitive(self.chance))

    def _promote(self) -> None:
        wider = {IntegerType: LongType(), FloatType: DoubleType()}
        found = []
        for place in places(self.table.schema()):
            kind = place.field.field_type
            if isinstance(kind, DecimalType) and kind.precision < 38:
                found.append((place, DecimalType(self.chance.randint(kind.precision + 1, 38), kind.scale)))
            elif type(kind) in wider:
                found.append((place, wider[type(kind)]))
        if found:
            place, kind = self.chance.choice(found)
            with self.table.update_schema() as update:
                update.update_column(place.path, field_type=kind)

    def _move(self) -> None:
        place, other = self._any(), self._any()
        assert place is not None
        assert other is not None
        with self.table.update_schema() as update:
            if place.path[:-1] == other.path[:-1] and place != other:
                update.move_after(place.path, other.path)
            else:
                update.move_first(place.path)

    def _relax(self) -> None:
        required = [place for place in places(self.table.schema()) if place.field.required]
        if required:
            with self.table.update_schema() as update:
                update.make_column_optional(self.chance.choice(required).path)


def make(catalog: Catalog, seed: int) -> RandomTable:
    """The table `db.t<seed>` after a random life; equal for equal seeds, names of files aside."""
    chance = random.Random(seed)
    version = 1 if chance.random() < 0.08 else 2
    table = writer.make_table(
        catalog, f"db.t{seed}", random_schema(chance), format_version=version, properties=_properties(chance)
    )
    made = RandomTable(table, chance, chance.random() < 0.25, set())
    if made.is_mapped:
        with table.transaction() as transaction:
            transaction.set_properties({"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()})
    if chance.random() < 0.5:
        made.partition()
    made.append()
    deletes = ("delete_positions", "delete_some_positions", *["delete_keys"] * 3, "upsert", "update")
    for _ in range(chance.randint(2, 8)):
        step = chance.choice(("append", "append", *["evolve"] * 3, *(deletes if version == 2 else ())))
        made.steps.append(step)
        getattr(made, step)()
    table.refresh()
    return made


def _properties(chance: random.Random) -> dict[str, str]:
    choices = {
        "write.metadata.metrics.default": ["none", "counts", "truncate(2)", "truncate(16)", "full"],
        "write.metadata.metrics.column.plain": ["none", "counts", "truncate(1)", "full"],
        "write.parquet.compression-codec": ["zstd", "gzip", "snappy", "uncompressed"],
        "write.delete.format.default": ["avro", "orc"],
        "write.parquet.row-group-limit": ["1", "7", "50"],
        "write.parquet.page-row-limit": ["1", "10"],
        "write.parquet.dict-size-bytes": ["1", "100"],
        "write.parquet.page-size-bytes": ["1", "1000"],
        "write.parquet.bloom-filter-enabled.column.plain": ["true"],
    }
    return {key: chance.choice(values) for key, values in choices.items() if chance.random() < 0.3}


#: Chances in a hundred.
NULL, HUGE, REQUIRED, NESTED = 20, 2, 15, 25

_POOLS: Mapping[type[IcebergType], tuple[Any, ...]] = {
    BooleanType: (True, False),
    IntegerType: (0, 1, -1, 7, 2**31 - 1, -(2**31)),
    LongType: (0, 1, -1, 7, 2**31 - 1, 2**63 - 1, -(2**63)),
    FloatType: (0.0, -0.0, 1.5, math.nan, math.inf, -math.inf),
    DoubleType: (0.0, -0.0, 1.5, math.nan, math.inf, -math.inf),
    DateType: (date(1869, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)),
    TimeType: (time(0), time(12, 30), time(23, 59, 59, 999999)),
    TimestampType: (datetime(1600, 1, 1, 0, 0, 0, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 5, 1)),
    TimestamptzType: (
        datetime(1600, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2024, 5, 1, tzinfo=UTC),
    ),
    StringType: ("", "a", "b", "a long one of twenty", "é" * 20, "\0", "\U0010ffff" * 17),
    BinaryType: (b"", b"\0", b"ab", b"\0" * 20, b"\xff" * 20),
    UUIDType: (uuid.UUID(int=0), uuid.UUID(int=5), uuid.UUID(int=2**127 + 1), uuid.UUID(int=2**128 - 1)),
}
_HUGE: Mapping[type[IcebergType], Any] = {StringType: "z" * 5000, BinaryType: b"z" * 5000}
_MAP_KEYS = (StringType, IntegerType, LongType, DateType)


@dataclass(frozen=True, slots=True)
class Place:
    """A field somewhere in a schema; `path` as updates of schemas name it, `inside` the kinds around it."""

    path: tuple[str, ...]
    field: NestedField
    parents: tuple[int, ...]
    is_repeated: bool

    @property
    def name(self) -> str:
        """The path with dots."""
        return ".".join(self.path)


def places(schema: Schema) -> list[Place]:
    """Every field that updates may name: columns, members of structs (in lists and values of maps too)."""
    return list(_places(schema.fields, (), (), False))


def _places(
    fields: Collection[NestedField], path: tuple[str, ...], parents: tuple[int, ...], repeated: bool
) -> Iterator[Place]:
    for one in fields:
        own, below = (*path, one.name), (*parents, one.field_id)
        yield Place(own, one, parents, repeated)
        match one.field_type:
            case StructType(fields=inner):
                yield from _places(inner, own, below, repeated)
            case ListType(element_type=StructType(fields=inner)):
                yield from _places(inner, (*own, "element"), below, True)
            case MapType(value_type=StructType(fields=inner)):
                yield from _places(inner, (*own, "value"), below, True)


def random_schema(chance: random.Random) -> Schema:
    """One to seven columns; ids are preliminary, since catalogs number fields anew."""
    ids = iter(range(1, 1000)).__next__
    names = (f"c{number}" for number in range(100))
    fields = [_field(chance, ids, next(names), 0) for _ in range(chance.randint(1, 6))]
    plain = NestedField(ids(), "plain", primitive(chance), required=False)
    return Schema(*fields, plain)


def _field(chance: random.Random, ids: Callable[[], int], name: str, depth: int) -> NestedField:
    own = ids()
    required = chance.randrange(100) < REQUIRED
    return NestedField(own, name, random_type(chance, ids, depth), required=required)


def random_type(chance: random.Random, ids: Callable[[], int], depth: int) -> IcebergType:
    """A type that is nested less often the deeper it lies."""
    if depth >= 3 or chance.randrange(100) >= NESTED + 10 * depth * (depth < 2):
        return primitive(chance)
    match chance.choice(["struct", "struct", "list", "map"]):
        case "struct":
            count = chance.randint(1, 3)
            return StructType(*(_field(chance, ids, f"f{number}", depth + 1) for number in range(count)))
        case "list":
            own, required = ids(), chance.random() < 0.3
            return ListType(own, random_type(chance, ids, depth + 1), element_required=required)
        case _:
            key, value, required = ids(), ids(), chance.random() < 0.3
            kind = random_type(chance, ids, depth + 1)
            return MapType(key, chance.choice(_MAP_KEYS)(), value, kind, value_required=required)


def primitive(chance: random.Random) -> PrimitiveType:
    """Any primitive type."""
    kind = chance.choice([*_POOLS, DecimalType, FixedType])
    if kind is DecimalType:
        return DecimalType(*chance.choice([(9, 2), (18, 0), (18, 18), (38, 4), (5, 5)]))
    if kind is FixedType:
        return FixedType(chance.choice([1, 3, 16]))
    return kind()


def random_rows(chance: random.Random, schema: Schema, count: int, short: Collection[int] = ()) -> list[dict[str, Any]]:
    """Rows of few distinct values; fields of `short` (ids) get no huge ones, as they become names of directories."""
    return [_struct(chance, schema.as_struct(), short) for _ in range(count)]


def _struct(chance: random.Random, kind: StructType, short: Collection[int]) -> dict[str, Any]:
    return {field.name: _value(chance, field, short) for field in kind.fields}


def _value(chance: random.Random, field: NestedField, short: Collection[int]) -> Any:
    if not field.required and chance.randrange(100) < NULL:
        return None
    match field.field_type:
        case StructType() as kind:
            return _struct(chance, kind, short)
        case ListType() as kind:
            return [_value(chance, kind.element_field, short) for _ in range(chance.choice([0, 1, 3]))]
        case MapType() as kind:
            keys = {_value(chance, kind.key_field, short) for _ in range(chance.choice([0, 1, 3]))}
            return [(key, _value(chance, kind.value_field, short)) for key in sorted(keys)]
        case kind:
            return _primitive_value(chance, kind, field.field_id in short)


def _primitive_value(chance: random.Random, kind: IcebergType, is_short: bool) -> Any:
    if isinstance(kind, DecimalType):
        unscaled = chance.choice([0, 1, -1, 10**kind.precision - 1, -(10**kind.precision) + 1])
        return Decimal((unscaled < 0, tuple(int(digit) for digit in str(abs(unscaled))), -kind.scale))
    if isinstance(kind, FixedType):
        return chance.choice([b"\0", b"\xff", b"q"]) * len(kind)
    if type(kind) in _HUGE and not is_short and chance.randrange(100) < HUGE:
        return _HUGE[type(kind)]
    return chance.choice(_POOLS[type(kind)])
