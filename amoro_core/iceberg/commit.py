"""The commit of a rewrite: staged as manifests, sent as one request, traced when nobody knows whether it landed."""

import json
from collections.abc import Iterable, Iterator

from pydantic import BaseModel, Field
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetPartitionStatisticsUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
)

from amoro_core.errors import CommitConflict, CommitRefused, CommitUnknown, WorkFailed
from amoro_core.failpoints import failpoint
from amoro_core.files.io import FileAccess
from amoro_core.iceberg.expiry import based_on, exact, is_gone, is_older, removed_by
from amoro_core.iceberg.manifests import read_manifest
from amoro_core.iceberg.refusals import is_lock, is_refusal, let_go, metadata_watched, unapplied
from amoro_core.iceberg.saying import said
from amoro_core.iceberg.staging import stage
from amoro_core.iceberg.tracing import manifests_of, trace
from amoro_core.model.paths import is_within, normalise

__all__ = ["delete_unreferenced", "send", "stage", "trace"]


#: Of one commit in a row, while the table is as the commit requires it and other commits are faster.
SENDINGS = 5


class _Payload(BaseModel):
    """What is sent, as the REST catalog's specification writes it."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    #: The one state that it applies to, where whoever sends it writes the metadata file itself; not sent.
    metadata_location: str = Field(default="", alias="metadata-location")


def tag(table: Table, name: str, snapshot_id: int, max_age_ms: int | None) -> bytes:
    """The payload that makes a tag of a snapshot, of the table as loaded just now, and of no name that is taken.

    Raises CommitConflict for a name that a branch or tag has, or a snapshot that is gone.
    """
    metadata = table.metadata
    if name in metadata.refs:
        raise CommitConflict(f"the table has a branch or tag {name} already")
    if all(one.snapshot_id != snapshot_id for one in metadata.snapshots):
        raise CommitConflict(f"snapshot {snapshot_id} is not in the table any more")
    made = {"action": "set-snapshot-ref", "ref-name": name, "type": "tag", "snapshot-id": snapshot_id}
    request = {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)},
            {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": None},
        ],
        "updates": [made if max_age_ms is None else {**made, "max-ref-age-ms": max_age_ms}],
    }
    return json.dumps(request, separators=(",", ":")).encode()


def send(catalog: Catalog, table: Table, payload: bytes) -> None:
    """Send a staged commit, once or again; returning means that it is in the table.

    Raises CommitConflict or CommitRefused when it is known not to be applied; AccessDenied, StorageFull or
    CatalogUnavailable when this sending is known not to be, and another may be; CommitUnknown for any other error.
    What ends the process (KeyboardInterrupt, ...) passes, and then nothing is known either.
    """
    request = _Payload.model_validate_json(payload)
    for again in reversed(range(SENDINGS)):
        try:
            _send(catalog, table, request)
        except _StillRequired:
            if not again:
                raise
        else:
            return


class _StillRequired(CommitUnknown):
    """A change of refs alone lost against a change of something else, as every other commit is to it.

    The same is sent again at once: whatever is under way, at most one is applied. A snapshot waits for the next
    reconciliation instead, which asks the table first.
    """


def _send(catalog: Catalog, table: Table, request: _Payload) -> None:
    try:
        with metadata_watched(catalog) as came_before, based_on(catalog, request.metadata_location):
            catalog.commit_table(table, request.requirements, exact(catalog, request.updates))
    except Exception as error:
        let_go(catalog, error)
        if not (isinstance(error, CommitFailedException) or is_refusal(error)):
            if came_before(error) or is_lock(error):
                raise unapplied(error) from error
            raise CommitUnknown(
                f"the catalog's answer does not tell whether the commit landed: {said(error)}"
            ) from error
        # Even then an earlier sending may have landed, or this one before the client sent it again by itself.
        now = _reloaded(catalog, table, error)
        metadata = None if now is None else now.metadata
        if metadata is not None and _holds(metadata, table.metadata, request):
            return
        if now is not None and not _is_overtaken(now.metadata, request) and not _has_seen(now, table):
            raise CommitUnknown(
                f"the catalog answered {said(error)}, and then with an older state of the table than before"
            ) from error
        if isinstance(error, CommitFailedException) and now is not None and _may_still_land(now, request):
            kind = CommitUnknown if any(_sent(request)) else _StillRequired
            raise kind(f"the catalog answered {said(error)}, but the table is as the commit requires it") from error
        if isinstance(error, CommitFailedException) or (metadata is not None and _is_overtaken(metadata, request)):
            raise CommitConflict(f"the table changed before the commit: {said(error)}") from error
        raise CommitRefused(f"the catalog refused the commit: {said(error)}") from error


def _reloaded(catalog: Catalog, table: Table, reason: Exception) -> Table | None:
    """The table now; None when it is gone."""
    try:
        return catalog.load_table(table.name())
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as error:
        raise CommitUnknown(
            f"the catalog answered {said(reason)}, but the table can't be loaded to see whether the commit "
            f"landed: {said(error)}"
        ) from error


def _sent(request: _Payload) -> Iterator[Snapshot]:
    return (update.snapshot for update in request.updates if isinstance(update, AddSnapshotUpdate))


def _holds(metadata: TableMetadata, before: TableMetadata, request: _Payload) -> bool:
    if removal := removed_by(request.updates, before):
        return not is_older(metadata, removal) and is_gone(metadata, removal)
    ids, sent = {snapshot.snapshot_id for snapshot in metadata.snapshots}, list(_sent(request))
    if sent:
        return any(snapshot.snapshot_id in ids for snapshot in sent)
    named = {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}
    made: list[bool] = []
    for update in request.updates:
        match update:
            case SetSnapshotRefUpdate():
                found = metadata.refs.get(update.ref_name)
                made.append(found is not None and found.snapshot_id == update.snapshot_id)
            case SetStatisticsUpdate():
                made.append(update.statistics.statistics_path in named)
            case SetPartitionStatisticsUpdate():
                made.append(update.partition_statistics.statistics_path in named)
    return bool(made) and all(made)


def _is_overtaken(metadata: TableMetadata, request: _Payload) -> bool:
    """Whether another commit, on any branch, took the sequence number: then it is staged anew, not given up."""
    if metadata.format_version == 1:
        return False
    return any(metadata.last_sequence_number >= (snapshot.sequence_number or 0) for snapshot in _sent(request))


def _has_seen(now: Table, before: Table) -> bool:
    """Whether the state came after the other or is the same: a replica that lags behind gives what came before.

    The log holds the last states (`write.metadata.previous-versions-max`); where it is too short nothing is known.
    What is another table by now is no older state.
    """
    if now.metadata.table_uuid != before.metadata.table_uuid:
        return True
    # REST catalogs may leave the location out.
    states = {now.metadata_location or "", *(entry.metadata_file for entry in now.metadata.metadata_log)}
    return normalise(before.metadata_location or "") in map(normalise, states)


def _may_still_land(now: Table, request: _Payload) -> bool:
    """Whether a sending that is still under way somewhere would be applied to the table as it is."""
    metadata, base = now.metadata, request.metadata_location
    if base and normalise(now.metadata_location) != normalise(base):
        return False
    try:
        for requirement in request.requirements:
            requirement.validate(metadata)
    except CommitFailedException:
        return False
    return not _is_overtaken(metadata, request)


def delete_unreferenced(table: Table, access: FileAccess, paths: Iterable[str]) -> tuple[str, ...]:
    """Delete those of the files that lie where the table's files are written and that no snapshot, statistics entry
    or log entry of the table, loaded just now, names. Returns what was deleted, in the order given.

    Raises DataFileMissing, UnreadableFile or CatalogUnavailable, with nothing deleted, when any manifest can't be read.
    """
    ours = [path for path in dict.fromkeys(paths) if _is_below(path, access.write_locations)]
    if not ours:
        return ()
    named = {normalise(path) for path in _named(table)}
    return tuple(path for path in ours if normalise(path) not in named and _is_deleted(access, path))


def _is_below(path: str, places: Iterable[str]) -> bool:
    place = normalise(path)
    return ".." not in place.split("/") and any(is_within(path, one) and place != normalise(one) for one in places)


def _is_deleted(access: FileAccess, path: str) -> bool:
    try:
        access.delete(path)
    except WorkFailed:
        return False
    failpoint("clean.after_file")
    return True


def _named(table: Table) -> Iterator[str]:
    """Every file that the metadata names, those of removed entries too."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (one.statistics_path for one in metadata.statistics)
    yield from (one.statistics_path for one in metadata.partition_statistics)
    yield from (snapshot.manifest_list for snapshot in metadata.snapshots)
    for manifest in manifests_of(table.io, metadata.snapshots):
        yield manifest.manifest_path
        yield from (entry.data_file.file_path for entry in read_manifest(table.io, manifest).entries)
