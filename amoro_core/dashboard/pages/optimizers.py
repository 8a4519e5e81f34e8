"""Optimizers and the instances that containers have started: lists, logs, and how they are made to leave."""

from starlette.routing import Route

from amoro_core.dashboard.pages.confirming import Confirmation
from amoro_core.dashboard.pages.lists import ROWS, Listed
from amoro_core.dashboard.pages.load import DEFAULT, RANGES, load
from amoro_core.dashboard.pages.site import Site
from amoro_core.dashboard.pages.urls import to
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit
from amoro_core.protocol import admin_pb2 as pb

_LINES = 500  # of a log


def routes(site: Site) -> list[Route]:
    """The pages of optimizers and instances, and the forms that end them."""
    return [
        site.page("/optimizers", show_optimizers),
        site.page("/optimizers/{optimizer}/drain", ask_to_drain),
        site.action("/optimizers/{optimizer}/drain", drain),
        site.page("/optimizers/{optimizer}/release", ask_to_release),
        site.action("/optimizers/{optimizer}/release", release),
        site.page("/instances/{instance}/logs", show_logs),
        site.page("/instances/{instance}/kill", ask_to_kill),
        site.action("/instances/{instance}/kill", kill),
    ]


async def show_optimizers(visit: Visit) -> Shown:
    """Fifty optimizers in the order of their registration."""
    asked = visit.query(group=(), range=tuple(RANGES), after=())
    range_ = asked["range"] or DEFAULT
    request = pb.ListOptimizersRequest(group=asked["group"], limit=ROWS, after=asked["after"])
    found = await visit.ask("ListOptimizers", request, pb.ListOptimizersResponse)
    filters = {"group": asked["group"]}
    listed = Listed(
        "/optimizers", "optimizers", filters, len(found.optimizers), found.total, found.next, asked["after"]
    )
    groups = await visit.ask("ListGroups", pb.ListGroupsRequest(limit=500), pb.ListGroupsResponse)
    values = {
        "optimizers": found.optimizers,
        "list": listed,
        "groups": [one.name for one in groups.groups],
        "charts": await load(visit, range_, asked["group"]),
        "ranges": tuple(RANGES),
        "range": range_,
        "kept": filters,
    }
    return Shown("optimizers.html", "Optimizers", values, subjects=(("optimizers", ""), ("processes", "")))


async def ask_to_drain(visit: Visit) -> Shown:
    """What draining the optimizer will do."""
    visit.query()
    name = visit.named("optimizer")
    effects = ("It finishes the tasks that it runs, takes no other, and then leaves.",)
    target, command = to("optimizers", name, "drain"), f"amoro optimizer drain {name}"
    return Confirmation(f"Drain {name}?", effects, target, "Drain", "/optimizers", command).shown()


async def drain(visit: Visit) -> Gone:
    """Have the optimizer finish what it runs and leave."""
    await visit.form()
    request = pb.DrainOptimizerRequest(optimizer_id=visit.named("optimizer"))
    found = await visit.ask("DrainOptimizer", request, pb.Optimizer)
    return Gone("/optimizers", f"{found.optimizer_id} is draining.", "wait")


async def ask_to_release(visit: Visit) -> Shown:
    """What releasing the optimizer will do."""
    visit.query()
    name = visit.named("optimizer")
    effects = ("Its registration ends now. The tasks that it runs are planned again, and their work so far is lost.",)
    target, command = to("optimizers", name, "release"), f"amoro optimizer release {name}"
    return Confirmation(f"Release {name}?", effects, target, "Release", "/optimizers", command, is_grave=True).shown()


async def release(visit: Visit) -> Gone:
    """End the optimizer's registration."""
    await visit.form()
    request = pb.ReleaseOptimizerRequest(optimizer_id=visit.named("optimizer"))
    found = await visit.ask("ReleaseOptimizer", request, pb.ReleaseOptimizerResponse)
    return Gone("/optimizers", f"{found.optimizer_id} is released; {found.tasks} tasks are planned again.")


async def show_logs(visit: Visit) -> Shown:
    """The last lines of an instance's log."""
    visit.query()
    request = pb.GetInstanceLogsRequest(id=visit.named("instance"), lines=_LINES)
    found = await visit.ask("GetInstanceLogs", request, pb.InstanceLogs)
    values = {"lines": found.lines, "command": f"amoro optimizer logs {found.resource_id}"}
    return Shown("logs.html", f"Log of {found.resource_id}", values)


async def ask_to_kill(visit: Visit) -> Shown:
    """What killing the instance will do."""
    visit.query()
    name = visit.named("instance")
    effects = (
        "Its container ends it at once. The tasks that it runs are planned again, and their work so far is lost.",
        "Its group starts another one while it is to have as many instances.",
    )
    target, command = to("instances", name, "kill"), f"amoro optimizer kill {name}"
    return Confirmation(f"Kill {name}?", effects, target, "Kill", "/groups", command, is_grave=True).shown()


async def kill(visit: Visit) -> Gone:
    """Kill the instance."""
    await visit.form()
    found = await visit.ask("KillInstance", pb.KillInstanceRequest(id=visit.named("instance")), pb.InstanceStatus)
    return Gone(to("groups", found.group), f"{found.resource_id} is {found.state}.")
