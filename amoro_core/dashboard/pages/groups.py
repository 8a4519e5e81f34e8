"""Optimizer groups: the list, one with what uses it, and its scaling."""

import shlex

from starlette.routing import Route

from amoro_core.dashboard.pages.confirming import Confirmation, Field
from amoro_core.dashboard.pages.lists import ROWS, Listed
from amoro_core.dashboard.pages.load import DEFAULT, RANGES, load
from amoro_core.dashboard.pages.site import Site
from amoro_core.dashboard.pages.urls import to
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit, whole_number
from amoro_core.model.containers import EXTERNAL
from amoro_core.protocol import admin_pb2 as pb

_MOST_INSTANCES = 100_000
_SUBJECTS = (("groups", ""), ("optimizers", ""), ("processes", ""))


def routes(site: Site) -> list[Route]:
    """The pages of groups, and the form that scales one."""
    return [
        site.page("/groups", show_groups),
        site.page("/groups/{group}", show_group),
        site.page("/groups/{group}/scale", ask_to_scale),
        site.action("/groups/{group}/scale", scale),
    ]


async def show_groups(visit: Visit) -> Shown:
    """Fifty groups by name."""
    asked = visit.query(after=())
    request = pb.ListGroupsRequest(limit=ROWS, after=asked["after"])
    found = await visit.ask("ListGroups", request, pb.ListGroupsResponse)
    listed = Listed("/groups", "groups", {}, len(found.groups), found.total, found.next, asked["after"])
    return Shown("groups.html", "Groups", {"groups": found.groups, "list": listed}, subjects=_SUBJECTS)


async def show_group(visit: Visit) -> Shown:
    """A group: its threads, the tables that use them and how much of their quota, its instances and optimizers."""
    range_ = visit.query(range=tuple(RANGES))["range"] or DEFAULT
    group = await _found(visit)
    optimizers = await visit.ask(
        "ListOptimizers", pb.ListOptimizersRequest(group=group.name, limit=ROWS), pb.ListOptimizersResponse
    )
    values = {
        "group": group,
        "is_scalable": group.container != EXTERNAL,
        "optimizers": optimizers.optimizers,
        "more_optimizers": optimizers.total - len(optimizers.optimizers),
        "charts": await load(visit, range_, group.name),
        "ranges": tuple(RANGES),
        "range": range_,
        "kept": {},
        "properties": sorted(group.properties.items()),
    }
    return Shown("group.html", f"Group {group.name}", values, subjects=_SUBJECTS)


async def ask_to_scale(visit: Visit) -> Shown:
    """What scaling the group will do."""
    visit.query()
    group = await _found(visit)
    path = to("groups", group.name)
    effects = (
        f"The container {group.container} starts or drains optimizers of {group.name} until there are so many. "
        f"It keeps {group.wanted_instances} now, of which {len(group.instances)} are there.",
        "Instances that are drained finish the tasks that they run.",
    )
    count = Field("instances", "Instances", str(group.wanted_instances), "number", is_needed=True)
    command = shlex.join(["amoro", "group", "scale", group.name, "N"])
    return Confirmation(f"Scale {group.name}", effects, f"{path}/scale", "Scale", path, command, (count,)).shown()


async def scale(visit: Visit) -> Gone:
    """Have the group's container keep so many instances."""
    typed = await visit.form("instances")
    count = whole_number(typed["instances"], "number of instances", _MOST_INSTANCES) or 0
    group = await visit.ask("ScaleGroup", pb.ScaleGroupRequest(name=visit.named("group"), instances=count), pb.Group)
    return Gone(to("groups", group.name), f"{group.name} is to have {group.wanted_instances} instances.")


async def _found(visit: Visit) -> pb.Group:
    return await visit.ask("GetGroup", pb.GetGroupRequest(name=visit.named("group")), pb.Group)
