"""Plans as messages."""

from amoro_core.admin.messages.values import files, milliseconds
from amoro_core.model.plans import Evaluation, PartitionVerdict
from amoro_core.model.tables import TableRuntime
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.tables import Preview


def plan(preview: Preview) -> pb.Plan:
    """What would be done, partition by partition."""
    runtime, evaluation = preview.runtime, preview.evaluation
    message = pb.Plan(
        type=preview.plan.type.value if preview.plan else "",
        tasks=len(preview.plan.tasks) if preview.plan else 0,
        partitions=[
            partition(verdict, path)
            for verdict, path in zip(evaluation.partitions, preview.partition_paths, strict=True)
        ],
        disputed_deletes=preview.disputed_deletes,
        copying=preview.copying,
    )
    message.MergeFrom(evaluated(runtime, evaluation))
    return message


def evaluated(runtime: TableRuntime, evaluation: Evaluation) -> pb.Plan:
    """The result of an evaluation alone: no partitions, no tasks."""
    return pb.Plan(
        table=str(runtime.identifier),
        snapshot_id=evaluation.snapshot_id or 0,
        reason=evaluation.reason,
        files=files(evaluation.summary),
        next_at_ms=milliseconds(evaluation.due_at),
        health_score=evaluation.summary.health_score,
        enabled=runtime.enabled,
        enabled_origin=runtime.enabled_origin,
    )


def partition(verdict: PartitionVerdict, path: str) -> pb.PlannedPartition:
    """What would be done in one partition; `path` is its path."""
    return pb.PlannedPartition(
        partition=path,
        spec_id=verdict.key.spec_id,
        type=verdict.type.value if verdict.type else "",
        reason=verdict.reason,
        data_files=verdict.data_files,
        data_bytes=verdict.data_bytes,
        coarse_files=verdict.coarse_files,
        coarse_bytes=verdict.coarse_bytes,
        equality_delete_files=verdict.equality_delete_files,
        position_delete_files=verdict.position_delete_files,
        deletion_vectors=verdict.deletion_vectors,
        files_to_fold=verdict.files_to_fold,
        delete_files_to_fold=verdict.delete_files_to_fold,
        bytes_to_fold=verdict.bytes_to_fold,
        input_bytes=verdict.input_bytes,
        expected_files=verdict.expected_files,
        tasks=verdict.tasks,
    )
