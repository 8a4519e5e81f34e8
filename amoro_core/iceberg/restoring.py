"""Restoring expired snapshots as new ones, each under a branch or tag of its own."""

import json
import time
from collections.abc import Callable, Sequence, Set
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import CommitConflict
from amoro_core.iceberg.row_ids import first_new_row_id
from amoro_core.iceberg.tracing import earlier_states, state_at
from amoro_core.model.commits import RefAt, SnapshotAdded, SnapshotsGone
from amoro_core.records import record

#: The key in a summary that names the restored snapshot.
RESTORED_FROM = "amoro.restored-snapshot-id"
#: Tries for one reference, while other commits are faster.
_TRIES = 10


@record
class LostRef:
    """A branch or tag that vanished with its snapshot, although its removal was not requested."""

    name: str
    snapshot: Snapshot
    ref: SnapshotRef


def lost_refs(table: Table, removed: SnapshotsGone) -> tuple[LostRef, ...]:
    """The branches and tags created on the removed snapshots between validation and removal, and removed with them.

    The removal requires every known reference to be unchanged, but can't require that there are no others: these are
    found in the state that the catalog built on. References brought back by `stage_restored` are included, those
    recreated by others are not. Raises CatalogUnavailable.
    """
    gone, known = set(removed.snapshot_ids), dict(removed.refs)
    state = _last_with(table, gone)
    if state is None:
        return ()
    snapshots = {one.snapshot_id: one for one in state.snapshots}
    return tuple(
        LostRef(name, snapshots[ref.snapshot_id], ref)
        for name, ref in sorted(state.refs.items())
        if ref.snapshot_id in gone and name not in known and _is_lost(table, name, ref.snapshot_id)
    )


def _is_lost(table: Table, name: str, snapshot_id: int) -> bool:
    now = table.metadata.refs.get(name)
    found = None if now is None else table.snapshot_by_id(now.snapshot_id)
    return now is None or (found is not None and _summary(found).get(RESTORED_FROM) == str(snapshot_id))


def state_before(table: Table, metadata_location: str, removed: SnapshotsGone) -> TableMetadata | None:
    """The state at that location, else the last one in the log with all of the removed snapshots; None if neither can
    be read any more. Raises CatalogUnavailable."""
    gone = set(removed.snapshot_ids)
    found = state_at(table, metadata_location)
    if found is not None and gone <= {one.snapshot_id for one in found.snapshots}:
        return found
    return _last_with(table, gone)


def _last_with(table: Table, snapshot_ids: Set[int]) -> TableMetadata | None:
    for state in earlier_states(table):
        if snapshot_ids <= {one.snapshot_id for one in state.snapshots}:
            return state
    return None


def stage_return(
    table: Table, metadata_location: str, removed: SnapshotsGone, *, own_metadata: bool
) -> tuple[bytes, SnapshotAdded, tuple[str, ...]]:
    """The payload that adds the content of all removed snapshots to the table as just loaded, under tags `restored-ID`.

    Like `stage_restored`, in one commit; returns the payload, the evidence that it landed, and the tags. Raises
    CommitConflict also when no state with the snapshots can be read any more.
    """
    state = state_before(table, metadata_location, removed)
    if state is None:
        raise CommitConflict("no metadata file with the expired snapshots can be read any more")
    gone = set(removed.snapshot_ids)
    snapshots = [one for one in state.snapshots if one.snapshot_id in gone]
    ordered = sorted(snapshots, key=lambda one: (one.sequence_number or 0, one.timestamp_ms))
    wanted = [_Wanted(one, f"restored-{one.snapshot_id}", None) for one in ordered]
    payload, made = _stage(table, wanted, own_metadata)
    metadata = table.metadata
    number = 0 if metadata.format_version == 1 else metadata.next_sequence_number()
    # Every reference is required to be unchanged: main's identifies the state it was made for.
    evidence = SnapshotAdded(made[0].snapshot_id, metadata.current_snapshot_id or 0, number)
    return payload, evidence, tuple(one.name for one in made)


def stage_restored(
    table: Table, snapshot: Snapshot, name: str, ref: SnapshotRef | None = None, *, own_metadata: bool
) -> tuple[bytes, RefAt]:
    """The payload that adds the content of an expired snapshot to the table as just loaded, under a ref of its own.

    Under its old id it would be refused for its old sequence number. So it is a new snapshot without parent, with the
    old manifest list, whose files must still exist. `ref` has its retention; None: a tag kept for ever. Catalogs accept
    any sequence number for a snapshot without parent, so every reference is required to be unchanged; `own_metadata` as
    in `stage_expiry`. Raises CommitConflict when the name is taken, TableRefused("metadata") without a next row id in
    format 3.
    """
    payload, (made,) = _stage(table, [_Wanted(snapshot, name, ref)], own_metadata)
    return payload, made


@record
class _Wanted:
    snapshot: Snapshot
    name: str
    ref: SnapshotRef | None


def _stage(table: Table, wanted: Sequence[_Wanted], own_metadata: bool) -> tuple[bytes, tuple[RefAt, ...]]:
    metadata = table.metadata
    for one in wanted:
        if one.name in metadata.refs:
            raise CommitConflict(f"the table has a branch or tag {one.name} already")
    updates: list[dict[str, Any]] = []
    made: list[RefAt] = []
    for number, one in enumerate(wanted):
        added = _again(metadata, one.snapshot, number)
        kept = {"type": "tag"} if one.ref is None else one.ref.model_dump(by_alias=True, exclude_none=True, mode="json")
        updates += [
            {"action": "add-snapshot", "snapshot": added},
            {"action": "set-snapshot-ref", "ref-name": one.name, **kept, "snapshot-id": added["snapshot-id"]},
        ]
        made.append(RefAt(one.name, added["snapshot-id"]))
    request: dict[str, Any] = {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)},
            *({"type": "assert-ref-snapshot-id", "ref": one.name, "snapshot-id": None} for one in wanted),
            *(
                {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": ref.snapshot_id}
                for name, ref in sorted(metadata.refs.items())
            ),
        ],
        "updates": updates,
    }
    if own_metadata:
        request["metadata-location"] = table.metadata_location
    return json.dumps(request, separators=(",", ":")).encode(), tuple(made)


def _again(metadata: TableMetadata, snapshot: Snapshot, number: int) -> dict[str, Any]:
    """The snapshot as a new one without parent; `number` is its index among the new ones."""
    said: dict[str, Any] = snapshot.model_dump(by_alias=True, exclude_none=True)
    said.pop("parent-snapshot-id", None)
    said["snapshot-id"] = metadata.new_snapshot_id()
    said["timestamp-ms"] = max(round(time.time() * 1000), metadata.last_updated_ms)
    if (next_row_id := first_new_row_id(metadata)) is not None:
        # Its list has the row ids of its manifests, so that none is assigned; rows from before format 3 have none.
        said |= {"first-row-id": next_row_id, "added-rows": 0}
    if metadata.format_version != 1:
        said["sequence-number"] = metadata.next_sequence_number() + number
    said["summary"] = {**_summary(snapshot), RESTORED_FROM: str(snapshot.snapshot_id)}
    return said


def _summary(snapshot: Snapshot) -> dict[str, str]:
    if snapshot.summary is None:
        return {"operation": "append"}
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


def bring_back(
    load: Callable[[], Table], send: Callable[[bytes], None], removed: SnapshotsGone, own_metadata: bool
) -> tuple[str, ...]:
    """Restore the lost references under their names, also while others commit.

    Returns their names, including those restored by an earlier call. Raises like `send` and `stage_restored`.
    """
    lost = lost_refs(load(), removed)
    for one in lost:
        _bring_back(load, send, one, own_metadata)
    return tuple(one.name for one in lost)


def _bring_back(load: Callable[[], Table], send: Callable[[bytes], None], lost: LostRef, own_metadata: bool) -> None:
    for again in reversed(range(_TRIES)):
        table = load()
        if lost.name in table.metadata.refs:
            return
        payload, _ = stage_restored(table, lost.snapshot, lost.name, lost.ref, own_metadata=own_metadata)
        try:
            send(payload)
        except CommitConflict:
            if not again:
                raise
