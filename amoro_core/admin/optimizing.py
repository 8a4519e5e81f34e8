"""Optimizing of a table: plans, processes and verification."""

from amoro_core.admin import saved_plans
from amoro_core.admin.arguments import requested_type
from amoro_core.admin.clustering import cluster_table, is_clustering, plan_clustering
from amoro_core.admin.messages import plans
from amoro_core.admin.messages.verification import verification
from amoro_core.admin.processes import messages_of, process_summary
from amoro_core.admin.services import Call, Services
from amoro_core.protocol import admin_pb2 as pb


def plan_table(services: Services, request: pb.PlanTableRequest, call: Call) -> pb.Plan:
    """The plan that optimizing the table would have now; it is kept for a while where the request says so."""
    made = _planned(services, request)
    if request.keep:
        saved_plans.keep(services, request, made)
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
    answer = pb.OptimizeTableResponse(plan=plans.evaluated(runtime, begun.evaluation))
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
    return verification(identifier, found)


def _planned(services: Services, request: pb.PlanTableRequest) -> pb.Plan:
    if is_clustering(request):
        return plan_clustering(services, request)
    requested = requested_type(request.type, request.force)
    identifier = services.catalogs.resolve(request.table)
    return plans.plan(services.tables.preview(identifier, requested, request.force, request.where))


def _carry_out(services: Services, request: pb.OptimizeTableRequest, call: Call) -> pb.OptimizeTableResponse:
    """Begin what the kept plan says; if another plan would be made now, keep that and say what has changed."""
    saved_plans.require_bare(request)
    kept = saved_plans.find(services, request.table, request.plan_id)
    again = saved_plans.request_of(kept)
    now = _planned(services, again)
    if changed := saved_plans.changes(kept, now):
        saved_plans.keep(services, again, now, changed)
        return pb.OptimizeTableResponse(plan=now, changes=changed)
    asked = pb.OptimizeTableRequest(table=kept.table, type=kept.type, force=kept.force, where=kept.where)
    if again.HasField("cluster"):
        asked.cluster.CopyFrom(again.cluster)
    return optimize_table(services, asked, call)
