"""Refusal of tables whose metadata contradicts itself: readers disagree about their rows."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import ListType, MapType, NestedField, StructType

from amoro_core.errors import TableRefused
from amoro_core.iceberg.manifests import Manifest
from amoro_core.iceberg.row_ids import first_row_id_of
from amoro_core.live.files import LiveFiles
from amoro_core.model.files import TableScan
from amoro_core.model.paths import normalise

Item = TypeVar("Item", bound=Hashable)

MAIN = "main"
#: The limit of a file's bytes or rows, so that sums over many thousands of files fit into 64 bits.
MOST = 2**48
_GREATEST_NUMBER = 2**63 - 1  # a long


def refuse_contradictions(metadata: TableMetadata) -> None:
    """Raise TableRefused("metadata") for metadata that no writer makes: ids that are duplicate or dangling.

    Java's reader also refuses refs to unknown snapshots, and sequence numbers above the table's last one.
    """
    _refuse_ids(metadata)
    ids = {one.snapshot_id for one in metadata.snapshots}
    current = metadata.current_snapshot_id
    if current is not None and current not in ids:
        raise _refused(f"the table has no snapshot {current}, which current-snapshot-id names")
    for name, ref in sorted(metadata.refs.items()):
        if ref.snapshot_id not in ids:
            raise _refused(
                f"the {ref.snapshot_ref_type} {name} names snapshot {ref.snapshot_id}, which the table lacks"
            )
    main = metadata.refs.get(MAIN)
    if main is not None and main.snapshot_id != current:
        raise _refused(f"the branch main is at snapshot {main.snapshot_id}, but current-snapshot-id says {current}")
    if metadata.format_version != 1:
        for snapshot in metadata.snapshots:
            _refuse_number(snapshot, metadata.last_sequence_number)


def _refuse_ids(metadata: TableMetadata) -> None:
    named: tuple[tuple[str, Iterable[int]], ...] = (
        ("snapshots", (one.snapshot_id for one in metadata.snapshots)),
        ("schemas", (one.schema_id for one in metadata.schemas)),
        ("partition specs", (one.spec_id for one in metadata.partition_specs)),
        ("sort orders", (one.order_id for one in metadata.sort_orders)),
    )
    for what, given in named:
        if (twice := _twice(given)) is not None:
            raise _refused(f"two {what} have the id {twice}")
    for schema in metadata.schemas:
        if (twice := _twice(field.field_id for field in fields_of(schema))) is not None:
            raise _refused(f"two columns of schema {schema.schema_id} have the field id {twice}")
    for spec in metadata.partition_specs:
        if (twice := _twice(field.field_id for field in spec.fields)) is not None:
            raise _refused(f"two fields of partition spec {spec.spec_id} have the id {twice}")


def _twice(ids: Iterable[Item]) -> Item | None:
    """The first item that occurs more than once; None without one."""
    return next((one for one, count in Counter(ids).items() if count > 1), None)


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


def _refuse_number(snapshot: Snapshot, last: int) -> None:
    number = snapshot.sequence_number or 0
    if not 0 <= number <= last:
        raise _refused(
            f"snapshot {snapshot.snapshot_id} has the sequence number {number}, but the table's last one is {last}"
        )


def refuse_listed(metadata: TableMetadata, snapshot: Snapshot, manifests: Iterable[ManifestFile]) -> None:
    """Raise TableRefused("metadata") for manifests that the snapshot's list can't contain: of an unknown spec, newer
    than the snapshot, with row ids that are not given yet, or listed twice."""
    listed = list(manifests)
    specs, number = metadata.specs(), snapshot.sequence_number or 0
    if (twice := _twice(one.manifest_path for one in listed)) is not None:
        raise _refused(f"{snapshot.manifest_list} names the manifest {twice} twice")
    for one in listed:
        if one.partition_spec_id not in specs:
            raise _refused(
                f"the manifest {one.manifest_path} is of partition spec {one.partition_spec_id}, which the table lacks"
            )
        if one.sequence_number > number:
            raise _refused(
                f"the manifest {one.manifest_path} has the sequence number {one.sequence_number}, "
                f"but that of its snapshot {snapshot.snapshot_id} is {number}"
            )
        _refuse_row_ids(metadata, one)


def _refuse_row_ids(metadata: TableMetadata, manifest: ManifestFile) -> None:
    """Refuse row ids that the table would give again: its next one is above all, whoever wrote the list."""
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
    live = manifest.live
    counts = (file.added_files_count, file.existing_files_count)
    if None not in counts and sum(one or 0 for one in counts) != len(live):
        raise _refused(
            f"the manifest {path} has {len(live)} live files, but its list says {sum(one or 0 for one in counts)}"
        )
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
    deletes = [(normalise(one.path), one.identity.offset) for one in (*live.applied, *scan.dangling)]
    both = live.ids_of(path for path, offset in deletes if not offset)
    if (delete := _twice(deletes)) is not None:
        twice: str | None = delete[0]
    else:
        twice = normalise(live.columns.paths[both[0]].as_py()) if len(both) else live.columns.names.repeated()
    if twice is not None:
        raise _refused(f"{twice} is live more than once in snapshot {scan.snapshot_id}")


def _refused(message: str) -> TableRefused:
    return TableRefused(message, reason="metadata")
