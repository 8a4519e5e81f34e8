"""Writing manifest lists (Iceberg specification, "Manifest Lists"): of all formats, as pyiceberg writes none of 3."""

from collections.abc import Sequence
from typing import Any

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, UNASSIGNED_SEQ, ManifestContent, ManifestFile
from pyiceberg.typedef import TableVersion

from amoro_core.iceberg.avro import CODEC, RECORD_VERSION
from amoro_core.iceberg.row_ids import ROW_IDS_SINCE, assign_row_ids, with_first_row_id
from amoro_core.records import record


@record
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
    ids: tuple[int | None, ...] = (None,) * len(manifests)
    if listing.format_version >= ROW_IDS_SINCE:
        if first is None:
            raise ValueError(f"snapshot {listing.snapshot_id} of format {listing.format_version} has no first row id")
        assigned = assign_row_ids(manifests, first)
        ids, rows = assigned.first_row_ids, assigned.rows
    listed = [_listed(listing, one, row_id) for one, row_id in zip(manifests, ids, strict=True)]
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
    said = {
        "snapshot-id": str(listing.snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "format-version": str(listing.format_version),
        "avro.codec": CODEC,
    }
    if listing.format_version > 1:
        said["sequence-number"] = str(listing.sequence_number)
    if listing.format_version >= ROW_IDS_SINCE:
        said["first-row-id"] = str(listing.first_row_id)
    return said


def _listed(listing: Listing, manifest: ManifestFile, first_row_id: int | None) -> ManifestFile:
    """The manifest as the list names it, with the numbers that it gets now."""
    if listing.format_version == 1 and manifest.content != ManifestContent.DATA:
        raise ValueError("format 1 has no delete files")
    is_new = UNASSIGNED_SEQ in (manifest.sequence_number, manifest.min_sequence_number)
    if is_new and manifest.added_snapshot_id != listing.snapshot_id:
        raise ValueError(
            f"the manifest {manifest.manifest_path} of snapshot {manifest.added_snapshot_id} has no sequence number"
        )
    named = with_first_row_id(manifest, first_row_id)
    if named.sequence_number == UNASSIGNED_SEQ:
        named.sequence_number = listing.sequence_number
    if named.min_sequence_number == UNASSIGNED_SEQ:
        named.min_sequence_number = listing.sequence_number
    return named
