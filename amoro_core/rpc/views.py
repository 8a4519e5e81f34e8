"""Values of the services as messages of the AdminService."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import isfinite

from amoro_core import errors
from amoro_core.errors import AmoroError
from amoro_core.model.config import EffectiveProperty, Enabled
from amoro_core.model.containers import Instance, InstanceStatus, InstancesView
from amoro_core.model.files import DeleteFile
from amoro_core.model.plans import Evaluation, PartitionVerdict
from amoro_core.model.processes import (
    Attempt,
    CatalogConfig,
    Optimizer,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    Receipt,
    TaskStatus,
)
from amoro_core.model.tables import FAULTLESS, FileSummary, HealthParts, SnapshotFacts, TableIdentifier, TableRuntime
from amoro_core.model.tokens import AccessToken
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.blockers import HeldBlocker
from amoro_core.services.catalogs import Selected
from amoro_core.services.groups import GroupView
from amoro_core.services.inspecting import ShownFiles
from amoro_core.services.optimizers import Life
from amoro_core.services.overview import ProcessSummary
from amoro_core.services.tables import Preview


def milliseconds(moment: datetime | None) -> int:
    """UTC milliseconds since the epoch; 0 for never."""
    return 0 if moment is None else round(moment.timestamp() * 1000)


def catalog(
    config: CatalogConfig, refusal: str | None, shown: Callable[[Iterable[tuple[str, str]]], dict[str, str]]
) -> pb.Catalog:
    """The catalog; `shown` masks secrets among properties."""
    return pb.Catalog(
        name=config.name,
        origin=config.origin,
        properties=shown(config.properties),
        site_files=[
            pb.SiteFile(name=file.name, bytes=len(file.content.encode()), properties=shown(file.properties))
            for file in config.site_files
        ],
        allowed_locations=config.allowed_locations,
        commits=refusal is None,
        refusal=refusal or "",
    )


def table(
    runtime: TableRuntime, active: OptimizingProcess | None, blockers: Sequence[pb.Blocker], nobody: str
) -> pb.Table:
    return pb.Table(
        table=str(runtime.identifier),
        table_uuid=runtime.uuid,
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
        retry_at_ms=milliseconds(runtime.retry_at),
        process_id=active.process_id if active else "",
        evaluated_ms=milliseconds(runtime.evaluated_at),
        health_score=runtime.summary.health_score,
        health_parts=health_parts(runtime.health) if runtime.health else None,
        blockers=blockers,
        no_optimizer=nobody,
    )


def _status_reason(runtime: TableRuntime, active: OptimizingProcess | None) -> str:
    if active is not None and active.waiting:
        return active.waiting
    return f"{runtime.refusal}: {runtime.status_reason}" if runtime.refusal else runtime.status_reason


def blocker(held: HeldBlocker) -> pb.Blocker:
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
    return pb.HealthParts(
        small_files=parts.small_files,
        equality_deletes=parts.equality_deletes,
        position_deletes=parts.position_deletes,
    )


def table_properties(
    identifier: TableIdentifier, properties: Sequence[EffectiveProperty], enabled: Enabled
) -> pb.GetTablePropertiesResponse:
    return pb.GetTablePropertiesResponse(
        table=str(identifier),
        properties=[pb.Setting(key=item.key, value=item.value, origin=item.origin.value) for item in properties],
        enabled=enabled.value,
        enabled_origin=enabled.origin,
    )


def table_health(identifier: TableIdentifier, evaluation: Evaluation) -> pb.TableHealth:
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


def selected(found: Selected) -> pb.SelectTablesResponse:
    return pb.SelectTablesResponse(
        tables=[str(table) for table in found.tables],
        unlisted=[
            pb.UnlistedCatalog(
                catalog=name,
                code=error.code,
                exit_status=error.exit_status,
                message=error.message,
                hint=error.hint or error.remedy,
            )
            for name, error in found.unlisted
        ],
    )


def token(item: AccessToken, secret: str = "") -> pb.Token:
    return pb.Token(name=item.name, kind=item.role.value, created_ms=milliseconds(item.created_at), token=secret)


def snapshot(facts: SnapshotFacts) -> pb.Snapshot:
    return pb.Snapshot(
        snapshot_id=facts.snapshot_id,
        parent_snapshot_id=facts.parent_id or 0,
        sequence_number=facts.sequence_number,
        committed_ms=milliseconds(facts.committed_at),
        operation=facts.operation,
        summary=facts.summary,
        refs=facts.refs,
    )


def files(summary: FileSummary) -> pb.FileSummary:
    return pb.FileSummary(
        data_files=summary.data_files,
        data_bytes=summary.data_bytes,
        fragment_files=summary.fragment_files,
        undersized_files=summary.undersized_files,
        equality_delete_files=summary.equality_delete_files,
        position_delete_files=summary.position_delete_files,
        delete_bytes=summary.delete_bytes,
        dangling_delete_files=summary.dangling_delete_files,
        records=summary.records,
    )


def plan(preview: Preview) -> pb.Plan:
    runtime, evaluation = preview.runtime, preview.evaluation
    message = pb.Plan(
        type=preview.plan.type.value if preview.plan else "",
        tasks=len(preview.plan.tasks) if preview.plan else 0,
        partitions=[
            partition(verdict, path)
            for verdict, path in zip(evaluation.partitions, preview.partition_paths, strict=True)
        ],
        disputed_deletes=preview.disputed_deletes,
    )
    message.MergeFrom(evaluated(runtime, evaluation))
    return message


def evaluated(runtime: TableRuntime, evaluation: Evaluation) -> pb.Plan:
    """What an evaluation alone says: no partitions, no tasks."""
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
    return pb.PlannedPartition(
        partition=path,
        spec_id=verdict.key.spec_id,
        type=verdict.type.value if verdict.type else "",
        reason=verdict.reason,
        data_files=verdict.data_files,
        equality_delete_files=verdict.equality_delete_files,
        position_delete_files=verdict.position_delete_files,
        input_bytes=verdict.input_bytes,
        expected_files=verdict.expected_files,
        tasks=verdict.tasks,
    )


def process(summary: ProcessSummary, nobody: str) -> pb.Process:
    """The process without its tasks; `revertible` of its receipt is not said."""
    item, figures = summary.process, summary.figures
    return pb.Process(
        process_id=item.process_id,
        table=str(summary.table),
        type=item.type.value,
        status=item.status.value,
        trigger=item.trigger,
        reason=item.reason,
        snapshot_id=item.snapshot_id,
        created_ms=milliseconds(item.created_at),
        finished_ms=milliseconds(item.finished_at),
        failure_code=item.failure_code,
        failure=item.failure,
        receipt=receipt(item.receipt) if item.receipt else None,
        tasks_total=figures.total,
        tasks_done=figures.by_status[TaskStatus.SUCCESS],
        exit_status=exit_status(item.status, item.failure_code),
        where=item.where,
        waiting=item.waiting,
        retry_ms=milliseconds(item.delay.retry_at if item.delay else None),
        no_optimizer=nobody,
        task_counts=pb.TaskCounts(**{status.value: tasks for status, tasks in figures.by_status.items()}),
        input_bytes=figures.input_bytes,
        input_bytes_done=figures.input_bytes_done,
        busy_optimizers=figures.busy_optimizers,
    )


def task(item: OptimizingTask, progress: Mapping[Attempt, tuple[int, int]]) -> pb.TaskInfo:
    """The task with the rows that its optimizer said last, done and in all. What succeeded has all of them."""
    who = item.thread or item.ended_on
    rows = progress.get(Attempt(item.task_id, item.attempt), (0, 0))
    done, total = (item.input_rows, item.input_rows) if item.status is TaskStatus.SUCCESS else rows
    return pb.TaskInfo(
        task_id=item.task_id.number,
        status=item.status.value,
        attempt=item.attempt,
        optimizer_id=who.optimizer_id if who else "",
        thread_id=who.thread_id if who else 0,
        partition=item.partition,
        input_files=item.input_files,
        input_bytes=item.input_bytes,
        failure=item.failure,
        started_ms=milliseconds(item.acked_at),
        finished_ms=milliseconds(item.finished_at),
        rows_done=done,
        rows_total=total,
        scheduled_ms=milliseconds(item.scheduled_at),
        failed_runs=item.failed_runs,
        lost_attempts=item.lost_attempts,
        failure_code=item.failure_code,
    )


def receipt(made: Receipt) -> pb.Receipt:
    return pb.Receipt(
        data_files_before=made.data_files_before,
        data_files_after=made.data_files_after,
        delete_files_before=made.delete_files_before,
        delete_files_after=made.delete_files_after,
        equality_delete_files_after=made.equality_delete_files_after,
        bytes_before=made.bytes_before,
        bytes_after=made.bytes_after,
        rows_before=made.rows_before,
        rows_after=made.rows_after,
        snapshot_id=made.snapshot_id,
        base_snapshot_id=made.base_snapshot_id,
        duration_ms=made.duration_ms,
        disputed_deletes=made.disputed_deletes,
    )


def group(view: GroupView, kept: InstancesView, nobody: str, *, uses: bool) -> pb.Group:
    """`uses` False: without what its tables used, and without its instances one by one."""
    return pb.Group(
        name=view.group.name,
        scheduling_policy=view.group.scheduling_policy,
        properties=dict(view.group.properties),
        optimizers=view.optimizers,
        threads=view.threads,
        tables=view.tables,
        running_tasks=view.running_tasks,
        uses=[
            pb.GroupUse(
                table=str(use.table),
                quota=use.quota,
                limit=use.limit,
                running_tasks=use.running_tasks,
                occupation=use.occupation if isfinite(use.occupation) else -1,
            )
            for use in view.uses
        ]
        if uses
        else [],
        container=view.group.container,
        wanted_instances=kept.wanted,
        instances=[_instance(item) for item in kept.instances] if uses else [],
        failed_starts=kept.failed_starts,
        start_failure=kept.failure,
        retry_start_ms=milliseconds(kept.retry_at),
        gave_up_starting=kept.has_given_up,
        no_optimizer=nobody,
    )


def _instance(item: Instance) -> pb.Instance:
    return pb.Instance(
        resource_id=item.resource.resource_id,
        container=item.resource.container,
        state=item.resource.state.value,
        started_ms=milliseconds(item.resource.started_at),
        optimizer_id=item.optimizer_id,
        handle=item.resource.handle,
    )


def instance_status(status: InstanceStatus) -> pb.InstanceStatus:
    resource, observed = status.instance.resource, status.observed
    return pb.InstanceStatus(
        resource_id=resource.resource_id,
        group=resource.group,
        container=resource.container,
        state=resource.state.value,
        started_ms=milliseconds(resource.started_at),
        since_ms=milliseconds(resource.since),
        optimizer_id=status.instance.optimizer_id,
        handle=resource.handle,
        liveness=observed.liveness.value,
        detail=observed.detail,
    )


def optimizer(item: Optimizer, life: Life, running: int) -> pb.Optimizer:
    return pb.Optimizer(
        optimizer_id=item.optimizer_id,
        group=item.group,
        threads=item.threads,
        memory_bytes=item.memory_bytes,
        registered_ms=milliseconds(item.registered_at),
        touched_ms=milliseconds(life.touched_at),
        running_tasks=running,
        labels=dict(item.labels),
        draining=item.draining,
    )


def exit_status(status: ProcessStatus, failure_code: str) -> int:
    """What a command that waited for the process ends with."""
    match status:
        case ProcessStatus.PARTIAL:
            return errors.Conflict.exit_status
        case ProcessStatus.COMMIT_UNKNOWN:
            return errors.CommitUnknown.exit_status
        case ProcessStatus.FAILED | ProcessStatus.CLOSED:
            return _EXITS.get(failure_code, errors.WorkFailed.exit_status)
    return 0


def _tree(kind: type[AmoroError]) -> Iterator[type[AmoroError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


_EXITS = {kind.code: kind.exit_status for kind in _tree(AmoroError)}
