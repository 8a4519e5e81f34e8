"""Operations that plan, optimize and verify a table."""

import hashlib
import zlib
from collections.abc import Sequence

from amoro_core.admin.clustering import cluster_table, is_clustering, plan_clustering
from amoro_core.admin.context import Call, Services, files, milliseconds, requested_type
from amoro_core.admin.processes import messages_of, process_summary
from amoro_core.documents.formatting import many
from amoro_core.errors import InvalidArgument
from amoro_core.model.plans import LARGEST, Evaluation, PartitionVerdict
from amoro_core.model.tables import TableIdentifier, TableRuntime
from amoro_core.model.verification import ComparedPartition, Comparison, Verification
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.planning import KEPT_FOR
from amoro_core.services.tables import Preview


def plan_message(preview: Preview) -> pb.Plan:
    """What would be done, partition by partition."""
    runtime, evaluation = preview.runtime, preview.evaluation
    message = pb.Plan(
        type=preview.plan.type.value if preview.plan else "",
        tasks=len(preview.plan.tasks) if preview.plan else 0,
        partitions=[
            partition_message(verdict, path)
            for verdict, path in zip(evaluation.partitions, preview.partition_paths, strict=True)
        ],
        disputed_deletes=preview.disputed_deletes,
        copying=preview.copying,
    )
    message.MergeFrom(evaluation_message(runtime, evaluation))
    return message


def evaluation_message(runtime: TableRuntime, evaluation: Evaluation) -> pb.Plan:
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


def partition_message(verdict: PartitionVerdict, path: str) -> pb.PlannedPartition:
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


def verification_message(identifier: TableIdentifier, found: Verification) -> pb.Verification:
    """Everything that was compared, and what is wrong."""
    return pb.Verification(
        table=str(identifier),
        snapshot_id=found.selection.snapshot_id,
        sound=found.is_sound,
        comparisons=[comparison_message(item) for item in found.comparisons],
        other_snapshots=found.selection.others,
        note=found.selection.note,
        files=found.files,
        dangling_deletes=found.dangling_deletes,
        problems=found.problems,
    )


def comparison_message(item: Comparison) -> pb.Comparison:
    """Two snapshots compared."""
    return pb.Comparison(
        before=item.span.before,
        after=item.span.after,
        process_ids=item.span.process_ids,
        files_in_both=item.files_in_both,
        rows_before=sum(partition.before.rows for partition in item.partitions),
        rows_after=sum(partition.after.rows for partition in item.partitions),
        equal=item.is_equal,
        partitions=[compared_message(partition) for partition in item.partitions],
        disputed_deletes=item.disputed_deletes,
    )


def compared_message(partition: ComparedPartition) -> pb.ComparedPartition:
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


MOST_PARTITIONS = 500
_MOST_CHANGES = 10


def get_saved_plan(services: Services, request: pb.GetSavedPlanRequest, call: Call) -> pb.SavedPlan:
    """The kept plan of the table. Raises NotFound."""
    return find(services, request.table, request.plan_id)


def find(services: Services, table: str, plan_id: str) -> pb.SavedPlan:
    """The plan that is kept for that table. Raises NotFound."""
    kept = services.saved_plans.get(services.catalogs.resolve(table), plan_id)
    found = pb.SavedPlan.FromString(zlib.decompress(kept.content))
    found.plan_id = found.plan.plan_id = kept.plan_id
    found.expires_ms = milliseconds(kept.saved_at + KEPT_FOR)
    return found


def keep(services: Services, request: pb.PlanTableRequest, plan: pb.Plan, differences: Sequence[str] = ()) -> None:
    """Keep the plan that the request has made, and write its id into it.

    Raises InvalidArgument where it is too large even without its partitions.
    """
    kept = pb.SavedPlan(
        table=plan.table,
        type=request.type,
        force=request.force,
        where=request.where,
        cluster=request.cluster if request.HasField("cluster") else None,
        plan=plan,
        work_hash=_work_hash(plan),
        changes=differences,
    )
    ordered = sorted(plan.partitions, key=lambda one: not one.type)
    identifier, shown = services.catalogs.resolve(plan.table), MOST_PARTITIONS
    while len(content := _packed(kept, ordered, shown)) > LARGEST:
        if not shown:
            raise InvalidArgument("the plan is too large to be kept", hint="Shorten the condition.")
        shown = shown * 3 // 4
    plan.plan_id = services.saved_plans.keep(identifier, content).plan_id


def request_of(kept: pb.SavedPlan) -> pb.PlanTableRequest:
    """The request that has made the plan."""
    request = pb.PlanTableRequest(table=kept.table, type=kept.type, force=kept.force, where=kept.where)
    if kept.HasField("cluster"):
        request.cluster.CopyFrom(kept.cluster)
    return request


def require_bare(request: pb.OptimizeTableRequest) -> None:
    """Raises InvalidArgument where the request names a kept plan and says what to plan, too."""
    if request != pb.OptimizeTableRequest(table=request.table, plan_id=request.plan_id):
        raise InvalidArgument(
            f"the plan {request.plan_id} says type, condition and clustering itself",
            hint="Leave them out, or the plan.",
        )


def changes(before: pb.SavedPlan, now: pb.Plan) -> tuple[str, ...]:
    """How the plan of now differs from the one that was kept, in sentences; () if the same would be rewritten."""
    told, was = [], before.plan
    if was.snapshot_id != now.snapshot_id:
        told.append(f"The table's snapshot is {now.snapshot_id}, it was {was.snapshot_id}.")
    if was.type != now.type:
        told.append(f"The type is {now.type or 'none: there is nothing to do'}, it was {was.type or 'none'}.")
    if was.layout != now.layout:
        told.append(f"The layout is {now.layout or 'none'}, it was {was.layout or 'none'}.")
    if was.tasks != now.tasks:
        told.append(f"It has {many(now.tasks, 'task')}, it had {was.tasks:,}.")
    old, new = _by_partition(was), _by_partition(now)
    # If only a part of the plan was kept, it is unknown whether a further partition is new.
    is_whole = not before.more_partitions or len(old) < len(was.partitions)
    differing = [key for key in ({**old, **new} if is_whole else old) if old.get(key) != new.get(key)]
    told += [_told(key, old.get(key), new.get(key)) for key in differing[:_MOST_CHANGES]]
    if len(differing) > _MOST_CHANGES:
        told.append(f"{len(differing) - _MOST_CHANGES:,} more partitions differ.")
    if not told and before.work_hash != _work_hash(now):
        told.append(f"Partitions beyond the first {len(old):,} differ.")
    return tuple(told)


_Key = tuple[int, str]
_Work = tuple[str, int, int]  # type, data files, bytes


def _packed(kept: pb.SavedPlan, partitions: Sequence[pb.PlannedPartition], shown: int) -> bytes:
    del kept.plan.partitions[:]
    kept.plan.partitions.extend(partitions[:shown])
    kept.more_partitions = max(0, len(partitions) - shown)
    return zlib.compress(kept.SerializeToString())


def _work_hash(plan: pb.Plan) -> str:
    hashed = hashlib.sha256(repr((plan.snapshot_id, plan.type, plan.layout, plan.tasks)).encode())
    for one in sorted(_by_partition(plan).items()):
        hashed.update(repr(one).encode())
    return hashed.hexdigest()


def _by_partition(plan: pb.Plan) -> dict[_Key, _Work]:
    return {
        (one.spec_id, one.partition): (one.type, one.data_files, one.input_bytes) for one in plan.partitions if one.type
    }


def _told(key: _Key, before: _Work | None, now: _Work | None) -> str:
    name = f"Partition {key[1]}" if key[1] else "The table"
    if now is None:
        return f"{name} is not rewritten any more."
    if before is None:
        return f"{name} is rewritten, too: {now[0]}, {many(now[1], 'data file')}."
    return f"{name}: {now[0]} of {many(now[1], 'data file')}, it was {before[0]} of {before[1]:,}."


def plan_table(services: Services, request: pb.PlanTableRequest, call: Call) -> pb.Plan:
    """The plan that optimizing the table would have now; it is kept for a while where the request says so."""
    made = _planned(services, request)
    if request.keep:
        keep(services, request, made)
    return made


def optimize_table(services: Services, request: pb.OptimizeTableRequest, call: Call) -> pb.OptimizeTableResponse:
    """Start a process on the table, if there is something to do; of a kept plan, if that is still the plan."""
    if request.plan_id:
        return _carry_out(services, request, call)
    if is_clustering(request):
        return cluster_table(services, request)
    requested = requested_type(request.type, request.force)
    runtime = services.tables.require_optimizable(services.catalogs.resolve(request.table))
    begun = services.planning.begin(
        runtime.table_id, trigger="request", requested=requested, force=request.force, where=request.where
    )
    answer = pb.OptimizeTableResponse(plan=evaluation_message(runtime, begun.evaluation))
    if begun.process_id is not None:
        summary = process_summary(services, begun.process_id)
        (process,) = messages_of(services, [summary])
        answer.plan.type, answer.plan.tasks = process.type, process.tasks_total
        answer.process_id, answer.no_optimizer = begun.process_id, process.no_optimizer
    return answer


def verify_table(services: Services, request: pb.VerifyTableRequest, call: Call) -> pb.Verification:
    """Compare rows before and after optimizing; the comparison stops once the caller has given up."""
    identifier = services.catalogs.resolve(request.table)
    found = services.verifying.verify(identifier, request.before or None, request.after or None, call.is_given_up)
    return verification_message(identifier, found)


def _planned(services: Services, request: pb.PlanTableRequest) -> pb.Plan:
    if is_clustering(request):
        return plan_clustering(services, request)
    requested = requested_type(request.type, request.force)
    identifier = services.catalogs.resolve(request.table)
    return plan_message(services.tables.preview(identifier, requested, request.force, request.where))


def _carry_out(services: Services, request: pb.OptimizeTableRequest, call: Call) -> pb.OptimizeTableResponse:
    """Begin what the kept plan says; if another plan would be made now, keep that and say what has changed."""
    require_bare(request)
    kept = find(services, request.table, request.plan_id)
    again = request_of(kept)
    now = _planned(services, again)
    if changed := changes(kept, now):
        keep(services, again, now, changed)
        return pb.OptimizeTableResponse(plan=now, changes=changed)
    asked = pb.OptimizeTableRequest(table=kept.table, type=kept.type, force=kept.force, where=kept.where)
    if again.HasField("cluster"):
        asked.cluster.CopyFrom(again.cluster)
    return optimize_table(services, asked, call)
