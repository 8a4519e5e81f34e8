"""Sort orders of a table's metadata: which one says what a layout says, and the change that adds one."""

import json
import struct
from collections.abc import Mapping, Sequence
from functools import cache

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.sorting import NullOrder as Nulls
from pyiceberg.transforms import IdentityTransform, UnknownTransform, VoidTransform
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
    LongType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.files.schema.projection import promoted
from amoro_core.iceberg.manifest.reading import partition_types
from amoro_core.model import clustering
from amoro_core.model.clustering import BoundKey, Column, LayoutKey, Sorting, SortKey
from amoro_core.model.commits import SortOrderAdded
from amoro_core.model.plans import PartitionKey


def keys_of(order: SortOrder) -> tuple[LayoutKey, ...]:
    """The keys of a sort order, transforms as Iceberg spells them."""
    return tuple(
        LayoutKey(
            field.source_id,
            str(field.transform),
            field.direction is SortDirection.DESC,
            field.null_order is NullOrder.NULLS_LAST,
        )
        for field in order.fields
    )


def order_id_of(metadata: TableMetadata, keys: Sequence[LayoutKey]) -> int:
    """The id of the sort order with exactly these keys; 0: the metadata has none."""
    if not keys:
        return 0
    return next((one.order_id for one in metadata.sort_orders if keys_of(one) == tuple(keys)), 0)


def stage_sort_order(table: Table, keys: Sequence[LayoutKey], *, own_metadata: bool) -> tuple[bytes, SortOrderAdded]:
    """What adds a sort order and does not make it the default, of the table as loaded just now; with its evidence.

    `own_metadata`: whoever sends it writes the metadata file itself, and it applies to this state of the table alone,
    so that no two orders get one id.
    """
    metadata = table.metadata
    order = {
        "order-id": max((one.order_id for one in metadata.sort_orders), default=0) + 1,
        "fields": [
            {
                "source-id": key.field_id,
                "transform": key.transform,
                "direction": "desc" if key.descending else "asc",
                "null-order": "nulls-last" if key.nulls_last else "nulls-first",
            }
            for key in keys
        ],
    }
    request: dict[str, object] = {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)},
            {"type": "assert-default-sort-order-id", "default-sort-order-id": metadata.default_sort_order_id},
        ],
        "updates": [{"action": "add-sort-order", "sort-order": order}],
    }
    place = table.metadata_location if own_metadata else ""
    if place:
        request["metadata-location"] = place
    told = tuple((key.field_id, key.transform, key.descending, key.nulls_last) for key in keys)
    return json.dumps(request, separators=(",", ":")).encode(), SortOrderAdded(told, place)


def layout_keys(evidence: SortOrderAdded) -> tuple[LayoutKey, ...]:
    """The keys that the evidence is about."""
    return tuple(LayoutKey(*key) for key in evidence.keys)


_MOMENTS = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_WHOLE = (BooleanType, IntegerType, LongType, DateType, TimeType, *_MOMENTS)
_BYTES = (StringType, BinaryType, FixedType, UUIDType)
_TIMES = (DateType, *_MOMENTS)


def sorting_of(metadata: TableMetadata) -> Sorting:
    """What layouts of the table are resolved by, under its current schema and spec."""
    schema = metadata.schema()
    parents = _parents(schema)
    columns = tuple(_column(schema, field_id, parents) for field_id in sorted(schema.field_ids))
    return Sorting(
        columns=columns,
        orders=tuple(_order(schema, one, columns) for one in metadata.sort_orders),
        default_order_id=metadata.default_sort_order_id,
        partitioned_by=frozenset(
            field.source_id for field in metadata.spec().fields if isinstance(field.transform, IdentityTransform)
        ),
        identifiers=tuple(schema.identifier_field_ids),
        bound_key=cache(lambda field_id: bound_key(schema.find_type(field_id))),
        partition_order=_partition_order(metadata),
    )


def bound_key(kind: IcebergType) -> BoundKey:
    """What makes of a single value of that type, in binary form, one that compares as Iceberg compares.

    Values of the type from which the column was promoted are taken, too: −0.0 is below 0.0; strings compare by
    their UTF-8 bytes, all others of bytes unsigned.
    """
    if isinstance(kind, _MOMENTS):
        return lambda bound: _whole(bound) if len(bound) == 8 else _promoted_moment(kind, bound)
    if isinstance(kind, _WHOLE):
        return _whole
    if isinstance(kind, FloatType | DoubleType):
        return _float
    if isinstance(kind, DecimalType):
        return _decimal
    if isinstance(kind, _BYTES):
        return bytes
    return lambda bound: None


def _promoted_moment(kind: IcebergType, bound: bytes) -> SortKey | None:
    moment = promoted(kind, bound)
    return _whole(moment) if moment is not None and len(moment) == 8 else None


def _whole(bound: bytes) -> SortKey | None:
    return int.from_bytes(bound, "little", signed=True) if len(bound) in (1, 4, 8) else None


def _float(bound: bytes) -> SortKey | None:
    if len(bound) == 4:
        bound = struct.pack("<d", struct.unpack("<f", bound)[0])
    if len(bound) != 8:
        return None
    value = struct.unpack("<d", bound)[0]
    if value != value:
        return None
    bits = int.from_bytes(bound, "little")
    return bits if bits < 1 << 63 else (1 << 63) - 1 - bits


def _decimal(bound: bytes) -> SortKey | None:
    return int.from_bytes(bound, "big", signed=True) if bound else None


def _parents(schema: Schema) -> Mapping[int, int]:
    found: Mapping[int, int] = schema._lazy_id_to_parent
    return found


def _column(schema: Schema, field_id: int, parents: Mapping[int, int]) -> Column:
    kind = schema.find_type(field_id)
    name = schema.find_column_name(field_id) or f"#{field_id}"
    return Column(field_id, name, str(kind), _problem(schema, field_id, kind, parents))


def _problem(schema: Schema, field_id: int, kind: IcebergType, parents: Mapping[int, int]) -> str:
    at = field_id
    while (parent := parents.get(at)) is not None:
        above = schema.find_type(parent)
        if not isinstance(above, StructType):
            return f"lies within a {_word(above)}, whose values have no bounds"
        at = parent
    if not kind.is_primitive:
        return f"is a {_word(kind)}, which has no order"
    if not isinstance(kind, (*_WHOLE, *_BYTES, FloatType, DoubleType, DecimalType)):
        return f"is a {kind}, which has no order that is known"
    return ""


def _word(kind: IcebergType) -> str:
    return type(kind).__name__.removesuffix("Type").lower()


def _order(schema: Schema, order: SortOrder, columns: tuple[Column, ...]) -> clustering.SortOrder:
    known = {one.field_id: one for one in columns}
    problem = next((found for field in order.fields if (found := _field_problem(field, known, schema))), "")
    keys = tuple(
        LayoutKey(
            field.source_id,
            str(field.transform),
            field.direction is SortDirection.DESC,
            field.null_order is Nulls.NULLS_LAST,
        )
        for field in order.fields
    )
    return clustering.SortOrder(order.order_id, keys, problem)


def _field_problem(field: SortField, known: Mapping[int, Column], schema: Schema) -> str:
    column = known.get(field.source_id)
    if column is None:
        return f"names field {field.source_id}, which the schema does not have"
    if column.problem:
        return f"names column {column.name}, which {column.problem}"
    transform = field.transform
    if isinstance(transform, UnknownTransform):
        return f"has the transform {transform._transform!r} of {column.name}, which is not known"
    if isinstance(transform, VoidTransform):
        return f"has the transform void of {column.name}, which orders nothing"
    if not transform.can_transform(schema.find_type(field.source_id)):
        return f"has the transform {transform} of {column.name}, which a {column.kind} does not have"
    return ""


def _partition_order(metadata: TableMetadata) -> clustering.PartitionOrder:
    specs = metadata.specs()
    known = {spec_id: _fields_in_order(metadata, spec) for spec_id, spec in specs.items()}

    def order(key: PartitionKey) -> tuple[tuple[int, SortKey], ...]:
        found: list[tuple[int, SortKey]] = []
        for at, to_key in known[key.spec_id]:
            value = key.partition[at]
            made = None if value is None else to_key(value)
            found.append((0, 0) if made is None else (1, made))
        return tuple(found)

    return order


def _fields_in_order(metadata: TableMetadata, spec: PartitionSpec) -> tuple[tuple[int, BoundKey], ...]:
    """The partition fields by index, those first that tell a time."""
    types = partition_types(metadata, spec)
    if len(types) != len(spec.fields):  # of a column that no schema knows any more
        return ()
    tells_time = [_tells_time(metadata, field.source_id) for field in spec.fields]
    order = sorted(range(len(types)), key=lambda at: (not tells_time[at], at))
    return tuple((at, bound_key(types[at])) for at in order)


def _tells_time(metadata: TableMetadata, field_id: int) -> bool:
    schema = metadata.schema()
    return field_id in schema.field_ids and isinstance(schema.find_type(field_id), _TIMES)
