"""The gate: tables with unsupported features are refused by name, before any work."""

from collections.abc import Mapping
from types import MappingProxyType

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import UnknownTransform
from pyiceberg.types import (
    DoubleType,
    FloatType,
    NestedField,
    StructType,
    strtobool,
)

from amoro_core.errors import TableRefused
from amoro_core.files.options import require_parquet, writer_options
from amoro_core.iceberg.column_refusals import refuse_columns
from amoro_core.iceberg.contradictions import refuse_contradictions, refuse_twice_live
from amoro_core.iceberg.entries import find_in_history
from amoro_core.iceberg.foreign import refuse_foreign, refuse_foreign_files
from amoro_core.iceberg.guards import LOCATION_PROVIDERS
from amoro_core.iceberg.merging import merge_settings
from amoro_core.live.files import LiveFiles
from amoro_core.model.config import effective_properties, welcomes_parquet
from amoro_core.model.files import DeleteFile, DeleteKind, TableScan
from amoro_core.model.properties import declared, parse_into
from amoro_core.records import record

#: The versions of the format that are handled; the others are refused for every action.
FORMATS: tuple[int, ...] = (1, 2, 3)
NO_DEFAULTS: Mapping[str, str] = MappingProxyType({})

_ENCRYPTION_KEYS = ("encryption.key-id", "encryption.data-key-length", "encryption.kms-type")


@record
class _ReadInCommits:
    """Properties that pyiceberg parses in the middle of a commit, where a malformed value would raise."""

    object_storage: bool = declared("write.object-storage.enabled", "false", strtobool)
    partitioned_paths: bool = declared("write.object-storage.partitioned-paths", "true", strtobool)
    removes_metadata: bool = declared("write.metadata.delete-after-commit.enabled", "false", strtobool)
    metadata_kept: int = declared("write.metadata.previous-versions-max", "100", int)


def refuse_unreadable(metadata: TableMetadata) -> None:
    """Raise TableRefused for what makes a table unreadable, by the metadata alone: format version, contradictions,
    encryption, transforms, types, defaults, names."""
    _refuse_format_version(metadata)
    refuse_contradictions(metadata)
    _refuse_encryption(metadata)
    _refuse_unknown_transforms(metadata)
    refuse_columns(metadata)


def refuse_table(metadata: TableMetadata, defaults: Mapping[str, str] = NO_DEFAULTS) -> None:
    """Raise TableRefused for what the metadata alone shows: unreadable tables, other formats, foreign code, the format
    to write, and malformed properties of commits and files.

    `defaults` are the catalog's properties, of which the defaults for its tables count.
    """
    refuse_foreign(metadata)
    refuse_unreadable(metadata)
    _refuse_foreign_code(metadata)
    merge_settings(metadata.properties)
    parse_into(_ReadInCommits, metadata.properties)
    if not welcomes_parquet(effective_properties(defaults, metadata.properties)):
        require_parquet(metadata.properties)
    writer_options(metadata.properties)


def refuse_files(metadata: TableMetadata, scan: TableScan) -> None:
    """Raise TableRefused for unsupported live files: those that are live twice or of another format, equality deletes
    whose columns can't be resolved, and those that apply to a file and compare columns which must not be keys."""
    refuse_twice_live(scan)
    refuse_foreign_files(LiveFiles.of(scan.files).columns.parts)
    applied = applied_deletes(scan)
    for delete in (*applied, *scan.dangling):
        if delete.kind is DeleteKind.EQUALITY:
            _refuse_equality_ids(metadata, delete)
    for delete in applied:
        if delete.kind is DeleteKind.EQUALITY:
            _refuse_inexact_keys(metadata, delete)


def applied_deletes(scan: TableScan) -> tuple[DeleteFile, ...]:
    """The distinct delete files that apply to a live data file."""
    return LiveFiles.of(scan.files).applied


def left_alone(metadata: TableMetadata) -> str | None:
    """Why a table under write-audit-publish is not optimized now: the name of a branch ahead of main; None without one.

    Rewriting main would make it impossible to publish the branch by fast-forward.
    """
    main = metadata.current_snapshot_id
    if main is None or metadata.properties.get("write.wap.enabled", "").strip().lower() != "true":
        return None
    parents = {one.snapshot_id: one.parent_snapshot_id for one in metadata.snapshots}
    for name, ref in sorted(metadata.refs.items()):
        if ref.snapshot_ref_type == "branch" and ref.snapshot_id != main and _descends(ref.snapshot_id, main, parents):
            return f"write-audit-publish: branch {name} is ahead of main and waits to be published"
    return None


def _descends(snapshot_id: int, ancestor_id: int, parents: dict[int, int | None]) -> bool:
    seen: set[int] = set()
    current: int | None = snapshot_id
    while current is not None and current not in seen:
        if current == ancestor_id:
            return True
        seen.add(current)
        current = parents.get(current)
    return False


def _refuse_format_version(metadata: TableMetadata) -> None:
    if metadata.format_version not in FORMATS:
        raise format_version_refused(str(metadata.format_version))


def format_version_refused(version: str) -> TableRefused:
    """The refusal of a table of that format version."""
    return TableRefused(
        f"format version {version} is not handled; {max(FORMATS)} is the highest that is",
        reason="format-version",
    )


def _refuse_foreign_code(metadata: TableMetadata) -> None:
    """pyiceberg loads the location provider in the middle of a commit, so it must be refused before."""
    name = metadata.properties.get("write.py-location-provider.impl")
    if name is not None and name not in LOCATION_PROVIDERS:
        raise TableRefused(
            f"the table's property write.py-location-provider.impl names {name}, which is not imported",
            reason="foreign-code",
            hint=f"Remove the property, or name one of {', '.join(sorted(LOCATION_PROVIDERS))}.",
        )


def _refuse_encryption(metadata: TableMetadata) -> None:
    if found := [key for key in _ENCRYPTION_KEYS if key in metadata.properties]:
        raise TableRefused(
            f"the table is encrypted: it has the property {found[0]}",
            reason="encryption",
            hint="Encrypted tables can't be optimized yet.",
        )


def _refuse_unknown_transforms(metadata: TableMetadata) -> None:
    for spec in metadata.partition_specs:
        for field in spec.fields:
            if isinstance(field.transform, UnknownTransform):
                raise TableRefused(
                    f"partition field {field.name} of spec {spec.spec_id} has the unknown transform"
                    f" {field.transform._transform}",
                    reason="transform",
                )


def _refuse_equality_ids(metadata: TableMetadata, delete: DeleteFile) -> None:
    if not delete.equality_ids:
        raise TableRefused(f"equality delete {delete.path} names no columns", reason="equality-ids")
    for field_id in delete.equality_ids:
        found = find_in_history(metadata, field_id)
        if found is None:
            raise TableRefused(
                f"equality delete {delete.path} names field {field_id}, which no schema of the table has",
                reason="equality-ids",
            )
        problem = _unusable(*found)
        if problem:
            raise TableRefused(
                f"equality delete {delete.path} names field {field_id} ({found[0].name}), {problem}",
                reason="equality-ids",
            )


def _refuse_inexact_keys(metadata: TableMetadata, delete: DeleteFile) -> None:
    """Refuse floating-point keys: bounds exclude NaN, so readers that use them skip a delete that others apply."""
    for field_id in delete.equality_ids:
        found = find_in_history(metadata, field_id)
        if found is not None and isinstance(found[0].field_type, FloatType | DoubleType):
            field, schema = found
            raise TableRefused(
                f"equality delete {delete.path} compares column {schema.find_column_name(field_id)} of the type"
                f" {field.field_type}, which Iceberg forbids in keys: readers disagree about what it deletes",
                reason="equality-ids",
                hint="Rewrite the table's data once with the engine that its readers use, such as Spark's"
                " rewrite_data_files with the option rewrite-all=true: then the delete applies to nothing.",
            )


def _unusable(field: NestedField, schema: Schema) -> str | None:
    if not field.field_type.is_primitive:
        return "which is not a primitive column"
    if any(not isinstance(schema.find_type(parent), StructType) for parent in _parents(schema, field.field_id)):
        return "which lies within a list or a map"
    return None


def _parents(schema: Schema, field_id: int) -> list[int]:
    found: list[int] = []
    while (parent := schema._lazy_id_to_parent.get(field_id)) is not None:
        found.append(parent)
        field_id = parent
    return found
