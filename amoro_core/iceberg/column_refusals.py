"""Columns that can't be read or written: by type, default, name, or as the source of a partition."""

from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DateType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    UnknownType,
)

from amoro_core.errors import TableRefused
from amoro_core.files.defaults import default_array
from amoro_core.iceberg.contradictions import fields_of

_TYPES_OF_3 = (TimestampNanoType, TimestamptzNanoType, UnknownType)
_FOREIGN_TYPES = (GeometryType, GeographyType)


def refuse_columns(metadata: TableMetadata) -> None:
    """Raise TableRefused ("transform", "type", "default", "names") for columns of the table's schemas."""
    _refuse_promoted_sources(metadata)
    _refuse_types(metadata)
    _refuse_defaults(metadata)
    _refuse_what_parquet_cannot_hold(metadata.schema())


def _refuse_promoted_sources(metadata: TableMetadata) -> None:
    """Refuse partitions by the values of a column that was a date: of those written before, the value is one of days,
    and manifests do not tell which."""
    schema = metadata.schema()
    for spec in metadata.partition_specs:
        for field in spec.fields:
            if not isinstance(field.transform, IdentityTransform) or field.source_id not in schema.field_ids:
                continue
            kind = schema.find_type(field.source_id)
            if isinstance(kind, TimestampType | TimestampNanoType) and _was_date(metadata, field.source_id):
                raise TableRefused(
                    f"partition field {field.name} of spec {spec.spec_id} is the value of a column that was promoted"
                    f" from date to {kind}",
                    reason="transform",
                    hint="Partition by day of the column, which both types have.",
                )


def _was_date(metadata: TableMetadata, field_id: int) -> bool:
    return any(
        field.field_id == field_id and isinstance(field.field_type, DateType)
        for schema in metadata.schemas
        for field in fields_of(schema)
    )


def _refuse_types(metadata: TableMetadata) -> None:
    schema = metadata.schema()
    for field_id in sorted(schema.field_ids):
        kind = schema.find_type(field_id)
        if isinstance(kind, _FOREIGN_TYPES) or (metadata.format_version < 3 and isinstance(kind, _TYPES_OF_3)):
            raise TableRefused(
                f"column {schema.find_column_name(field_id)} has the type {kind}, which is not handled", reason="type"
            )


def _refuse_defaults(metadata: TableMetadata) -> None:
    """Refuse initial defaults of earlier formats, which readers ignore, and those that are no values of their type."""
    for schema in metadata.schemas:
        for field in fields_of(schema):
            if field.initial_default is None:
                continue
            told = f"column {schema.find_column_name(field.field_id)} has the initial-default {field.initial_default!r}"
            if metadata.format_version < 3:
                raise TableRefused(f"{told}, which format {metadata.format_version} does not have", reason="default")
            try:
                default_array(field)
            except Exception as error:  # whatever a value of a wrong type makes of the conversions
                raise TableRefused(
                    f"{told}, which can't be read as {field.field_type}: {error}", reason="default"
                ) from error


def _refuse_what_parquet_cannot_hold(schema: Schema) -> None:
    """Refuse what has nothing to be written in a file, and names that are empty or collide in Java's spelling."""
    if schema.fields and not _is_held(schema.as_struct()):
        raise TableRefused("the table has no column that Parquet can hold", reason="type")
    for field_id in sorted(schema.field_ids):
        kind = schema.find_type(field_id)
        if _is_held(kind) or isinstance(kind, UnknownType):
            continue
        what = "without fields" if isinstance(kind, StructType) and not kind.fields else "of nothing but unknown values"
        raise TableRefused(
            f"column {schema.find_column_name(field_id)} is a {type(kind).__name__.removesuffix('Type').lower()}"
            f" {what}, which Parquet does not have",
            reason="type",
        )
    try:
        sanitize_column_names(schema)
    except ValueError as error:
        raise TableRefused(f"the columns' names cannot be written: {error}", reason="names") from error


def _is_held(kind: IcebergType) -> bool:
    """Whether Parquet can hold the type: files lack columns of the type unknown."""
    match kind:
        case UnknownType():
            return False
        case StructType():
            return any(_is_held(field.field_type) for field in kind.fields)
        case ListType():
            return _is_held(kind.element_type)
        case MapType():
            return _is_held(kind.key_type) and _is_held(kind.value_type)
    return True
