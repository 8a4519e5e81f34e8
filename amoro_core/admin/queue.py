"""What waits, and the coordinator in figures."""

from datetime import datetime
from math import isinf
from typing import Any

from amoro_core.admin.arguments import word
from amoro_core.admin.messages.values import milliseconds
from amoro_core.admin.services import Call, Services
from amoro_core.model.lines import Line
from amoro_core.model.paging import Window
from amoro_core.model.processes import ProcessStatus
from amoro_core.protocol import queue_pb2 as pb
from amoro_core.services.queue import PendingPlace, WaitingPlace


def list_queue(services: Services, request: pb.ListQueueRequest, call: Call) -> pb.ListQueueResponse:
    """The tables and processes that wait, in the order in which they get a plan or threads."""
    only = word(Line, request.only, "list of the queue")
    if request.group:
        services.groups.find(request.group)
    found = services.queue.list_queue(request.group, Window(request.limit, request.after), only)
    return pb.ListQueueResponse(
        pending=map(_pending, found.pending),
        waiting=map(_waiting, found.waiting),
        pending_total=found.pending_total,
        waiting_total=found.waiting_total,
        next=found.next,
        order_changed=found.order_changed,
    )


def get_overview(services: Services, request: pb.GetOverviewRequest, call: Call) -> pb.Overview:
    """How much there is of what, counted at most a second ago."""
    found, counted_at = services.queue.figures()
    processes, ended = found.processes, found.ended
    return pb.Overview(
        tables=sum(found.statuses.values()),
        statuses=[
            pb.StatusCount(status=status, refusal=refusal, tables=tables)
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


def _pending(item: PendingPlace) -> pb.PendingTable:
    table = item.table
    return pb.PendingTable(
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


def _waiting(item: WaitingPlace) -> pb.WaitingProcess:
    process, use = item.process, item.use
    return pb.WaitingProcess(
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
