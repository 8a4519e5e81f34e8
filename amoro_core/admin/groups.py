"""Operations on optimizer groups, optimizers, their instances and queues."""

from datetime import datetime
from math import isfinite, isinf
from typing import Any

from amoro_core.admin.context import Call, Services, milliseconds, word
from amoro_core.errors import InvalidArgument
from amoro_core.model.group_config import EXTERNAL, Instance, InstanceStatus, InstancesView
from amoro_core.model.paging import Line, Window, page_limit
from amoro_core.model.processes import Optimizer, ProcessStatus, ResourceGroup
from amoro_core.model.text_sanitizing import masked
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import queue_pb2 as queue_pb
from amoro_core.scheduling.policy import DEFAULT_POLICY
from amoro_core.services.groups import GroupChange, GroupView
from amoro_core.services.listings import PendingPlace, WaitingPlace
from amoro_core.services.optimizers import OptimizerLiveness


def group_message(view: GroupView, kept: InstancesView, no_optimizer: str, *, uses: bool) -> pb.Group:
    """`uses` False: without what its tables used, and without its instances one by one."""
    return pb.Group(
        name=view.group.name,
        scheduling_policy=view.group.scheduling_policy,
        properties=masked(dict(view.group.properties)),
        optimizers=view.optimizers,
        threads=view.threads,
        tables=view.tables,
        running_tasks=view.running_tasks,
        uses=[
            pb.GroupUse(
                table=str(use.table),
                table_id=use.table_id,
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
        no_optimizer=no_optimizer,
    )


def kept_group_message(kept: ResourceGroup) -> pb.Group:
    """What the group is by itself, which an update changes."""
    return pb.Group(
        name=kept.name,
        scheduling_policy=kept.scheduling_policy,
        properties=masked(dict(kept.properties)),
        container=kept.container,
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


def instance_status_message(status: InstanceStatus) -> pb.InstanceStatus:
    """The instance, and its state as reported by its container."""
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


def optimizer_message(item: Optimizer, life: OptimizerLiveness, running: int) -> pb.Optimizer:
    """The optimizer, with the time of its last report and its number of running tasks."""
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
    shown = [_group(services, view, uses=False) for view in page.items]
    return pb.ListGroupsResponse(groups=shown, next=page.next, total=page.total)


def get_group(services: Services, request: pb.GetGroupRequest, call: Call) -> pb.Group:
    """The group, with the quota use of its tables and with its instances."""
    return _group(services, services.groups.get(request.name))


def update_group(services: Services, request: pb.UpdateGroupRequest, call: Call) -> pb.Group:
    """Change the group."""
    change = GroupChange(
        request.scheduling_policy or None,
        dict(request.properties),
        frozenset(request.removed_properties),
        request.container or None,
    )
    condition = call.condition(kept_group_message)
    return _group(services, services.groups.update(request.name, change, condition))


def scale_group(services: Services, request: pb.ScaleGroupRequest, call: Call) -> pb.Group:
    """Set the number of instances that the group's container keeps."""
    services.containers.scale(request.name, request.instances)
    return _group(services, services.groups.get(request.name))


def remove_group(services: Services, request: pb.RemoveGroupRequest, call: Call) -> pb.RemoveGroupResponse:
    """Remove the group. Raises IllegalState while optimizers or tables use it."""
    services.groups.remove(request.name)
    return pb.RemoveGroupResponse(name=request.name)


def _group(services: Services, view: GroupView, *, uses: bool = True) -> pb.Group:
    name = view.group.name
    return group_message(view, services.containers.find(name), services.no_optimizer_reason(name), uses=uses)


def list_optimizers(services: Services, request: pb.ListOptimizersRequest, call: Call) -> pb.ListOptimizersResponse:
    """Registered optimizers, in the order of their registration."""
    page = services.optimizers.page(request.group, Window(request.limit, request.after))
    shown = [_optimizer(services, item, life) for item, life in page.items]
    return pb.ListOptimizersResponse(optimizers=shown, next=page.next, total=page.total)


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
    held = services.optimizers.release(
        optimizer_id, lambda: services.optimizing.dismiss(optimizer_id, "its optimizer was released", lost=False)
    )
    return pb.ReleaseOptimizerResponse(optimizer_id=optimizer_id, tasks=held)


def get_instance(services: Services, request: pb.GetInstanceRequest, call: Call) -> pb.InstanceStatus:
    """The instance, and its status in its container now."""
    return instance_status_message(services.containers.find_instance(request.id))


def get_instance_logs(services: Services, request: pb.GetInstanceLogsRequest, call: Call) -> pb.InstanceLogs:
    """The last lines of the instance's log."""
    resource_id, said = services.containers.logs(request.id, request.lines)
    return pb.InstanceLogs(resource_id=resource_id, lines=said)


def kill_instance(services: Services, request: pb.KillInstanceRequest, call: Call) -> pb.InstanceStatus:
    """Kill the instance."""
    return instance_status_message(services.containers.kill(request.id))


def _optimizer(services: Services, item: Optimizer, life: OptimizerLiveness) -> pb.Optimizer:
    return optimizer_message(item, life, services.optimizing.running_tasks(item.optimizer_id))


def list_queue(services: Services, request: queue_pb.ListQueueRequest, call: Call) -> queue_pb.ListQueueResponse:
    """The tables and processes that wait, in the order in which they get a plan or threads."""
    only = word(Line, request.only, "list of the queue")
    if request.group:
        services.groups.find(request.group)
    if request.after:
        raise InvalidArgument("the queue has no pages", hint="It shows its first entries: raise `limit`.")
    found = services.queue.list_queue(request.group, request.limit, only)
    return queue_pb.ListQueueResponse(
        pending=map(_pending, found.pending),
        waiting=map(_waiting, found.waiting),
        pending_total=found.pending_total,
        waiting_total=found.waiting_total,
    )


def get_overview(services: Services, request: queue_pb.GetOverviewRequest, call: Call) -> queue_pb.Overview:
    """How much there is of what, counted at most a second ago."""
    found, counted_at = services.queue.figures()
    processes, ended = found.processes, found.ended
    return queue_pb.Overview(
        tables=sum(found.statuses.values()),
        statuses=[
            queue_pb.StatusCount(status=status, refusal=refusal, tables=tables)
            for (status, refusal), tables in sorted(found.statuses.items())
        ],
        enabled_tables=found.enabled_tables,
        oldest_pending_ms=milliseconds(found.oldest_pending),
        optimizers=found.optimizers,
        threads=found.threads,
        waiting_tasks=found.waiting_tasks,
        running_tasks=found.running_tasks,
        running_processes=processes.get(ProcessStatus.RUNNING, 0),
        committing_processes=processes.get(ProcessStatus.COMMITTING, 0),
        unknown_processes=processes.get(ProcessStatus.COMMIT_UNKNOWN, 0),
        succeeded_processes=ended.get(ProcessStatus.SUCCESS, 0) + ended.get(ProcessStatus.PARTIAL, 0),
        failed_processes=ended.get(ProcessStatus.FAILED, 0),
        rewritten_bytes=found.rewritten_bytes,
        removed_files=found.removed_files,
        counted_ms=milliseconds(counted_at),
    )


def _pending(item: PendingPlace) -> queue_pb.PendingTable:
    table = item.table
    return queue_pb.PendingTable(
        table=str(table.identifier),
        table_id=table.table_id,
        group=table.group,
        place=item.place,
        type=table.type or "",
        reason=table.reason,
        since_ms=milliseconds(table.since),
        policy=item.policy,
        key=_words(item.key),
        quota=table.quota,
        limit=item.limit,
        occupation=-1 if isinf(item.occupation) else item.occupation,
        last_optimized_ms=milliseconds(table.last_optimized_at),
        held_back=item.held_back,
    )


def _waiting(item: WaitingPlace) -> queue_pb.WaitingProcess:
    process, use = item.process, item.use
    return queue_pb.WaitingProcess(
        process_id=process.process_id,
        table=str(item.table),
        table_id=process.table_id,
        group=process.group,
        place=item.place,
        type=process.type,
        waiting_tasks=process.tasks,
        running_tasks=use.running,
        limit=use.limit,
        share=use.share,
        ahead_s=use.ahead_s,
        created_ms=milliseconds(process.created_at),
    )


def _words(key: Any) -> str:
    """The key of a policy as text: times in UTC, shares with three digits."""
    match key:
        case tuple():
            return ", ".join(map(_words, key))
        case datetime():
            return "never" if key.year == 1 else key.strftime("%Y-%m-%d %H:%M:%SZ")
        case float():
            return f"{key:.3f}"
    return str(key)
