"""Whether a change landed, by what it leaves behind in the table."""

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from amoro_core.iceberg.expiry import is_gone, is_older
from amoro_core.iceberg.tracing import earlier_states, trace
from amoro_core.model.commits import (
    Evidence,
    RefAt,
    SnapshotAdded,
    SnapshotsGone,
    StatisticsGone,
    StatisticsNamed,
    Trace,
)
from amoro_core.model.paths import normalise


def trace_of(table: Table, evidence: Evidence) -> Trace:
    """What the table, loaded just now, says of a change that was sent.

    Raises as `trace`, CatalogUnavailable for earlier metadata files that can't be read.
    """
    match evidence:
        case SnapshotAdded(snapshot_id, parent_id, sequence_number, files):
            return trace(table, snapshot_id, sequence_number, files, parent_id)
        case SnapshotsGone():
            return _trace_gone(table, evidence)
        case RefAt():
            return _trace_ref(table, evidence)
        case StatisticsNamed():
            return _trace_statistics(table, evidence)
        case StatisticsGone(_, paths):
            return Trace.OPEN if _named(table.metadata).intersection(paths) else Trace.LANDED


def _trace_gone(table: Table, wanted: SnapshotsGone) -> Trace:
    """They are removed together or not at all; none of them ever comes back under its id (Iceberg's rule for sequence
    numbers), so one that is there may still be removed. A state from before the change says nothing. Refuted where the
    change requires what is not so any more: should that come back, and the change with it, it removes what it said."""
    metadata = table.metadata
    if is_older(metadata, wanted):
        return Trace.OPEN
    if is_gone(metadata, wanted):
        return Trace.LANDED
    place = normalise(wanted.metadata_location)
    if wanted.metadata_location and normalise(table.metadata_location) != place:
        return Trace.REFUTED
    refs = {name: ref.snapshot_id for name, ref in metadata.refs.items()}
    return Trace.OPEN if all(refs.get(name) == at for name, at in wanted.refs) else Trace.REFUTED


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


def _trace_statistics(table: Table, wanted: StatisticsNamed) -> Trace:
    """Landed where the files are named, now or in a state that the table's log still names: others may have replaced
    them since. They may be named as long as the snapshot is there; once it is gone nobody wants them any more."""
    if any(_names(metadata, wanted) for metadata in (table.metadata, *earlier_states(table))):
        return Trace.LANDED
    is_known = any(one.snapshot_id == wanted.snapshot_id for one in table.metadata.snapshots)
    return Trace.OPEN if is_known else Trace.REFUTED


def _names(metadata: TableMetadata, wanted: StatisticsNamed) -> bool:
    return _named(metadata).issuperset(wanted.paths)


def _named(metadata: TableMetadata) -> set[str]:
    return {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}
