"""Operations of clustering."""

from collections import Counter
from collections.abc import Sequence
from datetime import date

from amoro_core.admin.context import Call, Services, as_message, milliseconds
from amoro_core.admin.processes import find_process
from amoro_core.errors import InvalidArgument
from amoro_core.model.clustering import CLUSTER, ClusterOptions
from amoro_core.model.plans import PartitionKey, saving_of
from amoro_core.model.scan_stats import ColumnFilter, Operator, ScanRecord
from amoro_core.model.tables import TableRuntime
from amoro_core.planning.clustering.auto_columns import ENOUGH_SCANS
from amoro_core.planning.clustering.model import ClusterVerdict, ColumnDepth, GroupPlan, PartitionDepth
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.maintenance import Maintained


def _plan(runtime: TableRuntime, verdict: ClusterVerdict, tasks: int) -> pb.Plan:
    """What clustering would do, partition by partition."""
    groups: dict[PartitionKey, list[GroupPlan]] = {}
    for group in verdict.plan.groups if verdict.plan else ():
        groups.setdefault(group.key, []).append(group)
    columns = (column for partition in verdict.partitions for column in partition.columns)
    partitions = [_partition(partition, groups.get(partition.key, [])) for partition in verdict.partitions]
    saving = saving_of(partitions)
    return pb.Plan(
        table=str(runtime.identifier),
        snapshot_id=verdict.plan.snapshot_id if verdict.plan else runtime.snapshot_id or 0,
        type=CLUSTER if tasks else "",
        reason=verdict.reason,
        partitions=partitions,
        tasks=tasks,
        files=as_message(pb.FileSummary, runtime.summary),
        next_at_ms=milliseconds(verdict.due_at),
        health_score=runtime.summary.health_score,
        enabled=runtime.enabled,
        enabled_origin=runtime.enabled_origin,
        layout=verdict.layout_name,
        notes=[*verdict.notes, *dict.fromkeys(column.note for column in columns if column.note)],
        cpu_ms=sum(group.core_ms for group in verdict.plan.groups) if verdict.plan else 0,
        saved_files=saving.files,
        saved_bytes=saving.bytes,
    )


def _scan_record(scan: pb.ToldScan) -> ScanRecord:
    """The scans of the request. Raises InvalidArgument."""
    try:
        day = date.fromisoformat(scan.day) if scan.day else None
        filters = {ColumnFilter(scan_filter.column, Operator(scan_filter.operator)) for scan_filter in scan.filters}
    except ValueError as error:
        raise InvalidArgument(
            f"scans are malformed: {error}", hint="Name a day as 2026-11-22, an operator of eq, range, in, prefix."
        ) from error
    ordered = tuple(sorted(filters, key=lambda item: (item.column, item.operator)))
    return ScanRecord(day, ordered, scan.scans, scan.place, scan.source)


def _partition(depth: PartitionDepth, groups: Sequence[GroupPlan]) -> pb.PlannedPartition:
    read = sum(len(group.files) for group in groups)
    deletes = [delete for group in groups for file in group.files for delete in file.deletes]
    equality = {delete.identity for delete in deletes if delete.equality_ids}
    return pb.PlannedPartition(
        partition=depth.path,
        spec_id=depth.key.spec_id,
        type=CLUSTER if groups else "",
        reason=depth.reason,
        data_files=depth.files,
        data_bytes=depth.bytes,
        equality_delete_files=len(equality),
        position_delete_files=len({delete.identity for delete in deletes} - equality),
        deletion_vectors=len({delete.identity for delete in deletes if delete.is_vector}),
        input_bytes=sum(group.input_bytes for group in groups),
        expected_files=depth.files - read + sum(group.output_count for group in groups),
        tasks=len(groups),
        columns=[as_message(pb.ColumnDepth, column, column=column.name) for column in depth.columns],
    )


def _columns(partitions: Sequence[PartitionDepth]) -> list[pb.ColumnDepth]:
    """The columns over all partitions, each weighted by its bytes."""
    columns: dict[str, list[tuple[int, ColumnDepth]]] = {}
    for partition in partitions:
        for column in partition.columns:
            columns.setdefault(column.name, []).append((max(1, partition.bytes), column))
    return [_mean(name, weighted) for name, weighted in columns.items()]


def _mean(name: str, weighted: Sequence[tuple[int, ColumnDepth]]) -> pb.ColumnDepth:
    total = sum(weight for weight, _ in weighted)
    return pb.ColumnDepth(
        column=name,
        depth=sum(weight * column_depth.depth for weight, column_depth in weighted) / total,
        ideal=sum(weight * column_depth.ideal for weight, column_depth in weighted) / total,
        all_files=sum(weight * column_depth.all_files for weight, column_depth in weighted) / total,
        note=next((column_depth.note for _, column_depth in weighted if column_depth.note), ""),
    )


def is_clustering(request: pb.PlanTableRequest | pb.OptimizeTableRequest) -> bool:
    """Whether the request is about the order of rows. Raises InvalidArgument for options that belong to that alone."""
    if request.type.lower() == CLUSTER:
        if request.force:
            raise InvalidArgument("force needs the type full", hint="All groups: --type cluster --full.")
        return True
    if request.HasField("cluster") and request.cluster != pb.ClusterOptions():
        raise InvalidArgument(
            "columns, strategy, partitions, full and schedule-only need the type cluster", hint="Add: --type cluster"
        )
    return False


def plan_clustering(services: Services, request: pb.PlanTableRequest) -> pb.Plan:
    """The plan that clustering the table would have now."""
    identifier = services.catalogs.resolve(request.table)
    result = services.maintaining.preview(identifier, CLUSTER, cluster=_options(request.cluster), where=request.where)
    return _plan(services.tables.find(identifier), _verdict(result), _tasks(result))


def cluster_table(services: Services, request: pb.OptimizeTableRequest) -> pb.OptimizeTableResponse:
    """Plan a process that clusters the table, and start it unless it is to wait."""
    runtime = services.tables.require_maintainable(services.catalogs.resolve(request.table))
    result = services.maintaining.begin(
        runtime.table_id, CLUSTER, trigger="request", cluster=_options(request.cluster), where=request.where
    )
    answer = pb.OptimizeTableResponse(plan=_plan(runtime, _verdict(result), _tasks(result)))
    if result.process_id:
        process = find_process(services, result.process_id)
        answer.process_id, answer.no_optimizer = result.process_id, process.no_optimizer
    return answer


def start_process(services: Services, request: pb.StartProcessRequest, call: Call) -> pb.Process:
    """Start a plan that was stored. Raises IllegalState for one that waits for no start."""
    return find_process(services, services.starting.start(request.process_id).process_id)


def show_clustering(services: Services, request: pb.ShowClusteringRequest, call: Call) -> pb.Clustering:
    """How well the table is clustered, what would be done next, and its plans that were not started."""
    identifier = services.catalogs.resolve(request.table)
    result = services.maintaining.preview(identifier, CLUSTER, cluster=ClusterOptions(shows=True))
    runtime, verdict = services.tables.find(identifier), _verdict(result)
    groups = [group for partition in verdict.partitions for group in partition.groups]
    still_open = [group for group in groups if group.is_open]
    sealed = [group for group in groups if not group.is_open]
    return pb.Clustering(
        table=str(runtime.identifier),
        layout=verdict.layout_name,
        files=sum(partition.files for partition in verdict.partitions),
        bytes=sum(partition.bytes for partition in verdict.partitions),
        sealed_groups=len(sealed),
        sealed_bytes=sum(group.live_bytes for group in sealed),
        open_groups=len(still_open),
        open_bytes=sum(group.live_bytes for group in still_open),
        unclustered_files=sum(partition.unclustered_files for partition in verdict.partitions),
        unclustered_bytes=sum(partition.unclustered_bytes for partition in verdict.partitions),
        columns=_columns(verdict.partitions),
        next=_plan(runtime, verdict, _tasks(result)),
        waiting=services.starting.waiting(runtime.table_id) if runtime.table_id else [],
    )


def learn_scans(services: Services, request: pb.LearnScansRequest, call: Call) -> pb.LearnedScans:
    """Keep a report of how the table is read; the columns filtered by most come first in the answer."""
    runtime = services.tables.ensure(services.catalogs.resolve(request.table))
    learned = services.learning.learn(runtime, [_scan_record(scan) for scan in request.scans])
    columns: Counter[str] = Counter()
    for scan_use in learned.kept:
        columns.update({item.column: scan_use.scans for item in scan_use.filters})
    days = sorted(scan.day for scan in learned.kept)
    return pb.LearnedScans(
        table=str(runtime.identifier),
        scans=sum(scan.scans for scan in learned.kept),
        unfiltered_scans=sum(scan.scans for scan in learned.kept if not scan.filters),
        old_scans=learned.old_scans,
        first_day=days[0].isoformat() if days else "",
        last_day=days[-1].isoformat() if days else "",
        columns=[
            pb.LearnedColumn(column=name, scans=scans)
            for name, scans in sorted(columns.items(), key=lambda item: (-item[1], item[0]))
        ],
        recent_scans=learned.recent_scans,
        enough_scans=ENOUGH_SCANS,
    )


def suggest_columns(services: Services, request: pb.SuggestColumnsRequest, call: Call) -> pb.SuggestedColumns:
    """Columns that the table may be clustered by, and what `auto` chooses."""
    identifier = services.catalogs.resolve(request.table)
    suggested = services.learning.suggest(identifier)
    choice, auto = suggested.auto.choice, pb.ChosenColumns()
    if choice is not None:
        columns = [pb.ChosenColumn(column=name, saved=choice.evidence.get(name, 0.0)) for name in choice.columns]
        auto = as_message(pb.ChosenColumns, choice, columns=columns)
    return as_message(
        pb.SuggestedColumns, suggested, table=str(identifier), auto=auto, auto_reason=suggested.auto.reason
    )


def _verdict(result: Maintained) -> ClusterVerdict:
    if isinstance(result.verdict, ClusterVerdict):
        return result.verdict
    return ClusterVerdict(False, result.reason, result.due_at)


def _options(options: pb.ClusterOptions) -> ClusterOptions:
    return ClusterOptions(
        tuple(options.columns), options.strategy, options.partitions, options.full, options.schedule_only
    )


def _tasks(result: Maintained) -> int:
    return len(result.plan.tasks) if result.plan else 0
