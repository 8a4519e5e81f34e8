"""Tables that are refused: other formats, inconsistent metadata, unsupported columns and features.

Tables of other formats that look like Iceberg are detected by the traces of their writers. Treating one as plain
Iceberg loses or resurrects rows: files of Amoro's Mixed format contain both inserts and deletes, and metadata that
another format generates over its own files is a copy that is regenerated from there.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform, UnknownTransform
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    UnknownType,
    UUIDType,
    strtobool,
)

from amoro_core.errors import TableRefused
from amoro_core.files.schema.schemas import default_array
from amoro_core.files.schema.write_options import require_parquet, writer_options
from amoro_core.iceberg.manifest.avro import first_row_id_of
from amoro_core.iceberg.manifest.reading import (
    Manifest,
    find_in_history,
    history_from,
    live_files,
    parents_of,
    summary_of,
)
from amoro_core.iceberg.manifest.writing import merge_settings
from amoro_core.iceberg.metadata import bound_key, commit_request, committed_at
from amoro_core.iceberg.pyiceberg_sandbox import LOCATION_PROVIDERS, UPGRADED
from amoro_core.model.files import ColumnMetrics, DeleteFile, DeleteIdentity, DeleteKind, ScannedFile, TableScan
from amoro_core.model.optimizing_config import effective_properties, welcomes_parquet
from amoro_core.model.paths import normalise
from amoro_core.model.properties import declared, parse_into
from amoro_core.scan.columns import Paths
from amoro_core.scan.live_files import LiveFiles

#: Amoro's property of its own tables, including both stores of the Mixed format.
_TABLE_FORMAT = "table-format"
_OTHER_FORMATS = {
    "MIXED_ICEBERG": "a table of Amoro's Mixed-Iceberg format",
    "MIXED_HIVE": "a table of Amoro's Mixed-Hive format",
    "PAIMON": "a Paimon table",
    "HUDI": "a Hudi table",
    "DELTA": "a table of Delta Lake",
}
_STORE = "mixed-format.table-store"
_STORES = ("base", "change")
_MIXED_HIVE = "arctic.enabled"
#: Properties that only the named tool writes, in metadata that it generates over another format's files.
_COPIES = (
    (re.compile(r"delta-version|delta-timestamp|base-delta-version|delta-high-water-mark"), "Delta Lake (UniForm)"),
    (re.compile(r"delta\.universalformat\..*", re.IGNORECASE), "Delta Lake (UniForm)"),
    (re.compile(r"XTABLE_.+|ONETABLE_.+|INFLIGHT_COMMITS_TO_CONSIDER_FOR_NEXT_SYNC"), "Apache XTable"),
    (re.compile(r"metadata\.iceberg\..*"), "Paimon"),
)
_XTABLE = "XTABLE_METADATA"
_PAIMON_COMMIT = "paimon-commit-identity"
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
#: Paimon numbers its manifest lists; Iceberg's writers name them by snapshot and attempt.
_PAIMON_LIST = re.compile(rf"snap-[0-9]+-{_UUID}\.avro")


def refuse_foreign(metadata: TableMetadata) -> None:
    """Raise TableRefused("format") for a table of another format, or a copy of one, by its metadata alone."""
    if error := _mixed(metadata.properties):
        raise error
    if mark := _copied(metadata):
        owner, where = mark
        raise TableRefused(
            f"the table's Iceberg metadata is a copy that {owner} makes over its own files: {where}",
            reason="format",
            hint=f"Optimize the table where it is written, with {owner.split(' (')[0]}'s own tools.",
        )


def refuse_mixed_hive(parameters: Mapping[str, str]) -> None:
    """Raise TableRefused("format") for a Hive table whose parameters mark it as Mixed-Hive."""
    if parameters.get(_MIXED_HIVE, "").strip().lower() == "true" and (error := _mixed(parameters)):
        raise error


def refuse_foreign_files(parts: Iterable[Paths]) -> None:
    """Raise TableRefused("format") when at least half of these data files are named like those of a Mixed table, which
    may be registered in a catalog without its properties."""
    columns = list(parts)
    files = sum(len(part.array) for part in columns)
    count = sum(part.shape.mixed for part in columns)
    first = next((part.shape.first_mixed for part in columns if part.shape.mixed), None)
    if count and 2 * count >= files:
        raise TableRefused(
            f"{count} of {files} data files are named as those of Amoro's Mixed format, such as {first}",
            reason="format",
            hint="Such a store holds inserts and deletes as data. Optimize it with Amoro.",
        )


def _mixed(properties: Mapping[str, str]) -> TableRefused | None:
    named = properties.get(_TABLE_FORMAT, "")
    store = properties.get(_STORE, "").strip().lower()
    if other := _OTHER_FORMATS.get(named.strip().upper().replace("-", "_")):
        problem = f"it is {other}: {_TABLE_FORMAT}={named}"
    elif store in _STORES:
        problem = f"it is a {store} store of Amoro's Mixed format: {_STORE}={properties[_STORE]}"
    elif properties.get(_MIXED_HIVE, "").strip().lower() == "true":
        problem = f"it is {_OTHER_FORMATS['MIXED_HIVE']}: {_MIXED_HIVE}={properties[_MIXED_HIVE]}"
    else:
        return None
    if store == "change" and _STORE not in problem:
        problem += f", its change store ({_STORE}={properties[_STORE]})"
    return TableRefused(
        f"the table is not a plain Iceberg table: {problem}",
        reason="format",
        hint="Optimize it with the tools of its own format; here it can only be observed.",
    )


def _copied(metadata: TableMetadata) -> tuple[str, str] | None:
    """The format that generates the copy, and the trace of it; None for Iceberg's own metadata."""
    for key, value in sorted(metadata.properties.items()):
        for pattern, owner in _COPIES:
            if pattern.fullmatch(key):
                return owner, f"it has the property {key}" if len(value) > 80 else f"it has the property {key}={value}"
    for snapshot in metadata.snapshots:
        if copier := _copier(snapshot):
            return copier, f"snapshot {snapshot.snapshot_id} is as {copier} writes it"
    return None


def _copier(snapshot: Snapshot) -> str | None:
    summary = summary_of(snapshot)
    if _XTABLE in summary:
        return "Apache XTable"
    if _PAIMON_COMMIT in summary:
        return "Paimon"
    # Paimon uses its own number for both; Iceberg's writers draw ids at random.
    is_numbered = snapshot.sequence_number is not None and snapshot.snapshot_id == snapshot.sequence_number > 0
    if is_numbered and _PAIMON_LIST.fullmatch(snapshot.manifest_list.rsplit("/", 1)[-1]):
        return "Paimon"
    return None


Item = TypeVar("Item", bound=Hashable)

#: The limit of a file's bytes or rows, so that sums over many thousands of files fit into 64 bits.
MOST = 2**48
_GREATEST_NUMBER = 2**63 - 1  # a long


def refuse_contradictions(metadata: TableMetadata) -> None:
    """Raise TableRefused("metadata") for metadata that no writer makes: duplicate or dangling ids, times in no year;
    and, as Java's reader does, for refs to unknown snapshots and sequence numbers above the table's last one."""
    _refuse_ids(metadata)
    ids = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    current = metadata.current_snapshot_id
    if current is not None and current not in ids:
        raise _refused(f"the table has no snapshot {current}, which current-snapshot-id names")
    for name, ref in sorted(metadata.refs.items()):
        if ref.snapshot_id not in ids:
            raise _refused(
                f"the {ref.snapshot_ref_type} {name} names snapshot {ref.snapshot_id}, which the table lacks"
            )
    main = metadata.refs.get("main")
    if main is not None and main.snapshot_id != current:
        raise _refused(f"the branch main is at snapshot {main.snapshot_id}, but current-snapshot-id says {current}")
    for snapshot in metadata.snapshots:
        committed_at(snapshot)
    if metadata.format_version != 1:
        last = metadata.last_sequence_number
        for snapshot in metadata.snapshots:
            if not 0 <= (number := snapshot.sequence_number or 0) <= last:
                where = f"snapshot {snapshot.snapshot_id} has the sequence number {number}"
                raise _refused(f"{where}, but the table's last one is {last}")


def _refuse_ids(metadata: TableMetadata) -> None:
    named: tuple[tuple[str, Iterable[int]], ...] = (
        ("snapshots", (snapshot.snapshot_id for snapshot in metadata.snapshots)),
        ("schemas", (schema.schema_id for schema in metadata.schemas)),
        ("partition specs", (partition_spec.spec_id for partition_spec in metadata.partition_specs)),
        ("sort orders", (order.order_id for order in metadata.sort_orders)),
    )
    for noun, given in named:
        if (twice := _twice(given)) is not None:
            raise _refused(f"two {noun} have the id {twice}")
    for schema in metadata.schemas:
        if (twice := _twice(field.field_id for field in fields_of(schema))) is not None:
            raise _refused(f"two columns of schema {schema.schema_id} have the field id {twice}")
    for spec in metadata.partition_specs:
        if (twice := _twice(field.field_id for field in spec.fields)) is not None:
            raise _refused(f"two fields of partition spec {spec.spec_id} have the id {twice}")


def _twice(ids: Iterable[Item]) -> Item | None:
    """The first item that occurs more than once; None without one."""
    return next((id for id, count in Counter(ids).items() if count > 1), None)


def fields_of(schema: Schema) -> Iterator[NestedField]:
    """Every field at every level; the schema's own indexes would keep only one field for each id."""
    waiting = list(schema.fields)
    while waiting:
        field = waiting.pop()
        yield field
        kind = field.field_type
        if isinstance(kind, StructType):
            waiting += kind.fields
        elif isinstance(kind, ListType):
            waiting.append(kind.element_field)
        elif isinstance(kind, MapType):
            waiting += (kind.key_field, kind.value_field)


def refuse_listed(metadata: TableMetadata, snapshot: Snapshot, manifests: Iterable[ManifestFile]) -> None:
    """Raise TableRefused("metadata") for manifests that the snapshot's list can't contain: of an unknown spec, newer
    than the snapshot, with row ids that are not given yet, or listed twice."""
    listed = list(manifests)
    specs, number = metadata.specs(), snapshot.sequence_number or 0
    if (twice := _twice(manifest_file.manifest_path for manifest_file in listed)) is not None:
        raise _refused(f"{snapshot.manifest_list} names the manifest {twice} twice")
    for item in listed:
        if item.partition_spec_id not in specs:
            spec = f"partition spec {item.partition_spec_id}, which the table lacks"
            raise _refused(f"the manifest {item.manifest_path} is of {spec}")
        if item.sequence_number > number:
            raise _refused(
                f"the manifest {item.manifest_path} has the sequence number {item.sequence_number}, "
                f"but that of its snapshot {snapshot.snapshot_id} is {number}"
            )
        _refuse_row_ids(metadata, item)


def _refuse_row_ids(metadata: TableMetadata, manifest: ManifestFile) -> None:
    """Refuse row ids that the table would assign again: its next one must be above all of them."""
    first = first_row_id_of(manifest)
    if first is None or not isinstance(metadata, TableMetadataV3):
        return
    end = first + (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
    if first < 0 or end > (metadata.next_row_id or 0):
        raise _refused(
            f"the manifest {manifest.manifest_path} has row ids from {first} to {end - 1}, but the table's next-row-id "
            f"is {metadata.next_row_id}"
        )


def refuse_manifest(manifest: Manifest, spec_fields: int) -> None:
    """Raise TableRefused("metadata") for a manifest that contradicts itself or its manifest list.

    `spec_fields` is the number of fields of the partition spec. Row counts are checked when files are read.
    """
    file, header, path = manifest.file, manifest.header, manifest.file.manifest_path
    kind = "data" if file.content == ManifestContent.DATA else "deletes"
    if header.content is not None and header.content != kind:
        raise _refused(f"the manifest {path} says that it holds {header.content}, but its list says {kind}")
    if header.own_spec_id is not None and header.own_spec_id != str(file.partition_spec_id):
        raise _refused(
            f"the manifest {path} says that it is of partition spec {header.own_spec_id}, but its list says "
            f"{file.partition_spec_id}"
        )
    if len(header.partition_type.fields) != spec_fields:
        raise _refused(
            f"the manifest {path} has partitions of {len(header.partition_type.fields)} fields, but partition spec "
            f"{file.partition_spec_id} has {spec_fields}"
        )
    live, listed = manifest.live, live_files(file)
    if listed not in (None, len(live)):
        raise _refused(f"the manifest {path} has {len(live)} live files, but its list says {listed}")
    for entry in live:
        if flaw := _flaw(entry, file):
            raise _refused(f"the manifest {path} contradicts itself about {entry.data_file.file_path}: {flaw}")


def _flaw(entry: ManifestEntry, manifest: ManifestFile) -> str | None:
    file, number = entry.data_file, entry.sequence_number
    is_data = file.content == DataFileContent.DATA
    if is_data != (manifest.content == ManifestContent.DATA):
        return f"it is {'a data file among deletes' if is_data else 'a delete file among data files'}"
    if number is not None and not 0 <= number <= min(manifest.sequence_number, _GREATEST_NUMBER):
        return f"its sequence number is {number}, that of the manifest {manifest.sequence_number}"
    if not 0 <= file.record_count < MOST:
        return f"it has {file.record_count} rows"
    if not 0 <= file.file_size_in_bytes < MOST:
        return f"it has {file.file_size_in_bytes} bytes"
    if file.record_count and not file.file_size_in_bytes:
        return f"it has {file.record_count} rows in 0 bytes"
    return None


def refuse_twice_live(scan: TableScan) -> None:
    """Raise TableRefused("metadata") for a file that is live more than once: some readers return its rows twice."""
    live = LiveFiles.of(scan.files)
    deletes = [(normalise(delete.path), delete.identity.offset) for delete in (*live.applied, *scan.dangling)]
    both = live.ids_of(path for path, offset in deletes if not offset)
    if (delete := _twice(deletes)) is not None:
        twice: str | None = delete[0]
    else:
        twice = normalise(live.columns.paths[both[0]].as_py()) if len(both) else live.columns.names.repeated()
    if twice is not None:
        raise _refused(f"{twice} is live more than once in snapshot {scan.snapshot_id}")


def _refused(message: str) -> TableRefused:
    return TableRefused(message, reason="metadata")


_TYPES_OF_3 = (TimestampNanoType, TimestamptzNanoType, UnknownType)
_FOREIGN_TYPES = (GeometryType, GeographyType)


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
            text = f"column {schema.find_column_name(field.field_id)} has the initial-default {field.initial_default!r}"
            if metadata.format_version < 3:
                raise TableRefused(f"{text}, which format {metadata.format_version} does not have", reason="default")
            try:
                default_array(field)
            except Exception as error:  # whatever a value of a wrong type makes of the conversions
                raise TableRefused(
                    f"{text}, which can't be read as {field.field_type}: {error}", reason="default"
                ) from error


def _refuse_what_parquet_cannot_hold(schema: Schema) -> None:
    """Refuse what has nothing to be written in a file, and names that are empty or collide in Java's spelling."""
    if schema.fields and not _is_storable(schema.as_struct()):
        raise TableRefused("the table has no column that Parquet can hold", reason="type")
    for field_id in sorted(schema.field_ids):
        kind = schema.find_type(field_id)
        if _is_storable(kind) or isinstance(kind, UnknownType):
            continue
        lack = "without fields" if isinstance(kind, StructType) and not kind.fields else "of nothing but unknown values"
        raise TableRefused(
            f"column {schema.find_column_name(field_id)} is a {type(kind).__name__.removesuffix('Type').lower()}"
            f" {lack}, which Parquet does not have",
            reason="type",
        )
    try:
        sanitize_column_names(schema)
    except ValueError as error:
        raise TableRefused(f"the columns' names cannot be written: {error}", reason="names") from error


def _is_storable(kind: IcebergType) -> bool:
    """Whether Parquet can hold the type: files lack columns of the type unknown."""
    match kind:
        case UnknownType():
            return False
        case StructType():
            return any(_is_storable(field.field_type) for field in kind.fields)
        case ListType():
            return _is_storable(kind.element_type)
        case MapType():
            return _is_storable(kind.key_type) and _is_storable(kind.value_type)
    return True


#: The versions of the format that are handled; the others are refused for every action.
FORMATS: tuple[int, ...] = (1, 2, 3)
NO_DEFAULTS: Mapping[str, str] = MappingProxyType({})

_ENCRYPTION_KEYS = ("encryption.key-id", "encryption.data-key-length", "encryption.kms-type")


@dataclass(frozen=True, slots=True)
class _ReadInCommits:
    """Properties that pyiceberg parses in the middle of a commit, where a malformed value would raise."""

    object_storage: bool = declared("write.object-storage.enabled", "false", strtobool)
    partitioned_paths: bool = declared("write.object-storage.partitioned-paths", "true", strtobool)
    removes_metadata: bool = declared("write.metadata.delete-after-commit.enabled", "false", strtobool)
    metadata_kept: int = declared("write.metadata.previous-versions-max", "100", int)


def refuse_unreadable(metadata: TableMetadata) -> None:
    """Raise TableRefused for what makes a table unreadable, by the metadata alone: format version, contradictions,
    encryption, transforms, types, defaults, names."""
    if metadata.format_version not in FORMATS:
        raise format_version_refused(str(metadata.format_version))
    refuse_contradictions(metadata)
    _refuse_encryption(metadata)
    _refuse_unknown_transforms(metadata)
    _refuse_promoted_sources(metadata)
    _refuse_types(metadata)
    _refuse_defaults(metadata)
    _refuse_what_parquet_cannot_hold(metadata.schema())


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
    applied = LiveFiles.of(scan.files).applied
    for delete in (*applied, *scan.dangling):
        if delete.kind is DeleteKind.EQUALITY:
            _refuse_equality_ids(metadata, delete)
    for delete in applied:
        if delete.kind is DeleteKind.EQUALITY:
            _refuse_inexact_keys(metadata, delete)


def unpublished_branch(metadata: TableMetadata) -> str | None:
    """Why a table under write-audit-publish is not optimized now: a branch is ahead of main, and rewriting main would
    make it impossible to publish it by fast-forward; None without one."""
    main = metadata.current_snapshot_id
    if main is None or metadata.properties.get("write.wap.enabled", "").strip().lower() != "true":
        return None
    for name, ref in sorted(metadata.refs.items()):
        if ref.snapshot_ref_type != "branch" or ref.snapshot_id == main:
            continue
        if any(snapshot.snapshot_id == main for snapshot in history_from(metadata, ref.snapshot_id)):
            return f"write-audit-publish: branch {name} is ahead of main and waits to be published"
    return None


def format_version_refused(version: str) -> TableRefused:
    """The refusal of a table of that format version."""
    return TableRefused(
        f"format version {version} is not handled; {max(FORMATS)} is the highest that is", reason="format-version"
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
    if keys := [key for key in _ENCRYPTION_KEYS if key in metadata.properties]:
        raise TableRefused(
            f"the table is encrypted: it has the property {keys[0]}",
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
        pair = find_in_history(metadata, field_id)
        if pair is None:
            raise TableRefused(
                f"equality delete {delete.path} names field {field_id}, which no schema of the table has",
                reason="equality-ids",
            )
        problem = _unusable(*pair)
        if problem:
            raise TableRefused(
                f"equality delete {delete.path} names field {field_id} ({pair[0].name}), {problem}",
                reason="equality-ids",
            )


def _refuse_inexact_keys(metadata: TableMetadata, delete: DeleteFile) -> None:
    """Refuse floating-point keys: bounds exclude NaN, so readers that use them skip a delete that others apply."""
    for field_id in delete.equality_ids:
        pair = find_in_history(metadata, field_id)
        if pair is not None and isinstance(pair[0].field_type, FloatType | DoubleType):
            field, schema = pair
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
    if any(not isinstance(schema.find_type(parent), StructType) for parent in parents_of(schema, field.field_id)):
        return "which lies within a list or a map"
    return None


def stage_upgrade(table: Table, *, own_metadata: bool) -> bytes:
    """The payload that upgrades the table as just loaded; `own_metadata` as in `commit_request`."""
    update = {"action": "upgrade-format-version", "format-version": UPGRADED}
    return commit_request(table, [update], own_metadata=own_metadata)


def stage_properties(table: Table, changes: Mapping[str, str | None], *, own_metadata: bool) -> bytes:
    """The payload that sets these properties of the table as loaded, and removes those that are None here.

    All others stay as they are, also those that another writer sets meanwhile. Raises TableRefused.
    """
    refuse_foreign(table.metadata)
    refuse_unreadable(table.metadata)
    wanted = {key: value for key, value in changes.items() if value is not None}
    removed = [key for key in changes if key not in wanted]
    updates: list[Mapping[str, object]] = [{"action": "set-properties", "updates": wanted}] if wanted else []
    updates += [{"action": "remove-properties", "removals": removed}] if removed else []
    return commit_request(table, updates, own_metadata=own_metadata)


@dataclass(frozen=True, slots=True)
class _Key:
    """A key column as interpreted by one side; `order` converts bounds to values that compare, None: no bound."""

    field_id: int
    may_be_null: bool
    order: Callable[[bytes], Any]


#: The key columns as specified, and as Java interprets them.
_Keys = tuple[list[_Key], list[_Key]]


def disputed_deletes(metadata: TableMetadata, files: Iterable[ScannedFile]) -> frozenset[DeleteIdentity]:
    """The equality deletes that may delete rows of any of the files and that Java skips there."""
    by_ids: dict[tuple[int, ...], _Keys | None] = {}
    result: set[DeleteIdentity] = set()
    for file in files:
        for delete in file.deletes:
            if delete.kind is not DeleteKind.EQUALITY or delete.identity in result:
                continue
            if delete.equality_ids not in by_ids:
                by_ids[delete.equality_ids] = _keys(metadata, delete.equality_ids)
            keys = by_ids[delete.equality_ids]
            if keys is not None:
                specified, java = (_may_meet(side, file.data.metrics, delete.metrics) for side in keys)
                if specified and not java:
                    result.add(delete.identity)
    return frozenset(result)


def _keys(metadata: TableMetadata, field_ids: Iterable[int]) -> _Keys | None:
    """The key columns as interpreted by both sides; None if they agree whatever the bounds."""
    specified, java = list[_Key](), list[_Key]()
    for field_id in field_ids:
        pair = find_in_history(metadata, field_id)
        if pair is None:
            return None
        field, schema = pair
        # Bounds of floating-point columns exclude NaN, so they rule out nothing.
        is_inexact = isinstance(field.field_type, FloatType | DoubleType)
        order = bound_key(UnknownType() if is_inexact else field.field_type)
        is_required = all(schema.find_field(id).required for id in (field_id, *parents_of(schema, field_id)))
        specified.append(_Key(field_id, not is_required, order))
        java_order = _with_sign if isinstance(field.field_type, UUIDType) else order
        java.append(_Key(field_id, not field.required, java_order))
    return None if specified == java else (specified, java)


def _may_meet(keys: Iterable[_Key], data: ColumnMetrics, delete: ColumnMetrics) -> bool:
    """Whether the file may contain, in every key column, a value of the delete: by null counts and bounds."""
    for key in keys:
        if _may_hold_null(data, key) and _may_hold_null(delete, key):
            continue
        if _is_all_null(data, key) and not _may_hold_null(delete, key):
            return False
        if _is_all_null(delete, key) and not _may_hold_null(data, key):
            return False
        if not _overlap(key, data, delete):
            return False
    return True


def _overlap(key: _Key, data: ColumnMetrics, delete: ColumnMetrics) -> bool:
    """Whether the ranges overlap; an unknown bound counts as overlapping."""
    maps = (data.lower_bounds, data.upper_bounds, delete.lower_bounds, delete.upper_bounds)
    bounds: list[Any] = [None if (bound := part.get(key.field_id)) is None else key.order(bound) for part in maps]
    return None in bounds or (bounds[0] <= bounds[3] and bounds[2] <= bounds[1])


def _may_hold_null(metrics: ColumnMetrics, key: _Key) -> bool:
    return key.may_be_null and metrics.null_value_counts.get(key.field_id, 1) > 0


def _is_all_null(metrics: ColumnMetrics, key: _Key) -> bool:
    nulls = metrics.null_value_counts.get(key.field_id)
    return key.may_be_null and nulls is not None and nulls == metrics.value_counts.get(key.field_id)


def _with_sign(value: bytes) -> tuple[int, ...]:
    """The order of `java.util.UUID`: two signed numbers."""
    return tuple(int.from_bytes(half, "big", signed=True) for half in (value[:8], value[8:]))
