"""Random schemas and rows: every type, nested at will, with the values at which implementations differ."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from pyiceberg.schema import Schema
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
    for field in fields:
        own, below = (*path, field.name), (*parents, field.field_id)
        yield Place(own, field, parents, repeated)
        match field.field_type:
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
