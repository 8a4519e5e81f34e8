"""Whether a change landed, by its evidence in the table."""

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from amoro_core.iceberg.expiry import is_gone, is_older
from amoro_core.iceberg.sort_orders import layout_keys, order_id_of
from amoro_core.iceberg.tracing import earlier_states, trace
from amoro_core.model.commits import (
    Evidence,
    RefAt,
    SnapshotAdded,
    SnapshotsGone,
    SortOrderAdded,
    StatisticsGone,
    StatisticsNamed,
    Trace,
)
from amoro_core.model.paths import normalise


def trace_of(table: Table, evidence: Evidence) -> Trace:
    """Whether a change that was sent landed, according to the table as just loaded.

    Raises like `trace`, CatalogUnavailable for earlier metadata files that can't be read.
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
        case SortOrderAdded(_, metadata_location):
            if order_id_of(table.metadata, layout_keys(evidence)):
                return Trace.LANDED
            is_base = not metadata_location or normalise(table.metadata_location) == normalise(metadata_location)
            return Trace.OPEN if is_base else Trace.REFUTED
        case StatisticsGone(_, paths):
            return Trace.OPEN if _named(table.metadata).intersection(paths) else Trace.LANDED


def _trace_gone(table: Table, wanted: SnapshotsGone) -> Trace:
    """Snapshots are removed together or not at all, and never come back under their ids (Iceberg's rule for sequence
    numbers), so if one is present the removal may still land. A state from before the change tells nothing. Refuted
    when a requirement of the change no longer holds; should it hold again and the change land, it removes what was
    planned."""
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
    """Landed if the reference points to the snapshot, now or in a state in the table's metadata log: it may have been
    moved or removed since. Refuted if it can't be created any more: it points elsewhere, or the snapshot is gone."""
    if any(_points(metadata, wanted) for metadata in (table.metadata, *earlier_states(table))):
        return Trace.LANDED
    is_known = any(one.snapshot_id == wanted.snapshot_id for one in table.metadata.snapshots)
    return Trace.OPEN if is_known and wanted.name not in table.metadata.refs else Trace.REFUTED


def _points(metadata: TableMetadata, wanted: RefAt) -> bool:
    found = metadata.refs.get(wanted.name)
    return found is not None and found.snapshot_id == wanted.snapshot_id


def _trace_statistics(table: Table, wanted: StatisticsNamed) -> Trace:
    """Landed if the files are referenced, now or in a state in the table's metadata log: others may have replaced them
    since. Open as long as the snapshot exists; once it is gone they are not needed any more."""
    if any(_names(metadata, wanted) for metadata in (table.metadata, *earlier_states(table))):
        return Trace.LANDED
    is_known = any(one.snapshot_id == wanted.snapshot_id for one in table.metadata.snapshots)
    return Trace.OPEN if is_known else Trace.REFUTED


def _names(metadata: TableMetadata, wanted: StatisticsNamed) -> bool:
    return _named(metadata).issuperset(wanted.paths)


def _named(metadata: TableMetadata) -> set[str]:
    return {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}
