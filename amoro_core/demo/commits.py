"""Commits of rows and deletes like those of an engine, retried on conflicts with the optimizer."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent, ManifestFile, write_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, UpdateMetrics
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
)

from amoro_core.errors import CommitConflict
from amoro_core.iceberg.manifest_writing import added_entry, new_header, write_manifest
from amoro_core.model.files import DataFile, DeleteFile
from amoro_core.model.tables import TableIdentifier
from amoro_core.records import record

#: More often than a concurrent optimizer can ever conflict.
_ATTEMPTS = 50
_COUNTED = ("data-files", "delete-files", "records", "files-size", "position-deletes", "equality-deletes")


@record
class RowDelta:
    """New files of one snapshot; they get its sequence number."""

    data: tuple[DataFile, ...] = ()
    deletes: tuple[DeleteFile, ...] = ()


def commit(catalog: Catalog, identifier: TableIdentifier, build: Callable[[Table], RowDelta]) -> RowDelta:
    """Commit what `build` makes for the head, rebuilt for each try; returns what was committed.

    Raises CommitConflict after too many conflicts.
    """
    for _ in range(_ATTEMPTS):
        table = catalog.load_table(identifier.in_catalog)
        delta = build(table)
        if _is_committed(catalog, table, delta):
            return delta
    raise CommitConflict(f"{identifier} changed {_ATTEMPTS} times while a commit was made")


def _is_committed(catalog: Catalog, table: Table, delta: RowDelta) -> bool:
    """Whether the commit was applied; False when the table has changed since it was loaded."""
    metadata = table.metadata
    head = metadata.current_snapshot()
    snapshot_id, name = metadata.new_snapshot_id(), str(uuid.uuid4())
    metrics = UpdateMetrics()
    added = list(_manifests(table, delta, snapshot_id, name, metrics))
    kept = [one for one in head.manifests(table.io) if _is_live(one)] if head else []
    path = f"{metadata.location}/metadata/snap-{snapshot_id}-1-{name}.avro"
    parent_id = head.snapshot_id if head else None
    number = metadata.next_sequence_number()
    with write_manifest_list(2, table.io.new_output(path), snapshot_id, parent_id, number, "deflate") as output:
        output.add_manifests([*added, *kept])
    snapshot = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": parent_id,
        "sequence-number": number,
        "timestamp-ms": max(time.time_ns() // 1_000_000, metadata.last_updated_ms + 1),
        "manifest-list": path,
        "summary": _summary(delta, metrics, head),
        "schema-id": metadata.current_schema_id,
    }
    requirements = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": parent_id}),
    )
    updates = (
        AddSnapshotUpdate(snapshot=Snapshot.model_validate(snapshot)),
        SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}),
    )
    try:
        catalog.commit_table(table, requirements, updates)
    except CommitFailedException:
        for file in (path, *(one.manifest_path for one in added)):
            with suppress(OSError):
                table.io.delete(file)
        return False
    return True


def _manifests(
    table: Table, delta: RowDelta, snapshot_id: int, name: str, metrics: UpdateMetrics
) -> Iterator[ManifestFile]:
    metadata = table.metadata
    parts: tuple[tuple[ManifestContent, Sequence[DataFile | DeleteFile]], ...] = (
        (ManifestContent.DATA, delta.data),
        (ManifestContent.DELETES, delta.deletes),
    )
    header = new_header(metadata, metadata.default_spec_id)
    for content, files in parts:
        if not files:
            continue
        numbered = [replace(file, sequence_number=metadata.next_sequence_number()) for file in files]
        entries = [added_entry(file, header, snapshot_id) for file in numbered]
        for entry in entries:
            metrics.add_file(entry.data_file)
        path = f"{metadata.location}/metadata/{name}-{content.name.lower()}.avro"
        yield write_manifest(table.io, path, 2, content, header, snapshot_id, entries)


def _is_live(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()


def _summary(delta: RowDelta, metrics: UpdateMetrics, head: Snapshot | None) -> dict[str, str]:
    """Counts of what is added and, if the head has totals, the new totals."""
    counts = metrics.to_dict()
    before = head.summary.additional_properties if head and head.summary else {}
    totals = {
        f"total-{name}": str(int(before.get(f"total-{name}", 0)) + int(counts.get(f"added-{name}", 0)))
        for name in _COUNTED
    }
    return {"operation": "overwrite" if delta.deletes else "append", **counts, **totals}
