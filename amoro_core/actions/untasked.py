"""What actions have in common that no optimizer works for: a process of theirs has no task."""

from datetime import datetime

from amoro_core.actions.contract import Request
from amoro_core.errors import InvalidArgument
from amoro_core.model.actions import Case, Change
from amoro_core.model.commits import PROCESS_ID, SnapshotAdded, StagedCommit
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import Figure, OptimizingProcess, Receipt


class Untasked:
    """Answers of an action that plans no tasks and ends with its commit."""

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
        """None: what the table loses belongs to its earlier snapshots."""
        return ()

    def receipt(self, case: Case) -> Receipt | None:
        """None: every process commits."""
        return None


def refuse_options(name: str, request: Request) -> None:
    """Raise InvalidArgument for options that the action of that name does not take."""
    if given := request.options.given:
        raise InvalidArgument(f"{name} takes no {', '.join(given)}", hint=f"Leave {', '.join(given)} out.")


def summary_of(process: OptimizingProcess, producer: str) -> dict[str, str]:
    """What the summary of a snapshot says of the process that committed it; `producer` is Amoro's word."""
    return {"snapshot.producer": producer, PROCESS_ID: process.process_id}


def staged_change(case: Case, staged: StagedCommit, told: str, more: tuple[Figure, ...], now: datetime) -> Change:
    """The change of a process that adds a snapshot without new files; `told` says what it does, in figures `more`."""
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
