"""Sends a staged commit once, and removes what one that did not land has written."""

from collections.abc import Callable, Iterable, Iterator

from pydantic import BaseModel, Field
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    SetPartitionStatisticsUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.utils.properties import property_as_bool

from amoro_core.errors import CommitConflict, CommitRefused, CommitUnknown, WorkFailed
from amoro_core.failpoints import failpoint
from amoro_core.files.storage.io import FileAccess
from amoro_core.iceberg.catalog.errors import (
    close_connections,
    error_text,
    is_lock,
    is_refusal,
    metadata_watched,
    unapplied,
)
from amoro_core.iceberg.commit.status_check import check_commit_status, earlier_states, manifests_of
from amoro_core.iceberg.maintenance.expiry import based_on, exact, is_older, is_removed, removed_by, writes_metadata
from amoro_core.iceberg.manifest.reading import read_manifest
from amoro_core.iceberg.metadata import commit_request, keys_of, order_id_of, ref_required, statistics_paths
from amoro_core.iceberg.pyiceberg_sandbox import refusing_lost_keys
from amoro_core.model.clustering import LayoutKey
from amoro_core.model.commits import (
    Evidence,
    RefAt,
    SnapshotAdded,
    SnapshotsRemoved,
    SortOrderAdded,
    StatisticsNamed,
    StatisticsRemoved,
    Trace,
)
from amoro_core.model.paths import is_within, normalise
from amoro_core.model.task_payload import MAP_ENDING


def trace_of(table: Table, evidence: Evidence) -> Trace:
    """Whether a change that was sent landed, by the table as just loaded. Raises like `check_commit_status`."""
    match evidence:
        case SnapshotAdded(snapshot_id, parent_id, sequence_number, files):
            return check_commit_status(table, snapshot_id, sequence_number, files, parent_id)
        case SnapshotsRemoved():
            return _trace_removal(table, evidence)
        case RefAt(name, snapshot_id):
            # It may have been moved or removed since. It can't be created any more if it points elsewhere.
            trace = _trace_state(table, snapshot_id, lambda state: _points(state, name, snapshot_id))
            return Trace.REFUTED if trace is Trace.OPEN and name in table.metadata.refs else trace
        case StatisticsNamed(snapshot_id, paths):
            # Others may have replaced them since.
            return _trace_state(table, snapshot_id, lambda state: statistics_paths(state).issuperset(paths))
        case SortOrderAdded(keys, metadata_location):
            if order_id_of(table.metadata, [LayoutKey(*key) for key in keys]):
                return Trace.LANDED
            is_base = not metadata_location or normalise(table.metadata_location) == normalise(metadata_location)
            return Trace.OPEN if is_base else Trace.REFUTED
        case StatisticsRemoved(_, paths):
            return Trace.OPEN if statistics_paths(table.metadata).intersection(paths) else Trace.LANDED


def _trace_removal(table: Table, wanted: SnapshotsRemoved) -> Trace:
    """Snapshots are removed together or not at all, and never come back under their ids (Iceberg's rule for sequence
    numbers), so if one is present the removal may still land. A state from before the change tells nothing. Refuted
    when a requirement of the change no longer holds; should it hold again and the change land, it removes what was
    planned."""
    metadata = table.metadata
    if is_older(metadata, wanted):
        return Trace.OPEN
    if is_removed(metadata, wanted):
        return Trace.LANDED
    place = normalise(wanted.metadata_location)
    if wanted.metadata_location and normalise(table.metadata_location) != place:
        return Trace.REFUTED
    refs = {name: ref.snapshot_id for name, ref in metadata.refs.items()}
    return Trace.OPEN if all(refs.get(name) == at for name, at in wanted.refs) else Trace.REFUTED


def _trace_state(table: Table, snapshot_id: int, shows: Callable[[TableMetadata], bool]) -> Trace:
    """Landed if the change shows now or in a state in the table's metadata log; refuted once its snapshot is gone."""
    if any(shows(state) for state in (table.metadata, *earlier_states(table))):
        return Trace.LANDED
    return Trace.OPEN if any(item.snapshot_id == snapshot_id for item in table.metadata.snapshots) else Trace.REFUTED


def _points(metadata: TableMetadata, name: str, snapshot_id: int) -> bool:
    ref = metadata.refs.get(name)
    return ref is not None and ref.snapshot_id == snapshot_id


#: Sendings of one commit in a row, while its requirements still hold but other commits are faster.
SENDINGS = 5


class _Payload(BaseModel):
    """The request, in the form of the REST catalog specification (CommitTableRequest)."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    #: The only state that it may be applied to, if the client writes the metadata file itself; not sent.
    metadata_location: str = Field(default="", alias="metadata-location")


def tag(table: Table, name: str, snapshot_id: int, max_age_ms: int | None, *, again: bool = False) -> bytes:
    """The payload that tags a snapshot of the table as just loaded; `again`: an existing tag of that name on it gets
    the age instead. Raises CommitConflict for a name that is in use, or a snapshot that is gone."""
    metadata = table.metadata
    snapshot_ref = metadata.refs.get(name)
    if snapshot_ref is not None and not (
        again and snapshot_ref.snapshot_id == snapshot_id and snapshot_ref.snapshot_ref_type is SnapshotRefType.TAG
    ):
        raise CommitConflict(f"the table has a branch or tag {name} already")
    if all(snapshot.snapshot_id != snapshot_id for snapshot in metadata.snapshots):
        raise CommitConflict(f"snapshot {snapshot_id} is not in the table any more")
    age = {} if max_age_ms is None else {"max-ref-age-ms": max_age_ms}
    update = {"action": "set-snapshot-ref", "ref-name": name, "type": "tag", "snapshot-id": snapshot_id, **age}
    return commit_request(table, [update], [ref_required(name, None if snapshot_ref is None else snapshot_id)])


def send(catalog: Catalog, table: Table, payload: bytes) -> tuple[str, ...]:
    """Send a staged commit, for the first time or again; when it returns, the commit is in the table.

    Returns the metadata files that are to be deleted with it by the table's properties. Raises CommitConflict or
    CommitRefused when the commit is known not to be applied; AccessDenied, StorageFull or CatalogUnavailable when this
    sending is known not to be applied, but another may be; CommitUnknown for any other error. What ends the process
    (KeyboardInterrupt, ...) propagates, and the outcome is unknown too.
    """
    request = _Payload.model_validate_json(payload)
    for again in reversed(range(SENDINGS)):
        try:
            return _send(catalog, table, request)
        except _StillRequired:
            if not again:
                raise
    raise AssertionError("the last sending neither landed nor failed")


class _StillRequired(CommitUnknown):
    """A change of refs alone conflicted with some other change, although its own requirements still hold.

    It is resent at once: of all sendings in transit at most one is applied. A commit that adds a snapshot waits for the
    next reconciliation instead, which looks at the table first.
    """


def _send(catalog: Catalog, table: Table, request: _Payload) -> tuple[str, ...]:
    removes = property_as_bool(table.metadata.properties, "write.metadata.delete-after-commit.enabled", False)
    try:
        with (
            metadata_watched(catalog) as came_before,
            based_on(catalog, request.metadata_location),
            refusing_lost_keys(catalog),
        ):
            table_response = catalog.commit_table(table, request.requirements, exact(catalog, request.updates))
    except Exception as error:
        close_connections(catalog, error)
        if not (isinstance(error, CommitFailedException) or is_refusal(error)):
            if came_before(error) or is_lock(error):
                raise unapplied(error) from error
            raise CommitUnknown(
                f"the catalog's answer does not tell whether the commit landed: {error_text(error)}"
            ) from error
        # Even then an earlier sending may have landed, or this one before the client retried it on its own.
        now = _reloaded(catalog, table, error)
        metadata = None if now is None else now.metadata
        if metadata is not None and _holds(metadata, table.metadata, request):
            return ()
        if now is not None and not _is_overtaken(now.metadata, request) and not _has_seen(now, table):
            raise CommitUnknown(
                f"the catalog answered {error_text(error)}, and then with an older state of the table than before"
            ) from error
        if isinstance(error, CommitFailedException) and now is not None and _may_still_land(now, request):
            kind = CommitUnknown if any(_sent(request)) else _StillRequired
            raise kind(
                f"the catalog answered {error_text(error)}, but the table is as the commit requires it"
            ) from error
        if isinstance(error, CommitFailedException) or (metadata is not None and _is_overtaken(metadata, request)):
            raise CommitConflict(f"the table changed before the commit: {error_text(error)}") from error
        raise CommitRefused(f"the catalog refused the commit: {error_text(error)}") from error

    # A REST catalog's metadata files are its own matter; pyiceberg removes them in its own commits alone.
    return _fallen(table.metadata, table_response.metadata) if removes and writes_metadata(catalog) else ()


def _fallen(before: TableMetadata, after: TableMetadata) -> tuple[str, ...]:
    """The metadata files that the log names no more."""
    named = {normalise(log_entry.metadata_file) for log_entry in after.metadata_log}
    return tuple(entry.metadata_file for entry in before.metadata_log if normalise(entry.metadata_file) not in named)


def _reloaded(catalog: Catalog, table: Table, reason: Exception) -> Table | None:
    """The table now; None when it is gone."""
    try:
        return catalog.load_table(table.name())
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as error:
        raise CommitUnknown(
            f"the catalog answered {error_text(reason)}, but the table can't be loaded to see whether the commit "
            f"landed: {error_text(error)}"
        ) from error


def _sent(request: _Payload) -> Iterator[Snapshot]:
    return (update.snapshot for update in request.updates if isinstance(update, AddSnapshotUpdate))


def _holds(metadata: TableMetadata, before: TableMetadata, request: _Payload) -> bool:
    """Whether the table shows the change that was requested of the state before."""
    if removal := removed_by(request.updates, before):
        return not is_older(metadata, removal) and is_removed(metadata, removal)
    ids, sent = {snapshot.snapshot_id for snapshot in metadata.snapshots}, list(_sent(request))
    if sent:
        return any(snapshot.snapshot_id in ids for snapshot in sent)
    applied: list[bool] = []
    for update in request.updates:
        match update:
            case SetSnapshotRefUpdate():
                applied.append(_points(metadata, update.ref_name, update.snapshot_id))
            case SetStatisticsUpdate():
                applied.append(update.statistics.statistics_path in statistics_paths(metadata))
            case UpgradeFormatVersionUpdate():
                applied.append(metadata.format_version >= update.format_version)
            case AddSortOrderUpdate():
                applied.append(order_id_of(metadata, keys_of(update.sort_order)) > 0)
            case SetPartitionStatisticsUpdate():
                applied.append(update.partition_statistics.statistics_path in statistics_paths(metadata))
    return bool(applied) and all(applied)


def _is_overtaken(metadata: TableMetadata, request: _Payload) -> bool:
    """Whether another commit, on any branch, took the sequence number: then it is staged again, not given up."""
    if metadata.format_version == 1:
        return False
    return any(metadata.last_sequence_number >= (snapshot.sequence_number or 0) for snapshot in _sent(request))


def _has_seen(now: Table, before: Table) -> bool:
    """Whether the state is the same as the other or a later one: a lagging replica may return an earlier state.

    The log holds the last states (`write.metadata.previous-versions-max`); if it is too short, the answer is no. A
    table that was replaced is not an older state.
    """
    if now.metadata.table_uuid != before.metadata.table_uuid:
        return True
    # REST catalogs may leave the location out.
    states = {now.metadata_location or "", *(entry.metadata_file for entry in now.metadata.metadata_log)}
    return normalise(before.metadata_location or "") in map(normalise, states)


def _may_still_land(now: Table, request: _Payload) -> bool:
    """Whether a sending that is still in transit would be applied to the table in its present state."""
    metadata, base = now.metadata, request.metadata_location
    if base and normalise(now.metadata_location) != normalise(base):
        return False
    try:
        for requirement in request.requirements:
            requirement.validate(metadata)
    except CommitFailedException:
        return False
    return not _is_overtaken(metadata, request)


def delete_unreferenced(table: Table, access: FileAccess, paths: Iterable[str], since: int = 0) -> tuple[str, ...]:
    """Delete those of the files that lie below the table's write locations and are not referenced by any snapshot,
    statistics entry or log entry of the table as just loaded. Returns the deleted ones, in the order given.

    `since`: a sequence number that the table had not reached when the files were written; what is older is not read.

    Raises DataFileMissing, UnreadableFile or CatalogUnavailable, with nothing deleted, when any manifest can't be read.
    """
    ours = [path for path in dict.fromkeys(paths) if _is_below(path, access.write_locations)]
    if not ours:
        return ()
    # Maps of positions are in no commit: a large table is not read for them.
    are_maps = all(path.endswith(MAP_ENDING) for path in ours)
    named = set() if are_maps else {normalise(path) for path in _named(table, since)}
    return tuple(path for path in ours if normalise(path) not in named and _is_deleted(access, path))


def _is_below(path: str, places: Iterable[str]) -> bool:
    place = normalise(path)
    return ".." not in place.split("/") and any(is_within(path, item) and place != normalise(item) for item in places)


def _is_deleted(access: FileAccess, path: str) -> bool:
    try:
        access.delete(path)
    except WorkFailed:
        return False
    failpoint("clean.after_file")
    return True


def _named(table: Table, since: int) -> Iterator[str]:
    """Every file that the metadata references, including those of removed entries, by snapshots since that number."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from statistics_paths(metadata)
    snapshots = [snapshot for snapshot in metadata.snapshots if (snapshot.sequence_number or 0) >= since]
    yield from (snapshot.manifest_list for snapshot in snapshots)
    for manifest in manifests_of(table.io, snapshots):
        if manifest.sequence_number < since:
            continue
        yield manifest.manifest_path
        yield from (entry.data_file.file_path for entry in read_manifest(table.io, manifest).entries)
