"""Conversion of a table's metadata to our values, its sort orders, and requests that change it."""

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
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
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from amoro_core.errors import TableRefused, misconfigured
from amoro_core.files.schema.schemas import promoted
from amoro_core.iceberg.manifest.reading import find_in_history, parents_of, partition_types, summary_of
from amoro_core.maintenance.orphans import TableLocations, is_below, outermost, settled_names
from amoro_core.model import clustering
from amoro_core.model.clustering import BoundKey, Column, LayoutKey, Sorting, SortKey
from amoro_core.model.commits import SortOrderAdded
from amoro_core.model.files import DeleteKind, TableScan
from amoro_core.model.location_policy import Grant
from amoro_core.model.maintenance import TimeColumn, TimeKind, TimePart
from amoro_core.model.paths import normalise
from amoro_core.model.plans import PartitionKey
from amoro_core.model.properties import parse_value
from amoro_core.model.tables import (
    History,
    PartitionColumn,
    Ref,
    SchemaColumn,
    SnapshotFacts,
    TableFacts,
    TableIdentifier,
    TableSchema,
)
from amoro_core.model.task_payload import TableContext
from amoro_core.scan.live_files import LiveFiles

_NAME_MAPPING = "schema.name-mapping.default"
#: A longer time is as good as for ever, and a date minus the largest number of milliseconds overflows.
_EVER = timedelta(days=36525)


def table_facts(table: Table, identifier: TableIdentifier) -> TableFacts:
    """The facts of a loaded table."""
    metadata = table.metadata
    snapshot = metadata.current_snapshot()
    return TableFacts(
        identifier=identifier,
        uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        location=metadata.location,
        metadata_location=table.metadata_location,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        sequence_number=0 if snapshot is None else snapshot.sequence_number or 0,
        properties=dict(metadata.properties),
        snapshot_summary={} if snapshot is None else _summary(snapshot),
        schema_id=metadata.current_schema_id,
        last_column_id=metadata.last_column_id,
    )


def data_location(metadata: TableMetadata) -> str:
    """The prefix below which data files are written; deprecated properties count in Java's order."""
    properties = metadata.properties
    keys = ["write.data.path"]
    if properties.get("write.object-storage.enabled", "").strip().lower() == "true":
        keys.append("write.object-storage.path")
    keys.append("write.folder-storage.path")
    own = next((properties[key] for key in keys if properties.get(key)), f"{metadata.location.rstrip('/')}/data")
    return own.rstrip("/")


def refuse_locations(metadata: TableMetadata, grant: Grant) -> None:
    """Raise TableRefused("location") if the table's location, or its paths for data or metadata, may not be used."""
    grant.refuse(metadata.location, *_other_paths(metadata))


def write_locations(metadata: TableMetadata, grant: Grant, *more: str) -> tuple[str, ...]:
    """The prefixes below which we write and delete: the table's location, its paths for data and metadata, and more."""
    return grant.writable(metadata.location, *_other_paths(metadata), *more)


def read_locations(metadata: TableMetadata, grant: Grant) -> tuple[str, ...]:
    """The prefixes below which files may be read."""
    return grant.readable(metadata.location)


def metadata_location(metadata: TableMetadata) -> str:
    """The prefix below which metadata files are written."""
    own = metadata.properties.get("write.metadata.path") or f"{metadata.location.rstrip('/')}/metadata"
    return own.rstrip("/")


def _other_paths(metadata: TableMetadata) -> tuple[str, str]:
    return data_location(metadata), metadata_location(metadata)


def equality_ids(scan: TableScan | None) -> frozenset[int]:
    """The fields compared by equality deletes that apply to a live data file."""
    deletes = () if scan is None else LiveFiles.of(scan.files).applied
    return frozenset(id_ for delete in deletes if delete.kind is DeleteKind.EQUALITY for id_ in delete.equality_ids)


def context(
    table: Table, identifier: TableIdentifier, spec_id: int, compared: Iterable[int], readable: Sequence[str]
) -> TableContext:
    """What executors must know to rewrite files of that spec; `compared` are the fields of live equality deletes."""
    metadata = table.metadata
    properties = metadata.properties
    # The type unknown is not written to files.
    once_unknown = {
        field_id
        for schema in metadata.schemas
        for field_id in schema.field_ids.intersection(compared)
        if isinstance(schema.find_type(field_id), UnknownType)
    }
    return TableContext(
        catalog=identifier.catalog,
        table=str(identifier),
        table_uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        location=metadata.location,
        data_location=data_location(metadata),
        schema_json=metadata.schema().model_dump_json(),
        spec_json=metadata.specs()[spec_id].model_dump_json(),
        name_mapping_json=properties.get(_NAME_MAPPING),
        dropped_fields_json=tuple(field.model_dump_json() for field in _dropped(metadata, compared)),
        sort_order_json=None if (order := metadata.sort_order()).is_unsorted else order.model_dump_json(),
        properties={key: value for key, value in sorted(properties.items()) if key.startswith("write.")},
        read_locations=tuple(readable),
        once_unknown=tuple(sorted(once_unknown)),
    )


def _dropped(metadata: TableMetadata, compared: Iterable[int]) -> list[NestedField]:
    """The compared fields that the current schema lacks, from the newest schema that has them, each within its
    structs."""
    current = metadata.schema().field_ids
    pairs = {field_id: find_in_history(metadata, field_id) for field_id in sorted(set(compared) - current)}
    if missing := [field_id for field_id, pair in pairs.items() if pair is None]:
        raise TableRefused(
            f"equality deletes name fields that no schema of the table has: {missing}", reason="equality-ids"
        )
    return [_within_structs(*pair) for pair in pairs.values() if pair is not None]


def _within_structs(field: NestedField, schema: Schema) -> NestedField:
    """The field wrapped in its enclosing structs, each with no other member."""
    for parent_id in parents_of(schema, field.field_id):
        name = schema.find_field(parent_id).name
        field = NestedField(parent_id, name, StructType(field), required=False)
    return field


def _summary(snapshot: Snapshot) -> dict[str, str]:
    # pyiceberg returns what a writer put there, strings or not.
    return {key: str(value) for key, value in summary_of(snapshot).items() if value is not None}


#: Of the years 1 to 9999.
_MILLISECONDS = range(-62_135_596_800_000, 253_402_300_800_000)


def committed_at(snapshot: Snapshot) -> datetime:
    """The snapshot's time. Raises TableRefused("metadata") for one in no year from 1 to 9999."""
    if snapshot.timestamp_ms not in _MILLISECONDS:
        raise TableRefused(
            f"snapshot {snapshot.snapshot_id} has the timestamp {snapshot.timestamp_ms}, which is in no year",
            reason="metadata",
        )
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)


def snapshot_facts(metadata: TableMetadata) -> tuple[SnapshotFacts, ...]:
    """Every snapshot of the metadata, the newest first."""
    refs: dict[int, list[str]] = {}
    for name, ref in sorted(metadata.refs.items()):
        refs.setdefault(ref.snapshot_id, []).append(name)
    ordered = sorted(metadata.snapshots, key=lambda item: (item.timestamp_ms, item.sequence_number or 0), reverse=True)
    return tuple(
        SnapshotFacts(
            snapshot_id=item.snapshot_id,
            parent_id=item.parent_snapshot_id,
            sequence_number=item.sequence_number or 0,
            committed_at=committed_at(item),
            operation=item.summary.operation.value if item.summary else "",
            summary=_summary(item),
            refs=tuple(refs.get(item.snapshot_id, ())),
        )
        for item in ordered
    )


def table_schema(metadata: TableMetadata) -> TableSchema:
    """The current schema and the default partition spec."""
    schema, spec = metadata.schema(), metadata.spec()
    identifiers = frozenset(schema.identifier_field_ids)
    columns = (
        SchemaColumn(
            item.field_id, item.name, str(item.field_type), item.required, item.doc or "", item.field_id in identifiers
        )
        for item in schema.fields
    )
    partition = (
        PartitionColumn(
            item.field_id, item.name, str(item.transform), item.source_id, schema.find_column_name(item.source_id) or ""
        )
        for item in spec.fields
    )
    return TableSchema(schema.schema_id, tuple(columns), spec.spec_id, tuple(partition))


def history_of(table: Table) -> History:
    """All snapshots and references of the table, as loaded."""
    metadata = table.metadata
    refs = tuple(
        Ref(
            name=name,
            snapshot_id=ref.snapshot_id,
            is_branch=ref.snapshot_ref_type == SnapshotRefType.BRANCH,
            min_snapshots_to_keep=ref.min_snapshots_to_keep,
            max_snapshot_age=_milliseconds(ref.max_snapshot_age_ms),
            max_ref_age=_milliseconds(ref.max_ref_age_ms),
        )
        for name, ref in sorted(metadata.refs.items())
    )
    return History(snapshot_facts(metadata), refs, dict(metadata.properties), table.metadata_location)


def _milliseconds(value: int | None) -> timedelta | None:
    """The milliseconds as a duration, at most a century."""
    return None if value is None else timedelta(milliseconds=min(value, _EVER // timedelta(milliseconds=1)))


_KINDS: dict[type[IcebergType], TimeKind] = {
    TimestampType: TimeKind.TIMESTAMP,
    TimestamptzType: TimeKind.TIMESTAMP,
    TimestampNanoType: TimeKind.TIMESTAMP_NS,
    TimestamptzNanoType: TimeKind.TIMESTAMP_NS,
    DateType: TimeKind.DATE,
    LongType: TimeKind.LONG,
    StringType: TimeKind.STRING,
}
_IN_ORDER: dict[type[Transform[Any, Any]], str] = {
    IdentityTransform: "identity",
    YearTransform: "year",
    MonthTransform: "month",
    DayTransform: "day",
    HourTransform: "hour",
    TruncateTransform: "truncate",
}


def time_column(metadata: TableMetadata, name: str) -> TimeColumn:
    """The top-level column of that name in the current schema. Raises TableRefused("configuration") if there is none,
    and for a type that is not a time."""
    nested_field = next((field for field in metadata.schema().fields if field.name == name), None)
    if nested_field is None:
        columns = ", ".join(field.name for field in metadata.schema().fields if type(field.field_type) in _KINDS)
        raise misconfigured(
            f"the table has no column {name!r} at its top level",
            hint=f"Set data-expire.field to one of: {columns or 'none of its columns tells a time'}.",
        )
    kind = _KINDS.get(type(nested_field.field_type))
    if kind is None:
        raise misconfigured(
            f"column {name!r} is of type {nested_field.field_type}, which tells no time",
            hint="Set data-expire.field to a column of type date, timestamp, timestamptz, timestamp_ns, timestamptz_ns,"
            " long or string.",
        )
    parts = {spec_id: _parts(spec, nested_field.field_id) for spec_id, spec in metadata.specs().items()}
    return TimeColumn(name, nested_field.field_id, kind, {spec_id: part for spec_id, part in parts.items() if part})


def _parts(spec: PartitionSpec, field_id: int) -> tuple[TimePart, ...]:
    return tuple(
        TimePart(at, _IN_ORDER.get(type(field.transform), ""), getattr(field.transform, "width", 0))
        for at, field in enumerate(spec.fields)
        if field.source_id == field_id
    )


_PATHS = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")


def ground(
    table: Table, readable: Iterable[str], writable: Iterable[str], catalog: Mapping[str, str]
) -> TableLocations:
    """Where the files of the table lie; `catalog` are its catalog's properties, `writable` where files are deleted.
    Raises TableRefused("configuration") for malformed properties of the catalog."""
    metadata = table.metadata
    location = metadata.location.rstrip("/")
    named = [metadata.properties[key] for key in _PATHS if metadata.properties.get(key)]
    places = outermost(
        (f"{location}/data", f"{location}/metadata", data_location(metadata), metadata_location(metadata), *named)
    )
    settled = {
        key: parse_value(key, catalog.get(key, ""), settled_names) for key in ("equal-schemes", "equal-authorities")
    }
    head = metadata.current_snapshot()
    certain = [normalise(path) for path in (table.metadata_location, head and head.manifest_list) if path]
    return TableLocations(
        location=location,
        places=places,
        metadata_place=normalise(metadata_location(metadata)),
        flink_place=normalise(metadata.properties.get("flink.manifests.location") or metadata_location(metadata)),
        writable=tuple(writable),
        partition_fields=tuple(sorted({field.name for spec in metadata.partition_specs for field in spec.fields})),
        must_be_listed=tuple(path for path in certain if any(is_below(path, place) for place in places)),
        same_schemes=settled["equal-schemes"],
        same_authorities=settled["equal-authorities"],
        readable=tuple(readable),
    )


Json = Mapping[str, Any]


def commit_request(
    table: Table, updates: Iterable[Json], requirements: Iterable[Json] = (), *, own_metadata: bool = False
) -> bytes:
    """The request to change the table as just loaded (CommitTableRequest of the REST catalog specification).

    It requires the table's UUID, too. `own_metadata`: the client writes the metadata file itself, and the request
    applies to exactly this state of the table.
    """
    request: dict[str, object] = {
        "requirements": [{"type": "assert-table-uuid", "uuid": str(table.metadata.table_uuid)}, *requirements],
        "updates": list(updates),
    }
    if own_metadata:
        request["metadata-location"] = table.metadata_location
    return json.dumps(request, separators=(",", ":")).encode()


def ref_required(name: str, snapshot_id: int | None) -> Json:
    """The requirement that a branch or tag points to the snapshot; None: that there is none of that name."""
    return {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": snapshot_id}


def statistics_paths(metadata: TableMetadata) -> set[str]:
    """The files with statistics of snapshots, and of their partitions."""
    return {fields.statistics_path for fields in (*metadata.statistics, *metadata.partition_statistics)}


def statistics_removals(
    metadata: TableMetadata, is_outdated: Callable[[StatisticsFile | PartitionStatisticsFile], bool]
) -> list[Json]:
    """The updates that remove the statistics of snapshots of which the predicate holds for a file."""
    return [
        {"action": action, "snapshot-id": snapshot_id}
        for action, entries in (
            ("remove-statistics", metadata.statistics),
            ("remove-partition-statistics", metadata.partition_statistics),
        )
        for snapshot_id in sorted({entry.snapshot_id for entry in entries if is_outdated(entry)})
    ]


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
    return next((sort_order.order_id for sort_order in metadata.sort_orders if keys_of(sort_order) == tuple(keys)), 0)


def stage_sort_order(table: Table, keys: Sequence[LayoutKey], *, own_metadata: bool) -> tuple[bytes, SortOrderAdded]:
    """The payload that adds a sort order, not as the default, to the table as just loaded, and the evidence that it
    landed. `own_metadata` as in `commit_request`, so that no two orders get one id."""
    orders = table.metadata.sort_orders
    order = {
        "order-id": max((sort_order.order_id for sort_order in orders), default=0) + 1,
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
    default_id = table.metadata.default_sort_order_id
    payload = commit_request(
        table,
        [{"action": "add-sort-order", "sort-order": order}],
        [{"type": "assert-default-sort-order-id", "default-sort-order-id": default_id}],
        own_metadata=own_metadata,
    )
    parts = tuple((key.field_id, key.transform, key.descending, key.nulls_last) for key in keys)
    return payload, SortOrderAdded(parts, table.metadata_location if own_metadata else "")


_MOMENTS = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_WHOLE = (BooleanType, IntegerType, LongType, DateType, TimeType, *_MOMENTS)
_BYTES = (StringType, BinaryType, FixedType, UUIDType)
_TIMES = (DateType, *_MOMENTS)


def sorting_of(metadata: TableMetadata) -> Sorting:
    """What resolves layouts of the table under its current schema and spec."""
    schema = metadata.schema()
    columns = tuple(_sort_column(schema, field_id) for field_id in sorted(schema.field_ids))
    by_id = {column.field_id: column for column in columns}

    def order_of(order: SortOrder) -> clustering.SortOrder:
        problems = (_field_problem(field, by_id, schema) for field in order.fields)
        return clustering.SortOrder(order.order_id, keys_of(order), next(filter(None, problems), ""))

    return Sorting(
        columns=columns,
        orders=tuple(map(order_of, metadata.sort_orders)),
        default_order_id=metadata.default_sort_order_id,
        partitioned_by=frozenset(
            field.source_id for field in metadata.spec().fields if isinstance(field.transform, IdentityTransform)
        ),
        identifiers=tuple(schema.identifier_field_ids),
        bound_key=cache(lambda field_id: bound_key(schema.find_type(field_id))),
        partition_order=_partition_order(metadata),
    )


def bound_key(kind: IcebergType) -> BoundKey:
    """The function from single-value serializations of that type to values that compare as Iceberg compares.

    Values of the type from which the column was promoted are accepted, too. −0.0 is below 0.0; strings and other bytes
    compare as unsigned bytes. None: the bytes are no value, NaN, or the type has no order.
    """
    if isinstance(kind, _MOMENTS):
        return lambda bound: _moment(promoted(kind, bound))
    if isinstance(kind, _WHOLE):
        return _whole
    if isinstance(kind, FloatType | DoubleType):
        return _float
    if isinstance(kind, DecimalType):
        return _decimal
    if isinstance(kind, _BYTES):
        return bytes
    return lambda bound: None


def _moment(bound: bytes | None) -> SortKey | None:
    return _whole(bound) if bound is not None and len(bound) == 8 else None


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


def _sort_column(schema: Schema, field_id: int) -> Column:
    kind = schema.find_type(field_id)
    name = schema.find_column_name(field_id) or f"#{field_id}"
    return Column(field_id, name, str(kind), _order_problem(schema, field_id, kind))


def _order_problem(schema: Schema, field_id: int, kind: IcebergType) -> str:
    for above in map(schema.find_type, parents_of(schema, field_id)):
        if not isinstance(above, StructType):
            return f"lies within a {_word(above)}, whose values have no bounds"
    if not kind.is_primitive:
        return f"is a {_word(kind)}, which has no order"
    if not isinstance(kind, (*_WHOLE, *_BYTES, FloatType, DoubleType, DecimalType)):
        return f"is a {kind}, which has no order that is known"
    return ""


def _word(kind: IcebergType) -> str:
    return type(kind).__name__.removesuffix("Type").lower()


def _field_problem(field: SortField, columns: Mapping[int, Column], schema: Schema) -> str:
    column = columns.get(field.source_id)
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
    fields = {spec_id: _fields_in_order(metadata, spec) for spec_id, spec in specs.items()}

    def order(key: PartitionKey) -> tuple[tuple[int, SortKey], ...]:
        result: list[tuple[int, SortKey]] = []
        for at, to_key in fields[key.spec_id]:
            value = key.partition[at]
            sort_key = None if value is None else to_key(value)
            result.append((0, 0) if sort_key is None else (1, sort_key))
        return tuple(result)

    return order


def _fields_in_order(metadata: TableMetadata, spec: PartitionSpec) -> tuple[tuple[int, BoundKey], ...]:
    """The partition fields by index, those of times first."""
    types, schema = partition_types(metadata, spec), metadata.schema()
    if len(types) != len(spec.fields):  # a column is in no schema any more
        return ()
    columns = [schema.find_type(item.source_id) if item.source_id in schema.field_ids else None for item in spec.fields]
    order = sorted(range(len(types)), key=lambda at: (not isinstance(columns[at], _TIMES), at))
    return tuple((at, bound_key(types[at])) for at in order)
