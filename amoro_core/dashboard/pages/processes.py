"""Processes: the list, and one with its steps, tasks and receipt."""

import shlex
from collections.abc import Sequence

from amoro_core.dashboard.charts.gantt import gantt
from amoro_core.dashboard.charts.steps import Progress, steps
from amoro_core.dashboard.pages.attempts import Attempts, Tried
from amoro_core.dashboard.pages.lists import ROWS, Listed
from amoro_core.dashboard.pages.receipts import is_balanced, receipt_lines
from amoro_core.dashboard.pages.urls import to
from amoro_core.dashboard.pages.visits import Shown, Visit
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, ProcessStatus, TaskStatus
from amoro_core.model.undoing import UNDOABLE
from amoro_core.protocol import admin_pb2 as pb

_STATUSES = tuple(status.value for status in ProcessStatus)
_TASK_STATUSES = tuple(status.value for status in TaskStatus)
_TASKS = 100  # on a page
_WORK = "Attempts by optimizer thread since the first one began"


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


class ProcessPage:
    """The page of a process, which remembers what of its attempts can't change."""

    def __init__(self) -> None:
        self._attempts = Attempts()

    async def show(self, visit: Visit) -> Shown:
        """A process: steps, what its threads did when, a hundred tasks, the receipt or the failure."""
        asked = visit.query(status=_TASK_STATUSES, after=())
        name = visit.named("process")
        found = await visit.ask(
            "ListTasks",
            pb.ListTasksRequest(process_id=name, status=asked["status"], limit=_TASKS, after=asked["after"]),
            pb.ListTasksResponse,
        )
        process = found.process
        tried, attempts = await self._attempts.of(visit, process) if process.tasks_total else ([], 0)
        path, filters = to("processes", process.process_id), {"status": asked["status"]}
        values = {
            "process": process,
            "is_active": not process.finished_ms,
            "may_cancel": process.status in ACTIVE_PROCESS_STATUSES and process.status != ProcessStatus.COMMIT_UNKNOWN,
            "is_undoable": process.status in ("success", "partial") and process.type in UNDOABLE,
            "steps": steps(_progress(process, tried)),
            "gantt": gantt([one.bar for one in tried], _WORK) if tried else None,
            "left_out": attempts - len(tried),
            "tasks": found.tasks,
            "statuses": _TASK_STATUSES,
            "list": Listed(path, "tasks", filters, len(found.tasks), found.total, found.next, asked["after"]),
            "commands": _commands(process),
            "receipt": receipt_lines(process.receipt) if process.HasField("receipt") else [],
            "is_balanced": is_balanced(process.receipt),
        }
        subjects = (("processes", process.process_id),)
        return Shown("process.html", f"Process {process.process_id}", values, subjects=subjects)


def _commands(process: pb.Process) -> dict[str, str]:
    """Commands that show, verify and undo the process."""
    between = ["--before", str(process.receipt.base_snapshot_id), "--after", str(process.receipt.snapshot_id)]
    return {
        "show": shlex.join(["amoro", "process", "show", process.process_id]),
        "verify": shlex.join(["amoro", "verify", process.table, *between]),
        "undo": shlex.join(["amoro", "undo", process.process_id]),
    }


def _progress(process: pb.Process, tried: Sequence[Tried]) -> Progress:
    """When each step began. Attempts that were forgotten are not among them."""
    left = process.task_counts.planned + process.task_counts.scheduled + process.task_counts.acked
    worked = 0 if left else max((one.bar.end_ms for one in tried), default=0)
    return Progress(
        process.status,
        process.created_ms,
        process.finished_ms,
        scheduled_ms=min((one.bar.start_ms for one in tried), default=0),
        acked_ms=min((one.started_ms for one in tried if one.started_ms), default=0),
        worked_ms=worked,
        has_tasks=bool(process.tasks_total),
        waits=bool(process.waiting),
    )


async def found_process(visit: Visit) -> pb.Process:
    """The process of the page's path, as it is stored; no catalog is asked."""
    request = pb.ListTasksRequest(process_id=visit.named("process"), limit=1)
    return (await visit.ask("ListTasks", request, pb.ListTasksResponse)).process
