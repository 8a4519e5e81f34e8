"""Optimizers, and the instances that containers have started as optimizers."""

from amoro_core.admin.messages import groups as messages
from amoro_core.admin.services import Call, Services
from amoro_core.model.paging import Window
from amoro_core.model.processes import Optimizer
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.optimizers import Life


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
    return messages.instance_status(services.containers.find_instance(request.id))


def get_instance_logs(services: Services, request: pb.GetInstanceLogsRequest, call: Call) -> pb.InstanceLogs:
    """The last lines of the instance's log."""
    resource_id, said = services.containers.logs(request.id, request.lines)
    return pb.InstanceLogs(resource_id=resource_id, lines=said)


def kill_instance(services: Services, request: pb.KillInstanceRequest, call: Call) -> pb.InstanceStatus:
    """Kill the instance."""
    return messages.instance_status(services.containers.kill(request.id))


def _optimizer(services: Services, item: Optimizer, life: Life) -> pb.Optimizer:
    return messages.optimizer(item, life, services.optimizing.running_tasks(item.optimizer_id))
