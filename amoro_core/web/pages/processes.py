"""Pages of processes, with the attempts of their tasks."""

import time
from collections.abc import Sequence

from amoro_core.documents.formatting import detail_lines, format_bytes, format_count, format_duration, row_equation
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, UNDOABLE, ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.web.charts import Bar, Progress, gantt, steps
from amoro_core.web.pages.framework import ROWS, Listed, Page, PageRequest, to, with_times

MOST = 5000  # of a process: of its first tasks, where there are more
_PAGE = 1000


async def _attempts_of(visit: PageRequest, process: pb.Process) -> tuple[Sequence[journal.AttemptInfo], int]:
    """The attempts of the process by task and number, at most `MOST`; and how many there are."""
    result: list[journal.AttemptInfo] = []
    while True:
        limit = max(1, min(_PAGE, MOST - len(result)))
        after = f"{result[-1].task_id}-{result[-1].attempt}" if result else ""
        request = journal.ListAttemptsRequest(process_id=process.process_id, limit=limit, after=after)
        page = await visit.ask(request, journal.ListAttemptsResponse)
        result = [*result, *page.attempts][:MOST]
        if not page.next or len(result) == MOST:
            return result, page.total


def _bar(attempt: journal.AttemptInfo) -> Bar:
    end_ms = max(attempt.scheduled_ms, attempt.finished_ms or round(time.time() * 1000))
    text = f"task {attempt.task_id}, attempt {attempt.attempt}"
    return Bar(attempt.optimizer_id, attempt.thread_id, attempt.scheduled_ms, end_ms, attempt.outcome, text)


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
    return rows and all(equation.holds for equation in result.equations)


_TASKS = 100  # on a page
_WORK = "Attempts by optimizer thread since the first one began"


async def show_processes(visit: PageRequest) -> Page:
    """Fifty processes, the newest first."""
    query = visit.query
    response = await visit.ask(pb.ListProcessesRequest(**with_times(query), limit=ROWS), pb.ListProcessesResponse)
    listed = Listed("/processes", "processes", query, response, response.processes)
    values = {"list": listed, "statuses": ProcessStatus}
    return Page("processes.html", "Processes", values, is_live=True)


async def show_process(visit: PageRequest) -> Page:
    """A process: steps, a chart of its threads, a hundred tasks, the receipt or the failure."""
    request = pb.ListTasksRequest(process_id=visit.named("process"), limit=_TASKS, **visit.query)
    response = await visit.ask(request, pb.ListTasksResponse)
    process = response.process
    attempts, attempts_total = await _attempts_of(visit, process) if process.tasks_total else ([], 0)
    bars = [_bar(attempt) for attempt in attempts]
    path = to("processes", process.process_id)
    values = {
        "process": process,
        "may_cancel": process.status in ACTIVE_PROCESS_STATUSES and process.status != ProcessStatus.COMMIT_UNKNOWN,
        "is_undoable": process.status in ("success", "partial") and process.type in UNDOABLE,
        "steps": steps(_progress(process, attempts, bars)),
        "gantt": gantt(bars, _WORK) if bars else None,
        "left_out": attempts_total - len(attempts),
        "statuses": TaskStatus,
        "list": Listed(path, "tasks", visit.query, response, response.tasks),
        "receipt": receipt_lines(process.receipt) if process.HasField("receipt") else [],
        "is_balanced": is_balanced(process.receipt),
    }
    return Page("process.html", process_title(process), values, is_live=True)


def process_title(process: pb.Process) -> str:
    """What the process does and on which table, such as "cluster of lake.ops.huge"."""
    return f"{process.type}{' optimizing' if process.type in tuple(OptimizingType) else ''} of {process.table}"


def _progress(process: pb.Process, attempts: Sequence[journal.AttemptInfo], bars: Sequence[Bar]) -> Progress:
    """When each step began. Attempts that were forgotten are not among them."""
    waiting = process.task_counts.planned + process.task_counts.scheduled + process.task_counts.acked
    worked = 0 if waiting else max((bar.end_ms for bar in bars), default=0)
    return Progress(
        process.status,
        process.created_ms,
        process.finished_ms,
        scheduled_ms=min((bar.start_ms for bar in bars), default=0),
        acked_ms=min((attempt.started_ms for attempt in attempts if attempt.started_ms), default=0),
        worked_ms=worked,
        has_tasks=bool(process.tasks_total),
        waits=bool(process.waiting),
    )


async def process_of(visit: PageRequest) -> pb.Process:
    """The stored process of the page's path."""
    request = pb.ListTasksRequest(process_id=visit.named("process"), limit=1)
    return (await visit.ask(request, pb.ListTasksResponse)).process
