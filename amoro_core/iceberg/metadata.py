"""Conversion of a table's metadata to our values."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UnknownType,
)

from amoro_core.errors import TableRefused
from amoro_core.iceberg.manifest.reading import find_in_history
from amoro_core.maintenance.table_locations import TableLocations, is_below, outermost, settled_names
from amoro_core.model.files import DeleteKind, TableScan
from amoro_core.model.location_policy import Grant
from amoro_core.model.maintenance import TimeColumn, TimeKind, TimePart
from amoro_core.model.paths import normalise
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
    if scan is None:
        return frozenset()
    return frozenset(
        field_id
        for delete in LiveFiles.of(scan.files).applied
        if delete.kind is DeleteKind.EQUALITY
        for field_id in delete.equality_ids
    )


def context(
    table: Table, identifier: TableIdentifier, spec_id: int, compared: Iterable[int], readable: Sequence[str]
) -> TableContext:
    """What executors must know to rewrite files of that spec.

    `compared` are the fields of live equality deletes; those that the current schema lacks are included.
    """
    metadata = table.metadata
    properties = metadata.properties
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
        properties=write_properties(properties),
        read_locations=tuple(readable),
        once_unknown=_once_unknown(metadata, compared),
    )


def _once_unknown(metadata: TableMetadata, compared: Iterable[int]) -> tuple[int, ...]:
    """The compared fields that have the type unknown in any schema; that type is not written to files."""
    return tuple(
        field_id
        for field_id in sorted(set(compared))
        if any(
            field_id in schema.field_ids and isinstance(schema.find_type(field_id), UnknownType)
            for schema in metadata.schemas
        )
    )


def write_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The table's properties that concern a writer."""
    return {key: value for key, value in sorted(properties.items()) if key.startswith("write.")}


def _dropped(metadata: TableMetadata, compared: Iterable[int]) -> list[NestedField]:
    """The compared fields that the current schema lacks, from the newest schema that has them.

    A field of a struct is returned within that struct.
    """
    current = metadata.schema().field_ids
    found = {field_id: find_in_history(metadata, field_id) for field_id in sorted(set(compared) - current)}
    if missing := [field_id for field_id, one in found.items() if one is None]:
        raise TableRefused(
            f"equality deletes name fields that no schema of the table has: {missing}", reason="equality-ids"
        )
    return [_within_structs(*one) for one in found.values() if one is not None]


def _within_structs(field: NestedField, schema: Schema) -> NestedField:
    """The field wrapped in its enclosing structs, each with no other member."""
    parent_id = schema._lazy_id_to_parent.get(field.field_id)
    if parent_id is None:
        return field
    parent = schema.find_field(parent_id)
    around = NestedField(parent_id, parent.name, StructType(field), required=False)
    return _within_structs(around, schema)


def _summary(snapshot: Snapshot) -> dict[str, str]:
    found = snapshot.summary.additional_properties if snapshot.summary else {}
    # pyiceberg returns what a writer put there, strings or not.
    return {key: str(value) for key, value in found.items() if value is not None}


def snapshot_facts(metadata: TableMetadata) -> tuple[SnapshotFacts, ...]:
    """Every snapshot of the metadata, the newest first."""
    refs: dict[int, list[str]] = {}
    for name, ref in sorted(metadata.refs.items()):
        refs.setdefault(ref.snapshot_id, []).append(name)
    known = sorted(metadata.snapshots, key=lambda item: (item.timestamp_ms, item.sequence_number or 0), reverse=True)
    return tuple(
        SnapshotFacts(
            snapshot_id=item.snapshot_id,
            parent_id=item.parent_snapshot_id,
            sequence_number=item.sequence_number or 0,
            committed_at=datetime.fromtimestamp(item.timestamp_ms / 1000, UTC),
            operation=item.summary.operation.value if item.summary else "",
            summary=_summary(item),
            refs=tuple(refs.get(item.snapshot_id, ())),
        )
        for item in known
    )


def table_schema(metadata: TableMetadata) -> TableSchema:
    """The current schema and the default partition spec."""
    schema, spec = metadata.schema(), metadata.spec()
    identifiers = frozenset(schema.identifier_field_ids)
    columns = (
        SchemaColumn(
            one.field_id, one.name, str(one.field_type), one.required, one.doc or "", one.field_id in identifiers
        )
        for one in schema.fields
    )
    partition = (
        PartitionColumn(
            one.field_id, one.name, str(one.transform), one.source_id, schema.find_column_name(one.source_id) or ""
        )
        for one in spec.fields
    )
    return TableSchema(schema.schema_id, tuple(columns), spec.spec_id, tuple(partition))


def history_of(table: Table) -> History:
    """All snapshots and references of the table, as loaded."""
    metadata = table.metadata
    return History(snapshot_facts(metadata), _refs(metadata), dict(metadata.properties), table.metadata_location)


def _refs(metadata: TableMetadata) -> tuple[Ref, ...]:
    return tuple(
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
    """The top-level column of that name in the current schema.

    Raises TableRefused("configuration") if there is none, and for a type that is not a time.
    """
    found = next((one for one in metadata.schema().fields if one.name == name), None)
    if found is None:
        columns = ", ".join(one.name for one in metadata.schema().fields if type(one.field_type) in _KINDS)
        raise TableRefused(
            f"the table has no column {name!r} at its top level",
            reason="configuration",
            hint=f"Set data-expire.field to one of: {columns or 'none of its columns tells a time'}.",
        )
    kind = _KINDS.get(type(found.field_type))
    if kind is None:
        raise TableRefused(
            f"column {name!r} is of type {found.field_type}, which tells no time",
            reason="configuration",
            hint="Set data-expire.field to a column of type date, timestamp, timestamptz, timestamp_ns, timestamptz_ns,"
            " long or string.",
        )
    parts = {spec_id: _parts(spec, found.field_id) for spec_id, spec in metadata.specs().items()}
    return TimeColumn(name, found.field_id, kind, {spec_id: made for spec_id, made in parts.items() if made})


def _parts(spec: PartitionSpec, field_id: int) -> tuple[TimePart, ...]:
    return tuple(
        TimePart(at, _IN_ORDER.get(type(one.transform), ""), getattr(one.transform, "width", 0))
        for at, one in enumerate(spec.fields)
        if one.source_id == field_id
    )


_PATHS = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")


def ground(
    table: Table, readable: Iterable[str], writable: Iterable[str], catalog: Mapping[str, str]
) -> TableLocations:
    """Where the files of the table lie; `catalog` are its catalog's properties, `writable` where files are deleted.

    Raises TableRefused("configuration") for malformed properties of the catalog.
    """
    metadata = table.metadata
    location = metadata.location.rstrip("/")
    named = [metadata.properties[key] for key in _PATHS if metadata.properties.get(key)]
    places = outermost(
        (f"{location}/data", f"{location}/metadata", data_location(metadata), metadata_location(metadata), *named)
    )
    settled = {
        key: parse_value(key, catalog.get(key, ""), settled_names) for key in ("equal-schemes", "equal-authorities")
    }
    return TableLocations(
        location=location,
        places=places,
        metadata_place=normalise(metadata_location(metadata)),
        flink_place=normalise(metadata.properties.get("flink.manifests.location") or metadata_location(metadata)),
        writable=tuple(writable),
        partition_fields=tuple(sorted({field.name for spec in metadata.partition_specs for field in spec.fields})),
        must_be_listed=_present(metadata, table.metadata_location, places),
        same_schemes=settled["equal-schemes"],
        same_authorities=settled["equal-authorities"],
        readable=tuple(readable),
    )


def _present(metadata: TableMetadata, location: str | None, places: Iterable[str]) -> tuple[str, ...]:
    """The files that a listing of those locations must find: the metadata file and the newest manifest list."""
    head = metadata.current_snapshot()
    files = [normalise(one) for one in (location, None if head is None else head.manifest_list) if one]
    return tuple(one for one in files if any(is_below(one, place) for place in places))
