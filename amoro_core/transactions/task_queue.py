"""The queue of planned tasks: which task a free thread gets next, and the accounts that make it fair."""

import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, islice
from typing import Any, TypeVar

from amoro_core.logger import get_logger
from amoro_core.model.group_config import DEFAULT_AGING, parse_group
from amoro_core.model.processes import Attempt, Optimizer, OptimizerThread, OptimizingTask, ResourceGroup, TaskId
from amoro_core.model.tables import Pending, TableIdentifier, TableRuntime, Turn
from amoro_core.model.task_payload import PROCEDURE_GRACE, Work
from amoro_core.scheduling.policy import (
    LOOK_BACK,
    ORDERED,
    Accounts,
    PendingTable,
    TaskRun,
    Use,
    choose_tasks,
    quota_limit,
    settled,
    share_of,
)
from amoro_core.state import tasks as task_machine
from amoro_core.store import groups, queue_stats, tables, tasks
from amoro_core.store.connection import as_stored, from_ms
from amoro_core.store.database import Connection
from amoro_core.store.queue_stats import ThreadUse, WaitingProcess, WaitingTasks
from amoro_core.store.tasks import TaskHold
from amoro_core.transactions.advance_process import Effects, take_back
from amoro_core.transactions.journal import keep_tasks

log = get_logger("amoro.optimizing")

#: Accounts older than this are settled before tasks are chosen.
SETTLED_EVERY = timedelta(seconds=0.25)
#: Beyond the time by which a procedure has certainly ended.
MARGIN = timedelta(seconds=5)
#: Limit of the inputs of the tasks of one answer, beyond its first; an answer must fit into a message.
ANSWER_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PollRequest:
    """An optimizer that asks for at most one task for each of these free threads."""

    optimizer_id: str
    group: str
    thread_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScheduledTask:
    """A task as it is given to a thread."""

    attempt: Attempt
    thread_id: int
    table: TableIdentifier
    work: Work


def may_schedule(db: Connection, request: PollRequest) -> bool:
    """Whether there may be a task for the optimizer, or one to take back from these threads. Raises UnknownToken."""
    kinds = groups.get_optimizer(db, request.optimizer_id).kinds
    if queue_stats.has_planned(db, request.group, kinds):
        return True
    return bool(tasks.list_assigned_on(db, request.optimizer_id, request.thread_ids))


class TaskScheduler:
    """Schedules planned tasks within a write; keeps the thread accounts of each group's tables in memory."""

    def __init__(
        self,
        core_ms: Callable[[], Mapping[Attempt, int]] = dict,
        heartbeat_timeout: timedelta = timedelta(),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`core_ms` returns the CPU time that running attempts have taken so far.

        A procedure without a report has ended once its optimizer has told it, or itself, to stop, within the time-out
        of heartbeats, and its grace is over.
        """
        self._read_core_ms = core_ms
        self._procedures_end = heartbeat_timeout + PROCEDURE_GRACE + MARGIN
        self._monotonic = monotonic
        self._epoch: datetime | None = None  # when a clock that nobody sets was 0, as the other one said at first
        self._accounts: dict[str, Accounts] = {}
        self._core_ms: dict[Attempt, int] = {}  # of attempts that report it, until their tables are charged

    @property
    def accounts(self) -> Mapping[str, Accounts]:
        """The accounts of each group as they were last settled; any thread may read them."""
        return dict(self._accounts)

    def note_core_time(self) -> None:
        """Keep the CPU time that attempts have taken so far, for the accounts; only the store's writer calls it."""
        self._core_ms.update(self._read_core_ms())

    def schedule(self, db: Connection, request: PollRequest, effects: Effects, now: datetime) -> list[OptimizingTask]:
        """Schedule at most one planned task for each free thread, in their order. Raises UnknownToken."""
        now = as_stored(now)
        optimizer = groups.get_optimizer(db, request.optimizer_id)
        self.note_core_time()
        for task in tasks.list_assigned_on(db, request.optimizer_id, request.thread_ids):
            # A thread that polls executes nothing: the answer to its last poll was lost.
            thread_id = task.thread.thread_id if task.thread else 0
            take_back(db, task, f"thread {thread_id} asked for work again", effects, now, lost=False)
        chosen = _fitting(db, self._choose(db, optimizer, request.group, len(request.thread_ids), now))
        before = tasks.get_many(db, chosen)
        changes = []
        for task_id, thread_id in zip(chosen, request.thread_ids, strict=False):
            event = task_machine.Schedule(OptimizerThread(optimizer.optimizer_id, thread_id))
            changes.append((before[task_id], task_machine.advance(before[task_id], event, now)))
        keep_tasks(db, changes, now)
        for _, task in changes:
            log.info("task.scheduled", task=str(task.task_id), attempt=task.attempt, optimizer=optimizer.optimizer_id)
        return [task for _, task in changes]

    def _choose(self, db: Connection, optimizer: Optimizer, group: str, slots: int, now: datetime) -> list[TaskId]:
        processes: dict[int, list[WaitingProcess]] = {}  # by table, the one with the oldest process first
        for process in queue_stats.list_waiting_processes(db, group):
            processes.setdefault(process.table_id, []).append(process)
        threads = groups.count_threads(db, group)
        accounts = self._settle(db, group, threads, processes.keys(), now)
        certain = self._certain(now)
        if groups.policy_of(db, group) in ORDERED:
            listed = (process for waiting in processes.values() for process in waiting)
            ordered = in_order(listed, groups.get(db, group), now)
            return list(islice(_planned(db, ordered, optimizer, group, slots, certain), slots))
        running = queue_stats.count_assigned(db, group)
        quotas = {table_id: waiting[0].quota for table_id, waiting in processes.items()}
        allowed = {
            quota: (quota_limit(quota, max(1, threads)), share_of(quota, threads)) for quota in set(quotas.values())
        }
        uses = {
            table_id: Use(running.get(table_id, 0), *allowed[quota], accounts.ahead_s.get(table_id, 0.0))
            for table_id, quota in quotas.items()
        }

        def planned_of(table_id: int) -> Iterator[TaskId]:
            return _planned(db, processes[table_id], optimizer, group, slots, certain)

        return choose_tasks(processes, planned_of, uses, slots, accounts.typical_s)

    def _certain(self, now: datetime) -> datetime:
        """What ended before is certainly over, even if the clock was set forward since."""
        steady = timedelta(seconds=self._monotonic())
        self._epoch = self._epoch or now - steady
        return min(now, self._epoch + steady) - self._procedures_end

    def _settle(self, db: Connection, group: str, threads: int, waiting: Collection[int], now: datetime) -> Accounts:
        """The group's accounts, settled if they are old."""
        accounts = self._accounts.get(group, Accounts(now))
        if group in self._accounts and timedelta() <= now - accounts.at < SETTLED_EVERY:
            return accounts
        used = queue_stats.list_thread_uses(db, group, accounts.at)
        quotas = tables.quotas(db, {*waiting, *(thread_use.table_id for thread_use in used)})
        shares = {table_id: share_of(quota, threads) for table_id, quota in quotas.items()}
        runs = [(thread_use.table_id, self._run(thread_use, now)) for thread_use in used]
        for use in used:
            if use.finished_at is not None:
                self._core_ms.pop(use.attempt, None)
        accounts = settled(accounts, [(table_id, run) for table_id, run in runs if run], shares, waiting, now)
        self._accounts[group] = accounts
        return accounts

    def _run(self, use: ThreadUse, now: datetime) -> TaskRun | None:
        """The time for which the task held its thread, and how many cores it kept busy; None: it never held one."""
        if use.scheduled_at is None:
            return None
        core_ms = self._core_ms.get(use.attempt, 0)
        held_ms = ((use.finished_at or now) - use.scheduled_at).total_seconds() * 1000
        return TaskRun(use.scheduled_at, use.finished_at, max(1.0, core_ms / held_ms if held_ms > 0 else 1.0))


Waiting = TypeVar("Waiting", WaitingProcess, WaitingTasks)


def in_order(processes: Iterable[Waiting], group: ResourceGroup, now: datetime) -> list[Waiting]:
    """The waiting processes of a group in the order of its policy, by which tasks are assigned to threads, too."""
    policy, aging = ORDERED[group.scheduling_policy], parse_group(group.properties).priority_aging

    def rank(item: Waiting) -> tuple[Any, str]:
        waits = PendingTable(
            item.table_id, 0, since=from_ms(item.since_ms), priority=item.priority, value=item.value, aging=aging
        )
        return policy(waits, now), item.process_id

    return sorted(processes, key=rank)


def _planned(
    db: Connection, waiting: Iterable[WaitingProcess], optimizer: Optimizer, group: str, limit: int, certain: datetime
) -> Iterator[TaskId]:
    """The tasks of these processes that the optimizer can do, in their order; read when they are needed."""
    for process in waiting:
        yield from queue_stats.next_planned(
            db, process.process_id, group, optimizer.kinds, optimizer.max_cluster_bytes, limit, certain
        )


def _fitting(db: Connection, task_ids: Sequence[TaskId]) -> Sequence[TaskId]:
    """The first of these tasks, as many as fit into one answer: at least one."""
    sizes = queue_stats.input_sizes(db, task_ids) if len(task_ids) > 1 else {}
    total = list(accumulate(sizes.get(id_, 0) for id_ in task_ids))
    return task_ids[: max(bisect_right(total, ANSWER_BYTES), 1)]


def with_work(db: Connection, scheduled: Iterable[OptimizingTask]) -> list[ScheduledTask]:
    """Tasks that were just scheduled, with their tables and their work."""
    assigned = [(task, task.thread) for task in scheduled if task.thread is not None]
    inputs = tasks.read_inputs(db, (task.task_id for task, _ in assigned))
    names = tables.names(db, {task.table_id for task, _ in assigned})
    return [
        ScheduledTask(
            Attempt(task.task_id, task.attempt),
            thread.thread_id,
            names[task.table_id],
            Work(task.kind, inputs[task.task_id]),
        )
        for task, thread in assigned
    ]


#: A table that waits to be planned.
WaitingTable = TableRuntime | Pending | Turn


def pending_of(
    db: Connection, pending: Sequence[WaitingTable], now: datetime
) -> tuple[dict[str, str], dict[str, list[PendingTable]]]:
    """The policies of all groups, and the pending tables of each, groups sorted by name."""
    threads, runs = count_threads(db), runs_of(recent_holds(db, now))
    by_name = {group.name: group for group in groups.list_groups(db)}
    policies = {name: group.scheduling_policy for name, group in by_name.items()}
    aging = {name: parse_group(group.properties).priority_aging for name, group in by_name.items()}
    waiting: dict[str, list[PendingTable]] = {name: [] for name in sorted({table.group for table in pending})}
    for table in pending:
        limit = quota_limit(table.quota, max(1, threads.get(table.group, 0)))
        used = runs.get((table.group, table.table_id), ())
        since = table.status_since if isinstance(table, TableRuntime) else table.since
        rank = since, table.priority, table.value, aging.get(table.group, DEFAULT_AGING)
        waiting[table.group].append(PendingTable(table.table_id, limit, used, table.last_optimized_at, *rank))
    return policies, waiting


def recent_holds(db: Connection, now: datetime) -> list[TaskHold]:
    """Attempts that hold a thread or ended within the last hour."""
    return tasks.list_holds(db, now - LOOK_BACK)


def runs_of(recent: Iterable[TaskHold]) -> dict[tuple[str, int], tuple[TaskRun, ...]]:
    """The periods in which tasks held a thread, by group and table."""
    runs: dict[tuple[str, int], list[TaskRun]] = {}
    for hold in recent:
        runs.setdefault((hold.group, hold.table_id), []).append(TaskRun(hold.since, hold.until))
    return {key: tuple(runs_) for key, runs_ in runs.items()}


def count_threads(db: Connection) -> dict[str, int]:
    """The threads of all optimizers, by group."""
    counted: dict[str, int] = {}
    for optimizer in groups.list_optimizers(db):
        counted[optimizer.group] = counted.get(optimizer.group, 0) + optimizer.threads
    return counted
