"""Commits that expire snapshots, and that bring expired ones or lost references back."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot
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
from amoro_core.iceberg.commit.status_check import earlier_states, manifests_of, state_at
from amoro_core.iceberg.manifest.avro import first_new_row_id
from amoro_core.iceberg.manifest.reading import summary_of
from amoro_core.iceberg.metadata import Json, commit_request, ref_required, statistics_removals
from amoro_core.iceberg.pyiceberg_sandbox import ExactSnapshot, ExactUpgrade
from amoro_core.model.commits import RESTORED_FROM, RefAt, SnapshotAdded, SnapshotsRemoved
from amoro_core.model.paths import normalise


def unused_metadata(table: Table, expired: Set[int]) -> tuple[list[int], list[int]]:
    """The sorted ids of the specs and of the schemas that can be removed too.

    Kept are the current ones, those of the remaining snapshots and their manifests; and, for every column that a
    remaining spec partitions by or that a live equality delete may compare, the newest schema that has it. Java removes
    these, after which such files can't be read. Raises what reading manifest lists raises.
    """
    metadata = table.metadata
    remaining = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in expired]
    manifests = manifests_of(table.io, remaining)
    specs = {metadata.default_spec_id, *(manifest_file.partition_spec_id for manifest_file in manifests)}
    schemas = {metadata.current_schema_id, *(item.schema_id for item in remaining if item.schema_id is not None)}
    by_newest = sorted(metadata.schemas, key=lambda item: -item.schema_id)
    needed = {field.source_id for spec in metadata.partition_specs if spec.spec_id in specs for field in spec.fields}
    if any(manifest_file.content == ManifestContent.DELETES for manifest_file in manifests):
        needed |= {field_id for schema in by_newest for field_id in schema.field_ids}
    for schema in by_newest:
        if schema.schema_id in schemas:
            needed -= schema.field_ids
    for schema in by_newest:
        if needed & schema.field_ids:
            schemas.add(schema.schema_id)
            needed -= schema.field_ids
    return (
        sorted(spec.spec_id for spec in metadata.partition_specs if spec.spec_id not in specs),
        sorted(schema.schema_id for schema in metadata.schemas if schema.schema_id not in schemas),
    )


#: The assumed clock skew of writers, for states without sequence numbers to compare.
_CLOCKS_DIFFER_MS = 60_000


def stage_expiry(
    table: Table, snapshot_ids: Set[int], ref_names: Sequence[str], *, clean: bool, own_metadata: bool
) -> tuple[bytes, SnapshotsRemoved]:
    """The payload that removes snapshots and references of the table as just loaded, and the evidence that it landed.

    It requires every reference to be unchanged; with `own_metadata` (see `commit_request`) no reference made meanwhile
    is lost. `clean`: also removes schemas and partition specs that nothing needs any more. Raises CommitConflict when a
    snapshot is gone already, is held by a reference that stays, or a reference to remove does not exist.
    """
    metadata = table.metadata
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    if missing := sorted(snapshot_ids - present):
        raise CommitConflict(f"snapshot {missing[0]} is not in the table any more")
    for name, ref in sorted(metadata.refs.items()):
        if ref.snapshot_id in snapshot_ids and name not in ref_names:
            raise CommitConflict(f"{ref.snapshot_ref_type} {name} holds snapshot {ref.snapshot_id}")
    if lost := sorted(set(ref_names) - metadata.refs.keys()):
        raise CommitConflict(f"the table has no branch or tag {lost[0]} any more")
    refs = tuple((name, ref.snapshot_id) for name, ref in sorted(metadata.refs.items()))
    updates = _updates(table, snapshot_ids, ref_names, clean)
    payload = commit_request(table, updates, (ref_required(*ref) for ref in refs), own_metadata=own_metadata)
    evidence = SnapshotsRemoved(
        tuple(sorted(snapshot_ids)),
        refs,
        tuple(sorted(ref_names)),
        _sequence_number(metadata),
        metadata.last_updated_ms,
        table.metadata_location if own_metadata else "",
    )
    return payload, evidence


def _updates(table: Table, expired: Set[int], ref_names: Sequence[str], clean: bool) -> Iterator[Json]:
    for name in sorted(ref_names):
        yield {"action": "remove-snapshot-ref", "ref-name": name}
    yield from statistics_removals(table.metadata, lambda item: item.snapshot_id in expired)
    if expired:
        yield {"action": "remove-snapshots", "snapshot-ids": sorted(expired)}
    if clean:
        specs, schemas = unused_metadata(table, expired)
        if specs:
            yield {"action": "remove-partition-specs", "spec-ids": specs}
        if schemas:
            yield {"action": "remove-schemas", "schema-ids": schemas}


def _sequence_number(metadata: TableMetadata) -> int:
    """The last one; 0 in format 1, which has none."""
    return 0 if metadata.format_version == 1 else metadata.last_sequence_number


def is_older(metadata: TableMetadata, wanted: SnapshotsRemoved) -> bool:
    """Whether the state is older than the one that the change was made for, as from a lagging replica."""
    if metadata.format_version != 1:
        return metadata.last_sequence_number < wanted.sequence_number
    return metadata.last_updated_ms < wanted.updated_ms - _CLOCKS_DIFFER_MS


def is_removed(metadata: TableMetadata, wanted: SnapshotsRemoved) -> bool:
    """Whether a state, later than the change's, lacks all of the snapshots or, if there are none, of the references."""
    if wanted.snapshot_ids:
        return not {snapshot.snapshot_id for snapshot in metadata.snapshots}.intersection(wanted.snapshot_ids)
    was = dict(wanted.refs)
    return all(
        name not in metadata.refs or metadata.refs[name].snapshot_id != was.get(name) for name in wanted.gone_refs
    )


def removed_by(updates: Iterable[TableUpdate], before: TableMetadata) -> SnapshotsRemoved | None:
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
    return SnapshotsRemoved(tuple(ids), refs, tuple(names), _sequence_number(before), before.last_updated_ms)


class ExactRemoval(RemoveSnapshotsUpdate):
    """The removal as Java applies it: parent ids are kept, and the snapshot log has no gap.

    pyiceberg clears the parent id of children, so that writers that walk the history stop too early; and it removes
    entries from the middle of the snapshot log, after which a time maps to the wrong snapshot.
    """


@_apply_table_update.register(ExactRemoval)
def _(update: ExactRemoval, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    expired = frozenset(update.snapshot_ids)
    if names := [name for name, ref in base_metadata.refs.items() if ref.snapshot_id in expired]:
        raise CommitFailedException(f"{names[0]} points at a snapshot that is to be removed")
    remaining = [snapshot for snapshot in base_metadata.snapshots if snapshot.snapshot_id not in expired]
    ids, log = {snapshot.snapshot_id for snapshot in remaining}, base_metadata.snapshot_log
    last_gap = max((at for at, entry in enumerate(log) if entry.snapshot_id not in ids), default=-1)
    context.add_update(update)
    of_partitions = base_metadata.partition_statistics
    return base_metadata.model_copy(
        update={
            "snapshots": remaining,
            "snapshot_log": log[last_gap + 1 :],
            "statistics": [item for item in base_metadata.statistics if item.snapshot_id not in expired],
            "partition_statistics": [item for item in of_partitions if item.snapshot_id not in expired],
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
    """Within the block, if the client writes the metadata files, commits apply only to that state and raise
    CommitFailedException for any other; "": any state."""
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


#: Tries for one reference, while other commits are faster.
_TRIES = 10


@dataclass(frozen=True, slots=True)
class LostRef:
    """A branch or tag to restore on the content of an expired snapshot."""

    name: str
    snapshot: Snapshot
    ref: SnapshotRef | None = None  # has its retention; None: a tag that is kept for ever


def lost_refs(table: Table, removed: SnapshotsRemoved) -> tuple[LostRef, ...]:
    """The branches and tags created on the removed snapshots between validation and removal, and removed with them.

    The removal requires every known reference to be unchanged, but can't require that there are no others: these are
    found in the state that the catalog built on. References brought back by `stage_restored` are included, those
    recreated by others are not. Raises CatalogUnavailable.
    """
    expired, refs = set(removed.snapshot_ids), dict(removed.refs)
    state = _with_all(removed, earlier_states(table))
    if state is None:
        return ()
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in state.snapshots}
    return tuple(
        LostRef(name, snapshots[ref.snapshot_id], ref)
        for name, ref in sorted(state.refs.items())
        if ref.snapshot_id in expired and name not in refs and _is_lost(table, name, ref.snapshot_id)
    )


def _is_lost(table: Table, name: str, snapshot_id: int) -> bool:
    now = table.metadata.refs.get(name)
    snapshot = None if now is None else table.snapshot_by_id(now.snapshot_id)
    return now is None or (snapshot is not None and summary_of(snapshot).get(RESTORED_FROM) == str(snapshot_id))


def state_before(table: Table, metadata_location: str, removed: SnapshotsRemoved) -> TableMetadata | None:
    """The state at that location, else the last one in the log with all of the removed snapshots; None if neither can
    be read any more. Raises CatalogUnavailable."""
    state = state_at(table, metadata_location)
    return _with_all(removed, [state] if state else ()) or _with_all(removed, earlier_states(table))


def _with_all(removed: SnapshotsRemoved, states: Iterable[TableMetadata]) -> TableMetadata | None:
    """The first of the states that has all of the removed snapshots."""
    expired = set(removed.snapshot_ids)
    return next((state for state in states if expired <= {snapshot.snapshot_id for snapshot in state.snapshots}), None)


def stage_return(
    table: Table, metadata_location: str, removed: SnapshotsRemoved, *, own_metadata: bool
) -> tuple[bytes, SnapshotAdded, tuple[str, ...]]:
    """The payload that adds the content of all removed snapshots to the table as just loaded, like `stage_restored`,
    under tags `restored-ID`; with the evidence that it landed, and the tags. Raises CommitConflict also when no state
    with the snapshots can be read any more."""
    state = state_before(table, metadata_location, removed)
    if state is None:
        raise CommitConflict("no metadata file with the expired snapshots can be read any more")
    expired = set(removed.snapshot_ids)
    snapshots = [snapshot for snapshot in state.snapshots if snapshot.snapshot_id in expired]
    ordered = sorted(snapshots, key=lambda item: (item.sequence_number or 0, item.timestamp_ms))
    wanted = [LostRef(f"restored-{snapshot.snapshot_id}", snapshot) for snapshot in ordered]
    payload, refs = _stage(table, wanted, own_metadata)
    metadata = table.metadata
    number = 0 if metadata.format_version == 1 else metadata.next_sequence_number()
    # Every reference is required to be unchanged: main's identifies the state it was made for.
    evidence = SnapshotAdded(refs[0].snapshot_id, metadata.current_snapshot_id or 0, number)
    return payload, evidence, tuple(ref_at.name for ref_at in refs)


def stage_restored(table: Table, lost: LostRef, *, own_metadata: bool) -> tuple[bytes, RefAt]:
    """The payload that adds the content of an expired snapshot to the table as just loaded, under a ref of its own.

    Under its old id it would be refused for its old sequence number. So it is a new snapshot without parent, with the
    old manifest list, whose files must still exist. Catalogs accept any sequence number for a snapshot without parent,
    so every reference is required to be unchanged; `own_metadata` as in `commit_request`. Raises CommitConflict when
    the name is taken, TableRefused("metadata") without a next row id in format 3.
    """
    payload, (ref,) = _stage(table, [lost], own_metadata)
    return payload, ref


def _stage(table: Table, wanted: Sequence[LostRef], own_metadata: bool) -> tuple[bytes, tuple[RefAt, ...]]:
    metadata = table.metadata
    for ref in wanted:
        if ref.name in metadata.refs:
            raise CommitConflict(f"the table has a branch or tag {ref.name} already")
    updates: list[Json] = []
    refs: list[RefAt] = []
    for number, ref in enumerate(wanted):
        added = _again(metadata, ref.snapshot, number)
        kind = {"type": "tag"} if ref.ref is None else ref.ref.model_dump(by_alias=True, exclude_none=True, mode="json")
        updates += [
            {"action": "add-snapshot", "snapshot": added},
            {"action": "set-snapshot-ref", "ref-name": ref.name, **kind, "snapshot-id": added["snapshot-id"]},
        ]
        refs.append(RefAt(ref.name, added["snapshot-id"]))
    required = [
        *(ref_required(lost_ref.name, None) for lost_ref in wanted),
        *(ref_required(name, ref.snapshot_id) for name, ref in sorted(metadata.refs.items())),
    ]
    return commit_request(table, updates, required, own_metadata=own_metadata), tuple(refs)


def _again(metadata: TableMetadata, snapshot: Snapshot, number: int) -> dict[str, Any]:
    """The snapshot as a new one without parent; `number` is its index among the new ones."""
    new: dict[str, Any] = snapshot.model_dump(by_alias=True, exclude_none=True)
    new.pop("parent-snapshot-id", None)
    new["snapshot-id"] = metadata.new_snapshot_id()
    new["timestamp-ms"] = max(round(time.time() * 1000), metadata.last_updated_ms)
    if (next_row_id := first_new_row_id(metadata)) is not None:
        # Its list has the row ids of its manifests, so that none is assigned; rows from before format 3 have none.
        new |= {"first-row-id": next_row_id, "added-rows": 0}
    if metadata.format_version != 1:
        new["sequence-number"] = metadata.next_sequence_number() + number
    operation = snapshot.summary.operation.value if snapshot.summary else "append"
    new["summary"] = {"operation": operation, **summary_of(snapshot), RESTORED_FROM: str(snapshot.snapshot_id)}
    return new


def bring_back(
    load: Callable[[], Table], send: Callable[[bytes], None], removed: SnapshotsRemoved, own_metadata: bool
) -> tuple[str, ...]:
    """Restore the lost references under their names, also while others commit. Returns their names, including those
    restored by an earlier call. Raises like `send` and `stage_restored`."""
    lost = lost_refs(load(), removed)
    for ref in lost:
        for again in reversed(range(_TRIES)):
            table = load()
            if ref.name in table.metadata.refs:
                break
            payload, _ = stage_restored(table, ref, own_metadata=own_metadata)
            try:
                send(payload)
            except CommitConflict:
                if not again:
                    raise
    return tuple(lost_ref.name for lost_ref in lost)
