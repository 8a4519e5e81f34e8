"""Clustering of a table: plans, how well it is clustered, and the start of plans that wait."""

from amoro_core.admin.messages import clustering as messages
from amoro_core.admin.processes import messages_of, process_summary
from amoro_core.admin.services import Call, Services
from amoro_core.errors import InvalidArgument
from amoro_core.model.clustering import CLUSTER, ClusterOptions
from amoro_core.planning.clustering.facts import ClusterVerdict
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.maintaining import Maintained


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
    made = services.maintaining.preview(identifier, CLUSTER, cluster=_options(request.cluster), where=request.where)
    return messages.plan(services.tables.find(identifier), _verdict(made), _tasks(made))


def cluster_table(services: Services, request: pb.OptimizeTableRequest) -> pb.OptimizeTableResponse:
    """Plan a process that clusters the table, and start it unless it is to wait."""
    runtime = services.tables.require_maintainable(services.catalogs.resolve(request.table))
    made = services.maintaining.begin(
        runtime.table_id, CLUSTER, trigger="request", cluster=_options(request.cluster), where=request.where
    )
    answer = pb.OptimizeTableResponse(plan=messages.plan(runtime, _verdict(made), _tasks(made)))
    if made.process_id:
        (process,) = messages_of(services, [process_summary(services, made.process_id)])
        answer.process_id, answer.no_optimizer = made.process_id, process.no_optimizer
    return answer


def start_process(services: Services, request: pb.StartProcessRequest, call: Call) -> pb.Process:
    """Start a plan that was stored. Raises IllegalState for one that waits for no start."""
    started = services.starting.start(request.process_id)
    (message,) = messages_of(services, [process_summary(services, started.process_id)])
    return message


def show_clustering(services: Services, request: pb.ShowClusteringRequest, call: Call) -> pb.Clustering:
    """How well the table is clustered, and what would be done next."""
    identifier = services.catalogs.resolve(request.table)
    made = services.maintaining.preview(identifier, CLUSTER, cluster=ClusterOptions(shows=True))
    runtime = services.tables.find(identifier)
    waiting = services.starting.waiting(runtime.table_id) if runtime.table_id else []
    return messages.clustering(runtime, _verdict(made), _tasks(made), waiting)


def learn_scans(services: Services, request: pb.LearnScansRequest, call: Call) -> pb.LearnedScans:
    """Keep a report of how the table is read."""
    runtime = services.tables.ensure(services.catalogs.resolve(request.table))
    learned = services.learning.learn(runtime, [messages.told(one) for one in request.scans])
    return messages.learned(runtime, learned)


def suggest_columns(services: Services, request: pb.SuggestColumnsRequest, call: Call) -> pb.SuggestedColumns:
    """Columns that the table may be clustered by."""
    identifier = services.catalogs.resolve(request.table)
    return messages.suggested(identifier, services.learning.suggest(identifier))


def _verdict(made: Maintained) -> ClusterVerdict:
    if isinstance(made.verdict, ClusterVerdict):
        return made.verdict
    return ClusterVerdict(False, made.reason, made.due_at)


def _options(said: pb.ClusterOptions) -> ClusterOptions:
    return ClusterOptions(tuple(said.columns), said.strategy, said.partitions, said.full, said.schedule_only)


def _tasks(made: Maintained) -> int:
    return len(made.plan.tasks) if made.plan else 0
