"""Optimizer groups."""

from amoro_core.admin.messages import groups as messages
from amoro_core.admin.services import Call, Services
from amoro_core.model.containers import EXTERNAL
from amoro_core.model.paging import page_limit
from amoro_core.model.processes import ResourceGroup
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.scheduling.policy import DEFAULT_POLICY
from amoro_core.services.groups import GroupChange, GroupView


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
    condition = call.condition(messages.kept_group)
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
    return messages.group(view, services.containers.find(name), services.nobody_works(name), uses=uses)
