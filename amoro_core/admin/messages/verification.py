"""Comparisons of snapshots as messages of the AdminService."""

from amoro_core.model.tables import TableIdentifier
from amoro_core.model.verification import ComparedPartition, Comparison, Verification
from amoro_core.protocol import admin_pb2 as pb


def verification(identifier: TableIdentifier, found: Verification) -> pb.Verification:
    """Everything that was compared, and what is wrong."""
    return pb.Verification(
        table=str(identifier),
        snapshot_id=found.selection.snapshot_id,
        sound=found.is_sound,
        comparisons=[comparison(item) for item in found.comparisons],
        other_snapshots=found.selection.others,
        note=found.selection.note,
        files=found.files,
        dangling_deletes=found.dangling_deletes,
        problems=found.problems,
    )


def comparison(item: Comparison) -> pb.Comparison:
    """Two snapshots compared."""
    return pb.Comparison(
        before=item.span.before,
        after=item.span.after,
        process_ids=item.span.process_ids,
        files_in_both=item.files_in_both,
        rows_before=sum(partition.before.rows for partition in item.partitions),
        rows_after=sum(partition.after.rows for partition in item.partitions),
        equal=item.is_equal,
        partitions=[compared(partition) for partition in item.partitions],
        disputed_deletes=item.disputed_deletes,
    )


def compared(partition: ComparedPartition) -> pb.ComparedPartition:
    """One partition compared."""
    return pb.ComparedPartition(
        partition=partition.partition,
        spec_id=partition.spec_id,
        files_before=partition.files_before,
        files_after=partition.files_after,
        rows_before=partition.before.rows,
        rows_after=partition.after.rows,
        checksum_before=partition.before.checksum,
        checksum_after=partition.after.checksum,
        equal=partition.is_equal,
    )
