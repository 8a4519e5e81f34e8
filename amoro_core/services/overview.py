"""Paged lists, aggregated in the store: no list reads the tasks of its processes."""

from collections.abc import Iterable, Mapping, Sequence

from amoro_core.errors import InvalidArgument
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.cursors import Key, opened, sealed
from amoro_core.model.journal import EventFilter, EventKind
from amoro_core.model.paging import ALL, Page, Window, cut, page_limit
from amoro_core.model.processes import (
    Attempt,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    TaskStatus,
)
from amoro_core.model.table_lists import TableKey, TableOrder, WantedTables
from amoro_core.model.tables import TableIdentifier, TableRuntime, parse_table
from amoro_core.records import record
from amoro_core.store import events, processes, table_listing, tables, task_sums, tasks
from amoro_core.store.database import Connection, Store

PROCESSES = 100
#: Tables are counted up to this number.
EXACT = 10_000
BY_NAME = TableOrder()

Progress = Mapping[Attempt, tuple[int, int]]  # rows done, rows in all


@record
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


@record
class ProcessSummary:
    """A process with its table, and its tasks in figures."""

    process: OptimizingProcess
    table: TableIdentifier
    figures: TaskFigures


@record
class TaskPage:
    """A process, and some of its tasks."""

    summary: ProcessSummary
    tasks: Page[OptimizingTask]


class OverviewService:
    """Pages of tables, processes and tasks. A limit of 0, or above what a page holds, means a whole page."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def tables(self, wanted: WantedTables, order: TableOrder = BY_NAME, window: Window = ALL) -> Page[TableRuntime]:
        """Tables in the order asked for; `after` is the `next` of the page before, or a name in the list by name.

        Raises InvalidArgument for another `after`.
        """
        most, scope = page_limit(window.limit), ("tables", order.key, order.order, *wanted.scope)
        after = _place_after(window.after, order, scope)

        def read(db: Connection) -> Page[TableRuntime]:
            meant: WantedTables | list[int] = wanted
            # The index of names holds those of a catalog side by side.
            if wanted.is_all or (wanted.is_all_of_catalog and order.key is TableKey.NAME):
                total = table_listing.count(db, wanted, EXACT + 1)
            else:
                ids = table_listing.list_ids(db, wanted, EXACT + 1)
                total = len(ids)
                meant = ids if total <= EXACT else wanted
            found = table_listing.list_places(db, meant, order, after, most + 1)
            page = cut(found, most, min(total, EXACT), lambda place: sealed(scope, place.values))
            runtimes = tables.list_by_id(db, [place.table_id for place in page.items])
            return Page(tuple(runtimes), page.total, page.next, total <= EXACT)

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
            last = processes.place_of(db, window.after) if window.after else None
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
        """The failure of the table's last process, with its code; "" when it did not fail."""
        for process in self._store.read(lambda db: processes.list_processes(db, table_id, limit=1)):
            if process.failure_code and not process.is_active:
                return f"{process.type} {process.process_id}: [{process.failure_code}] {process.failure}"
        return ""

    def late_deletes(self, table_id: int) -> str:
        """The last delete by others of rows that were rewritten before, as its event tells; "" when none is kept."""
        wanted = EventFilter(kinds=(EventKind.LATE_DELETES,), table_id=table_id)
        found = self._store.read(lambda db: events.list_newest(db, wanted, None, 1)) if table_id else []
        return found[0].text if found else ""

    def tasks(self, process_id: str, window: Window, progress: Progress, status: TaskStatus | None = None) -> TaskPage:
        """Tasks of a process by number, after the number `after`; the id may be a unique prefix.

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

    def waiting_kinds(self, process_id: str) -> list[str]:
        """The kinds of work of the process's tasks that wait for an optimizer."""
        return self._store.read(lambda db: task_sums.list_kinds(db, process_id))

    def largest_cluster(self, process_id: str) -> tuple[int, int] | None:
        """Number and bytes of the largest group of files that waits to be put in order; None: none waits."""
        return self._store.read(lambda db: tasks.largest_waiting(db, process_id, CLUSTER))

    def count_running(self) -> int:
        """The number of running processes, without committing ones."""
        return self._store.read(lambda db: processes.count(db, status=ProcessStatus.RUNNING))

    def active_on(self, table_ids: Iterable[int]) -> dict[int, OptimizingProcess]:
        """The active processes of these tables, by the table's id."""
        return self._store.read(lambda db: processes.list_active_on(db, table_ids))


def figures_of(held: Iterable[OptimizingTask], sums: Iterable[task_sums.TaskSum], progress: Progress) -> TaskFigures:
    """The figures of one process: sums over its tasks, and those that optimizers hold now."""
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
    sums: dict[str, list[task_sums.TaskSum]] = {process_id: [] for process_id in ids}
    held: dict[str, list[OptimizingTask]] = {process_id: [] for process_id in ids}
    for item in task_sums.sum_up(db, ids):
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


def _place_after(after: str, order: TableOrder, scope: Sequence[object]) -> tuple[Key, ...] | None:
    """The place that a cursor, or the name of a table, stands for; names have dots, cursors have none."""
    if not after:
        return None
    if "." in after and order.key is TableKey.NAME:
        return table_listing.place_of(parse_table(after))
    return opened(after, scope, table_listing.kinds_of(order.key))


def _number(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidArgument(f"{text!r} is no task's number", hint="Tasks are numbered from 1.")
    return int(text)
