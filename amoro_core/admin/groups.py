"""Operations on optimizer groups, optimizers, their instances and queues."""

from datetime import datetime
from math import isfinite, isinf
from typing import Any

from amoro_core.admin.context import Call, Services, as_message, milliseconds, word
from amoro_core.errors import InvalidArgument
from amoro_core.model.group_config import EXTERNAL, Instance, InstanceStatus
from amoro_core.model.paging import Line, Window, page_limit
from amoro_core.model.processes import Optimizer, ProcessStatus, ResourceGroup
from amoro_core.model.text_sanitizing import masked
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import queue_pb2 as queue_pb
from amoro_core.scheduling.policy import DEFAULT_POLICY
from amoro_core.services.groups import GroupChange, GroupUse, GroupView
from amoro_core.services.listings import PendingPlace, WaitingPlace
from amoro_core.services.optimizers import OptimizerLiveness


def _group_itself(group: ResourceGroup) -> pb.Group:
    """What the group is by itself, which an update changes."""
    return pb.Group(
        name=group.name,
        scheduling_policy=group.scheduling_policy,
        properties=masked(dict(group.properties)),
        container=group.container,
    )


def _instance_status(status: InstanceStatus) -> pb.InstanceStatus:
    return as_message(pb.InstanceStatus, status.instance.resource, status.instance, status.observed)


def create_group(services: Services, request: pb.CreateGroupRequest, call: Call) -> pb.Group:
    """Add a group."""
    group = ResourceGroup(
        request.name,
        request.scheduling_policy or DEFAULT_POLICY,
        tuple(sorted(request.properties.items())),
        request.container or EXTERNAL,
    )
    return _group(services, services.groups.create(group))


def list_groups(services: Services, request: pb.ListGroupsRequest, call: Call) -> pb.ListGroupsResponse:
    """Groups by name, without the use of their tables and without instances."""
    page = services.groups.page(request.after, page_limit(request.limit))
    groups = [_group(services, view, uses=False) for view in page.items]
    return pb.ListGroupsResponse(groups=groups, next=page.next, total=page.total)


def get_group(services: Services, request: pb.GetGroupRequest, call: Call) -> pb.Group:
    """The group, with the quota use of its tables and with its instances."""
    return _group(services, services.groups.get(request.name))


def list_jobs(services: Services, request: pb.ListJobsRequest, call: Call) -> pb.ListJobsResponse:
    """The starts of the group's instances, the newest first, with their states and why they ended."""
    page = services.containers.jobs(request.name, Window(request.limit, request.after))
    return pb.ListJobsResponse(jobs=map(_job, page.items), next=page.next, total=page.total)


def _job(item: Instance) -> pb.Job:
    resource = item.resource
    return as_message(pb.Job, item, resource, state="ended" if resource.ended_at else resource.state)


def update_group(services: Services, request: pb.UpdateGroupRequest, call: Call) -> pb.Group:
    """Change the group."""
    change = GroupChange(
        request.scheduling_policy or None,
        dict(request.properties),
        frozenset(request.removed_properties),
        request.container or None,
    )
    return _group(services, services.groups.update(request.name, change, call.condition(_group_itself)))


def scale_group(services: Services, request: pb.ScaleGroupRequest, call: Call) -> pb.Group:
    """Set the number of instances that the group's container keeps."""
    services.containers.scale(request.name, request.instances)
    return _group(services, services.groups.get(request.name))


def remove_group(services: Services, request: pb.RemoveGroupRequest, call: Call) -> pb.RemoveGroupResponse:
    """Remove the group. Raises IllegalState while optimizers or tables use it."""
    services.groups.remove(request.name)
    return pb.RemoveGroupResponse(name=request.name)


def _group(services: Services, view: GroupView, *, uses: bool = True) -> pb.Group:
    """`uses` False: without what its tables used, and without its instances one by one."""
    name, instances = view.group.name, services.containers.find(view.group.name)
    return as_message(
        pb.Group,
        view,
        instances,
        view.group,
        uses=[_use(use) for use in view.uses] if uses else [],
        properties=masked(dict(view.group.properties)),
        wanted_instances=instances.wanted,
        instances=[as_message(pb.Instance, item, item.resource) for item in instances.instances] if uses else [],
        start_failure=instances.failure,
        retry_start_ms=milliseconds(instances.retry_at),
        gave_up_starting=instances.has_given_up,
        no_optimizer=services.no_optimizer_reason(name),
    )


def _use(use: GroupUse) -> pb.GroupUse:
    return as_message(pb.GroupUse, use, occupation=use.occupation if isfinite(use.occupation) else -1)


def list_optimizers(services: Services, request: pb.ListOptimizersRequest, call: Call) -> pb.ListOptimizersResponse:
    """Registered optimizers, in the order of their registration."""
    page = services.optimizers.page(request.group, Window(request.limit, request.after))
    optimizers = [_optimizer(services, item, life) for item, life in page.items]
    return pb.ListOptimizersResponse(optimizers=optimizers, next=page.next, total=page.total)


def get_optimizer(services: Services, request: pb.GetOptimizerRequest, call: Call) -> pb.Optimizer:
    """The registered optimizer of that id."""
    return _optimizer(services, *services.optimizers.find(request.optimizer_id))


def drain_optimizer(services: Services, request: pb.DrainOptimizerRequest, call: Call) -> pb.Optimizer:
    """Drain the optimizer: it finishes the tasks that it runs, and deregisters."""
    return _optimizer(services, *services.optimizers.drain(request.optimizer_id))


def release_optimizer(
    services: Services, request: pb.ReleaseOptimizerRequest, call: Call
) -> pb.ReleaseOptimizerResponse:
    """End the registration of the optimizer; its tasks are planned again."""
    optimizer_id = services.optimizers.find(request.optimizer_id)[0].optimizer_id
    return pb.ReleaseOptimizerResponse(optimizer_id=optimizer_id, tasks=services.optimizing.release(optimizer_id))


def get_instance(services: Services, request: pb.GetInstanceRequest, call: Call) -> pb.InstanceStatus:
    """The instance, and its status in its container now."""
    return _instance_status(services.containers.find_instance(request.id))


def get_instance_logs(services: Services, request: pb.GetInstanceLogsRequest, call: Call) -> pb.InstanceLogs:
    """The last lines of the instance's log."""
    resource_id, lines = services.containers.logs(request.id, request.lines)
    return pb.InstanceLogs(resource_id=resource_id, lines=lines)


def kill_instance(services: Services, request: pb.KillInstanceRequest, call: Call) -> pb.InstanceStatus:
    """Kill the instance."""
    return _instance_status(services.containers.kill(request.id))


def _optimizer(services: Services, item: Optimizer, life: OptimizerLiveness) -> pb.Optimizer:
    running = services.optimizing.running_tasks(item.optimizer_id)
    return as_message(pb.Optimizer, item, life, running_tasks=running)


def list_queue(services: Services, request: queue_pb.ListQueueRequest, call: Call) -> queue_pb.ListQueueResponse:
    """The tables and processes that wait, in the order in which they get a plan or threads."""
    only = word(Line, request.only, "list of the queue")
    if request.group:
        services.groups.find(request.group)
    if request.after:
        raise InvalidArgument("the queue has no pages", hint="It shows its first entries: raise `limit`.")
    queue = services.queue.list_queue(request.group, request.limit, only)
    return queue_pb.ListQueueResponse(
        pending=map(_pending, queue.pending),
        waiting=map(_waiting, queue.waiting),
        pending_total=queue.pending_total,
        waiting_total=queue.waiting_total,
    )


def get_overview(services: Services, request: queue_pb.GetOverviewRequest, call: Call) -> queue_pb.Overview:
    """How much there is of what, counted at most a second ago."""
    figures, counted_at = services.queue.figures()
    processes, ended = figures.processes, figures.ended
    return as_message(
        queue_pb.Overview,
        figures,
        tables=sum(figures.statuses.values()),
        statuses=[
            queue_pb.StatusCount(status=status, refusal=refusal, tables=tables)
            for (status, refusal), tables in sorted(figures.statuses.items())
        ],
        running_processes=processes.get(ProcessStatus.RUNNING, 0),
        committing_processes=processes.get(ProcessStatus.COMMITTING, 0),
        unknown_processes=processes.get(ProcessStatus.COMMIT_UNKNOWN, 0),
        succeeded_processes=ended.get(ProcessStatus.SUCCESS, 0) + ended.get(ProcessStatus.PARTIAL, 0),
        failed_processes=ended.get(ProcessStatus.FAILED, 0),
        counted_ms=milliseconds(counted_at),
    )


def _pending(item: PendingPlace) -> queue_pb.PendingTable:
    return as_message(
        queue_pb.PendingTable,
        item,
        item.table,
        table=str(item.table.identifier),
        key=_key_text(item.key),
        occupation=-1 if isinf(item.occupation) else item.occupation,
    )


def _waiting(item: WaitingPlace) -> queue_pb.WaitingProcess:
    process, use = item.process, item.use
    return as_message(
        queue_pb.WaitingProcess, item, process, use, waiting_tasks=process.tasks, running_tasks=use.running
    )


def _key_text(key: Any) -> str:
    """The key of a policy as text: times in UTC, shares with three digits."""
    match key:
        case tuple():
            return ", ".join(map(_key_text, key))
        case datetime():
            return "never" if key.year == 1 else key.strftime("%Y-%m-%d %H:%M:%SZ")
        case float():
            return f"{key:.3f}"
    return str(key)
