"""Pages of optimizer groups and optimizers, with their load over time."""

from starlette.routing import Route

from amoro_core.documents.formatting import many
from amoro_core.model.group_config import EXTERNAL
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.scheduling.policy import POLICIES
from amoro_core.web.charts import Chart
from amoro_core.web.pages.framework import (
    ROWS,
    Field,
    Listed,
    Page,
    PageRequest,
    Redirect,
    Site,
    command,
    confirm_page,
    group_names,
    to,
    typed_properties,
    whole_number,
)
from amoro_core.web.pages.tables import CHOICES, RANGES, read_series

DEFAULT = "1d"


async def _load(visit: PageRequest, range_: str, group: str = "") -> list[Chart]:
    """Threads, queue length and queue age over the range: of one group, or busy threads and queues of each."""
    length_ms = RANGES[range_]
    names = ("threads", "threads-busy", "queue-tasks", "queue-age")
    series = await read_series(visit, names, length_ms, label=group)
    threads = names[:2] if group else names[1:2]
    return [
        series.chart("Threads" if group else "Busy threads by group", *threads),
        series.chart("Tasks that wait for a thread", "queue-tasks"),
        series.chart("Age of the oldest process that waits", "queue-age"),
    ]


_MOST_INSTANCES = 100_000
_JOBS = 20
_POLICIES = tuple(POLICIES)


def routes(site: Site) -> list[Route]:
    """The pages of groups, optimizers and instances, and the forms that scale and end them."""
    return [
        site.page("/groups", show_groups, after=()),
        *site.confirmed("/create-group", ask_to_create, create, "name", "scheduling_policy", "container", "properties"),
        site.page("/groups/{group}", show_group, range=RANGES),
        *site.confirmed("/groups/{group}/scale", ask_to_scale, scale, "instances"),
        site.page("/optimizers", show_optimizers, group=(), range=RANGES, after=()),
        *site.confirmed("/optimizers/{optimizer}/drain", ask_to_drain, drain),
        *site.confirmed("/optimizers/{optimizer}/release", ask_to_release, release),
        site.page("/instances/{instance}/logs", show_logs),
        *site.confirmed("/instances/{instance}/kill", ask_to_kill, kill),
    ]


async def show_groups(visit: PageRequest) -> Page:
    """Fifty groups by name."""
    response = await visit.ask(pb.ListGroupsRequest(limit=ROWS, **visit.query), pb.ListGroupsResponse)
    listed = Listed("/groups", "groups", visit.query, response, response.groups)
    return Page("groups.html", "Groups", {"list": listed}, is_live=True)


async def show_group(visit: PageRequest) -> Page:
    """A group: its threads, the tables that use them and how much of their quota, its instances and optimizers."""
    range_ = visit.query["range"] or DEFAULT
    group = await _group_of(visit)
    optimizers = await visit.ask(pb.ListOptimizersRequest(group=group.name, limit=ROWS), pb.ListOptimizersResponse)
    jobs = await visit.ask(pb.ListJobsRequest(name=group.name, limit=_JOBS), pb.ListJobsResponse)
    values = {
        "group": group,
        "jobs": jobs.jobs,
        "is_scalable": group.container != EXTERNAL,
        "optimizers": optimizers,
        "charts": await _load(visit, range_, group.name),
        "ranges": CHOICES,
        "chosen": range_,
    }
    return Page("group.html", f"Group {group.name}", values, is_live=True)


async def ask_to_create(visit: PageRequest) -> Page:
    """The form of a new group."""
    fields = (
        Field("name", "Name", is_needed=True),
        Field("scheduling_policy", "How its threads are shared between tables", _POLICIES[0], values=_POLICIES),
        Field("container", "Container that starts its optimizers (empty: they are started by hand)"),
        Field("properties", "Properties, KEY=VALUE on each line", type="lines"),
    )
    effects = ("Tables whose property self-optimizing.group names it are optimized by its optimizers.",)
    same = "amoro group create NAME --container CONTAINER"
    return confirm_page("Create a group", effects, "Create", "/groups", same, fields)


async def create(visit: PageRequest) -> Redirect:
    """Create the group."""
    typed = {**visit.form, "properties": typed_properties(visit.form["properties"])}
    group = await visit.ask(pb.CreateGroupRequest(**typed), pb.Group)
    return Redirect(to("groups", group.name), f"The group {group.name} is created.")


async def ask_to_scale(visit: PageRequest) -> Page:
    """The confirmation of scaling the group."""
    group = await _group_of(visit)
    path = to("groups", group.name)
    effects = (
        f"The container {group.container} starts or drains optimizers of {group.name} until this number runs. "
        f"It keeps {group.wanted_instances} now, of which {len(group.instances)} are there.",
        "Instances that are drained finish the tasks that they run.",
    )
    count = Field("instances", "Instances", str(group.wanted_instances), "number", is_needed=True)
    same = command("group", "scale", group.name, "N")
    return confirm_page(f"Scale {group.name}", effects, "Scale", path, same, (count,))


async def scale(visit: PageRequest) -> Redirect:
    """Set the group's number of instances."""
    count = whole_number(visit.form["instances"], "number of instances", _MOST_INSTANCES)
    group = await visit.ask(pb.ScaleGroupRequest(name=visit.named("group"), instances=count), pb.Group)
    return Redirect(to("groups", group.name), f"{group.name} is scaled to {many(group.wanted_instances, 'instance')}.")


async def _group_of(visit: PageRequest) -> pb.Group:
    return await visit.ask(pb.GetGroupRequest(name=visit.named("group")), pb.Group)


_LINES = 500  # of a log


async def show_optimizers(visit: PageRequest) -> Page:
    """Fifty optimizers in the order of their registration."""
    query = visit.query
    range_ = query["range"] or DEFAULT
    request = pb.ListOptimizersRequest(group=query["group"], limit=ROWS, after=query["after"])
    response = await visit.ask(request, pb.ListOptimizersResponse)
    values = {
        "list": Listed("/optimizers", "optimizers", query, response, response.optimizers),
        "groups": await group_names(visit),
        "charts": await _load(visit, range_, query["group"]),
        "ranges": CHOICES,
        "chosen": range_,
    }
    return Page("optimizers.html", "Optimizers", values, is_live=True)


async def ask_to_drain(visit: PageRequest) -> Page:
    """The confirmation of draining the optimizer."""
    name = visit.named("optimizer")
    effects = ("It finishes the tasks that it runs, takes no other, and then leaves.",)
    return confirm_page(f"Drain {name}?", effects, "Drain", "/optimizers", f"amoro optimizer drain {name}")


async def drain(visit: PageRequest) -> Redirect:
    """Drain the optimizer."""
    response = await visit.ask(pb.DrainOptimizerRequest(optimizer_id=visit.named("optimizer")), pb.Optimizer)
    return Redirect("/optimizers", f"{response.optimizer_id} is draining.", "wait")


async def ask_to_release(visit: PageRequest) -> Page:
    """The confirmation of releasing the optimizer."""
    name = visit.named("optimizer")
    effects = ("Its registration ends now. The tasks that it runs are planned again, and their work so far is lost.",)
    same = f"amoro optimizer release {name}"
    return confirm_page(f"Release {name}?", effects, "Release", "/optimizers", same, is_grave=True)


async def release(visit: PageRequest) -> Redirect:
    """End the optimizer's registration."""
    request = pb.ReleaseOptimizerRequest(optimizer_id=visit.named("optimizer"))
    response = await visit.ask(request, pb.ReleaseOptimizerResponse)
    return Redirect(
        "/optimizers", f"{response.optimizer_id} is released; {many(response.tasks, 'task')} planned again."
    )


async def show_logs(visit: PageRequest) -> Page:
    """The last lines of an instance's log."""
    response = await visit.ask(pb.GetInstanceLogsRequest(id=visit.named("instance"), lines=_LINES), pb.InstanceLogs)
    return Page("logs.html", f"Log of {response.resource_id}", {"log": response})


async def ask_to_kill(visit: PageRequest) -> Page:
    """The confirmation of killing the instance."""
    name = visit.named("instance")
    effects = (
        "Its container ends it at once. The tasks that it runs are planned again, and their work so far is lost.",
        "Its group starts another one while it is to have as many instances.",
    )
    return confirm_page(f"Kill {name}?", effects, "Kill", "/groups", f"amoro optimizer kill {name}", is_grave=True)


async def kill(visit: PageRequest) -> Redirect:
    """Kill the instance."""
    response = await visit.ask(pb.KillInstanceRequest(id=visit.named("instance")), pb.InstanceStatus)
    return Redirect(to("groups", response.group), f"{response.resource_id} is {response.state}.")
