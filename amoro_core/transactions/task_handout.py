"""Blobs of work, for the optimizers that do it."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, chain

from amoro_core.errors import TaskNotFound, UnknownToken
from amoro_core.failpoints import failpoint
from amoro_core.logger import get_logger
from amoro_core.model.processes import Attempt, OptimizerThread, OptimizingTask, TaskId, TaskStatus
from amoro_core.model.task_payload import Work
from amoro_core.scheduling.policy import Accounts, TaskRun, settled, share_of
from amoro_core.state import tasks as task_machine
from amoro_core.store import optimizers, queue_stats, tables, tasks
from amoro_core.store.column_codecs import as_stored
from amoro_core.store.database import Connection, Store
from amoro_core.store.queue_stats import OpenTask
from amoro_core.transactions.advance_process import Effects, take_back
from amoro_core.transactions.journal import keep_tasks
from amoro_core.transactions.task_messages import PollRequest, ScheduledTask
from amoro_core.transactions.task_queue import Capability, FairQueue, TaskQueue


def read_piece(db: Connection, optimizer_id: str, attempt: Attempt, sha256: str, piece: int) -> bytes | None:
    """That piece of a blob of the attempt's process, from 0; None after the last one.

    Raises TaskNotFound unless the optimizer has acknowledged the attempt and holds it, and where there is no such blob.
    """
    held = [one for one in tasks.list_held(db, optimizer_id) if Attempt(one.task_id, one.attempt) == attempt]
    is_run = any(one.status is TaskStatus.ACKED for one in held)
    found = tasks.find_blob_piece(db, attempt.task_id.process_id, sha256, piece) if is_run else None
    if found is None and (piece == 0 or not is_run):
        raise TaskNotFound(f"attempt {attempt} of optimizer {optimizer_id} has no blob {sha256}")
    return found


log = get_logger("amoro.optimizing")

#: Accounts are settled when they are that old: within it scheduling reads nothing of what others hold or have ended.
SETTLED_EVERY = timedelta(seconds=0.25)
#: Of the inputs of the tasks of one answer, beyond its first; an answer must fit into a message.
ANSWER_BYTES = 8 * 1024 * 1024


#: The tasks that somebody who asked was assigned, in the order of his threads.
Assigned = list[OptimizingTask] | UnknownToken


class TaskScheduler:
    """Keeps in memory what waits, and the thread accounts of each group's tables; only the store's writer schedules."""

    def __init__(self, core_ms: Callable[[], Mapping[Attempt, int]] = dict) -> None:
        """`core_ms` tells the CPU time that running attempts have taken so far."""
        self._told = core_ms
        self._accounts: dict[str, Accounts] = {}
        self._turns: dict[str, FairQueue] = {}  # by group
        self._core_ms: dict[Attempt, int] = {}  # of attempts that tell it, until their tables are charged
        self.board = TaskQueue()

    @property
    def accounts(self) -> Mapping[str, Accounts]:
        """The accounts of each group as they were last settled; any thread may ask."""
        return dict(self._accounts)

    def note(self) -> None:
        """Keep what attempts have taken of cores so far: that is charged, and not the one thread that waits."""
        self._core_ms.update(self._told())

    def schedule(self, db: Connection, asked: Sequence[PollRequest], effects: Effects, now: datetime) -> list[Assigned]:
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
            chosen = [self._choose(db, one, now) for one in asked]
            return self._assign(db, chosen, now)
        except BaseException:
            self.board.forget()  # what it has read of this write is taken back with it
            raise

    def _take_back(self, db: Connection, asked: PollRequest, effects: Effects, now: datetime) -> None:
        for held in self.board.held_by(asked.optimizer_id):
            # A thread that polls can't be executing: the answer to its last poll was lost.
            if held.thread_id in asked.thread_ids:
                task = tasks.get(db, held.task_id)
                take_back(db, task, f"thread {held.thread_id} asked for work again", effects, now, lost=False)

    def _choose(
        self, db: Connection, asked: PollRequest, now: datetime
    ) -> dict[TaskId, OptimizerThread] | UnknownToken:
        """What each of the threads is to get; from then on nobody else is given that."""
        try:
            optimizer = optimizers.get(db, asked.optimizer_id)
        except UnknownToken as error:
            return error
        turns = self._turns_of(db, asked.group, now)
        able = Capability(optimizer.kinds, optimizer.max_cluster_bytes)
        chosen: list[tuple[OpenTask, OptimizerThread]] = []
        for thread_id in asked.thread_ids:
            found = turns.next(db, able)
            if found is None:
                break
            chosen.append((found, OptimizerThread(asked.optimizer_id, thread_id)))
            self.board.assign(*chosen[-1], now)
        fitting = _fitting(db, [task.task_id for task, _ in chosen])
        for task, _ in chosen[fitting:]:
            self.board.put_back(task)
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

    def _turns_of(self, db: Connection, group: str, now: datetime) -> FairQueue:
        """The turns of the group's tables at this moment; its accounts are settled where they are old."""
        threads = self.board.threads(db, group)
        accounts = self._accounts.get(group, Accounts(now))
        if group not in self._accounts or not timedelta() <= now - accounts.at < SETTLED_EVERY:
            waiting = self.board.waiting_tables(group)
            accounts = self._accounts[group] = self._settled(db, group, accounts, threads, waiting, now)
        turns = self._turns.get(group)
        if turns is None or not turns.are_of(threads, accounts):
            turns = self._turns[group] = FairQueue(db, self.board, group, threads, accounts)
        return turns

    def _settled(
        self, db: Connection, group: str, accounts: Accounts, threads: int, waiting: Collection[int], now: datetime
    ) -> Accounts:
        held = self.board.held_in(group)
        ended = queue_stats.list_ended_since(db, group, accounts.at)
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
    sizes = queue_stats.input_sizes(db, task_ids) if len(task_ids) > 1 else {}
    total = list(accumulate(sizes.get(one, 0) for one in task_ids))
    return max(bisect_right(total, ANSWER_BYTES), min(1, len(task_ids)))


class Scheduling:
    """Schedules tasks for all who ask at one moment."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime],
        core_ms: Callable[[], Mapping[Attempt, int]],
        send: Callable[[Effects], None],
    ) -> None:
        """`core_ms` tells the CPU time that running attempts have taken so far; `send` carries effects out."""
        self._store, self._clock, self._send = store, clock, send
        self.scheduler = TaskScheduler(core_ms)  # only the store's writer schedules
        if not store.only_reads:
            store.follow(self.scheduler.board)

    def may_give(self, asked: PollRequest) -> bool:
        """Whether there may be something to schedule, or to take back; costs no look into the store."""
        return self.scheduler.board.may_give(asked.optimizer_id, asked.group, asked.thread_ids)

    def schedule(self, asked: Sequence[PollRequest]) -> list[list[ScheduledTask] | BaseException]:
        """Schedule at most one planned task for each free thread of all who ask, all in one transaction.

        For each of them its tasks, or its error: UnknownToken for an optimizer whose registration ended meanwhile. An
        error of one changes nothing for the others.
        """
        try:
            return [*self._schedule(asked)]
        except Exception as error:  # it may be the fault of one of them
            if len(asked) == 1:
                return [error]
            log.warning("polls.served_alone", polls=len(asked), why=str(error))
            return [answer for one in asked for answer in self.schedule([one])]

    def _schedule(self, asked: Sequence[PollRequest]) -> list[list[ScheduledTask] | UnknownToken]:
        effects = Effects()
        assigned = self._store.write(lambda db: self.assign(db, asked, effects))
        self._send(effects)
        return self.with_work(assigned)

    def assign(self, db: Connection, asked: Sequence[PollRequest], effects: Effects) -> list[Assigned]:
        """As `schedule` within a write, but raises an error of one; its result is for `with_work`, after the commit."""
        return self.scheduler.schedule(db, asked, effects, self._clock()) if asked else []

    def with_work(self, assigned: Sequence[Assigned]) -> list[list[ScheduledTask] | UnknownToken]:
        """What was assigned, with its work."""
        given = [task for one in assigned if not isinstance(one, UnknownToken) for task in one]
        if not given:
            return [one if isinstance(one, UnknownToken) else [] for one in assigned]
        failpoint("poll.after_store")
        works = self._store.read(lambda db: _works(db, given))
        return [one if isinstance(one, UnknownToken) else [works[task.task_id] for task in one] for one in assigned]


def _works(db: Connection, given: Sequence[OptimizingTask]) -> dict[TaskId, ScheduledTask]:
    inputs = tasks.read_inputs(db, (task.task_id for task in given))
    names = tables.names(db, {task.table_id for task in given})
    return {
        task.task_id: ScheduledTask(
            Attempt(task.task_id, task.attempt),
            task.thread.thread_id,
            names[task.table_id],
            Work(task.kind, inputs[task.task_id]),
        )
        for task in given
        if task.thread is not None
    }
