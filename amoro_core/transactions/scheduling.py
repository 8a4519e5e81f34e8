"""Scheduling: assigning planned tasks to the free threads of optimizers."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace
from itertools import accumulate, chain

from amoro_core.errors import UnknownToken
from amoro_core.events import get_logger
from amoro_core.model.processes import Attempt, OptimizerThread, OptimizingTask, TaskId
from amoro_core.scheduling.policy import Use, standing
from amoro_core.scheduling.quota import TaskRun, quota_limit
from amoro_core.scheduling.shares import Accounts, settled, share_of
from amoro_core.state import tasks as task_machine
from amoro_core.store import open_tasks, optimizers, tasks
from amoro_core.store.database import Connection
from amoro_core.store.open_tasks import OpenProcess, OpenTask
from amoro_core.store.rows import as_stored
from amoro_core.transactions.board import Able, Board
from amoro_core.transactions.reports import Asked
from amoro_core.transactions.settling import Effects, take_back
from amoro_core.transactions.telling import keep_tasks

log = get_logger("amoro.optimizing")

#: Accounts are settled when they are that old: within it scheduling reads nothing of what others hold or have ended.
SETTLED_EVERY = timedelta(seconds=0.25)
#: Of the inputs of the tasks of one answer, beyond its first; an answer must fit into a message.
ANSWER_BYTES = 8 * 1024 * 1024


#: The tasks that somebody who asked was assigned, in the order of his threads.
Assigned = list[OptimizingTask] | UnknownToken


@dataclass(slots=True)
class _Round:
    """The tables of a group that wait, for all who ask at one moment."""

    group: str
    uses: dict[int, Use]
    processes: Mapping[int, Sequence[OpenProcess]]  # by table
    typical_s: float
    #: By what somebody is able to do: the tables that may have a task for him, the next one first.
    turns: dict[Able, list[tuple[bool, float, int, str, int]]]

    def key(self, table_id: int) -> tuple[bool, float, int, str, int]:
        """Sorts tables as `choose_tasks` takes turns."""
        oldest = self.processes[table_id][0]
        over, ahead_s = standing(self.uses[table_id], self.typical_s)
        return over, ahead_s, oldest.created_at_ms, oldest.process_id, table_id

    def next(self, board: Board, able: Able) -> OpenTask | None:
        """The task of the table whose turn it is, for somebody able to do it; None: nothing waits for him."""
        turn = self.turns.get(able)
        if turn is None:
            turn = self.turns[able] = [self.key(table_id) for table_id in self.processes]
            heapify(turn)
        while turn:
            table_id = turn[0][-1]
            if (now := self.key(table_id)) != turn[0]:  # another one was given a task of it
                heapreplace(turn, now)
            elif (found := board.first(self.group, self.processes[table_id], able)) is None:
                heappop(turn)
            else:
                return found
        return None

    def count(self, table_id: int) -> None:
        """One more of the table's tasks runs."""
        self.uses[table_id] = self.uses[table_id]._replace(running=self.uses[table_id].running + 1)

    def put_back(self, table_id: int) -> None:
        """One that was counted waits again, for whoever is able to do it."""
        self.uses[table_id] = self.uses[table_id]._replace(running=self.uses[table_id].running - 1)
        self.turns.clear()


class TaskScheduler:
    """Keeps in memory what waits, and the thread accounts of each group's tables; only the store's writer schedules."""

    def __init__(self, core_ms: Callable[[], Mapping[Attempt, int]] = dict) -> None:
        """`core_ms` tells the CPU time that running attempts have taken so far."""
        self._told = core_ms
        self._accounts: dict[str, Accounts] = {}
        self._core_ms: dict[Attempt, int] = {}  # of attempts that tell it, until their tables are charged
        self.board = Board()

    @property
    def accounts(self) -> Mapping[str, Accounts]:
        """The accounts of each group as they were last settled; any thread may ask."""
        return dict(self._accounts)

    def note(self) -> None:
        """Keep what attempts have taken of cores so far: that is charged, and not the one thread that waits."""
        self._core_ms.update(self._told())

    def schedule(self, db: Connection, asked: Sequence[Asked], effects: Effects, now: datetime) -> list[Assigned]:
        """Schedule at most one planned task for each free thread of all who ask, the first of them first.

        For each of them its tasks, or an error where its registration has ended.
        """
        now = as_stored(now)
        try:
            self.note()
            self.board.refresh(db)
            for one in asked:
                self._take_back(db, one, effects, now)
            self.board.refresh(db)
            rounds: dict[str, _Round] = {}
            chosen = [self._choose(db, one, rounds, now) for one in asked]
            return self._assign(db, chosen, now)
        except BaseException:
            self.board.forget()  # what it has read of this write is taken back with it
            raise

    def _take_back(self, db: Connection, asked: Asked, effects: Effects, now: datetime) -> None:
        for held in self.board.held_by(asked.optimizer_id):
            # A thread that polls can't be executing: the answer to its last poll was lost.
            if held.thread_id in asked.thread_ids:
                task = tasks.get(db, held.task_id)
                take_back(db, task, f"thread {held.thread_id} asked for work again", effects, now, lost=False)

    def _choose(
        self, db: Connection, asked: Asked, rounds: dict[str, _Round], now: datetime
    ) -> dict[TaskId, OptimizerThread] | UnknownToken:
        """What each of the threads is to get; from then on nobody else is given that."""
        try:
            optimizer = optimizers.get(db, asked.optimizer_id)
        except UnknownToken as error:
            return error
        if asked.group not in rounds:
            rounds[asked.group] = self._round(db, asked.group, now)
        able = Able(optimizer.kinds, optimizer.max_cluster_bytes)
        chosen: list[tuple[OpenTask, OptimizerThread]] = []
        for thread_id in asked.thread_ids:
            found = rounds[asked.group].next(self.board, able)
            if found is None:
                break
            chosen.append((found, OptimizerThread(asked.optimizer_id, thread_id)))
            self.board.assign(*chosen[-1], now)
            rounds[asked.group].count(found.table_id)
        fitting = _fitting(db, [task.task_id for task, _ in chosen])
        for task, _ in chosen[fitting:]:
            self.board.put_back(task)
            rounds[asked.group].put_back(task.table_id)
        return {task.task_id: thread for task, thread in chosen[:fitting]}

    def _assign(
        self, db: Connection, chosen: Sequence[dict[TaskId, OptimizerThread] | UnknownToken], now: datetime
    ) -> list[Assigned]:
        """Store what was chosen for all who ask; the tasks of each of them, or his error."""
        given = [one for one in chosen if not isinstance(one, UnknownToken)]
        before = tasks.get_many(db, chain.from_iterable(given))
        after = {
            task_id: task_machine.advance(before[task_id], task_machine.Schedule(thread), now)
            for one in given
            for task_id, thread in one.items()
        }
        keep_tasks(db, [(before[task_id], task) for task_id, task in after.items()], now)
        self.board.assigned(after.values())
        for task_id, task in after.items():
            optimizer_id = task.thread.optimizer_id if task.thread else ""
            log.info("task.scheduled", task=str(task_id), attempt=task.attempt, optimizer=optimizer_id)
        return [one if isinstance(one, UnknownToken) else [after[task_id] for task_id in one] for one in chosen]

    def _round(self, db: Connection, group: str, now: datetime) -> _Round:
        """The tables of the group that wait, with their standing; its accounts are settled where they are old."""
        processes = self.board.waiting(group)
        threads = self.board.threads(db, group)
        accounts = self._accounts.get(group, Accounts(now))
        if group not in self._accounts or not timedelta() <= now - accounts.at < SETTLED_EVERY:
            accounts = self._accounts[group] = self._settled(db, group, accounts, threads, processes.keys(), now)
        uses = {
            table_id: Use(
                self.board.running(group, table_id),
                quota_limit(quota, max(1, threads)),
                share_of(quota, threads),
                accounts.ahead_s.get(table_id, 0.0),
            )
            for table_id, quota in self.board.quotas(db, processes).items()
        }
        return _Round(group, uses, processes, accounts.typical_s, {})

    def _settled(
        self, db: Connection, group: str, accounts: Accounts, threads: int, waiting: Collection[int], now: datetime
    ) -> Accounts:
        held = self.board.held_in(group)
        ended = open_tasks.list_ended_since(db, group, accounts.at)
        quotas = self.board.quotas(
            db, {*waiting, *(task.table_id for task in held), *(task.table_id for task in ended)}
        )
        shares = {table_id: share_of(quota, threads) for table_id, quota in quotas.items()}
        runs = [(task.table_id, self._run(task.present, task.scheduled_at, None, now)) for task in held]
        for task in ended:
            runs.append((task.table_id, self._run(task.attempt, task.scheduled_at, task.finished_at, now)))
            self._core_ms.pop(task.attempt, None)
        return settled(accounts, [(one, run) for one, run in runs if run is not None], shares, waiting, now)

    def _run(
        self, attempt: Attempt, since: datetime | None, ended_at: datetime | None, now: datetime
    ) -> TaskRun | None:
        """The time for which the task held its thread, and how many cores it kept busy; None: it never did."""
        if since is None:
            return None
        spent_ms = self._core_ms.get(attempt, 0)
        held_ms = ((ended_at or now) - since).total_seconds() * 1000
        return TaskRun(since, ended_at, max(1.0, spent_ms / held_ms if held_ms > 0 else 1.0))


def _fitting(db: Connection, task_ids: Sequence[TaskId]) -> int:
    """How many of these tasks, the first of them first, fit into one answer: at least one."""
    sizes = open_tasks.input_sizes(db, task_ids) if len(task_ids) > 1 else {}
    total = list(accumulate(sizes.get(one, 0) for one in task_ids))
    return max(bisect_right(total, ANSWER_BYTES), min(1, len(task_ids)))
