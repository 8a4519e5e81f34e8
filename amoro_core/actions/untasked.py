"""Common parts of actions whose processes have no tasks."""

from datetime import datetime

from amoro_core.model.actions import Case, Change
from amoro_core.model.commits import PROCESS_ID, SnapshotAdded, StagedCommit
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import Figure, OptimizingProcess, Receipt


class Untasked:
    """Default methods of an action that plans no tasks and ends with its commit."""

    def optimized(self, case: Case, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        """None: nothing was rewritten."""
        return frozenset()

    def inputs(self, case: Case) -> tuple[str, ...]:
        """None: no task reads files."""
        return ()

    def outputs(self, case: Case, groups: frozenset[int]) -> tuple[str, ...]:
        """None: no task writes files."""
        return ()

    def removals(self, case: Case) -> tuple[str, ...]:
        """None: removed files still belong to earlier snapshots."""
        return ()

    def receipt(self, case: Case) -> Receipt | None:
        """None: every process commits."""
        return None


def summary_of(process: OptimizingProcess, producer: str) -> dict[str, str]:
    """The entries of a snapshot's summary about the process that committed it; `producer` is Amoro's word for it."""
    return {"snapshot.producer": producer, PROCESS_ID: process.process_id}


def staged_change(case: Case, staged: StagedCommit, told: str, more: tuple[Figure, ...], now: datetime) -> Change:
    """The change of a process that adds a snapshot without new files; `told` is the summary, `more` its figures."""
    return Change(
        payload=staged.payload,
        evidence=SnapshotAdded(staged.snapshot_id, staged.parent_snapshot_id, staged.sequence_number),
        receipt=Receipt(
            *(0,) * 9,
            snapshot_id=staged.snapshot_id,
            base_snapshot_id=staged.parent_snapshot_id,
            duration_ms=round((now - case.process.created_at).total_seconds() * 1000),
            words=told,
            more=more,
        ),
        metadata_files=staged.metadata_files,
    )
