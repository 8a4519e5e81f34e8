"""Pages of processes, with the attempts of their tasks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from amoro_core.documents.formatting import detail_lines, format_bytes, format_count, format_duration, row_equation
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, UNDOABLE, ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.web.charts import Bar, Progress, gantt, steps
from amoro_core.web.pages.framework import ROWS, Page, PageRequest, command, page_of_list, times_of, to

MOST = 5000  # of a process: of its first tasks, where there are more
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Tried:
    """An attempt: of which task, when its optimizer began, and its bar."""

    task: int
    attempt: int
    started_ms: int
    bar: Bar


async def _attempts_of(visit: PageRequest, process: pb.Process) -> tuple[Sequence[Tried], int]:
    """The attempts of the process by task and number, at most `MOST`; and how many there are."""
    result: list[Tried] = []
    while True:
        limit = max(1, min(_PAGE, MOST - len(result)))
        after = f"{result[-1].task}-{result[-1].attempt}" if result else ""
        request = journal.ListAttemptsRequest(process_id=process.process_id, limit=limit, after=after)
        page = await visit.ask("ListAttempts", request, journal.ListAttemptsResponse)
        result = [*result, *map(_tried, page.attempts)][:MOST]
        if not page.next or len(result) == MOST:
            return result, page.total


def _tried(one: journal.AttemptInfo) -> Tried:
    end_ms = max(one.scheduled_ms, one.finished_ms or round(time.time() * 1000))
    text = f"task {one.task_id}, attempt {one.attempt}"
    bar = Bar(one.optimizer_id, one.thread_id, one.scheduled_ms, end_ms, one.outcome, text)
    return Tried(one.task_id, one.attempt, one.started_ms, bar)


def receipt_lines(result: pb.Receipt) -> list[tuple[str, str]]:
    """Names and values: what was before and what is after on one line, rows as an equation."""
    lines = []
    if not result.words:
        lines = [
            ("rows", row_equation(result)),
            ("data files", f"{format_count(result.data_files_before)} → {format_count(result.data_files_after)}"),
            ("delete files", f"{format_count(result.delete_files_before)} → {format_count(result.delete_files_after)}"),
            ("bytes", f"{format_bytes(result.bytes_before)} → {format_bytes(result.bytes_after)}"),
        ]
    lines += detail_lines(result)
    if result.snapshot_id:
        lines.append(("snapshot", f"{result.snapshot_id} on {result.base_snapshot_id or 'none'}"))
    lines.append(("took", format_duration(result.duration_ms)))
    return lines


def is_balanced(result: pb.Receipt) -> bool:
    """Whether every equation of the receipt holds."""
    rows = result.words != "" or result.rows_before == result.rows_after
    return rows and all(one.holds for one in result.equations)


_OPTIMIZING = tuple(type_.value for type_ in OptimizingType)
_STATUSES = tuple(status.value for status in ProcessStatus)
_TASK_STATUSES = tuple(status.value for status in TaskStatus)
_TASKS = 100  # on a page
_WORK = "Attempts by optimizer thread since the first one began"


async def show_processes(visit: PageRequest) -> Page:
    """Fifty processes, the newest first."""
    query = visit.query(table=(), type=(), status=_STATUSES, since=(), until=(), after=())
    request = pb.ListProcessesRequest(
        table=query["table"],
        type=query["type"],
        status=query["status"],
        **times_of(query),
        limit=ROWS,
        after=query["after"],
    )
    response = await visit.ask("ListProcesses", request, pb.ListProcessesResponse)
    listed = page_of_list("/processes", "processes", query, response, response.processes)
    values = {"processes": response.processes, "list": listed, "statuses": _STATUSES}
    return Page("processes.html", "Processes", values, is_live=True)


async def show_process(visit: PageRequest) -> Page:
    """A process: steps, a chart of its threads, a hundred tasks, the receipt or the failure."""
    query = visit.query(status=_TASK_STATUSES, after=())
    request = pb.ListTasksRequest(process_id=visit.named("process"), limit=_TASKS, **query)
    response = await visit.ask("ListTasks", request, pb.ListTasksResponse)
    process = response.process
    tried, attempts = await _attempts_of(visit, process) if process.tasks_total else ([], 0)
    path = to("processes", process.process_id)
    values = {
        "process": process,
        "may_cancel": process.status in ACTIVE_PROCESS_STATUSES and process.status != ProcessStatus.COMMIT_UNKNOWN,
        "is_undoable": process.status in ("success", "partial") and process.type in UNDOABLE,
        "steps": steps(_progress(process, tried)),
        "gantt": gantt([one.bar for one in tried], _WORK) if tried else None,
        "left_out": attempts - len(tried),
        "tasks": response.tasks,
        "statuses": _TASK_STATUSES,
        "list": page_of_list(path, "tasks", query, response, response.tasks),
        "commands": _commands(process),
        "receipt": receipt_lines(process.receipt) if process.HasField("receipt") else [],
        "is_balanced": is_balanced(process.receipt),
    }
    return Page("process.html", process_title(process), values, is_live=True)


def process_title(process: pb.Process) -> str:
    """What the process does and on which table, such as "cluster of lake.ops.huge"."""
    return f"{process.type}{' optimizing' if process.type in _OPTIMIZING else ''} of {process.table}"


def _commands(process: pb.Process) -> dict[str, str]:
    """Commands that show, verify and undo the process."""
    between = ["--before", str(process.receipt.base_snapshot_id), "--after", str(process.receipt.snapshot_id)]
    return {
        "show": command("process", "show", process.process_id),
        "verify": command("verify", process.table, *between),
        "undo": command("undo", process.process_id),
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


async def process_of(visit: PageRequest) -> pb.Process:
    """The stored process of the page's path."""
    request = pb.ListTasksRequest(process_id=visit.named("process"), limit=1)
    return (await visit.ask("ListTasks", request, pb.ListTasksResponse)).process
