"""Paged lists, aggregated in the store: no list reads the tasks of its processes."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeVar

from amoro_core.errors import AlreadyExists, InvalidArgument
from amoro_core.logger import get_logger
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.history_events import (
    ANY_PROCESS,
    AuditFilter,
    AuditOutcome,
    EventFilter,
    EventKind,
    ProcessFilter,
)
from amoro_core.model.metrics import BackupRecord, StateFacts
from amoro_core.model.paging import ALL, Key, Line, Page, Window, cut, numbers, opened, page_limit, sealed
from amoro_core.model.processes import (
    INTERNAL_FILE,
    Attempt,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    TaskStatus,
)
from amoro_core.model.tables import (
    BlockedOperation,
    Pending,
    TableFilter,
    TableIdentifier,
    TableKey,
    TableOrder,
    TableRuntime,
    parse_table,
)
from amoro_core.scheduling.policy import (
    DEFAULT_POLICY,
    ORDERED,
    POLICIES,
    Accounts,
    PendingTable,
    Policy,
    Use,
    occupation,
    quota_limit,
    rank_pending,
    share_of,
    standing,
)
from amoro_core.store import actions, audit, events, groups, processes, queue_stats, table_listing, tables, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.store.queue_stats import WaitingFigures, WaitingTasks
from amoro_core.transactions.task_queue import count_threads, in_order, pending_of

T = TypeVar("T")

PROCESSES = 100
#: Active processes whose progress is remembered: more than ever run.
_MOST_WATCHED = 10_000
#: Tables are counted up to this number.
EXACT = 10_000
BY_NAME = TableOrder()

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

    @property
    def is_waiting(self) -> bool:
        """Whether tasks wait for an optimizer, and none is being worked on."""
        return bool(self.waiting_in) and not self.busy_optimizers


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """A process with its table, and its tasks in figures."""

    process: OptimizingProcess
    table: TableIdentifier
    figures: TaskFigures


@dataclass
class OverviewService:
    """Pages of tables, processes and tasks. A limit of 0, or above what a page holds, means a whole page."""

    store: Store
    #: Of active processes the most bytes that were shown as done: progress that is lost with an attempt stays shown.
    _done: dict[str, int] = field(init=False, default_factory=dict)

    def tables(self, wanted: TableFilter, order: TableOrder = BY_NAME, window: Window = ALL) -> Page[TableRuntime]:
        """Tables in the order asked for; `after` is the `next` of the page before, or a name in the list by name.

        Raises InvalidArgument for another `after`.
        """
        most, scope = page_limit(window.limit), ("tables", order.key, order.order, *wanted.scope)
        after: tuple[Key, ...] | None = None
        if "." in window.after and order.key is TableKey.NAME:  # names have dots, cursors have none
            after = table_listing.place_of(parse_table(window.after))
        elif window.after:
            after = opened(window.after, scope, table_listing.kinds_of(order.key))

        def read(db: Connection) -> Page[TableRuntime]:
            meant: TableFilter | list[int] = wanted
            # The index of names holds those of a catalog side by side.
            if wanted == TableFilter() or (wanted.is_all_of_catalog and order.key is TableKey.NAME):
                total = table_listing.count(db, wanted, EXACT + 1)
            else:
                ids = table_listing.list_ids(db, wanted, EXACT + 1)
                total = len(ids)
                meant = ids if total <= EXACT else wanted
            rows = table_listing.list_places(db, meant, order, after, most + 1)
            page = cut(rows, most, total, lambda place: sealed(scope, place.values), EXACT)
            runtimes = tables.list_by_id(db, [place.table_id for place in page.items])
            return Page(tuple(runtimes), page.total, page.next, page.total_is_exact)

        return self.store.read(read)

    def processes(
        self, window: Window, progress: Progress, wanted: ProcessFilter = ANY_PROCESS
    ) -> Page[ProcessSummary]:
        """Processes, newest first; `after` is the id of one, or a unique prefix. Raises ProcessNotFound for it."""
        most = page_limit(window.limit or PROCESSES)

        def read(db: Connection) -> Page[ProcessSummary]:
            last = processes.place_of(db, window.after) if window.after else None
            rows = processes.list_page(db, wanted, last, most + 1)
            page = cut(rows, most, processes.count(db, wanted), lambda item: item.process_id)
            return Page(tuple(self._summaries(db, page.items, progress)), page.total, page.next)

        return self.store.read(read)

    def process(self, process_id: str, progress: Progress) -> ProcessSummary:
        """The process with that id, or with that prefix of six characters or more. Raises ProcessNotFound."""
        return self.store.read(lambda db: self._summaries(db, (processes.find_by_part(db, process_id),), progress)[0])

    def last_failure(self, table_id: int, of: Sequence[str] = ("",)) -> str:
        """The failure of the last process of the first of these actions ("": any) whose last one failed; "": none."""
        for action in of:
            wanted = partial(processes.list_processes, table_id=table_id, limit=1, action=action)
            for process in self.store.read(wanted):
                if process.failure_code and not process.is_active:
                    return f"{process.type} {process.process_id}: [{process.failure_code}] {process.failure}"
        return ""

    def late_deletes(self, table_id: int) -> str:
        """The text of the last event of a late delete; "" without one."""
        event_filter = EventFilter(kinds=(EventKind.LATE_DELETES,), table_id=table_id)
        result = self.store.read(lambda db: events.list_newest(db, event_filter, None, 1)) if table_id else []
        return result[0].text if result else ""

    def tasks(
        self, process_id: str, window: Window, progress: Progress, status: TaskStatus | None = None
    ) -> tuple[ProcessSummary, Page[OptimizingTask]]:
        """A process, and its tasks by number, after the number `after`; the id may be a unique prefix.

        Raises ProcessNotFound, InvalidArgument.
        """
        most = page_limit(window.limit)
        (number,) = numbers(window.after, 1, "a task number", "Tasks are numbered from 1.") or (0,)

        def read(db: Connection) -> tuple[ProcessSummary, Page[OptimizingTask]]:
            process = processes.find_by_part(db, process_id)
            (summary,) = self._summaries(db, (process,), progress)
            rows = tasks.list_page(db, process.process_id, status, number, most + 1)
            total = summary.figures.total if status is None else summary.figures.by_status[status]
            return summary, cut(rows, most, total, lambda task: str(task.task_id.number))

        return self.store.read(read)

    def _summaries(
        self, db: Connection, rows: tuple[OptimizingProcess, ...], progress: Progress
    ) -> list[ProcessSummary]:
        ids = [process.process_id for process in rows]
        names = tables.names(db, {process.table_id for process in rows})
        sums: dict[str, list[queue_stats.TaskSum]] = {process_id: [] for process_id in ids}
        by_process: dict[str, list[OptimizingTask]] = {process_id: [] for process_id in ids}
        for item in queue_stats.sum_up(db, ids):
            sums[item.process_id].append(item)
        for task in tasks.list_assigned_of(db, ids):
            by_process[task.task_id.process_id].append(task)
        figures = {id_: figures_of(by_process[id_], sums[id_], progress) for id_ in ids}
        grown = [self._grown(process, figures[process.process_id]) for process in rows]
        return [ProcessSummary(process, names[process.table_id], own) for process, own in zip(rows, grown, strict=True)]

    def _grown(self, process: OptimizingProcess, figures: TaskFigures) -> TaskFigures:
        """The figures of a process, of which what is done never decreases."""
        before = self._done.pop(process.process_id, 0)
        if not process.is_active:
            return figures
        done = self._done[process.process_id] = max(figures.input_bytes_done, before)
        if len(self._done) > _MOST_WATCHED:
            self._done.pop(next(iter(self._done)), None)
        return replace(figures, input_bytes_done=done)

    def waiting_kinds(self, process_id: str) -> list[str]:
        """The kinds of work of the process's tasks that wait for an optimizer."""
        return self.store.read(lambda db: queue_stats.list_kinds(db, process_id))

    def largest_cluster(self, process_id: str) -> tuple[int, int] | None:
        """Number and bytes of the largest group of files that waits to be put in order; None: none waits."""
        return self.store.read(lambda db: tasks.largest_waiting(db, process_id, CLUSTER))

    def count_running(self) -> int:
        """The number of running processes, without committing ones."""
        return self.store.read(lambda db: processes.count(db, ProcessFilter(status=ProcessStatus.RUNNING)))

    def active_on(self, table_ids: Iterable[int]) -> dict[int, OptimizingProcess]:
        """The active processes of these tables, by the table's id."""
        return self.store.read(lambda db: processes.list_active_on(db, table_ids))


def figures_of(
    assigned: Iterable[OptimizingTask], sums: Iterable[queue_stats.TaskSum], progress: Progress
) -> TaskFigures:
    """The figures of one process: sums over its tasks, and those that optimizers hold now."""
    sums, assigned = tuple(sums), tuple(assigned)
    by_status = dict.fromkeys(TaskStatus, 0)
    for item in sums:
        by_status[item.status] += item.tasks
    done = sum(item.input_bytes for item in sums if item.status is TaskStatus.SUCCESS)
    for task in assigned:
        rows_done, rows = progress.get(Attempt(task.task_id, task.attempt), (0, 0))
        done += task.input_bytes * min(rows_done, rows) // rows if rows else 0
    return TaskFigures(
        by_status,
        sum(item.input_bytes for item in sums),
        done,
        len({task.thread.optimizer_id for task in assigned if task.thread}),
        tuple(sorted({item.group for item in sums if item.status is TaskStatus.PLANNED})),
    )


#: Rows of each list on a page where no limit is asked for.
ROWS = 500
#: Figures are counted again after so long.
FRESH_S = 1.0
DAY = timedelta(hours=24)

#: A pending table with its policy and the key that this gives it.
_Ordered = tuple[str, Any, PendingTable]


@dataclass(frozen=True, slots=True)
class PendingPlace:
    """A table that waits for a plan."""

    table: Pending
    place: int  # in its group, from 1
    policy: str
    key: Any  # by which the policy orders
    limit: int  # threads that its quota allows now
    occupation: float  # share of the limit in the last hour; infinite without limit
    held_back: str  # why it is not planned though it is its turn; "": it is not


@dataclass(frozen=True, slots=True)
class WaitingPlace:
    """A process whose tasks wait for threads."""

    process: WaitingTasks
    table: TableIdentifier
    place: int  # in its group, from 1
    use: Use  # of the group by its table


@dataclass(frozen=True, slots=True)
class Queue:
    """The first entries that wait, by group."""

    pending: tuple[PendingPlace, ...]
    waiting: tuple[WaitingPlace, ...]
    pending_total: int  # 0 for a list that was not requested
    waiting_total: int


@dataclass
class QueueService:
    """Queues of the groups."""

    store: Store
    clock: Callable[[], datetime]
    accounts: Callable[[], Mapping[str, Accounts]]  # by which threads are assigned
    policies: Mapping[str, Policy] = field(default_factory=lambda: POLICIES)
    monotonic: Callable[[], float] = time.monotonic
    #: One caller counts, the others wait for it.
    _gate: threading.Lock = field(init=False, default_factory=threading.Lock)
    _counted: tuple[float, WaitingFigures, datetime] | None = field(init=False, default=None)

    def list_queue(self, group: str = "", limit: int = 0, only: Line | None = None) -> Queue:
        """The tables and processes that wait, the first `limit` of each, of one group or all; or one of the two lists.

        A limit of 0 means 500, and 1000 is the most. Raises InvalidArgument for a negative limit.
        """
        most, now = page_limit(limit or ROWS), self.clock()

        def read(db: Connection) -> Queue:
            pending, pending_total = ((), 0) if only is Line.WAITING else self._pending(db, group, most, now)
            waiting, waiting_total = ((), 0) if only is Line.PENDING else self._waiting(db, group, most, now)
            return Queue(pending, waiting, pending_total, waiting_total)

        return self.store.read(read)

    def figures(self) -> tuple[WaitingFigures, datetime]:
        """The figures, counted at that time, which is at most a second ago."""
        with self._gate:
            now_s = self.monotonic()
            if self._counted is None or not 0 <= now_s - self._counted[0] < FRESH_S:
                now = self.clock()
                self._counted = now_s, self.store.read(lambda db: queue_stats.waiting_figures(db, now - DAY)), now
            return self._counted[1:]

    def _pending(self, db: Connection, group: str, most: int, now: datetime) -> tuple[tuple[PendingPlace, ...], int]:
        """The first pending tables, and their total; details are read of the first ones only."""
        turns = tables.list_turns(db, group)
        policies, by_group = pending_of(db, turns, now)
        first = _first(by_group, lambda name: self._ordered(policies.get(name, ""), by_group[name], now), most)
        ids = [pending_table.table_id for _, (_, _, pending_table) in first]
        pending = {table.table_id: table for table in tables.list_pending(db, ids)}
        blockers = actions.list_blockers(db, now)
        held_back = {item.table_id: "blocked" for item in blockers if BlockedOperation.OPTIMIZE in item.operations}
        held_back |= {table_id: "disabled" for table_id, table in pending.items() if not table.enabled}
        places = tuple(
            PendingPlace(
                table=pending[pending_table.table_id],
                place=place,
                policy=policy,
                key=key,
                limit=pending_table.limit,
                occupation=occupation(pending_table.runs, pending_table.limit, now),
                held_back=held_back.get(pending_table.table_id, ""),
            )
            for place, (policy, key, pending_table) in first
        )
        return places, len(turns)

    def _ordered(self, name: str, pending: Sequence[PendingTable], at: datetime) -> list[_Ordered]:
        """The tables in planning order, with the policy and its key; by the default one where that is missing or
        fails, as planning does."""
        try:
            return [(name, *item) for item in rank_pending(pending, self.policies[name], at)]
        except Exception:
            # A plugged-in policy may raise anything; planning logs it.
            policy = self.policies[DEFAULT_POLICY]
            return [(DEFAULT_POLICY, *item) for item in rank_pending(pending, policy, at)]

    def _waiting(self, db: Connection, group: str, most: int, now: datetime) -> tuple[tuple[WaitingPlace, ...], int]:
        """The first waiting processes, and their total."""
        rows = queue_stats.list_waiting(db, group)
        threads, accounts = count_threads(db), self.accounts()
        running = Counter((task.group, task.table_id) for task in tasks.list_assigned(db))
        by_name = {group.name: group for group in groups.list_groups(db)}
        by_group = {name: list(items) for name, items in groupby(rows, key=lambda item: item.group)}

        def use(item: WaitingTasks) -> Use:
            size = threads.get(item.group, 0)
            ahead_s = accounts.get(item.group, _NEW).ahead_s.get(item.table_id, 0.0)
            used = running[item.group, item.table_id]
            return Use(used, quota_limit(item.quota, max(1, size)), share_of(item.quota, size), ahead_s)

        def turn(pair: tuple[WaitingTasks, Use]) -> tuple[object, ...]:
            item, used = pair
            typical_s = accounts.get(item.group, _NEW).typical_s
            return *standing(used, typical_s), item.created_at, item.process_id

        def line(name: str) -> list[tuple[WaitingTasks, Use]]:
            if name in by_name and by_name[name].scheduling_policy in ORDERED:
                return [(item, use(item)) for item in in_order(by_group[name], by_name[name], now)]
            return sorted(((item, use(item)) for item in by_group[name]), key=turn)

        first = _first(by_group, line, most)
        names = tables.names(db, {item.table_id for _, (item, _) in first})
        places = tuple(WaitingPlace(item, names[item.table_id], place, used) for place, (item, used) in first)
        return places, len(rows)


def _first(groups: Iterable[str], line_of: Callable[[str], Sequence[T]], limit: int) -> list[tuple[int, T]]:
    """The first entries by group, each with its place in the line of its group, from 1."""
    entries = ((place, item) for group in sorted(groups) for place, item in enumerate(line_of(group), 1))
    return list(islice(entries, limit))


_NEW = Accounts(datetime.min)


log = get_logger("amoro.state")

_BACKUP = "BackupState"  # the operation, as the audit names it


@dataclass
class StateService:
    """What is known of the state database while it is in use, its backups and checks."""

    store: Store

    def backup(self, path: str) -> int:
        """Write a copy to a new file on this machine, that of internal catalogs to PATH.catalogs; returns their size.

        It contains the catalogs' secrets and is readable by its owner alone. Raises InvalidArgument for a path that is
        not absolute, AlreadyExists, StoreFailed.
        """
        target = Path(path)
        if not target.is_absolute():
            raise InvalidArgument(f"{path!r} is not an absolute path", hint="Name a file on the coordinator's machine.")
        internal, copy = self.store.path.with_name(INTERNAL_FILE), target.with_name(f"{target.name}.catalogs")
        if copy.exists():
            raise AlreadyExists(f"{copy} exists already; a backup never replaces a file")
        self.store.backup(target)
        size = target.stat().st_size
        if internal.exists():  # after the state: no commit that the state knows may be missing
            from amoro_core.iceberg.catalog.internal import backup_database  # it loads pyiceberg

            size += backup_database(internal, copy)
        log.info("state.backed_up", path=path, size_bytes=size)
        return size

    def facts(self) -> tuple[StateFacts, BackupRecord | None]:
        """What is known of the file, and the last backup that the audit knows. Raises StoreFailed."""
        audit_filter = AuditFilter(operation=_BACKUP, outcome=AuditOutcome.DONE)
        backups = self.store.read(lambda db: audit.list_newest(db, audit_filter, None, 1))
        return self.store.facts(), BackupRecord(backups[0].at, backups[0].call.object) if backups else None

    def check(self) -> list[str]:
        """The problems of the state database; empty when it is sound."""
        return self.store.check()
