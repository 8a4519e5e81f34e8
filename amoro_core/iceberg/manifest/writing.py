"""Writing manifests (Iceberg specification, "Manifests").

pyiceberg's Avro encoder is used, but not its manifest writer: it puts every entry into a block of its own, writes
equality ids as longs, which Java can't read, and omits the schema id and the referenced data file.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from pydantic_core import to_json
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.manifest import DataFile as EntryFile
from pyiceberg.manifest import FileFormat as EntryFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import NestedField, PrimitiveType, StructType

from amoro_core.errors import UnreadableFile
from amoro_core.iceberg.manifest.avro import (
    CODEC,
    RECORD_VERSION,
    ROW_IDS_SINCE,
    EntryOutput,
    assign_row_ids,
    entry_schema,
    with_first_row_id,
)
from amoro_core.iceberg.manifest.reading import (
    METRICS,
    Manifest,
    ManifestHeader,
    find_in_history,
    live_files,
    partition_types,
    schemas_newest_first,
    to_record,
)
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind
from amoro_core.model.properties import boolean, declared, duration, parse_into, whole

#: Readers decode a block as a whole: many entries are fast to read, few need little memory.
ENTRIES_IN_A_BLOCK = 500

_STATUS_NAMES = {
    ManifestEntryStatus.ADDED: "added",
    ManifestEntryStatus.EXISTING: "existing",
    ManifestEntryStatus.DELETED: "deleted",
}


def new_header(metadata: TableMetadata, spec_id: int) -> ManifestHeader:
    """The header for new files of a spec, with a schema that has the spec's source columns if there is one."""
    spec = metadata.specs()[spec_id]
    types = partition_types(metadata, spec)
    pairs = [pair for field in spec.fields if (pair := find_in_history(metadata, field.source_id))]
    sources = {pair[0].field_id for pair in pairs}
    schemas = schemas_newest_first(metadata)
    schema = next((item for item in schemas if sources <= item.field_ids), schemas[0])
    fields = [
        NestedField(field.field_id, field.name, kind, required=False)
        for field, kind in zip(spec.fields, types, strict=True)
    ]
    return ManifestHeader(
        spec_id=spec_id,
        spec_json=to_json(spec.fields, by_alias=True).decode(),
        schema_json=schema.model_dump_json(),
        schema_id=str(schema.schema_id),
        partition_type=StructType(*fields),
    )


def added_entry(file: DataFile | DeleteFile, header: ManifestHeader, snapshot_id: int) -> ManifestEntry:
    """The entry of a file that is new or comes back, with an explicit data sequence number, and its first row id if it
    has one; its file sequence number is inherited."""
    return ManifestEntry.from_args(
        _table_format_version=RECORD_VERSION,
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=file.sequence_number,
        file_sequence_number=None,
        data_file=_entry_file(file, header),
    )


def _entry_file(file: DataFile | DeleteFile, header: ManifestHeader) -> EntryFile:
    types = tuple(_primitive(field.field_type) for field in header.partition_type.fields)
    own = _data_fields(file) if isinstance(file, DataFile) else _delete_fields(file)
    done = EntryFile.from_args(
        _table_format_version=RECORD_VERSION,
        file_path=file.path,
        file_format=EntryFormat(file.file_format.value),
        partition=to_record(file.partition, types),
        record_count=file.record_count,
        file_size_in_bytes=file.size_bytes,
        **{name: dict(getattr(file.metrics, name)) or None for name in METRICS},
        split_offsets=list(file.split_offsets) or None,
        **own,
    )
    done.spec_id = file.spec_id
    return done


def _primitive(kind: Any) -> PrimitiveType:
    if not isinstance(kind, PrimitiveType):
        raise UnreadableFile(f"a partition field has the type {kind}")
    return kind


def _data_fields(file: DataFile) -> dict[str, Any]:
    return {
        "content": DataFileContent.DATA,
        "sort_order_id": file.sort_order_id,
        # A file that comes back by an undo keeps its rows' ids; a new one has none before its commit.
        "first_row_id": file.first_row_id,
    }


def _delete_fields(file: DeleteFile) -> dict[str, Any]:
    if file.kind is DeleteKind.EQUALITY:
        return {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": list(file.equality_ids)}
    return {
        "content": DataFileContent.POSITION_DELETES,
        "referenced_data_file": file.referenced_data_file,
        "content_offset": file.content_offset,
        "content_size_in_bytes": file.content_size_bytes,
    }


def existing_entry(entry: ManifestEntry) -> ManifestEntry:
    """The entry carried over from another manifest: its snapshot id, both sequence numbers and row ids are kept."""
    return _restated(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)


def deleted_entry(entry: ManifestEntry, snapshot_id: int) -> ManifestEntry:
    """The entry of a file that the snapshot removes; both sequence numbers and the row ids are kept."""
    return _restated(entry, ManifestEntryStatus.DELETED, snapshot_id)


def _restated(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        _table_format_version=RECORD_VERSION,
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def write_manifest(
    io: FileIO,
    path: str,
    format_version: TableVersion,
    content: ManifestContent,
    header: ManifestHeader,
    snapshot_id: int,
    entries: Sequence[ManifestEntry],
) -> ManifestFile:
    """Write a new manifest and return its entry for the manifest list. Raises ValueError without entries. Its
    min_sequence_number is that of the live entries, so that no commit drops a delete that they still need."""
    if not entries:
        raise ValueError("a manifest needs at least one entry")
    output = io.new_output(path)
    with EntryOutput(
        output_file=output,
        file_schema=entry_schema(format_version, header.partition_type),
        record_schema=entry_schema(RECORD_VERSION, header.partition_type),
        schema_name="manifest_entry",
        metadata=_manifest_metadata(format_version, content, header),
    ) as writer:
        for start in range(0, len(entries), ENTRIES_IN_A_BLOCK):
            writer.write_block(list(entries[start : start + ENTRIES_IN_A_BLOCK]))
    live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=len(io.new_input(path)),
        partition_spec_id=header.spec_id,
        content=content,
        sequence_number=UNASSIGNED_SEQ,
        min_sequence_number=min((_number(entry) for entry in live), default=UNASSIGNED_SEQ),
        added_snapshot_id=snapshot_id,
        **_counts(entries),
        partitions=partition_summaries(header.partition_type, (entry.data_file.partition for entry in entries)),
        key_metadata=None,
    )


def _number(entry: ManifestEntry) -> int:
    if entry.sequence_number is None:
        raise UnreadableFile(f"the manifest entry of {entry.data_file.file_path} lacks its sequence number")
    return entry.sequence_number


def _manifest_metadata(
    format_version: TableVersion, content: ManifestContent, header: ManifestHeader
) -> dict[str, str]:
    """The metadata of a manifest file beside the schema of its entries."""
    schema_id = header.schema_id
    if schema_id is None:
        schema_id = str(json.loads(header.schema_json).get("schema-id", 0))
    common = {
        "schema": header.schema_json,
        "schema-id": schema_id,
        "partition-spec": header.spec_json,
        "partition-spec-id": str(header.spec_id),
        "format-version": str(format_version),
        "avro.codec": CODEC,
    }
    if format_version == 1:
        return common
    return common | {"content": "data" if content == ManifestContent.DATA else "deletes"}


def partition_summaries(partition_type: StructType, partitions: Iterable[Record]) -> list[PartitionFieldSummary]:
    """For each partition field, whether there are nulls and NaNs, and the bounds of the other values."""
    rows = list(partitions)
    types = [_primitive(field.field_type) for field in partition_type.fields]
    return [_summary(kind, [row[at] for row in rows]) for at, kind in enumerate(types)]


def _summary(kind: PrimitiveType, values: Sequence[Any]) -> PartitionFieldSummary:
    present = [value for value in values if value is not None]
    numbers = [value for value in present if value == value]
    lower, upper = (min(numbers, key=_order), max(numbers, key=_order)) if numbers else (None, None)
    return PartitionFieldSummary(
        len(present) < len(values),
        len(numbers) < len(present),
        None if lower is None else to_bytes(kind, lower),
        None if upper is None else to_bytes(kind, upper),
    )


def _order(value: Any) -> Any:
    """A sort key in Iceberg's order: −0.0 is below 0.0."""
    return (value, math.copysign(1.0, value)) if isinstance(value, float) else value


def counted(manifest: Manifest) -> ManifestFile:
    """The manifest's entry for a manifest list with its counts, which lists of format 1 may lack."""
    names = (field.name for field in MANIFEST_LIST_FILE_SCHEMAS[RECORD_VERSION].fields)
    values = dict(zip(names, manifest.file._data, strict=False))
    return ManifestFile.from_args(_table_format_version=RECORD_VERSION, **values | _counts(manifest.entries))


def _counts(entries: Iterable[ManifestEntry]) -> dict[str, Any]:
    """Numbers of files and rows by status, as a manifest list names them."""
    counts = {f"{status}_{noun}_count": 0 for status in _STATUS_NAMES.values() for noun in ("files", "rows")}
    for entry in entries:
        status = _STATUS_NAMES[entry.status]
        counts[f"{status}_files_count"] += 1
        counts[f"{status}_rows_count"] += entry.data_file.record_count
    return counts


@dataclass(frozen=True, slots=True)
class Listing:
    """What a manifest list says about its snapshot."""

    format_version: TableVersion
    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int  # 0 in format 1
    first_row_id: int | None = None  # the table's next one, from format 3 on


def write_list(io: FileIO, path: str, listing: Listing, manifests: Sequence[ManifestFile]) -> int:
    """Write a manifest list; new manifests take the snapshot's sequence number, and in format 3 first row ids.

    Returns how many row ids were assigned. Raises ValueError for a new manifest of another snapshot, for deletes in
    format 1, and like `assign_row_ids`; what the storage raises.
    """
    first, rows = listing.first_row_id, 0
    ids: Sequence[int | None] = (None,) * len(manifests)
    if listing.format_version >= ROW_IDS_SINCE:
        if first is None:
            raise ValueError(f"snapshot {listing.snapshot_id} of format {listing.format_version} has no first row id")
        ids, rows = assign_row_ids(manifests, first)
    listed = [_listed(listing, manifest, row_id) for manifest, row_id in zip(manifests, ids, strict=True)]
    with AvroOutputFile[ManifestFile](
        output_file=io.new_output(path),
        file_schema=MANIFEST_LIST_FILE_SCHEMAS[listing.format_version],
        record_schema=MANIFEST_LIST_FILE_SCHEMAS[RECORD_VERSION],
        schema_name="manifest_file",
        metadata=_metadata(listing),
    ) as writer:
        writer.write_block(listed)
    return rows


def _metadata(listing: Listing) -> dict[str, Any]:
    parent = listing.parent_snapshot_id
    metadata = {
        "snapshot-id": str(listing.snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "format-version": str(listing.format_version),
        "avro.codec": CODEC,
    }
    if listing.format_version > 1:
        metadata["sequence-number"] = str(listing.sequence_number)
    if listing.format_version >= ROW_IDS_SINCE:
        metadata["first-row-id"] = str(listing.first_row_id)
    return metadata


def _listed(listing: Listing, manifest: ManifestFile, first_row_id: int | None) -> ManifestFile:
    """The manifest as the list names it, with the numbers that it gets now."""
    if listing.format_version == 1 and manifest.content != ManifestContent.DATA:
        raise ValueError("format 1 has no delete files")
    is_new = UNASSIGNED_SEQ in (manifest.sequence_number, manifest.min_sequence_number)
    if is_new and manifest.added_snapshot_id != listing.snapshot_id:
        raise ValueError(
            f"the manifest {manifest.manifest_path} of snapshot {manifest.added_snapshot_id} has no sequence number"
        )
    manifest_file = with_first_row_id(manifest, first_row_id)
    if manifest_file.sequence_number == UNASSIGNED_SEQ:
        manifest_file.sequence_number = listing.sequence_number
    if manifest_file.min_sequence_number == UNASSIGNED_SEQ:
        manifest_file.min_sequence_number = listing.sequence_number
    return manifest_file


T = TypeVar("T")
Bin = tuple[ManifestFile, ...]
_UNCOUNTED = 2**31

ENABLED_KEY = "commit.manifest-merge.enabled"
MIN_COUNT_KEY = "commit.manifest.min-count-to-merge"
TARGET_SIZE_KEY = "commit.manifest.target-size-bytes"
BUDGET_KEY = "self-optimizing.commit.manifest-merge-budget"

#: To read an entry and write it again: 20,000 entries with metrics of ten columns took 6.2 s of CPU.
ENTRY_COST = timedelta(microseconds=300)


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """The table's properties of merging; the defaults are Iceberg's, but for the budget, which it does not have."""

    enabled: bool = declared(ENABLED_KEY, "true", boolean)
    min_count: int = declared(MIN_COUNT_KEY, "100", whole(0))
    target_bytes: int = declared(TARGET_SIZE_KEY, "8388608", whole(1))
    budget: timedelta = declared(BUDGET_KEY, "1s", duration)


def merge_settings(properties: Mapping[str, str]) -> MergeSettings:
    """The settings in the table's properties. Raises TableRefused("configuration") for a malformed value."""
    return parse_into(MergeSettings, properties)


def in_bins(manifests: Sequence[ManifestFile], settings: MergeSettings) -> Iterator[tuple[ManifestFile, ...]]:
    """Bins of manifests of one content and spec, newest first, each to become one manifest. They are filled in order
    from the oldest, so that only the newest one is not full; it is merged once it has the minimum count: otherwise each
    commit would rewrite it."""
    if not settings.enabled:
        yield from ((manifest_file,) for manifest_file in manifests)
        return
    by_spec: dict[int, list[ManifestFile]] = {}
    for manifest in manifests:
        by_spec.setdefault(manifest.partition_spec_id, []).append(manifest)
    for group in by_spec.values():
        for manifest_files in packed(group, lambda item: item.manifest_length, settings.target_bytes):
            is_newest = any(manifest_file is manifests[0] for manifest_file in manifest_files)
            if is_newest and len(manifest_files) < settings.min_count:
                yield from ((manifest_file,) for manifest_file in manifest_files)
            else:
                yield manifest_files


def within_budget(bins: Iterable[Bin], settings: MergeSettings) -> Iterator[Bin]:
    """The bins, those split that exceed the rest of the budget. Manifests whose list does not count their entries
    exceed any."""
    room = settings.budget // ENTRY_COST
    for manifests in bins:
        entries = sum(map(_entries, manifests)) if len(manifests) > 1 else 0
        if entries > room:
            yield from ((manifest,) for manifest in manifests)
            continue
        room -= entries
        yield manifests


def _entries(manifest: ManifestFile) -> int:
    live, deleted = live_files(manifest), manifest.deleted_files_count
    return _UNCOUNTED if live is None or deleted is None else live + deleted


def packed(items: Sequence[T], size: Callable[[T], int], target: int) -> list[tuple[T, ...]]:
    """The items in order, in bins of at most the target size (or of a single item), filled from the end."""
    bins: list[list[T]] = []
    room = 0
    for item in reversed(items):
        if bins and size(item) <= room:
            bins[-1].append(item)
        else:
            bins.append([item])
            room = target
        room -= size(item)
    return [tuple(reversed(slot)) for slot in reversed(bins)]
