"""Optimizer groups, optimizers and their instances as messages."""

from math import isfinite

from amoro_core.admin.messages.values import milliseconds
from amoro_core.model.containers import Instance, InstanceStatus, InstancesView
from amoro_core.model.processes import Optimizer, ResourceGroup
from amoro_core.model.secrets import masked
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.groups import GroupView
from amoro_core.services.optimizers import Life


def group(view: GroupView, kept: InstancesView, nobody: str, *, uses: bool) -> pb.Group:
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
        no_optimizer=nobody,
    )


def kept_group(kept: ResourceGroup) -> pb.Group:
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


def instance_status(status: InstanceStatus) -> pb.InstanceStatus:
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


def optimizer(item: Optimizer, life: Life, running: int) -> pb.Optimizer:
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
