"""Whether a change landed, by what it leaves behind in the table."""

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from amoro_core.iceberg.tracing import earlier_states, trace
from amoro_core.model.commits import Evidence, RefAt, SnapshotAdded, SnapshotsGone, Trace


def trace_of(table: Table, evidence: Evidence) -> Trace:
    """What the table, loaded just now, says of a change that was sent.

    Raises as `trace`, CatalogUnavailable for earlier metadata files that can't be read.
    """
    match evidence:
        case SnapshotAdded(snapshot_id, parent_id, sequence_number, files):
            return trace(table, snapshot_id, sequence_number, files, parent_id)
        case SnapshotsGone(snapshot_ids):
            return _trace_gone(table.metadata, snapshot_ids)
        case RefAt():
            return _trace_ref(table, evidence)


def _trace_gone(metadata: TableMetadata, snapshot_ids: tuple[int, ...]) -> Trace:
    """They are removed together or not at all; none of them ever comes back under its id (Iceberg's rule for sequence
    numbers), so one that is there may still be removed."""
    known = {one.snapshot_id for one in metadata.snapshots}
    return Trace.OPEN if known.intersection(snapshot_ids) else Trace.LANDED


def _trace_ref(table: Table, wanted: RefAt) -> Trace:
    """Landed where the reference points there, now or in a state that the table's log still names: somebody may have
    moved or removed it since. Refuted where it can't be made any more: it points elsewhere, or the snapshot is gone."""
    if any(_points(metadata, wanted) for metadata in (table.metadata, *earlier_states(table))):
        return Trace.LANDED
    is_known = any(one.snapshot_id == wanted.snapshot_id for one in table.metadata.snapshots)
    return Trace.OPEN if is_known and wanted.name not in table.metadata.refs else Trace.REFUTED


def _points(metadata: TableMetadata, wanted: RefAt) -> bool:
    found = metadata.refs.get(wanted.name)
    return found is not None and found.snapshot_id == wanted.snapshot_id
