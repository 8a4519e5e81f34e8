"""Whether a commit attempt landed, by everything that the table still shows of it."""

from collections.abc import Iterable, Iterator, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import CatalogUnavailable, TableRefused
from amoro_core.iceberg.catalog.errors import error_text
from amoro_core.iceberg.commit.rewrite_files import MAIN
from amoro_core.iceberg.manifest.reading import read_list, read_manifest
from amoro_core.model.commits import Trace


def check_commit_status(
    table: Table, snapshot_id: int, sequence_number: int, files: Sequence[str], parent_snapshot_id: int | None = None
) -> Trace:
    """Whether an attempt landed, by the table as just loaded; `files` are the data and delete files it adds.

    Landed: its id is known (as a snapshot, in the snapshot log, as a parent, or in an earlier metadata file of the
    metadata log), or a manifest has an entry for one of its files, even a removed one. Refuted: none of that, and it
    can't be applied any more, since the last sequence number has reached its own; in format 1, since main has left its
    parent. The latter stays open if neither this state nor an earlier one in its log knows the parent: the catalog may
    have returned a state from before it. Raises what reading manifests raises, CatalogUnavailable also for earlier
    metadata files.

    An attempt that landed is reported as refuted if its snapshot, and the later ones that removed its files, have
    expired and the metadata files of that time have left the log. Its effect is then over: a new attempt finds the
    inputs gone, and no snapshot references what is cleaned up.
    """
    metadata = table.metadata
    if snapshot_id in _mentioned(metadata) or _is_named(table.io, metadata, sequence_number, frozenset(files)):
        return Trace.LANDED
    if metadata.format_version == 1:
        return _trace_by_parent(table, snapshot_id, parent_snapshot_id)
    if metadata.last_sequence_number < sequence_number:
        return Trace.OPEN
    return Trace.LANDED if _was_mentioned(table, snapshot_id, sequence_number) else Trace.REFUTED


def _trace_by_parent(table: Table, snapshot_id: int, parent_snapshot_id: int | None) -> Trace:
    """The trace in a table without sequence numbers: from this state and the earlier ones of its log."""
    main = table.metadata.refs.get(MAIN)
    if main is not None and main.snapshot_id == parent_snapshot_id:
        return Trace.OPEN
    knows_parent = parent_snapshot_id in _mentioned(table.metadata)
    for earlier in earlier_states(table):
        ids = _mentioned(earlier)
        if snapshot_id in ids:
            return Trace.LANDED
        knows_parent = knows_parent or parent_snapshot_id in ids
    return Trace.REFUTED if knows_parent else Trace.OPEN


def _mentioned(metadata: TableMetadata) -> set[int]:
    """The ids of all snapshots that the metadata mentions: only a commit can make one a parent."""
    return {
        *(snapshot.snapshot_id for snapshot in metadata.snapshots),
        *(snapshot.parent_snapshot_id for snapshot in metadata.snapshots if snapshot.parent_snapshot_id is not None),
        *(log_entry.snapshot_id for log_entry in metadata.snapshot_log),
    }


def _is_named(io: FileIO, metadata: TableMetadata, sequence_number: int, files: frozenset[str]) -> bool:
    """Whether any manifest has an entry for one of the files; even a removed one had been in the table."""
    # Manifests older than the attempt can't name its files.
    manifests = (item for item in manifests_of(io, metadata.snapshots) if item.sequence_number >= sequence_number)
    return bool(files) and any(
        entry.data_file.file_path in files for manifest in manifests for entry in read_manifest(io, manifest).entries
    )


def _was_mentioned(table: Table, snapshot_id: int, sequence_number: int) -> bool:
    """Whether an earlier metadata file in the table's log knows the snapshot."""
    for metadata in earlier_states(table):
        if snapshot_id in _mentioned(metadata):
            return True
        if metadata.format_version != 1 and metadata.last_sequence_number < sequence_number:
            return False  # it and all earlier ones precede the attempt
    return False


def earlier_states(table: Table) -> Iterator[TableMetadata]:
    """The readable earlier states in the table's metadata log, newest first. Raises CatalogUnavailable."""
    for entry in reversed(table.metadata.metadata_log):
        if (state := state_at(table, entry.metadata_file)) is not None:
            yield state


def state_at(table: Table, metadata_location: str) -> TableMetadata | None:
    """An earlier state of the table; None when it can't be read any more. Raises CatalogUnavailable."""
    try:
        return FromInputFile.table_metadata(table.io.new_input(metadata_location))
    except FileNotFoundError:
        return None  # it was removed
    except OSError as error:
        raise CatalogUnavailable(f"the metadata file {metadata_location} can't be read: {error_text(error)}") from error
    except (ValueError, TableRefused):
        return None  # not metadata (any more), or not allowed to be read


def manifests_of(io: FileIO, snapshots: Iterable[Snapshot]) -> list[ManifestFile]:
    """The distinct manifests of the snapshots."""
    paths = dict.fromkeys(snapshot.manifest_list for snapshot in snapshots)
    by_path = {file.manifest_path: file for path in paths for file in read_list(io, path)}
    return list(by_path.values())
