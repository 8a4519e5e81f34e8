"""Tables as messages."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from amoro_core.admin.messages.values import files, milliseconds
from amoro_core.model.config import EffectiveProperty, Enabled
from amoro_core.model.files import DeleteFile
from amoro_core.model.plans import Evaluation
from amoro_core.model.processes import OptimizingProcess
from amoro_core.model.tables import (
    FAULTLESS,
    HealthParts,
    SnapshotFacts,
    TableFacts,
    TableIdentifier,
    TableRuntime,
    TableSchema,
)
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2
from amoro_core.services.blockers import HeldBlocker
from amoro_core.services.inspecting import ShownFiles


def table(
    runtime: TableRuntime, active: OptimizingProcess | None, blockers: Sequence[pb.Blocker], nobody: str
) -> pb.Table:
    """The table's state; `nobody` says why no optimizer takes its tasks."""
    return pb.Table(
        table=str(runtime.identifier),
        table_uuid=runtime.uuid,
        format=runtime.format,
        format_version=runtime.format_version,
        location=runtime.location,
        group=runtime.group,
        status=runtime.status.value,
        status_reason=_status_reason(runtime, active),
        status_since_ms=milliseconds(runtime.status_since),
        enabled=runtime.enabled,
        enabled_origin=runtime.enabled_origin,
        snapshot_id=runtime.snapshot_id or 0,
        files=files(runtime.summary),
        last_optimized_ms=milliseconds(runtime.last_optimized_at),
        next_due_ms=milliseconds(runtime.next_due_at),
        retry_at_ms=milliseconds(runtime.retry_at),
        process_id=active.process_id if active else "",
        evaluated_ms=milliseconds(runtime.evaluated_at),
        health_score=runtime.summary.health_score,
        health_parts=health_parts(runtime.health) if runtime.health else None,
        blockers=blockers,
        no_optimizer=nobody,
        table_id=runtime.table_id,
    )


def _status_reason(runtime: TableRuntime, active: OptimizingProcess | None) -> str:
    if active is not None and active.waiting:
        return active.waiting
    return f"{runtime.refusal}: {runtime.status_reason}" if runtime.refusal else runtime.status_reason


def blocker(held: HeldBlocker) -> pb.Blocker:
    """The blocker, with its table."""
    item = held.blocker
    return pb.Blocker(
        blocker_id=item.blocker_id,
        table=str(held.table),
        operations=sorted(item.operations),
        reason=item.reason,
        created_ms=milliseconds(item.created_at),
        expires_ms=milliseconds(item.expires_at),
    )


def health_parts(parts: HealthParts) -> pb.HealthParts:
    """The points left by each kind of fault."""
    return pb.HealthParts(
        small_files=parts.small_files,
        equality_deletes=parts.equality_deletes,
        position_deletes=parts.position_deletes,
    )


def table_properties(
    identifier: TableIdentifier, properties: Sequence[EffectiveProperty], enabled: Enabled
) -> pb.GetTablePropertiesResponse:
    """The effective properties, and whether the table is optimized."""
    return pb.GetTablePropertiesResponse(
        table=str(identifier),
        properties=[
            pb.Setting(key=item.key, value=item.value, origin=item.origin.value, default=item.default)
            for item in properties
        ],
        enabled=enabled.value,
        enabled_origin=enabled.origin,
    )


def table_health(identifier: TableIdentifier, evaluation: Evaluation) -> pb.TableHealth:
    """The health found by an evaluation, and its parameters."""
    parts, summary, basis = evaluation.health or FAULTLESS, evaluation.summary, evaluation.basis
    return pb.TableHealth(
        table=str(identifier),
        health_score=parts.score,
        small_files=parts.small_files,
        equality_deletes=parts.equality_deletes,
        position_deletes=parts.position_deletes,
        files=files(evaluation.summary),
        reason=evaluation.reason,
        fragmentation=summary.fragment_files / summary.data_files if summary.data_files else 0.0,
        weight=basis.weight if basis else 0.0,
        fragment_bytes=basis.fragment_size if basis else 0,
        target_bytes=basis.min_target_size if basis else 0,
        full_weight_files=basis.full_weight_files if basis else 0,
    )


def table_files(shown: ShownFiles) -> pb.ListTableFilesResponse:
    """A page of live files."""
    return pb.ListTableFilesResponse(
        snapshot_id=shown.snapshot_id or 0,
        total=shown.files.total,
        next=shown.files.next,
        files=[
            pb.TableFile(
                path=item.file.path,
                content=f"{item.file.kind.value}-deletes" if isinstance(item.file, DeleteFile) else "data",
                partition=item.partition,
                spec_id=item.file.spec_id,
                records=item.file.record_count,
                bytes=item.file.size_bytes,
                sequence_number=item.file.sequence_number,
                deletes=item.deletes,
                dangling=item.is_dangling,
            )
            for item in shown.files.items
        ],
    )


def snapshot(facts: SnapshotFacts) -> pb.Snapshot:
    """The snapshot, with the branches and tags at it."""
    return pb.Snapshot(
        snapshot_id=facts.snapshot_id,
        parent_snapshot_id=facts.parent_id or 0,
        sequence_number=facts.sequence_number,
        committed_ms=milliseconds(facts.committed_at),
        operation=facts.operation,
        summary=facts.summary,
        refs=facts.refs,
    )


def kept_table(runtime: TableRuntime) -> pb.Table:
    """What the table is, without what goes on around it."""
    return table(runtime, None, (), "")


def table_metadata(
    facts: TableFacts, schema: TableSchema, committed_at: datetime | None, properties: Mapping[str, str]
) -> snapshots_pb2.TableMetadata:
    """The metadata; `properties` are the table's own, without secrets."""
    columns = (
        snapshots_pb2.SchemaColumn(
            field_id=one.field_id,
            name=one.name,
            type=one.type,
            required=one.is_required,
            doc=one.doc,
            identifies=one.identifies,
        )
        for one in schema.columns
    )
    partition = (
        snapshots_pb2.PartitionColumn(
            field_id=one.field_id, name=one.name, transform=one.transform, source_id=one.source_id, source=one.source
        )
        for one in schema.partition
    )
    return snapshots_pb2.TableMetadata(
        table=str(facts.identifier),
        format=facts.format,
        format_version=facts.format_version,
        location=facts.location,
        schema_id=schema.schema_id,
        columns=columns,
        spec_id=schema.spec_id,
        partition=partition,
        properties=properties,
        snapshot_id=facts.snapshot_id or 0,
        committed_ms=milliseconds(committed_at),
    )
