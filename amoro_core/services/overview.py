"""Lists of what is known, page by page, counted where it is kept: no list reads the tasks of its processes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from amoro_core.errors import InvalidArgument
from amoro_core.model.paging import Page, Window, cut
from amoro_core.model.processes import (
    Attempt,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    TaskStatus,
)
from amoro_core.model.tables import OptimizingStatus, TableIdentifier, TableRuntime
from amoro_core.store import processes, tables, tasks
from amoro_core.store.database import Connection, Store

#: Items on a page: with all their text about a tenth of what a message may hold.
PAGE = 1000
PROCESSES = 100

Progress = Mapping[Attempt, tuple[int, int]]  # rows done, rows in all


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The tasks of a process in figures."""

    by_status: Mapping[TaskStatus, int]  # every status is named
    input_bytes: int
    input_bytes_done: int  # of a task that runs as much as its share of rows
    busy_optimizers: int  # that hold one
    waiting_in: tuple[str, ...]  # groups that planned ones wait for

    @property
    def total(self) -> int:
        """How many tasks there are, in any status."""
        return sum(self.by_status.values())


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """A process with its table, and its tasks in figures."""

    process: OptimizingProcess
    table: TableIdentifier
    figures: TaskFigures


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A process, and some of its tasks."""

    summary: ProcessSummary
    tasks: Page[OptimizingTask]


class OverviewService:
    """Pages of tables, processes and tasks. A limit of 0, or above what a page holds, means a whole page."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def tables(self, wanted: tables.Wanted, after: TableIdentifier | None = None, limit: int = 0) -> Page[TableRuntime]:
        """Tables in order of their names."""
        most = page_limit(limit)

        def read(db: Connection) -> Page[TableRuntime]:
            found = tables.list_page(db, wanted, after, most + 1)
            return cut(found, most, tables.count_wanted(db, wanted), lambda runtime: str(runtime.identifier))

        return self._store.read(read)

    def processes(
        self,
        window: Window,
        progress: Progress,
        table_id: int | None = None,
        status: ProcessStatus | None = None,
    ) -> Page[ProcessSummary]:
        """Processes, newest first; `after` is the id of one, or a unique prefix. Raises ProcessNotFound for it."""
        most = page_limit(window.limit or PROCESSES)

        def read(db: Connection) -> Page[ProcessSummary]:
            last = processes.find_by_prefix(db, window.after) if window.after else None
            found = processes.list_page(db, table_id, status, last, most + 1)
            page = cut(found, most, processes.count(db, table_id, status), lambda item: item.process_id)
            return Page(tuple(_summaries(db, page.items, progress)), page.total, page.next)

        return self._store.read(read)

    def process(self, process_id: str, progress: Progress) -> ProcessSummary:
        """The process with that id, or with that prefix of six characters or more. Raises ProcessNotFound."""

        def read(db: Connection) -> ProcessSummary:
            (summary,) = _summaries(db, (processes.find_by_prefix(db, process_id),), progress)
            return summary

        return self._store.read(read)

    def last_failure(self, table_id: int) -> str:
        """How the table's last process failed, with its code; "" when it did not fail."""
        for process in self._store.read(lambda db: processes.list_processes(db, table_id, limit=1)):
            if process.failure_code and not process.is_active:
                return f"{process.type} {process.process_id}: [{process.failure_code}] {process.failure}"
        return ""

    def tasks(self, process_id: str, window: Window, progress: Progress, status: TaskStatus | None = None) -> TaskPage:
        """Tasks of a process by number, `after` is one; the id may be a unique prefix.

        Raises ProcessNotFound, InvalidArgument.
        """
        most, number = page_limit(window.limit), _number(window.after)

        def read(db: Connection) -> TaskPage:
            process = processes.find_by_prefix(db, process_id)
            (summary,) = _summaries(db, (process,), progress)
            found = tasks.list_page(db, process.process_id, status, number, most + 1)
            total = summary.figures.total if status is None else summary.figures.by_status[status]
            return TaskPage(summary, cut(found, most, total, lambda task: str(task.task_id.number)))

        return self._store.read(read)

    def count_running(self) -> int:
        """How many processes run; those that commit not among them."""
        return self._store.read(lambda db: processes.count(db, status=ProcessStatus.RUNNING))

    def active_on(self, table_ids: Iterable[int]) -> dict[int, OptimizingProcess]:
        """The processes that hold any of these tables now, by the table's id."""
        return self._store.read(lambda db: processes.list_active_on(db, table_ids))


def wanted_tables(catalog: str, status: OptimizingStatus | None, group: str) -> tables.Wanted:
    """The tables of the catalog, in the status, of the group; of any where it is "" or None."""
    return tables.Wanted(catalog, status, group)


def page_limit(limit: int, most: int = PAGE) -> int:
    """How many items a page has for a limit that was asked for. Raises InvalidArgument below 0."""
    if limit < 0:
        raise InvalidArgument(f"{limit} is no limit", hint="Give 1 or more, or 0 for a whole page.")
    return min(limit or most, most)


def figures_of(held: Iterable[OptimizingTask], sums: Iterable[tasks.TaskSum], progress: Progress) -> TaskFigures:
    """The figures of one process: its tasks summed up, and those of them that optimizers hold now."""
    sums, held = tuple(sums), tuple(held)
    by_status = dict.fromkeys(TaskStatus, 0)
    for item in sums:
        by_status[item.status] += item.tasks
    done = sum(item.input_bytes for item in sums if item.status is TaskStatus.SUCCESS)
    for task in held:
        rows_done, rows = progress.get(Attempt(task.task_id, task.attempt), (0, 0))
        done += task.input_bytes * min(rows_done, rows) // rows if rows else 0
    return TaskFigures(
        by_status,
        sum(item.input_bytes for item in sums),
        done,
        len({task.thread.optimizer_id for task in held if task.thread}),
        tuple(sorted({item.group for item in sums if item.status is TaskStatus.PLANNED})),
    )


def _summaries(db: Connection, found: tuple[OptimizingProcess, ...], progress: Progress) -> list[ProcessSummary]:
    ids = [process.process_id for process in found]
    names = tables.names(db, {process.table_id for process in found})
    sums: dict[str, list[tasks.TaskSum]] = {process_id: [] for process_id in ids}
    held: dict[str, list[OptimizingTask]] = {process_id: [] for process_id in ids}
    for item in tasks.sum_up(db, ids):
        sums[item.process_id].append(item)
    for task in tasks.list_held_of(db, ids):
        held[task.task_id.process_id].append(task)
    return [
        ProcessSummary(
            process,
            names[process.table_id],
            figures_of(held[process.process_id], sums[process.process_id], progress),
        )
        for process in found
    ]


def _number(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidArgument(f"{text!r} is no task's number", hint="Tasks are numbered from 1.")
    return int(text)
