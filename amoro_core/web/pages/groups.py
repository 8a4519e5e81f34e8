"""Pages of optimizer groups and optimizers, with their load over time."""

import shlex
import time
from collections.abc import Sequence

from starlette.routing import Route

from amoro_core.model.group_config import EXTERNAL
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.web.charts import Chart, Line, duration, lines
from amoro_core.web.pages.framework import Site
from amoro_core.web.pages.page_request import (
    ROWS,
    Confirmation,
    Field,
    Listed,
    Page,
    PageRequest,
    Redirect,
    to,
    whole_number,
)

_HOUR_MS = 3_600_000
#: The selectable time ranges, by their names in an address.
RANGES = {"1h": 1, "6h": 6, "1d": 24, "7d": 168, "30d": 720, "400d": 9600}
DEFAULT = "1d"
_MOST_LINES = 6
_NAMES = ("threads", "threads-busy", "queue-tasks", "queue-age")


async def load(visit: PageRequest, range_: str, group: str = "") -> list[Chart]:
    """Threads, queue length and queue age over the range: of one group, or busy threads and queues of each."""
    until = round(time.time() * 1000)
    since = until - RANGES[range_ or DEFAULT] * _HOUR_MS
    request = journal.GetSeriesRequest(names=_NAMES, label=group, since_ms=since, until_ms=until)
    response = await visit.ask("GetSeries", request, journal.GetSeriesResponse)

    def drawn(*names: str) -> list[Line]:
        chosen = [one for name in names for one in response.series if one.name == name][:_MOST_LINES]
        return [_line(one, response.step_s, bool(group)) for one in chosen]

    threads = ("threads", "threads-busy") if group else ("threads-busy",)
    return [
        lines(drawn(*threads), since, until, "Threads" if group else "Busy threads by group"),
        lines(drawn("queue-tasks"), since, until, "Tasks that wait for a thread"),
        lines(drawn("queue-age"), since, until, "Age of the oldest process that waits", write=_age),
    ]


def _line(series: journal.Series, step_s: int, is_one: bool) -> Line:
    points: Sequence[tuple[int, float]] = [(one.from_ms, one.sum / one.n) for one in series.points if one.n]
    return Line(series.name.replace("-", " ") if is_one else series.label, points, step_s * 1000)


def _age(seconds: float) -> str:
    return duration(round(seconds) * 1000)


_MOST_INSTANCES = 100_000


def routes(site: Site) -> list[Route]:
    """The pages of groups, and the form that scales one."""
    return [
        site.page("/groups", show_groups),
        site.page("/groups/{group}", show_group),
        site.page("/groups/{group}/scale", ask_to_scale),
        site.action("/groups/{group}/scale", scale),
    ]


async def show_groups(visit: PageRequest) -> Page:
    """Fifty groups by name."""
    query = visit.query(after=())
    request = pb.ListGroupsRequest(limit=ROWS, after=query["after"])
    response = await visit.ask("ListGroups", request, pb.ListGroupsResponse)
    listed = Listed("/groups", "groups", {}, len(response.groups), response.total, response.next, query["after"])
    return Page("groups.html", "Groups", {"groups": response.groups, "list": listed}, is_live=True)


async def show_group(visit: PageRequest) -> Page:
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
    return Page("group.html", f"Group {group.name}", values, is_live=True)


async def ask_to_scale(visit: PageRequest) -> Page:
    """The confirmation of scaling the group."""
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


async def scale(visit: PageRequest) -> Redirect:
    """Set the group's number of instances."""
    typed = await visit.form("instances")
    count = whole_number(typed["instances"], "number of instances", _MOST_INSTANCES) or 0
    group = await visit.ask("ScaleGroup", pb.ScaleGroupRequest(name=visit.named("group"), instances=count), pb.Group)
    return Redirect(to("groups", group.name), f"{group.name} is to have {group.wanted_instances} instances.")


async def _found(visit: PageRequest) -> pb.Group:
    return await visit.ask("GetGroup", pb.GetGroupRequest(name=visit.named("group")), pb.Group)


_LINES = 500  # of a log


def optimizer_routes(site: Site) -> list[Route]:
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


async def show_optimizers(visit: PageRequest) -> Page:
    """Fifty optimizers in the order of their registration."""
    query = visit.query(group=(), range=tuple(RANGES), after=())
    range_ = query["range"] or DEFAULT
    request = pb.ListOptimizersRequest(group=query["group"], limit=ROWS, after=query["after"])
    response = await visit.ask("ListOptimizers", request, pb.ListOptimizersResponse)
    filters = {"group": query["group"]}
    listed = Listed(
        "/optimizers", "optimizers", filters, len(response.optimizers), response.total, response.next, query["after"]
    )
    groups = await visit.ask("ListGroups", pb.ListGroupsRequest(limit=500), pb.ListGroupsResponse)
    values = {
        "optimizers": response.optimizers,
        "list": listed,
        "groups": [one.name for one in groups.groups],
        "charts": await load(visit, range_, query["group"]),
        "ranges": tuple(RANGES),
        "range": range_,
        "kept": filters,
    }
    return Page("optimizers.html", "Optimizers", values, is_live=True)


async def ask_to_drain(visit: PageRequest) -> Page:
    """The confirmation of draining the optimizer."""
    visit.query()
    name = visit.named("optimizer")
    effects = ("It finishes the tasks that it runs, takes no other, and then leaves.",)
    target, command = to("optimizers", name, "drain"), f"amoro optimizer drain {name}"
    return Confirmation(f"Drain {name}?", effects, target, "Drain", "/optimizers", command).shown()


async def drain(visit: PageRequest) -> Redirect:
    """Drain the optimizer."""
    await visit.form()
    request = pb.DrainOptimizerRequest(optimizer_id=visit.named("optimizer"))
    response = await visit.ask("DrainOptimizer", request, pb.Optimizer)
    return Redirect("/optimizers", f"{response.optimizer_id} is draining.", "wait")


async def ask_to_release(visit: PageRequest) -> Page:
    """The confirmation of releasing the optimizer."""
    visit.query()
    name = visit.named("optimizer")
    effects = ("Its registration ends now. The tasks that it runs are planned again, and their work so far is lost.",)
    target, command = to("optimizers", name, "release"), f"amoro optimizer release {name}"
    return Confirmation(f"Release {name}?", effects, target, "Release", "/optimizers", command, is_grave=True).shown()


async def release(visit: PageRequest) -> Redirect:
    """End the optimizer's registration."""
    await visit.form()
    request = pb.ReleaseOptimizerRequest(optimizer_id=visit.named("optimizer"))
    response = await visit.ask("ReleaseOptimizer", request, pb.ReleaseOptimizerResponse)
    return Redirect("/optimizers", f"{response.optimizer_id} is released; {response.tasks} tasks are planned again.")


async def show_logs(visit: PageRequest) -> Page:
    """The last lines of an instance's log."""
    visit.query()
    request = pb.GetInstanceLogsRequest(id=visit.named("instance"), lines=_LINES)
    response = await visit.ask("GetInstanceLogs", request, pb.InstanceLogs)
    values = {"lines": response.lines, "command": f"amoro optimizer logs {response.resource_id}"}
    return Page("logs.html", f"Log of {response.resource_id}", values)


async def ask_to_kill(visit: PageRequest) -> Page:
    """The confirmation of killing the instance."""
    visit.query()
    name = visit.named("instance")
    effects = (
        "Its container ends it at once. The tasks that it runs are planned again, and their work so far is lost.",
        "Its group starts another one while it is to have as many instances.",
    )
    target, command = to("instances", name, "kill"), f"amoro optimizer kill {name}"
    return Confirmation(f"Kill {name}?", effects, target, "Kill", "/groups", command, is_grave=True).shown()


async def kill(visit: PageRequest) -> Redirect:
    """Kill the instance."""
    await visit.form()
    response = await visit.ask("KillInstance", pb.KillInstanceRequest(id=visit.named("instance")), pb.InstanceStatus)
    return Redirect(to("groups", response.group), f"{response.resource_id} is {response.state}.")
