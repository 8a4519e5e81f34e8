"""Documents of optimizer groups and their queues."""

from amoro_cli.list_options import Column, Listing
from amoro_cli.output import Block, Document, Pairs
from amoro_core.documents.formatting import format_count, format_time
from amoro_core.documents.json_documents import encode, group_body
from amoro_core.model.group_config import EXTERNAL
from amoro_core.model.paging import Line
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import queue_pb2 as queue_pb

#: Schema amoro.groups/v1: `groups` without the use of their tables and without instances; `total`, `next`.
GROUPS: Listing[pb.Group] = Listing(
    (
        Column("GROUP", lambda group: group.name),
        Column("POLICY", lambda group: group.scheduling_policy),
        Column("CONTAINER", lambda group: group.container),
        Column("OPTIMIZERS", lambda group: group.optimizers, right=True),
        Column("THREADS", lambda group: group.threads, right=True),
        Column("BUSY", lambda group: group.running_tasks, right=True),
        Column("TABLES", lambda group: group.tables, format_count, right=True),
    ),
    spare=("POLICY", "BUSY"),
    elastic="GROUP",
    schema="amoro.groups/v1",
    name=lambda group: group.name,
    nothing="No groups.",
    without=("uses", "instances"),
)
_INSTANCES: Listing[pb.Instance] = Listing(
    (
        Column("INSTANCE", lambda item: item.resource_id),
        Column("CONTAINER", lambda item: item.container),
        Column("STATE", lambda item: item.state),
        Column("STARTED", lambda item: item.started_ms, format_time),
        Column("OPTIMIZER", lambda item: item.optimizer_id or "-"),
    ),
    spare=("STARTED", "CONTAINER"),
    elastic="OPTIMIZER",
)
_USES: Listing[pb.GroupUse] = Listing(
    (
        Column("TABLE", lambda use: use.table),
        Column("QUOTA", lambda use: f"{use.quota:g}", right=True),
        Column("LIMIT", lambda use: use.limit, right=True),
        Column("BUSY", lambda use: use.running_tasks, right=True),
        Column("USED", lambda use: "no limit" if use.occupation < 0 else f"{use.occupation:.0%}", right=True),
    ),
    spare=("LIMIT", "BUSY"),
    elastic="TABLE",
)
_PENDING: Listing[queue_pb.PendingTable] = Listing(
    (
        Column("GROUP", lambda item: item.group),
        Column("PLACE", lambda item: item.place, right=True),
        Column("TABLE", lambda item: item.table),
        Column("TYPE", lambda item: item.type or "-"),
        Column("SINCE", lambda item: item.since_ms, format_time),
        Column("POLICY", lambda item: item.policy),
        Column("KEY", lambda item: item.key),
        Column("HELD BACK", lambda item: item.held_back or "-"),
    ),
    spare=("TYPE", "POLICY", "SINCE"),
    elastic="TABLE",
)
_WAITING: Listing[queue_pb.WaitingProcess] = Listing(
    (
        Column("GROUP", lambda item: item.group),
        Column("PLACE", lambda item: item.place, right=True),
        Column("PROCESS", lambda item: item.process_id),
        Column("TABLE", lambda item: item.table),
        Column("WAITING", lambda item: item.waiting_tasks, format_count, right=True),
        Column("RUNNING", lambda item: f"{item.running_tasks}/{item.limit}", right=True),
        Column("SHARE", lambda item: f"{item.share:.0%}", right=True),
        Column("AHEAD", lambda item: f"{item.ahead_s:.0f} s", right=True),
    ),
    spare=("SHARE", "RUNNING"),
    elastic="TABLE",
)


def group_detail(group: pb.Group) -> Document:
    """Schema amoro.group/v1: the fields of the group; `occupation` is null for a table without limit."""
    pairs = (
        ("group", group.name),
        ("policy", group.scheduling_policy),
        ("container", group.container),
        *_instances_wanted(group),
        ("optimizers", str(group.optimizers)),
        ("threads", f"{group.threads}, {group.running_tasks} busy"),
        *((("waiting", group.no_optimizer),) if group.no_optimizer else ()),
        ("tables", format_count(group.tables)),
        *((f"property {key}", value) for key, value in sorted(group.properties.items())),
    )
    blocks: list[Block] = [Pairs(pairs)]
    if group.instances:
        blocks += ["", _INSTANCES.grid(group.instances, indent=2)]
    if group.uses:
        blocks += ["", _USES.grid(group.uses, indent=2)]
    return Document("amoro.group/v1", group_body(group), (group.name,), tuple(blocks))


def group_removed(removed: pb.RemoveGroupResponse) -> Document:
    """Schema amoro.removed/v1: `name`."""
    return Document("amoro.removed/v1", encode(removed), (removed.name,), (f"Group {removed.name} is removed.",))


def _instances_wanted(group: pb.Group) -> list[tuple[str, str]]:
    """The target number of instances, and why starts fail; nothing when optimizers are started externally."""
    if group.container == EXTERNAL and not group.instances:
        return []
    wanted = [("instances", f"{len(group.instances)} of {group.wanted_instances}")]
    if not group.failed_starts:
        return wanted
    then = "given up; scale it to try again" if group.gave_up_starting else "tried again"
    return [*wanted, ("failed starts", f"{group.failed_starts} in a row, {then}: {group.start_failure}")]


def group_queue(answer: queue_pb.ListQueueResponse, only: Line | None = None) -> Document:
    """Schema amoro.queue/v1: the first `pending` tables and `waiting` processes, and the total of each.

    The names are tables, then processes.
    """
    names = (*(item.table for item in answer.pending), *(item.process_id for item in answer.waiting))
    lists: list[list[Block]] = []
    if only is not Line.WAITING:
        shown: list[Block] = ["Nothing waits for a plan."]
        if answer.pending:
            shown = ["Tables that wait for a plan:", _PENDING.grid(answer.pending)]
        lists.append(shown + _rest(answer.pending_total - len(answer.pending)))
    if only is not Line.PENDING:
        shown = ["Nothing waits for threads."]
        if answer.waiting:
            shown = ["Processes that wait for threads:", _WAITING.grid(answer.waiting)]
        lists.append(shown + _rest(answer.waiting_total - len(answer.waiting)))
    blocks = [block for number, shown in enumerate(lists) for block in ([""] if number else []) + shown]
    return Document("amoro.queue/v1", encode(answer), names, tuple(blocks))


def _rest(left: int) -> list[Block]:
    """The line beneath a list that is not whole."""
    return [f"and {format_count(left)} more: see --limit"] if left > 0 else []
