"""Operations that plan, optimize, verify and query tables."""

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

from amoro_core.admin.clustering import cluster_table, is_clustering, plan_clustering
from amoro_core.admin.context import Call, Services, as_message, milliseconds, require, word
from amoro_core.admin.processes import find_process
from amoro_core.documents.formatting import many
from amoro_core.errors import InvalidArgument
from amoro_core.model.plans import LARGEST, Evaluation
from amoro_core.model.principals import Role
from amoro_core.model.tables import OptimizingType, TableRuntime
from amoro_core.model.verification import ComparedPartition, Comparison
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.planning import KEPT_FOR
from amoro_core.services.tables import Preview


def _plan(preview: Preview) -> pb.Plan:
    """What would be done, partition by partition."""
    message = _evaluation(preview.runtime, preview.evaluation)
    message.MergeFrom(
        pb.Plan(
            type=preview.plan.type.value if preview.plan else "",
            tasks=len(preview.plan.tasks) if preview.plan else 0,
            partitions=[
                as_message(pb.PlannedPartition, verdict, partition=path, spec_id=verdict.key.spec_id, columns=())
                for verdict, path in zip(preview.evaluation.partitions, preview.partition_paths, strict=True)
            ],
            disputed_deletes=preview.disputed_deletes,
            copying=preview.copying,
            predicted_ms=preview.predicted_ms,
            last_predicted_ms=preview.last.predicted_ms if preview.last else 0,
            last_measured_ms=preview.last.measured_ms if preview.last else 0,
        )
    )
    return message


def _evaluation(runtime: TableRuntime, evaluation: Evaluation) -> pb.Plan:
    """The result of an evaluation alone: no partitions, no tasks."""
    return pb.Plan(
        table=str(runtime.identifier),
        snapshot_id=evaluation.snapshot_id or 0,
        reason=evaluation.reason,
        files=as_message(pb.FileSummary, evaluation.summary),
        next_at_ms=milliseconds(evaluation.due_at),
        health_score=evaluation.summary.health_score,
        enabled=runtime.enabled,
        enabled_origin=runtime.enabled_origin,
        saved_files=evaluation.saving.files,
        saved_bytes=evaluation.saving.bytes,
    )


def _comparison(item: Comparison) -> pb.Comparison:
    return as_message(
        pb.Comparison,
        item,
        item.span,
        rows_before=sum(partition.before.rows for partition in item.partitions),
        rows_after=sum(partition.after.rows for partition in item.partitions),
        partitions=map(_compared_partition, item.partitions),
    )


def _compared_partition(item: ComparedPartition) -> pb.ComparedPartition:
    return as_message(
        pb.ComparedPartition,
        item,
        rows_before=item.before.rows,
        rows_after=item.after.rows,
        checksum_before=item.before.checksum,
        checksum_after=item.after.checksum,
    )


MOST_PARTITIONS = 500
_MOST_CHANGES = 10


def get_saved_plan(services: Services, request: pb.GetSavedPlanRequest, call: Call) -> pb.SavedPlan:
    """The kept plan of the table. Raises NotFound."""
    return _saved_plan(services, request.table, request.plan_id)


def _saved_plan(services: Services, table: str, plan_id: str) -> pb.SavedPlan:
    stored = services.planning.saved_plan(services.catalogs.resolve(table), plan_id)
    plan = pb.SavedPlan.FromString(zlib.decompress(stored.content))
    plan.plan_id = plan.plan.plan_id = stored.plan_id
    plan.expires_ms = milliseconds(stored.saved_at + KEPT_FOR)
    return plan


def keep(services: Services, request: pb.PlanTableRequest, plan: pb.Plan, differences: Sequence[str] = ()) -> None:
    """Keep the plan that the request has made, and write its id into it.

    Raises InvalidArgument where it is too large even without its partitions.
    """
    saved_plan = pb.SavedPlan(
        table=plan.table,
        type=request.type,
        force=request.force,
        where=request.where,
        cluster=request.cluster if request.HasField("cluster") else None,
        plan=plan,
        work_hash=_work_hash(plan),
        changes=differences,
    )
    ordered = sorted(plan.partitions, key=lambda item: not item.type)
    identifier, most = services.catalogs.resolve(plan.table), MOST_PARTITIONS
    while len(content := _packed(saved_plan, ordered, most)) > LARGEST:
        if not most:
            raise InvalidArgument("the plan is too large to be kept", hint="Shorten the condition.")
        most = most * 3 // 4
    plan.plan_id = services.planning.save_plan(identifier, content).plan_id


def request_of(plan: pb.SavedPlan) -> pb.PlanTableRequest:
    """The request that has made the plan."""
    cluster = plan.cluster if plan.HasField("cluster") else None
    return pb.PlanTableRequest(table=plan.table, type=plan.type, force=plan.force, where=plan.where, cluster=cluster)


def changes(before: pb.SavedPlan, now: pb.Plan) -> tuple[str, ...]:
    """How the plan of now differs from the one that was kept, in sentences; () if the same would be rewritten."""
    texts, was = [], before.plan
    if was.snapshot_id != now.snapshot_id:
        texts.append(f"The table's snapshot is {now.snapshot_id}, it was {was.snapshot_id}.")
    if was.type != now.type:
        texts.append(f"The type is {now.type or 'none: there is nothing to do'}, it was {was.type or 'none'}.")
    if was.layout != now.layout:
        texts.append(f"The layout is {now.layout or 'none'}, it was {was.layout or 'none'}.")
    if was.tasks != now.tasks:
        texts.append(f"It has {many(now.tasks, 'task')}, it had {was.tasks:,}.")
    old, new = _by_partition(was), _by_partition(now)
    # If only a part of the plan was kept, it is unknown whether a further partition is new.
    is_whole = not before.more_partitions or len(old) < len(was.partitions)
    differing = [key for key in ({**old, **new} if is_whole else old) if old.get(key) != new.get(key)]
    texts += [_difference(key, old.get(key), new.get(key)) for key in differing[:_MOST_CHANGES]]
    if len(differing) > _MOST_CHANGES:
        texts.append(f"{many(len(differing) - _MOST_CHANGES, 'more partition')} changed.")
    if not texts and before.work_hash != _work_hash(now):
        texts.append(f"Partitions beyond the first {len(old):,} differ.")
    return tuple(texts)


_Key = tuple[int, str]
_Work = tuple[str, int, int]  # type, data files, bytes


def _packed(saved: pb.SavedPlan, partitions: Sequence[pb.PlannedPartition], most: int) -> bytes:
    del saved.plan.partitions[:]
    saved.plan.partitions.extend(partitions[:most])
    saved.more_partitions = max(0, len(partitions) - most)
    return zlib.compress(saved.SerializeToString())


def _work_hash(plan: pb.Plan) -> str:
    hashed = hashlib.sha256(repr((plan.snapshot_id, plan.type, plan.layout, plan.tasks)).encode())
    for item in sorted(_by_partition(plan).items()):
        hashed.update(repr(item).encode())
    return hashed.hexdigest()


def _by_partition(plan: pb.Plan) -> dict[_Key, _Work]:
    return {
        (row.spec_id, row.partition): (row.type, row.data_files, row.input_bytes) for row in plan.partitions if row.type
    }


def _difference(key: _Key, before: _Work | None, now: _Work | None) -> str:
    name = f"Partition {key[1]}" if key[1] else "The table"
    if now is None:
        return f"{name} is not rewritten any more."
    if before is None:
        return f"{name} is rewritten, too: {now[0]}, {many(now[1], 'data file')}."
    return f"{name}: {now[0]} of {many(now[1], 'data file')}, it was {before[0]} of {before[1]:,}."


def plan_table(services: Services, request: pb.PlanTableRequest, call: Call) -> pb.Plan:
    """The plan that optimizing the table would have now; it is kept for a while where the request says so."""
    plan = _planned(services, request)
    if request.keep:
        keep(services, request, plan)
    return plan


def optimize_table(services: Services, request: pb.OptimizeTableRequest, call: Call) -> pb.OptimizeTableResponse:
    """Start a process on the table, if there is something to do; of a kept plan, if that is still the plan."""
    if request.plan_id:
        return _carry_out(services, request, call)
    if is_clustering(request):
        return cluster_table(services, request)
    requested = _requested_type(request)
    runtime = services.tables.require_optimizable(services.catalogs.resolve(request.table))
    begun = services.planning.begin(
        runtime.table_id, trigger="request", requested=requested, force=request.force, where=request.where
    )
    answer = pb.OptimizeTableResponse(plan=_evaluation(runtime, begun.evaluation))
    if begun.process_id is not None:
        process = find_process(services, begun.process_id)
        answer.plan.type, answer.plan.tasks = process.type, process.tasks_total
        answer.process_id, answer.no_optimizer = begun.process_id, process.no_optimizer
    return answer


def verify_table(services: Services, request: pb.VerifyTableRequest, call: Call) -> pb.Verification:
    """Compare rows before and after optimizing; the comparison stops once the caller has given up."""
    identifier = services.catalogs.resolve(request.table)
    result = services.verifying.verify(identifier, request.before or None, request.after or None, call.is_given_up)
    return as_message(
        pb.Verification,
        result,
        result.selection,
        table=str(identifier),
        comparisons=map(_comparison, result.comparisons),
        other_snapshots=result.selection.others,
    )


def run_statement(services: Services, request: pb.RunStatementRequest, call: Call) -> pb.StatementResult:
    """Answer a statement on tables that the account may act on; it ends once the caller has given up."""
    common: dict[str, Any] = {
        "limit": request.limit,
        "statement_id": request.statement_id,
        "caller": call.caller,
        "is_given_up": call.is_given_up,
    }
    match request.engine or "duckdb":
        case "duckdb":
            result = services.terminal.run(
                request.statement,
                **common,
                require=lambda table: require(call.principal, "RunStatement", Role.OPERATOR, lambda: table),
            )
        case "spark":
            require(call.principal, "RunStatement by Spark", Role.ADMIN, None)
            result = services.terminal.run_on_spark(request.statement, **common)
        case other:
            raise InvalidArgument(f"{other!r} is no engine", hint="Known: duckdb, spark.")
    rows = (pb.ResultRow(values=[pb.ResultValue(text=text) for text in row]) for row in result.rows)
    columns = (pb.ResultColumn(name=name, type=kind) for name, kind in result.columns)
    return pb.StatementResult(columns=columns, rows=rows, is_cut=result.is_cut, duration_ms=result.duration_ms)


def cancel_statement(services: Services, request: pb.CancelStatementRequest, call: Call) -> pb.CancelStatementResponse:
    """End a running statement: one of the caller's own, or anybody's for administrators."""
    whoever = call.principal.role.allows(Role.ADMIN)
    return pb.CancelStatementResponse(
        cancelled=services.terminal.cancel(request.statement_id, call.caller, whoever=whoever)
    )


def _planned(services: Services, request: pb.PlanTableRequest) -> pb.Plan:
    if is_clustering(request):
        return plan_clustering(services, request)
    requested = _requested_type(request)
    identifier = services.catalogs.resolve(request.table)
    return _plan(services.tables.preview(identifier, requested, request.force, request.where))


def _requested_type(request: pb.PlanTableRequest | pb.OptimizeTableRequest) -> OptimizingType | None:
    """The requested type of optimizing. Raises InvalidArgument, also for a force that would have no effect."""
    requested = word(OptimizingType, request.type, "type")
    if request.force and requested is not OptimizingType.FULL:
        raise InvalidArgument("force needs the type full", hint="Ask for that type: --type full --force.")
    return requested


def _carry_out(services: Services, request: pb.OptimizeTableRequest, call: Call) -> pb.OptimizeTableResponse:
    """Begin what the kept plan says; if another plan would be made now, keep that and say what has changed."""
    if request != pb.OptimizeTableRequest(table=request.table, plan_id=request.plan_id):
        raise InvalidArgument(
            f"the plan {request.plan_id} says type, condition and clustering itself",
            hint="Leave them out, or the plan.",
        )
    saved = _saved_plan(services, request.table, request.plan_id)
    again = request_of(saved)
    now = _planned(services, again)
    if changed := changes(saved, now):
        keep(services, again, now, changed)
        return pb.OptimizeTableResponse(plan=now, changes=changed)
    table_request = pb.OptimizeTableRequest(table=saved.table, type=saved.type, force=saved.force, where=saved.where)
    if again.HasField("cluster"):
        table_request.cluster.CopyFrom(again.cluster)
    return optimize_table(services, table_request, call)
