"""Snapshots of a table: two compared, and what the next expiry takes and what keeps the rest."""

from amoro_core.admin.messages.values import milliseconds
from amoro_core.admin.services import Call, Services
from amoro_core.maintaining.comparing import SnapshotTotals
from amoro_core.model.tables import SnapshotFacts
from amoro_core.protocol import snapshots_pb2 as pb


def compare_snapshots(services: Services, request: pb.CompareSnapshotsRequest, call: Call) -> pb.SnapshotComparison:
    """The two snapshots, and how one led to the other."""
    identifier = services.catalogs.resolve(request.table)
    found = services.snapshots.compare(identifier, request.before, request.after)
    return pb.SnapshotComparison(
        table=str(identifier),
        before=_compared(found.before, found.totals_before),
        after=_compared(found.after, found.totals_after),
        is_ancestor=found.is_ancestor,
        commits=found.commits,
        own_commits=found.own_commits,
    )


def get_retention(services: Services, request: pb.GetRetentionRequest, call: Call) -> pb.Retention:
    """What the next expiry would decide on each snapshot, branch and tag."""
    identifier = services.catalogs.resolve(request.table)
    found = services.snapshots.retention(identifier)
    stay, go = found.selection.stay, found.selection.go
    fates = [
        pb.SnapshotFate(
            snapshot_id=one.snapshot_id,
            committed_ms=milliseconds(one.committed_at),
            goes=one.snapshot_id in go,
            ground="" if one.snapshot_id in go else stay[one.snapshot_id].ground.value,
            reason=go[one.snapshot_id] if one.snapshot_id in go else stay[one.snapshot_id].reason,
        )
        for one in found.history.snapshots
    ]
    refs = [
        pb.RefFate(
            name=ref.name,
            snapshot_id=ref.snapshot_id,
            branch=ref.is_branch,
            goes=ref.name in found.selection.refs,
            reason=found.selection.refs.get(ref.name, ""),
        )
        for ref in found.history.refs
    ]
    return pb.Retention(
        table=str(identifier), snapshots=fates, refs=refs, going=len(go), staying=found.selection.staying
    )


def _compared(facts: SnapshotFacts, totals: SnapshotTotals) -> pb.ComparedSnapshot:
    def told(value: int | None) -> int:
        return -1 if value is None else value

    return pb.ComparedSnapshot(
        snapshot_id=facts.snapshot_id,
        committed_ms=milliseconds(facts.committed_at),
        operation=facts.operation,
        totals=pb.SnapshotTotals(
            data_files=told(totals.data_files),
            delete_files=told(totals.delete_files),
            records=told(totals.records),
            position_deletes=told(totals.position_deletes),
            equality_deletes=told(totals.equality_deletes),
            bytes=told(totals.bytes),
        ),
    )
