"""The commit that removes snapshots and references, with pyiceberg's errors corrected."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from amoro_core.errors import CommitConflict
from amoro_core.iceberg.format3 import ExactSnapshot, ExactUpgrade
from amoro_core.iceberg.unused import unused_metadata
from amoro_core.model.commits import SnapshotsGone
from amoro_core.model.paths import normalise

#: The assumed clock skew of writers, for states without sequence numbers to compare.
_CLOCKS_DIFFER_MS = 60_000


def stage_expiry(
    table: Table, snapshot_ids: Set[int], ref_names: Sequence[str], *, clean: bool, own_metadata: bool
) -> tuple[bytes, SnapshotsGone]:
    """The payload that removes snapshots and references of the table as just loaded, and the evidence that it landed.

    It requires every reference to be unchanged. `own_metadata`: the client writes the metadata file itself; the payload
    then applies to exactly this state, so that no reference made meanwhile is lost. `clean`: also removes schemas and
    partition specs that nothing needs any more. Raises CommitConflict when a snapshot is gone already, is held by a
    reference that stays, or a reference to remove does not exist.
    """
    metadata = table.metadata
    known = {one.snapshot_id for one in metadata.snapshots}
    if missing := sorted(snapshot_ids - known):
        raise CommitConflict(f"snapshot {missing[0]} is not in the table any more")
    for name, ref in sorted(metadata.refs.items()):
        if ref.snapshot_id in snapshot_ids and name not in ref_names:
            raise CommitConflict(f"{ref.snapshot_ref_type} {name} holds snapshot {ref.snapshot_id}")
    if lost := sorted(set(ref_names) - metadata.refs.keys()):
        raise CommitConflict(f"the table has no branch or tag {lost[0]} any more")
    refs = tuple((name, ref.snapshot_id) for name, ref in sorted(metadata.refs.items()))
    request: dict[str, Any] = {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)},
            *({"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": at} for name, at in refs),
        ],
        "updates": list(_updates(table, snapshot_ids, ref_names, clean)),
    }
    if own_metadata:
        request["metadata-location"] = table.metadata_location
    evidence = SnapshotsGone(
        tuple(sorted(snapshot_ids)),
        refs,
        tuple(sorted(ref_names)),
        _sequence_number(metadata),
        metadata.last_updated_ms,
        table.metadata_location if own_metadata else "",
    )
    return json.dumps(request, separators=(",", ":")).encode(), evidence


def _updates(table: Table, gone: Set[int], ref_names: Sequence[str], clean: bool) -> Iterator[dict[str, Any]]:
    metadata = table.metadata
    for name in sorted(ref_names):
        yield {"action": "remove-snapshot-ref", "ref-name": name}
    for action, entries in (
        ("remove-statistics", metadata.statistics),
        ("remove-partition-statistics", metadata.partition_statistics),
    ):
        for snapshot_id in sorted({one.snapshot_id for one in entries} & gone):
            yield {"action": action, "snapshot-id": snapshot_id}
    if gone:
        yield {"action": "remove-snapshots", "snapshot-ids": sorted(gone)}
    if clean:
        specs, schemas = unused_metadata(table, gone)
        if specs:
            yield {"action": "remove-partition-specs", "spec-ids": specs}
        if schemas:
            yield {"action": "remove-schemas", "schema-ids": schemas}


def _sequence_number(metadata: TableMetadata) -> int:
    """The last one; 0 in format 1, which has none."""
    return 0 if metadata.format_version == 1 else metadata.last_sequence_number


# Evidence in the table


def is_older(metadata: TableMetadata, wanted: SnapshotsGone) -> bool:
    """Whether the state is older than the one that the change was made for, as from a lagging replica."""
    if metadata.format_version != 1:
        return metadata.last_sequence_number < wanted.sequence_number
    return metadata.last_updated_ms < wanted.updated_ms - _CLOCKS_DIFFER_MS


def is_gone(metadata: TableMetadata, wanted: SnapshotsGone) -> bool:
    """Whether a later state has none of the snapshots or, if there are none, none of the references."""
    if wanted.snapshot_ids:
        return not {one.snapshot_id for one in metadata.snapshots}.intersection(wanted.snapshot_ids)
    was = dict(wanted.refs)
    return all(
        name not in metadata.refs or metadata.refs[name].snapshot_id != was.get(name) for name in wanted.gone_refs
    )


def removed_by(updates: Iterable[TableUpdate], before: TableMetadata) -> SnapshotsGone | None:
    """What the updates remove from the state before them; None if neither snapshots nor references."""
    ids: set[int] = set()
    names: list[str] = []
    for update in updates:
        if isinstance(update, RemoveSnapshotsUpdate):
            ids.update(update.snapshot_ids)
        elif isinstance(update, RemoveSnapshotRefUpdate):
            names.append(update.ref_name)
    if not ids and not names:
        return None
    refs = tuple((name, ref.snapshot_id) for name, ref in before.refs.items())
    return SnapshotsGone(tuple(ids), refs, tuple(names), _sequence_number(before), before.last_updated_ms)


# Sending


class ExactRemoval(RemoveSnapshotsUpdate):
    """The removal as Java applies it: parent ids are kept, and the snapshot log has no gap.

    pyiceberg clears the parent id of children, so that writers that walk the history stop too early; and it removes
    entries from the middle of the snapshot log, after which a time maps to the wrong snapshot.
    """


@_apply_table_update.register(ExactRemoval)
def _(update: ExactRemoval, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    gone = frozenset(update.snapshot_ids)
    if held := [name for name, ref in base_metadata.refs.items() if ref.snapshot_id in gone]:
        raise CommitFailedException(f"{held[0]} points at a snapshot that is to be removed")
    left = [one for one in base_metadata.snapshots if one.snapshot_id not in gone]
    known, log = {one.snapshot_id for one in left}, base_metadata.snapshot_log
    last_gap = max((at for at, entry in enumerate(log) if entry.snapshot_id not in known), default=-1)
    context.add_update(update)
    return base_metadata.model_copy(
        update={
            "snapshots": left,
            "snapshot_log": log[last_gap + 1 :],
            "statistics": [one for one in base_metadata.statistics if one.snapshot_id not in gone],
            "partition_statistics": [one for one in base_metadata.partition_statistics if one.snapshot_id not in gone],
        }
    )


def writes_metadata(catalog: Catalog) -> bool:
    """Whether the client writes the metadata files, and the catalog only swaps their location."""
    return isinstance(catalog, MetastoreCatalog)


def exact(catalog: Catalog, updates: Sequence[TableUpdate]) -> tuple[TableUpdate, ...]:
    """The updates as Java applies them, if the client applies them: snapshots added and removed, and the upgrade."""
    return tuple(map(_exact, updates)) if writes_metadata(catalog) else tuple(updates)


def _exact(update: TableUpdate) -> TableUpdate:
    match update:
        case RemoveSnapshotsUpdate():
            return ExactRemoval(**update.model_dump(by_alias=True))
        case AddSnapshotUpdate():
            return ExactSnapshot(snapshot=update.snapshot)
        case UpgradeFormatVersionUpdate():
            return ExactUpgrade(**update.model_dump(by_alias=True))
    return update


@contextmanager
def based_on(catalog: Catalog, metadata_location: str) -> Iterator[None]:
    """Within the block, commits apply only to that state: CommitFailedException for any other.

    Only for catalogs whose metadata files the client writes, and which swap the file's location. "": any state.
    """
    if not metadata_location or not isinstance(catalog, MetastoreCatalog):
        yield
        return
    stage: Callable[..., Any] = catalog._update_and_stage_table

    def staging(current: Table | None, *arguments: Any, **named: Any) -> Any:
        if current is None or normalise(current.metadata_location) != normalise(metadata_location):
            raise CommitFailedException("the table has changed since the snapshots to be removed were validated")
        return stage(current, *arguments, **named)

    own = vars(catalog)
    own["_update_and_stage_table"] = staging
    try:
        yield
    finally:
        del own["_update_and_stage_table"]
