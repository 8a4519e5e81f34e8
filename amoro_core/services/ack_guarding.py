"""Guarding deletions by optimizers: the table's references are checked right before an attempt is admitted."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from amoro_core.actions.contract import Action, Sweeping
from amoro_core.errors import AmoroError, CatalogUnavailable, CommitConflict, IllegalState, NotFound
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.formats.port import Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.formats.upkeep import Guard
from amoro_core.model.processes import Attempt, OptimizingProcess, OptimizingTask, ProcessStatus, TaskStatus
from amoro_core.model.work import DELETE
from amoro_core.state import processes as process_machine
from amoro_core.state import tasks as task_machine
from amoro_core.store import condemned, processes, tables, tasks
from amoro_core.store.condemned import BatchStatus
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.releasing import move
from amoro_core.transactions.reports import Admission
from amoro_core.transactions.settling import Effects, cancel_open_tasks, settle
from amoro_core.transactions.sparing import spare, spared_words
from amoro_core.transactions.telling import advance_task

log = get_logger("amoro.sweeping")


@dataclass(slots=True)
class _Kept:
    """The guard of a process; one caller uses it at a time."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    guard: Guard | None = None
    failure: AmoroError | None = None  # why it could not be prepared


class AckGuardService:
    """Admits attempts that delete files only if the table needs none of them at that moment."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        find_action: Callable[[str], Action],
        clock: Callable[[], datetime],
        announce: Callable[[Effects], None],
        background: Callable[[Callable[[], None]], None] = lambda work: work(),
    ) -> None:
        """`announce` receives the effects of a change of processes, once it is stored.

        `background` runs work for which no ack waits: a guard reads all manifests before its first answer.
        """
        self._store = store
        self._tables = tables_of
        self._find_action = find_action
        self._clock = clock
        self._announce = announce
        self._background = background
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}  # by process; the first check reads all manifests, later ones only new ones
        self.guard_hits = 0  # files that the guard has kept, since the start

    def admit(self, optimizer_id: str, attempt: Attempt) -> Admission:
        """Whether the attempt may begin. If one of its files is needed, the process is held and nothing of it begins.

        An attempt that can't be guarded fails. LATER: another attempt is being checked, or the guard reads the table.
        """
        found = self._store.read(lambda db: _guarded(db, optimizer_id, attempt))
        if found is None:
            return Admission.FREE
        process, payload = found
        kept = self._guard_of(process.process_id)
        if not kept.lock.acquire(blocking=False):
            return Admission.LATER
        if kept.guard is None and kept.failure is None:
            self._background(lambda: self._prepare(process, kept))
            if not kept.lock.acquire(blocking=False):
                return Admission.LATER
        try:
            paths = [path for some in self._sweeping(process).batches_of(payload).values() for path in some]
            needed = _prepared(kept).reachable(paths)
        except AmoroError as error:
            log.warning("ack.not_guarded", attempt=str(attempt), why=error.message)
            self._fail(optimizer_id, attempt, error)
            return Admission.REFUSED
        finally:
            kept.lock.release()
        failpoint("ack.after_guard")
        if not needed:
            return Admission.FREE
        self.guard_hits += len(needed)
        self._store.write(lambda db: self._hold(db, process, needed))
        return Admission.REFUSED

    def begin(self, db: Connection, task: OptimizingTask) -> bool:
        """Record that the batches of an acknowledged task are being deleted.

        False if some of their files are no longer condemned: then nothing is recorded, and the task keeps the rest.
        """
        process = processes.get(db, task.task_id.process_id)
        action, payload = self._sweeping(process), tasks.read_input(db, task.task_id)
        planned = action.batches_of(payload)
        known = {batch_id: condemned.get(db, batch_id) for batch_id in planned}
        left = {
            batch_id: batch
            for batch_id, batch in known.items()
            if batch is not None
            and batch.status in (BatchStatus.WAITING, BatchStatus.DELETING)
            and batch.table_uuid == process.table_uuid
            and not batch.moved_to
        }
        if any(batch_id not in left or _paths(left[batch_id]) != paths for batch_id, paths in planned.items()):
            narrowed = action.narrowed(payload, {batch_id: batch.files for batch_id, batch in left.items()})
            tasks.save_input(db, task.task_id, narrowed)
            return False
        for batch in left.values():
            condemned.save(db, condemned.begun(batch))
        return True

    def _guard_of(self, process_id: str) -> _Kept:
        with self._lock:
            if process_id not in self._kept:
                active = self._store.read(lambda db: {one.process_id for one in processes.list_active(db)})
                self._kept = {one: kept for one, kept in self._kept.items() if one in active}
            return self._kept.setdefault(process_id, _Kept())

    def _prepare(self, process: OptimizingProcess, kept: _Kept) -> None:
        """Let a new guard read the table; releases the lock that was taken for it."""
        try:
            guard = self._opened(process)
            guard.reachable(())
            kept.guard = guard
        except AmoroError as error:
            kept.failure = error
        except Exception as error:  # nobody waits for this work: the attempt that asks next says what happened
            log.exception("guard.failed", process=process.process_id)
            kept.failure = CatalogUnavailable(f"the guard could not read the table: {type(error).__name__}: {error}")
        finally:
            kept.lock.release()

    def _opened(self, process: OptimizingProcess) -> Guard:
        identifier = self._store.read(lambda db: tables.get(db, process.table_id)).identifier
        table = with_roles(self._tables.open(identifier), (Role.SWEEP,), process.type)
        if table.facts.uuid != process.table_uuid:
            raise CommitConflict(f"{identifier} is another table by now: UUID {table.facts.uuid}")
        return table.guard(process.sequence_number)

    def _sweeping(self, process: OptimizingProcess) -> Sweeping:
        action = self._find_action(process.type)
        if not isinstance(action, Sweeping):
            raise IllegalState(f"{process.type} deletes no condemned files")
        return action

    def _hold(self, db: Connection, process: OptimizingProcess, needed: Mapping[str, str]) -> None:
        """Release the files that are needed, and hold the process until a person has checked it."""
        due = condemned.list_due(db, process.table_id, self._clock())
        for batch in (condemned.get(db, batch_id) for batch_id in due):
            is_in_place = batch is not None and not batch.moved_to
            if batch is not None and is_in_place and not set(needed).isdisjoint(_paths(batch)):
                spare(db, batch, needed)
        if processes.get(db, process.process_id).status is ProcessStatus.RUNNING:
            words = spared_words(needed)
            move(db, process.process_id, process_machine.Hold(words), self._clock())
            cancel_open_tasks(db, process.process_id, words, self._clock())
            log.error("process.held", process=process.process_id, why=words)

    def _fail(self, optimizer_id: str, attempt: Attempt, error: AmoroError) -> None:
        """Fail the attempt before it began: it is retried, but not for ever."""
        effects = Effects()

        def fail(db: Connection) -> None:
            if _guarded(db, optimizer_id, attempt) is None:
                return  # taken back meanwhile
            task, now = tasks.get(db, attempt.task_id), self._clock()
            acked = advance_task(db, task, task_machine.Ack(attempt.number, optimizer_id), now)
            failed = task_machine.Fail(attempt.number, optimizer_id, error.code, error.message[:4000])
            advance_task(db, acked, failed, now)
            settle(db, attempt.task_id.process_id, effects, now)

        self._store.write(fail)
        self._announce(effects)


def _prepared(kept: _Kept) -> Guard:
    """The guard. Raises why it could not be prepared, once, and CatalogUnavailable where that is not known."""
    failure, kept.failure = kept.failure, None
    if kept.guard is None:
        raise failure or CatalogUnavailable("the table could not be read before files of it are deleted")
    return kept.guard


def _guarded(db: Connection, optimizer_id: str, attempt: Attempt) -> tuple[OptimizingProcess, bytes] | None:
    """The attempt's process and input, if it deletes files and waits for that optimizer's ack."""
    try:
        task = tasks.get(db, attempt.task_id)
    except NotFound:
        return None
    is_its_own = task.thread is not None and task.thread.optimizer_id == optimizer_id
    if (
        task.kind != DELETE
        or task.status is not TaskStatus.SCHEDULED
        or task.attempt != attempt.number
        or not is_its_own
    ):
        return None
    return processes.get(db, attempt.task_id.process_id), tasks.read_input(db, attempt.task_id)


def _paths(batch: condemned.Batch) -> tuple[str, ...]:
    return tuple(one.path for one in batch.files)
