"""A new snapshot of main being written: its files, and the request that adds it."""

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from amoro_core.files.io import translated
from amoro_core.iceberg.caching import ManifestReader
from amoro_core.iceberg.list_writing import Listing, write_list
from amoro_core.iceberg.manifest_writing import existing_entry, write_manifest
from amoro_core.iceberg.manifests import ManifestHeader, read_manifest
from amoro_core.iceberg.metadata import metadata_location
from amoro_core.iceberg.row_ids import ROW_IDS_SINCE, first_new_row_id, with_first_row_id
from amoro_core.model.commits import StagedCommit

MAIN = "main"
#: The versions of Iceberg's format that can be written.
FORMAT_VERSIONS = (1, 2, 3)

#: Totals of a snapshot's summary, each with what is added and what is removed.
_TOTALS = (
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("total-equality-deletes", "added-equality-deletes", "removed-equality-deletes"),
)


@dataclass(slots=True)
class Draft:
    """A snapshot that is not visible yet; discarded on failure."""

    table: Table
    snapshot_id: int
    sequence_number: int
    read: ManifestReader = read_manifest
    splices: bool = True  # whether data manifests may be written without decoding them
    written: list[str] = field(default_factory=list)
    own: dict[str, Sequence[ManifestEntry]] = field(default_factory=dict)  # of the manifests written, by path
    spliced: dict[str, ManifestFile] = field(default_factory=dict)  # written without decoding, by path
    numbered: int = 0
    name: str = field(default_factory=lambda: str(uuid.uuid4()))

    def path(self, name: str) -> str:
        """The path of a new file of that name below the table's metadata location."""
        path = f"{metadata_location(self.table.metadata)}/{name}"
        # Before the first byte, so that a partly written file is cleaned up too.
        self.written.append(path)
        return path

    def manifest(
        self, content: ManifestContent, header: ManifestHeader, entries: Sequence[ManifestEntry]
    ) -> ManifestFile:
        """Write the entries as a new manifest of the snapshot."""
        path = self._next_path()
        version = self.table.metadata.format_version
        with translated(path):
            done = write_manifest(self.table.io, path, version, content, header, self.snapshot_id, entries)
        self.own[path] = entries
        return done

    def stored(self, content: bytes, listed: ManifestFile) -> ManifestFile:
        """Write a new manifest that is encoded already; `listed` describes it but for its path."""
        path = self._next_path()
        with translated(path), self.table.io.new_output(path).create(overwrite=True) as target:
            target.write(content)
        listed[0] = path
        self.spliced[path] = listed
        return listed

    def _next_path(self) -> str:
        path = self.path(f"{self.name}-m{self.numbered}.avro")
        self.numbered += 1
        return path

    def entries(self, file: ManifestFile) -> Sequence[ManifestEntry]:
        """The entries of a manifest to carry over: all of our own manifests', the live ones of others."""
        if file.manifest_path in self.own:
            return self.own[file.manifest_path]
        if file.manifest_path in self.spliced:
            # Each entry has its own row id; none has one where the manifest has none.
            has_ids = self.table.metadata.format_version >= ROW_IDS_SINCE
            return read_manifest(self.table.io, with_first_row_id(file, 0 if has_ids else None)).entries
        return [existing_entry(entry) for entry in self.read(self.table.io, file).live]

    def is_own(self, path: str) -> bool:
        """Whether the manifest was written for this snapshot."""
        return path in self.own or path in self.spliced

    def drop(self, path: str) -> None:
        """Delete a manifest of our own that was merged into another."""
        with suppress(Exception):  # it is then cleaned up with everything written
            self.table.io.delete(path)
            self.written.remove(path)

    def discard(self) -> None:
        """Delete everything written."""
        for path in self.written:
            with suppress(Exception):  # the error of staging matters more
                self.table.io.delete(path)

    def finish(
        self, parent: Snapshot, manifests: Sequence[ManifestFile], operation: str, summary: Mapping[str, str]
    ) -> StagedCommit:
        """Write the manifest list, and make the request that adds the snapshot on main's head, which is `parent`.

        New manifests take the snapshot's sequence number, and row ids from the table's next one on. Raises
        TableRefused("metadata") for a table of format 3 without a next row id.
        """
        metadata = self.table.metadata
        first_row_id = first_new_row_id(metadata)
        path = self.path(f"snap-{self.snapshot_id}-1-{self.name}.avro")
        with translated(path):
            listing = Listing(
                metadata.format_version, self.snapshot_id, parent.snapshot_id, self.sequence_number, first_row_id
            )
            rows = write_list(self.table.io, path, listing, manifests)
        snapshot = {
            "snapshot-id": self.snapshot_id,
            "parent-snapshot-id": parent.snapshot_id,
            # Format 1 has none.
            **({"sequence-number": self.sequence_number} if self.sequence_number else {}),
            "timestamp-ms": _timestamp_ms(metadata, parent),
            "manifest-list": path,
            "summary": {**summary, "operation": operation},
            "schema-id": metadata.current_schema_id,
            **({} if first_row_id is None else {"first-row-id": first_row_id, "added-rows": rows}),
        }
        return StagedCommit(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent.snapshot_id,
            sequence_number=self.sequence_number,
            manifest_list=path,
            payload=_payload(metadata, parent.snapshot_id, snapshot),
            metadata_files=tuple(self.written),
        )


def _timestamp_ms(metadata: TableMetadata, parent: Snapshot) -> int:
    """Now, but later than every time in the table's metadata, whatever the clocks of other writers."""
    logged = (entry.timestamp_ms for entry in metadata.snapshot_log)
    latest = max((metadata.last_updated_ms, parent.timestamp_ms, *logged))
    return max(time.time_ns() // 1_000_000, latest + 1)


#: A valid total in the parent's summary; writers may have put anything there.
_COUNT = re.compile(r"[0-9]{1,18}")


def totals(parent: Snapshot, counts: Mapping[str, Any]) -> dict[str, str]:
    """The totals of a snapshot's summary: its parent's, if any, plus the changes in the counts."""
    before = parent.summary.additional_properties if parent.summary else {}
    return {
        total: str(value)
        for total, added, removed in _TOTALS
        if _COUNT.fullmatch(str(before.get(total, "")))
        and (value := int(before[total]) + int(counts.get(added, 0)) - int(counts.get(removed, 0))) >= 0
    }


def _payload(metadata: TableMetadata, parent_id: int, snapshot: Mapping[str, Any]) -> bytes:
    """The request in the form of the REST catalog specification."""
    main = metadata.refs[MAIN]
    # The update replaces the whole ref: its retention must be repeated.
    retention = {
        "min-snapshots-to-keep": main.min_snapshots_to_keep,
        "max-snapshot-age-ms": main.max_snapshot_age_ms,
        "max-ref-age-ms": main.max_ref_age_ms,
    }
    moved = {
        "action": "set-snapshot-ref",
        "ref-name": MAIN,
        "type": "branch",
        "snapshot-id": snapshot["snapshot-id"],
        **{key: value for key, value in retention.items() if value is not None},
    }
    request = {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)},
            {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": parent_id},
        ],
        "updates": [{"action": "add-snapshot", "snapshot": snapshot}, moved],
    }
    return json.dumps(request, separators=(",", ":")).encode()
