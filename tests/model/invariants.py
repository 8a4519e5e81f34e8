"""What must hold of a process of ours, whatever others did meanwhile."""

from __future__ import annotations

from pathlib import Path

from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingStatus
from amoro_core.store import processes
from tests.engine import oracle
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
