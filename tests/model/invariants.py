"""What must hold of a process of ours, whatever others did meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingStatus
from amoro_core.store import processes
from tests.engine import oracle
from tests.engine.oracle import LiveFile
from tests.engine.parquet_rows import local_path
from tests.model.lake import Lake, process_of
from tests.services.world import World

ENDED = (ProcessStatus.SUCCESS, ProcessStatus.PARTIAL, ProcessStatus.FAILED)


def require_ended(world: World, lake: Lake, process_id: str) -> ProcessStatus:
    """The process has ended and holds nothing, landed at most once, and says so truly."""
    status = world.status(process_id)
    assert status in ENDED
    assert world.table().status is OptimizingStatus.IDLE
    attempts = world.store.read(lambda db: processes.list_commits(db, process_id))
    assert {one.outcome for one in attempts}.isdisjoint({CommitOutcome.SENT, CommitOutcome.UNKNOWN})
    done = [one.snapshot_id for one in attempts if one.outcome is CommitOutcome.DONE]
    assert len(done) == (status is not ProcessStatus.FAILED)
    landed = [one.snapshot_id for one in lake.table.refresh().metadata.snapshots if process_of(one) == process_id]
    assert landed in ([], done)  # others may have expired it
    return status


def require_tidy(world: World, lake: Lake, process_id: str) -> None:
    """No file of the process is missing where a snapshot has it, and none lies about that no snapshot names."""
    assert [path for path in sorted(_live(lake)) if not Path(path).exists()] == []
    attempts = world.store.read(lambda db: processes.list_commits(db, process_id))
    # Without sequence numbers a refuted attempt still lands when main is set back to its parent: its files are kept.
    kept = [one for one in attempts if one.may_come_back]
    gone = (one for one in attempts if one.outcome is not CommitOutcome.DONE and one not in kept)
    left = [path for one in gone for path in one.metadata_files]
    assert [path for path in left if Path(local_path(path)).exists()] == []
    # What landed and was expired by others is theirs to remove.
    if all(one.outcome is not CommitOutcome.DONE for one in attempts) or _knows(lake, process_id):
        allowed = _named(lake) | {local_path(path) for one in kept for path in one.files}
        assert sorted(_written(lake, process_id) - allowed) == []


def _knows(lake: Lake, process_id: str) -> bool:
    return any(process_of(one) == process_id for one in lake.table.metadata.snapshots)


def _written(lake: Lake, process_id: str) -> set[str]:
    """The data and delete files that exist of the process."""
    data = Path(local_path(lake.table.location())) / "data"
    return {str(path) for path in data.rglob(f"{process_id}-*.parquet")}


def _live(lake: Lake) -> set[str]:
    """The data and delete files that are live in any snapshot of the metadata."""
    metadata = lake.table.refresh().metadata
    return {
        local_path(file.path)
        for snapshot in metadata.snapshots
        for file in oracle.files_in(metadata, snapshot.snapshot_id)
    }


def _named(lake: Lake) -> set[str]:
    """Those that any manifest names, removed ones too: they had been in the table, and are not ours to delete."""
    lists = [snapshot.manifest_list for snapshot in lake.table.metadata.snapshots]
    manifests = {one["manifest_path"] for path in lists for one in oracle.read_avro(path)[1]}
    return {local_path(entry["data_file"]["file_path"]) for path in manifests for entry in oracle.read_avro(path)[1]}


_ROW_ID = "_row_id"


def require_hidden(table: Table, process_id: str) -> int:
    """Each row that the process's commits hide in their outputs, as it is stored there, was hidden in an input before.

    Every column counts, and from format 3 on the row's id. Returns how many there are.
    """
    metadata, count = table.refresh().metadata, 0
    known = {one.snapshot_id for one in metadata.snapshots}
    for snapshot in metadata.snapshots:
        if process_of(snapshot) != process_id or snapshot.parent_snapshot_id not in known:
            continue
        before = oracle.files_in(metadata, snapshot.parent_snapshot_id)
        after = oracle.files_in(metadata, snapshot.snapshot_id)
        hidden = _hidden(metadata, after, {one.path for one in before})
        gone = _hidden(metadata, before, {one.path for one in after})
        assert hidden <= gone, hidden - gone
        count += hidden.total()
    return count


def _hidden(metadata: TableMetadata, files: Iterable[LiveFile], others: set[str]) -> Counter[tuple[Any, ...]]:
    """The rows of data files, without those at `others`, that deletes by position hide, raw and by column."""
    files = list(files)
    deleted = oracle.positions_in_files(metadata, files)
    for vector in (one for one in files if one.is_vector):
        deleted[vector.referenced or ""] += [(vector.data_sequence, at) for at in oracle.vector_positions(vector)]
    found: Counter[tuple[Any, ...]] = Counter()
    for file in files:
        if file.content != oracle.DATA or file.path in others:
            continue
        positions = sorted({at for number, at in deleted[file.path] if number >= file.data_sequence})
        if not positions:
            continue
        table = pq.read_table(file.path.removeprefix("file://")).take(positions)
        ids = {name: (table.schema.field(name).metadata or {}).get(b"PARQUET:field_id") for name in table.schema.names}
        for position, raw in zip(positions, table.to_pylist(), strict=True):
            row = {ids[name]: value for name, value in raw.items() if not name.startswith("_")}
            stored = raw.get(_ROW_ID)
            implied = None if file.first_row_id is None else file.first_row_id + position
            found[*((key, row[key]) for key in sorted(row, key=str)), stored if stored is not None else implied] += 1
    return found
