"""Processes: the list, and one with its steps, tasks and receipt."""

import shlex
import time
from collections.abc import Sequence

from amoro_core.dashboard.charts.gantt import Bar, gantt
from amoro_core.dashboard.charts.steps import Progress, steps
from amoro_core.dashboard.pages.lists import ROWS, Listed
from amoro_core.dashboard.pages.receipts import is_balanced, receipt_lines
from amoro_core.dashboard.pages.urls import to
from amoro_core.dashboard.pages.visits import Shown, Visit
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, ProcessStatus, TaskStatus
from amoro_core.model.undoing import UNDOABLE
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal

_STATUSES = tuple(status.value for status in ProcessStatus)
_TASK_STATUSES = tuple(status.value for status in TaskStatus)
_TASKS = 100  # on a page
_MOST_ATTEMPTS = 5000  # in a chart
_PAGE = 1000


async def show_processes(visit: Visit) -> Shown:
    """Fifty processes, the newest first."""
    asked = visit.query(table=(), status=_STATUSES, after=())
    found = await visit.ask(
        "ListProcesses",
        pb.ListProcessesRequest(table=asked["table"], status=asked["status"], limit=ROWS, after=asked["after"]),
        pb.ListProcessesResponse,
    )
    filters = {key: asked[key] for key in ("table", "status")}
    listed = Listed("/processes", "processes", filters, len(found.processes), found.total, found.next, asked["after"])
    values = {"processes": found.processes, "list": listed, "statuses": _STATUSES}
    return Shown("processes.html", "Processes", values, subjects=(("processes", ""),))


async def show_process(visit: Visit) -> Shown:
    """A process: steps, what its threads did when, a hundred tasks, the receipt or the failure."""
    asked = visit.query(status=_TASK_STATUSES, after=())
    name = visit.named("process")
    found = await visit.ask(
        "ListTasks",
        pb.ListTasksRequest(process_id=name, status=asked["status"], limit=_TASKS, after=asked["after"]),
        pb.ListTasksResponse,
    )
    process = found.process
    tried, attempts = await _tried(visit, process) if process.tasks_total else ([], 0)
    path, filters = to("processes", process.process_id), {"status": asked["status"]}
    values = {
        "process": process,
        "is_active": not process.finished_ms,
        "may_cancel": process.status in ACTIVE_PROCESS_STATUSES and process.status != ProcessStatus.COMMIT_UNKNOWN,
        "is_undoable": process.status in ("success", "partial") and process.type in UNDOABLE,
        "steps": steps(_progress(process, tried)),
        "gantt": gantt(_bars(tried), "Attempts by optimizer thread since the first one began") if tried else None,
        "left_out": attempts - len(tried),
        "tasks": found.tasks,
        "statuses": _TASK_STATUSES,
        "list": Listed(path, "tasks", filters, len(found.tasks), found.total, found.next, asked["after"]),
        "commands": _commands(process),
        "receipt": receipt_lines(process.receipt) if process.HasField("receipt") else [],
        "is_balanced": is_balanced(process.receipt),
    }
    return Shown("process.html", f"Process {process.process_id}", values, subjects=(("processes", process.process_id),))


def _commands(process: pb.Process) -> dict[str, str]:
    """Commands that show, verify and undo the process."""
    between = ["--before", str(process.receipt.base_snapshot_id), "--after", str(process.receipt.snapshot_id)]
    return {
        "show": shlex.join(["amoro", "process", "show", process.process_id]),
        "verify": shlex.join(["amoro", "verify", process.table, *between]),
        "undo": shlex.join(["amoro", "undo", process.process_id]),
    }


async def _tried(visit: Visit, process: pb.Process) -> tuple[list[journal.AttemptInfo], int]:
    """The attempts of the process's tasks, of the first tasks where there are very many; and how many there are."""
    made: list[journal.AttemptInfo] = []
    after, total = "", 0
    while len(made) < _MOST_ATTEMPTS:
        request = journal.ListAttemptsRequest(process_id=process.process_id, limit=_PAGE, after=after)
        found = await visit.ask("ListAttempts", request, journal.ListAttemptsResponse)
        made += found.attempts
        after, total = found.next, found.total
        if not after:
            break
    return made, total


def _bars(tried: Sequence[journal.AttemptInfo]) -> list[Bar]:
    now = round(time.time() * 1000)
    return [
        Bar(
            one.optimizer_id,
            one.thread_id,
            one.scheduled_ms,
            max(one.scheduled_ms, one.finished_ms or now),
            one.outcome,
            f"task {one.task_id}, attempt {one.attempt}",
        )
        for one in tried
    ]


def _progress(process: pb.Process, tried: Sequence[journal.AttemptInfo]) -> Progress:
    """When each step began. Attempts that were forgotten are not among them."""
    left = process.task_counts.planned + process.task_counts.scheduled + process.task_counts.acked
    worked = 0 if left else max((one.finished_ms for one in tried), default=0)
    return Progress(
        process.status,
        process.created_ms,
        process.finished_ms,
        scheduled_ms=min((one.scheduled_ms for one in tried), default=0),
        acked_ms=min((one.started_ms for one in tried if one.started_ms), default=0),
        worked_ms=worked,
        has_tasks=bool(process.tasks_total),
        waits=bool(process.waiting),
    )


async def found_process(visit: Visit) -> pb.Process:
    """The process of the page's path, as it is stored; no catalog is asked."""
    request = pb.ListTasksRequest(process_id=visit.named("process"), limit=1)
    return (await visit.ask("ListTasks", request, pb.ListTasksResponse)).process
