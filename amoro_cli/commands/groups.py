"""amoro group."""

from typing import Annotated

import typer

from amoro_cli.commands.catalogs import parse_properties
from amoro_cli.connection import Kind
from amoro_cli.context import Session, argument, memory_option, names_of, option
from amoro_cli.list_options import ListOptions, list_command, show_list
from amoro_cli.progress import INTERVAL, IntervalOption, Look, WatchOption, show_watched
from amoro_cli.views.services import GROUPS, JOBS, group_detail, group_queue, removed
from amoro_core.errors import InvalidArgument
from amoro_core.model.group_config import MEMORY
from amoro_core.model.paging import PAGE, Line
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import queue_pb2 as queue_pb

#: Of each list of a queue, when it is refreshed every other second.
_WATCHED = 500

NameArgument = Annotated[str, argument(metavar="NAME", help="The group.", autocompletion=names_of(Kind.GROUP))]
PropertyOption = Annotated[
    list[str] | None,
    option(
        "--property",
        metavar="KEY=VALUE",
        help="A property, such as threads=2 for its container, or your own; may be repeated.",
    ),
]
MemoryOption = Annotated[
    int | None, memory_option(help_="The minimum memory of each thread of its optimizers; sets the property memory.")
]
_CONTAINER = (
    "What starts its optimizers. external: you do; local: the coordinator, on its machine; spark: spark-submit; "
    "others can be plugged in."
)
_POLICY = (
    "Which tables are planned first. quota: those that used the least of their share lately; balanced: those that "
    "have waited longest. These also decide which tasks run first: fifo: what became due first; priority: the lowest "
    "self-optimizing.priority; value: what saves queries most files for its work. Others can be plugged in."
)


def create(
    session: Session,
    name: NameArgument,
    policy: Annotated[str, typer.Option(metavar="NAME", help=_POLICY)] = "quota",
    container: Annotated[str, typer.Option(metavar="NAME", help=_CONTAINER)] = "external",
    memory: MemoryOption = None,
    properties: PropertyOption = None,
) -> None:
    """Create an optimizer group. Optimizers name it by --group, tables by their property self-optimizing.group."""
    request = pb.CreateGroupRequest(
        name=name, scheduling_policy=policy, properties=_properties(properties, memory), container=container
    )
    session.change(request, group_detail)


@list_command(GROUPS, after="NAME", watch=True)
def list_groups(session: Session, options: ListOptions) -> None:
    """List the optimizer groups with their threads and tables."""
    show_list(session, options, GROUPS, pb.ListGroupsRequest())


def queue(
    session: Session,
    name: Annotated[
        str, argument(metavar="NAME", help="The group [default: all].", autocompletion=names_of(Kind.GROUP))
    ] = "",
    only: Annotated[
        Line | None, option(help="Only the tables that wait for a plan, or only the processes that wait for threads.")
    ] = None,
    limit: Annotated[
        int | None,
        option(
            help="How many to list at most, of tables and of processes [default: 1000, with --watch 500].",
            min=1,
            max=PAGE,
        ),
    ] = None,
    watch: WatchOption = False,
    interval: IntervalOption = INTERVAL,
) -> None:
    """List tables that wait for a plan, processes that wait for threads. Those whose turn it is come first."""
    most = limit or (_WATCHED if watch else PAGE)
    request = queue_pb.ListQueueRequest(group=name, only=only or "", limit=most)
    show_watched(session, lambda client: Look(group_queue(client.ListQueue(request), only)), watch, interval)


def show(session: Session, name: NameArgument, watch: WatchOption = False, interval: IntervalOption = INTERVAL) -> None:
    """Show one group, and what its tables used of their quota. It counts the last hour."""
    request = pb.GetGroupRequest(name=name)
    show_watched(session, lambda client: Look(group_detail(client.GetGroup(request))), watch, interval)


@list_command(JOBS, after="JOB", newest_first=True, watch=True)
def jobs(session: Session, options: ListOptions, name: NameArgument) -> None:
    """List the starts of a group's instances, and why they ended."""
    show_list(session, options, JOBS, pb.ListJobsRequest(name=name))


def update(
    session: Session,
    name: NameArgument,
    policy: Annotated[str | None, option(metavar="NAME", help=_POLICY)] = None,
    container: Annotated[str | None, option(metavar="NAME", help=_CONTAINER)] = None,
    memory: MemoryOption = None,
    properties: PropertyOption = None,
    unset: Annotated[list[str] | None, option(metavar="KEY", help="Remove this property; may be repeated.")] = None,
) -> None:
    """Change a group. What is not given stays as it is."""
    parsed = _properties(properties, memory)
    if policy is None and container is None and not parsed and not unset:
        raise InvalidArgument("Nothing to change", hint="Give --policy, --container, --memory, --property or --unset.")
    request = pb.UpdateGroupRequest(
        name=name,
        scheduling_policy=policy or "",
        properties=parsed,
        removed_properties=unset or (),
        container=container or "",
    )
    session.change(request, group_detail)


def scale(
    session: Session,
    name: NameArgument,
    instances: Annotated[
        int, argument(metavar="N", help="How many optimizers its container keeps.", min=0, max=10_000)
    ],
) -> None:
    """Let a group's container start or drain optimizers. Failed starts are retried."""
    session.change(pb.ScaleGroupRequest(name=name, instances=instances), group_detail)


def remove(session: Session, name: NameArgument) -> None:
    """Remove a group that neither optimizers nor tables use."""
    session.change(pb.RemoveGroupRequest(name=name), removed("Group"))


def _properties(pairs: list[str] | None, memory_bytes: int | None) -> dict[str, str]:
    memory = [] if memory_bytes is None else [f"{MEMORY}={memory_bytes / 1024**2:g}MB"]
    return parse_properties([*(pairs or ()), *memory])
