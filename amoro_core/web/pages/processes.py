"""Pages of processes, with the attempts of their tasks."""

import shlex
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from amoro_core.documents.formatting import (
    encoded_lines,
    format_bytes,
    format_count,
    format_duration,
    label,
    own_figures,
    row_equation,
)
from amoro_core.model.history_events import AttemptOutcome
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, UNDOABLE, ProcessStatus, TaskStatus
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.web.charts import Bar, Progress, gantt, steps
from amoro_core.web.pages.page_request import ROWS, Listed, Page, PageRequest, to

MOST = 5000  # of a process: of its first tasks, where there are more
_PAGE = 1000
_PROCESSES = 16


@dataclass(frozen=True, slots=True)
class Tried:
    """An attempt: of which task, when its optimizer began, and its bar."""

    task: int
    attempt: int
    started_ms: int
    bar: Bar


class Attempts:
    """Reads the attempts of processes, those of the first tasks once: of a task that has succeeded none is added.

    Whoever asks may see them, else the operation refuses; who may sees the same as all others.
    """

    def __init__(self) -> None:
        self._settled: OrderedDict[str, tuple[Tried, ...]] = OrderedDict()

    async def of(self, visit: PageRequest, process: pb.Process) -> tuple[Sequence[Tried], int]:
        """The attempts of the process by task and number, at most `MOST`; and how many there are."""
        value = list(self._settled.get(process.process_id, ()))
        while True:
            limit = max(1, min(_PAGE, MOST - len(value)))
            after = f"{value[-1].task}-{value[-1].attempt}" if value else ""
            request = journal.ListAttemptsRequest(process_id=process.process_id, limit=limit, after=after)
            page = await visit.ask("ListAttempts", request, journal.ListAttemptsResponse)
            value = [*value, *_tried(page.attempts)][:MOST]
            if not page.next or len(value) == MOST:
                break
        self._keep(process.process_id, value)
        return value, page.total

    def _keep(self, process_id: str, result: Sequence[Tried]) -> None:
        self._settled[process_id] = tuple(result[: settled(result)])
        self._settled.move_to_end(process_id)
        if len(self._settled) > _PROCESSES:
            self._settled.popitem(last=False)


def settled(result: Sequence[Tried]) -> int:
    """How many of the attempts stand before the first task that has not succeeded, and so stay as they are."""
    count, task = 0, 0
    for place, one in enumerate(result, 1):
        if one.task > task + 1:  # a task without an attempt
            break
        if one.bar.state == AttemptOutcome.SUCCESS:
            count, task = place, one.task
    return count


def _tried(attempts: Sequence[journal.AttemptInfo]) -> list[Tried]:
    now = round(time.time() * 1000)
    return [
        Tried(
            one.task_id,
            one.attempt,
            one.started_ms,
            Bar(
                one.optimizer_id,
                one.thread_id,
                one.scheduled_ms,
                max(one.scheduled_ms, one.finished_ms or now),
                one.outcome,
                f"task {one.task_id}, attempt {one.attempt}",
            ),
        )
        for one in attempts
    ]


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
    lines += [*own_figures(result.figures), *encoded_lines(result)]
    for one in result.equations:
        if (one.left, one.right) == ("rows_before", "rows_after"):
            continue
        sign, mark = ("=", "✓") if one.holds else ("≠", "✗")
        lines.append(("check", f"{label(one.left)} {sign} {label(one.right)} {mark}"))
    if result.snapshot_id:
        lines.append(("snapshot", f"{result.snapshot_id} on {result.base_snapshot_id or 'none'}"))
    lines.append(("took", format_duration(result.duration_ms)))
    return lines


def is_balanced(result: pb.Receipt) -> bool:
    """Whether every equation of the receipt holds."""
    rows = result.words != "" or result.rows_before == result.rows_after
    return rows and all(one.holds for one in result.equations)


_STATUSES = tuple(status.value for status in ProcessStatus)
_TASK_STATUSES = tuple(status.value for status in TaskStatus)
_TASKS = 100  # on a page
_WORK = "Attempts by optimizer thread since the first one began"


async def show_processes(visit: PageRequest) -> Page:
    """Fifty processes, the newest first."""
    query = visit.query(table=(), status=_STATUSES, after=())
    response = await visit.ask(
        "ListProcesses",
        pb.ListProcessesRequest(table=query["table"], status=query["status"], limit=ROWS, after=query["after"]),
        pb.ListProcessesResponse,
    )
    filters = {key: query[key] for key in ("table", "status")}
    listed = Listed(
        "/processes", "processes", filters, len(response.processes), response.total, response.next, query["after"]
    )
    values = {"processes": response.processes, "list": listed, "statuses": _STATUSES}
    return Page("processes.html", "Processes", values, is_live=True)


class ProcessPage:
    """The page of a process; it caches final attempts."""

    def __init__(self) -> None:
        self._attempts = Attempts()

    async def show(self, visit: PageRequest) -> Page:
        """A process: steps, a chart of its threads, a hundred tasks, the receipt or the failure."""
        query = visit.query(status=_TASK_STATUSES, after=())
        name = visit.named("process")
        response = await visit.ask(
            "ListTasks",
            pb.ListTasksRequest(process_id=name, status=query["status"], limit=_TASKS, after=query["after"]),
            pb.ListTasksResponse,
        )
        process = response.process
        tried, attempts = await self._attempts.of(visit, process) if process.tasks_total else ([], 0)
        path, filters = to("processes", process.process_id), {"status": query["status"]}
        values = {
            "process": process,
            "is_active": not process.finished_ms,
            "may_cancel": process.status in ACTIVE_PROCESS_STATUSES and process.status != ProcessStatus.COMMIT_UNKNOWN,
            "is_undoable": process.status in ("success", "partial") and process.type in UNDOABLE,
            "steps": steps(_progress(process, tried)),
            "gantt": gantt([one.bar for one in tried], _WORK) if tried else None,
            "left_out": attempts - len(tried),
            "tasks": response.tasks,
            "statuses": _TASK_STATUSES,
            "list": Listed(path, "tasks", filters, len(response.tasks), response.total, response.next, query["after"]),
            "commands": _commands(process),
            "receipt": receipt_lines(process.receipt) if process.HasField("receipt") else [],
            "is_balanced": is_balanced(process.receipt),
        }
        return Page("process.html", f"Process {process.process_id}", values, is_live=True)


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


async def found_process(visit: PageRequest) -> pb.Process:
    """The stored process of the page's path."""
    request = pb.ListTasksRequest(process_id=visit.named("process"), limit=1)
    return (await visit.ask("ListTasks", request, pb.ListTasksResponse)).process
