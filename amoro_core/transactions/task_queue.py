"""The open tasks of all groups in memory, as the store's writer sees them: what waits, and who holds what."""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush
from typing import Protocol, TypeVar

from amoro_core.model.clustering import CLUSTER
from amoro_core.model.processes import OptimizerThread, OptimizingTask, TaskId, TaskStatus
from amoro_core.scheduling.policy import (
    LOOK_BACK,
    Accounts,
    PendingTable,
    TaskRun,
    Use,
    quota_limit,
    share_of,
    standing,
)
from amoro_core.store import groups, optimizers, queue_stats, tables, tasks
from amoro_core.store.change_capture import Changed, follow
from amoro_core.store.database import Connection
from amoro_core.store.queue_stats import OpenProcess, OpenTask
from amoro_core.store.tasks import TaskHold

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Capability:
    """What an optimizer can do."""

    kinds: tuple[str, ...]
    max_cluster_bytes: int


@dataclass(slots=True)
class _Tasks:
    """The open tasks of one process."""

    process: OpenProcess | None = None  # None: its tasks are not scheduled
    by_number: dict[int, OpenTask] = field(default_factory=dict)
    of_stage: Counter[int] = field(default_factory=Counter)
    planned: Counter[str] = field(default_factory=Counter)  # by group
    #: Numbers of planned tasks by group, stage and kind, the least first; some may be planned no more.
    queues: dict[tuple[str, int, str], list[int]] = field(default_factory=dict)

    def put(self, number: int, task: OpenTask | None) -> OpenTask | None:
        """The task is now that one, None: it is not open any more. Returns what it was."""
        before = self.by_number.pop(number, None)
        if before is not None:
            _less(self.of_stage, before.stage)
            if before.is_planned:
                _less(self.planned, before.group)
        if task is not None:
            self.by_number[number] = task
            self.of_stage[task.stage] += 1
            if task.is_planned:
                self.planned[task.group] += 1
                if before is None or not before.is_planned or before.place != task.place:
                    heappush(self.queues.setdefault(task.place, []), number)
        return before

    def first(self, group: str, able: Capability) -> int | None:
        """The number of the task that somebody able to do it gets next; None: there is none."""
        if self.process is None or not self.of_stage:
            return None
        stage = min(self.of_stage)  # later ones wait for it
        found = (self._first_of((group, stage, kind), able) for kind in able.kinds)
        return min((number for number in found if number is not None), default=None)

    def _first_of(self, place: tuple[str, int, str], able: Capability) -> int | None:
        queue = self.queues.get(place)
        if queue is None:
            return None
        while queue and not self._waits(queue[0], place):
            heappop(queue)
        if not queue:
            del self.queues[place]
            return None
        if place[2] != CLUSTER:
            return queue[0]
        return min((number for number in queue if self._fits(number, place, able)), default=None)

    def _waits(self, number: int, place: tuple[str, int, str]) -> bool:
        task = self.by_number.get(number)
        return task is not None and task.is_planned and task.place == place

    def _fits(self, number: int, place: tuple[str, int, str], able: Capability) -> bool:
        """Whether a group of files that is put in order waits, and fits into whoever takes it."""
        return self._waits(number, place) and self.by_number[number].input_bytes <= able.max_cluster_bytes


class TaskQueue:
    """What waits and what is held. Only the store's writer changes it; any thread may ask `may_give`.

    It follows the rows that the writer changes and reads them again before it is used, so that it holds what the
    transaction holds at that moment, whoever changed it; what it costs grows with changes alone.
    """

    def __init__(self) -> None:
        self._changed = Changed()
        self._is_known = self._is_reading = False
        self.reading = 0  # how often everything was read
        self._kept: set[tuple[str, int]] = set()  # tasks that the present transaction has told, instead of being read
        self._clear()

    def _clear(self) -> None:
        self._whole: dict[TaskId, OptimizingTask] = {}  # held ones that were told, instead of being read
        self._processes: dict[str, _Tasks] = {}
        #: Processes that have planned tasks, by group and table.
        self._waiting: dict[str, dict[int, dict[str, None]]] = {}
        self._moved: dict[str, set[int]] = {}  # tables, by group, until they are taken
        self._held: dict[str, dict[TaskId, OpenTask]] = {}  # by optimizer
        self._held_in: dict[str, dict[TaskId, OpenTask]] = {}  # by group
        self._running: dict[str, Counter[int]] = {}  # how many tasks of each table are held, by group
        self._quotas: dict[int, float] = {}
        self._threads: dict[str, int] = {}

    def begin(self, db: Connection) -> None:
        """Follow what that connection writes."""
        follow(db, self._changed)

    def forget(self) -> None:
        """Read everything again before the next use."""
        self._is_known = False
        self._whole.clear()

    def taken_back(self) -> None:
        """Read again what this transaction has told: it may have been the write that was taken back."""
        self._changed.tasks |= self._kept

    def committed(self) -> None:
        """What was told is stored."""
        self._kept.clear()

    def may_give(self, optimizer_id: str, group: str, thread_ids: Sequence[int]) -> bool:
        """Whether there may be something to schedule in the group, or to take back from these threads; any thread asks.

        It is True wherever the store has something that was committed before the call.
        """
        # In this order: what is no longer noted as changed is being read, and what is no longer being read waits.
        if self._changed or self._is_reading or not self._is_known or self._waiting.get(group):
            return True
        return any(task.thread_id in thread_ids for task in tuple(self._held.get(optimizer_id, _NOTHING).values()))

    def refresh(self, db: Connection) -> None:
        """Hold what the store holds now, within its write."""
        self._is_reading = True
        try:
            if self._is_known:
                self._read_changed(db)
            else:
                self._read_all(db)
        except BaseException:
            self.forget()
            raise
        finally:
            self._is_reading = False

    def assign(self, task: OpenTask, thread: OptimizerThread, now: datetime) -> None:
        """Hold a planned task as the thread's, which this write is going to store: `assigned` follows."""
        held = OpenTask(
            task.task_id,
            task.table_id,
            task.group,
            TaskStatus.SCHEDULED,
            task.attempt + 1,
            thread.optimizer_id,
            thread.thread_id,
            now,
            task.kind,
            task.stage,
            task.input_bytes,
        )
        self._put(task.task_id, held)

    def put_back(self, task: OpenTask) -> None:
        """Hold a task that was assigned as planned again, which it is in the store."""
        self._put(task.task_id, task)

    def assigned(self, stored: Collection[OptimizingTask]) -> None:
        """What was assigned is stored as it is held, and need not be read again."""
        self._tell(stored)

    def held_whole(self, task_ids: Iterable[TaskId]) -> dict[TaskId, OptimizingTask]:
        """Those of these tasks that are held, and known here as the store has them."""
        found = ((one, self._whole.get(one)) for one in task_ids)
        changed = self._changed.tasks
        return {one: task for one, task in found if task is not None and one not in changed}

    def _tell(self, stored: Iterable[OptimizingTask]) -> None:
        for task in stored:
            self._kept.add(task.task_id)
            self._changed.tasks.discard(task.task_id)
            if task.thread is None:
                self._whole.pop(task.task_id, None)
            else:
                self._whole[task.task_id] = task

    def keep(self, stored: Collection[OptimizingTask]) -> None:
        """Hold tasks as this write has stored them, instead of reading them again."""
        if not self._is_known:
            return
        self._tell(stored)
        for task in stored:
            self._put(task.task_id, queue_stats.open_task(task))
        self._drop_empty({task.task_id.process_id for task in stored})

    def held_by(self, optimizer_id: str) -> list[OpenTask]:
        """The tasks that the optimizer holds."""
        return list(self._held.get(optimizer_id, _NOTHING).values())

    def held_in(self, group: str) -> list[OpenTask]:
        """The group's tasks that somebody holds."""
        return list(self._held_in.get(group, _NOTHING).values())

    def running(self, group: str, table_id: int) -> int:
        """How many of the group's tasks of that table are held."""
        return self._running.get(group, _NONE)[table_id]

    def waiting_tables(self, group: str) -> list[int]:
        """The tables that have planned tasks."""
        return list(self._waiting.get(group, ()))

    def waiting(self, group: str, table_id: int) -> list[OpenProcess]:
        """The table's processes that have planned tasks, oldest first."""
        found = (self._processes[one].process for one in self._waiting.get(group, {}).get(table_id, ()))
        return sorted((one for one in found if one is not None), key=_age)

    def take_moved(self, group: str) -> set[int]:
        """The tables whose planned or held tasks, processes or quotas have changed since this was last asked."""
        return self._moved.pop(group, set())

    def first(self, group: str, processes: Iterable[OpenProcess], able: Capability) -> OpenTask | None:
        """The first task of these processes, in their order, for somebody who is able to do it."""
        for process in processes:
            of_process = self._processes[process.process_id]
            if (number := of_process.first(group, able)) is not None:
                return of_process.by_number[number]
        return None

    def quotas(self, db: Connection, table_ids: Collection[int]) -> dict[int, float]:
        """The quota of each of these tables; one that is not known is left out."""
        known = self._quotas
        if missing := {table_id for table_id in table_ids if table_id not in known}:
            known.update(tables.quotas(db, missing))
        return {table_id: known[table_id] for table_id in table_ids if table_id in known}

    def threads(self, db: Connection, group: str) -> int:
        """The threads of the group's optimizers."""
        if group not in self._threads:
            self._threads[group] = queue_stats.count_threads(db, group)
        return self._threads[group]

    def _read_all(self, db: Connection) -> None:
        self._clear()
        self._changed.clear()
        self.reading += 1
        for process in queue_stats.list_processes(db):
            self._of(process.process_id).process = process
        for task in queue_stats.list_open(db):
            self._put(task.task_id, task)
        self._is_known = True

    def _read_changed(self, db: Connection) -> None:
        changed = self._changed.take()
        for table_id in changed.tables:
            self._quotas.pop(table_id, None)
            for group in self._waiting:
                self._moved.setdefault(group, set()).add(table_id)
        for group in changed.groups:
            self._threads.pop(group, None)
        if changed.processes:
            known = {one.process_id: one for one in queue_stats.list_processes(db, changed.processes)}
            for process_id in changed.processes:
                of_process = self._of(process_id)
                before, of_process.process = of_process.process, known.get(process_id)
                if (present := of_process.process or before) is not None:
                    self._tell_waiting(process_id, present.table_id, tuple(of_process.planned))
        if changed.tasks:
            found = {task.task_id: task for task in queue_stats.list_of(db, changed.tasks)}
            for task_id in itertools.starmap(TaskId, changed.tasks):
                self._whole.pop(task_id, None)
                self._put(task_id, found.get(task_id))
        self._drop_empty(changed.processes | {process_id for process_id, _ in changed.tasks})

    def _drop_empty(self, process_ids: Iterable[str]) -> None:
        for process_id in process_ids:
            if not self._of(process_id).by_number and self._of(process_id).process is None:
                del self._processes[process_id]

    def _of(self, process_id: str) -> _Tasks:
        if (found := self._processes.get(process_id)) is None:
            found = self._processes[process_id] = _Tasks()
        return found

    def _put(self, task_id: TaskId, task: OpenTask | None) -> None:
        before = self._of(task_id.process_id).put(task_id.number, task)
        if before is not None and task is not None and _is_held_on(before, task):
            self._held[task.optimizer_id][task_id] = self._held_in[task.group][task_id] = task
            return
        if before is not None and before.optimizer_id:
            self._held[before.optimizer_id].pop(task_id)
            self._held_in[before.group].pop(task_id)
            _less(self._running[before.group], before.table_id)
            if not self._held[before.optimizer_id]:
                del self._held[before.optimizer_id]
        if task is not None and task.optimizer_id:
            self._held.setdefault(task.optimizer_id, {})[task_id] = task
            self._held_in.setdefault(task.group, {})[task_id] = task
            if task.group not in self._running:
                self._running[task.group] = Counter()
            self._running[task.group][task.table_id] += 1
        if (present := task or before) is not None:
            # Its stage may have ended for tasks that wait in other groups, too.
            groups = {one.group for one in (before, task) if one is not None}
            groups |= self._of(task_id.process_id).planned.keys()
            self._tell_waiting(task_id.process_id, present.table_id, groups)

    def _tell_waiting(self, process_id: str, table_id: int, groups: Iterable[str]) -> None:
        of_process = self._of(process_id)
        for group in groups:
            self._moved.setdefault(group, set()).add(table_id)
            if of_process.process is not None and of_process.planned[group]:
                self._waiting.setdefault(group, {}).setdefault(table_id, {})[process_id] = None
            elif process_id in (of_table := self._waiting.get(group, {}).get(table_id, {})):
                del of_table[process_id]
                if not of_table:
                    del self._waiting[group][table_id]


_NOTHING: dict[TaskId, OpenTask] = {}
_NONE: Counter[int] = Counter()


def _age(process: OpenProcess) -> tuple[int, str]:
    return process.created_at_ms, process.process_id


def _is_held_on(before: OpenTask, task: OpenTask) -> bool:
    """Whether the same optimizer still holds the task, as after an ack: no table's turn changes."""
    return bool(task.optimizer_id) and (before.optimizer_id, before.table_id, before.group, before.stage) == (
        task.optimizer_id,
        task.table_id,
        task.group,
        task.stage,
    )


def _less(counted: Counter[K], key: K) -> None:
    counted[key] -= 1
    if not counted[key]:
        del counted[key]


#: Sorts tables as `choose_tasks` takes turns; the last item is the table.
Key = tuple[bool, float, int, str, int]


@dataclass(slots=True)
class _Order:
    """The tables that may have a task for somebody, by their keys."""

    heap: list[Key] = field(default_factory=list)  # entries that are not a table's present key are left over
    keys: dict[int, Key] = field(default_factory=dict)

    def put(self, key: Key) -> None:
        """Put a table in, or where it stands now."""
        if self.keys.get(key[-1]) != key:
            heappush(self.heap, key)
            self.keys[key[-1]] = key

    def drop(self, table_id: int) -> None:
        self.keys.pop(table_id, None)

    def first(self) -> int | None:
        """The table with the least key."""
        while self.heap and self.keys.get(self.heap[0][-1]) != self.heap[0]:
            heappop(self.heap)
        return self.heap[0][-1] if self.heap else None


class FairQueue:
    """The turns of a group's tables, by accounts of one moment and that many threads.

    They are kept from one call to the next, and cost what changes on the board, not what waits there.
    """

    def __init__(self, db: Connection, board: TaskQueue, group: str, threads: int, accounts: Accounts) -> None:
        self._board, self._group, self._threads, self._accounts = board, group, threads, accounts
        self._reading = board.reading
        self._processes: dict[int, list[OpenProcess]] = {}  # of each table that waits, oldest first
        self._quotas: dict[int, float] = {}
        self._allowed: dict[float, tuple[int, float]] = {}  # by quota: the limit and the share that it means
        self._orders: dict[Capability, _Order] = {}
        self._stand(db, board.waiting_tables(group))

    def are_of(self, threads: int, accounts: Accounts) -> bool:
        """Whether they count still: by these threads and accounts, and by what the board last read as a whole."""
        return self._accounts is accounts and self._threads == threads and self._reading == self._board.reading

    def next(self, db: Connection, able: Capability) -> OpenTask | None:
        """The task of the table whose turn it is, for somebody able to do it; None: nothing waits for him."""
        if moved := self._board.take_moved(self._group):
            self._stand(db, moved)
        order = self._orders.get(able)
        if order is None:
            order = self._orders[able] = _Order()
            for table_id in self._processes:
                order.put(self._key(table_id))
        while (first := order.first()) is not None:
            if (found := self._board.first(self._group, self._processes[first], able)) is not None:
                return found
            order.drop(first)  # until something of it changes
        return None

    def _stand(self, db: Connection, table_ids: Collection[int]) -> None:
        """Put these tables where they stand now."""
        self._quotas |= self._board.quotas(db, table_ids)
        for table_id in table_ids:
            if processes := self._board.waiting(self._group, table_id):
                self._processes[table_id] = processes
                for order in self._orders.values():
                    order.put(self._key(table_id))
            elif table_id in self._processes:
                del self._processes[table_id]
                for order in self._orders.values():
                    order.drop(table_id)

    def _key(self, table_id: int) -> Key:
        quota, oldest = self._quotas[table_id], self._processes[table_id][0]
        if quota not in self._allowed:
            self._allowed[quota] = quota_limit(quota, max(1, self._threads)), share_of(quota, self._threads)
        running, ahead_s = self._board.running(self._group, table_id), self._accounts.ahead_s.get(table_id, 0.0)
        over, ahead_s = standing(Use(running, *self._allowed[quota], ahead_s), self._accounts.typical_s)
        return over, ahead_s, oldest.created_at_ms, oldest.process_id, table_id


class Waits(Protocol):
    """A table that waits to be planned."""

    @property
    def table_id(self) -> int:
        """Its number."""

    @property
    def group(self) -> str:
        """The group that it names."""

    @property
    def quota(self) -> float:
        """Its share or number of threads."""

    @property
    def last_optimized_at(self) -> datetime | None:
        """When it was last optimized; None: never."""


def pending_of(
    db: Connection, pending: Sequence[Waits], now: datetime
) -> tuple[dict[str, str], dict[str, list[PendingTable]]]:
    """The policies of all groups, and the pending tables of each, groups sorted by name."""
    threads, runs = count_threads(db), runs_of(recent_holds(db, now))
    policies = {group.name: group.scheduling_policy for group in groups.list_groups(db)}
    waiting: dict[str, list[PendingTable]] = {name: [] for name in sorted({table.group for table in pending})}
    for table in pending:
        limit = quota_limit(table.quota, max(1, threads.get(table.group, 0)))
        used = runs.get((table.group, table.table_id), ())
        waiting[table.group].append(PendingTable(table.table_id, limit, used, table.last_optimized_at))
    return policies, waiting


def recent_holds(db: Connection, now: datetime) -> list[TaskHold]:
    """What holds a thread or has ended within the time that counts."""
    return tasks.list_holds(db, now - LOOK_BACK)


def runs_of(recent: Iterable[TaskHold]) -> dict[tuple[str, int], tuple[TaskRun, ...]]:
    """The periods in which tasks held a thread, by group and table."""
    runs: dict[tuple[str, int], list[TaskRun]] = {}
    for hold in recent:
        runs.setdefault((hold.group, hold.table_id), []).append(TaskRun(hold.since, hold.until))
    return {key: tuple(found) for key, found in runs.items()}


def count_threads(db: Connection) -> dict[str, int]:
    """The threads of all optimizers, by group."""
    counted: dict[str, int] = {}
    for optimizer in optimizers.list_optimizers(db):
        counted[optimizer.group] = counted.get(optimizer.group, 0) + optimizer.threads
    return counted
