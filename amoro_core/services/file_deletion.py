"""Deletes condemned files, each batch after the guard; also where optimizers delete."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from amoro_core.actions.action_api import Action, Sweeping
from amoro_core.documents.formatting import format_bytes, many
from amoro_core.errors import (
    AmoroError,
    CatalogUnavailable,
    CommitConflict,
    FileStillReferenced,
    IllegalState,
    NotFound,
)
from amoro_core.failpoints import failpoint
from amoro_core.files.storage.stores import Pace
from amoro_core.formats.ports import Guard, Role, Sweepable, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.maintenance.trash import Trash, TrashConfig, root_of
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.model.maintenance import Ended, Removal
from amoro_core.model.processes import (
    Attempt,
    Figure,
    OptimizingProcess,
    OptimizingTask,
    ProcessContext,
    ProcessStatus,
    Receipt,
    TaskStatus,
)
from amoro_core.model.task_payload import DELETE
from amoro_core.state import processes as process_machine
from amoro_core.state import tasks as task_machine
from amoro_core.store import pending_deletions, processes, tables, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.store.pending_deletions import Batch, BatchStatus
from amoro_core.transactions.advance_process import Effects, Signals, advance_process, cancel_open_tasks, move_process
from amoro_core.transactions.file_holds import needed_text, restore_batch, split_batch, trash_paths, unmark_needed
from amoro_core.transactions.journal import advance_task
from amoro_core.transactions.process_context import open_planned
from amoro_core.transactions.task_reports import Admission

log = get_logger("amoro.sweeping")


@dataclass(slots=True)
class _ProcessGuard:
    """The guard of a process; one caller uses it at a time."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    guard: Guard | None = None
    failure: AmoroError | None = None  # why it could not be prepared


@dataclass
class AckGuardService:
    """Admits attempts that delete files only if the table needs none of them at that moment."""

    store: Store
    tables: Tables
    find_action: Callable[[str], Action]
    clock: Callable[[], datetime]
    signals: Signals
    #: Runs work for which no ack waits: a guard reads all manifests before its first answer, later only new ones.
    background: Callable[[Callable[[], None]], None]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _guards: dict[str, _ProcessGuard] = field(init=False, default_factory=dict)  # by process

    def admit(self, optimizer_id: str, attempt: Attempt) -> Admission:
        """Whether the attempt may begin. If one of its files is needed, the process is held and nothing of it begins.

        An attempt that can't be guarded fails. LATER: another attempt is being checked, or the guard reads the table.
        """
        guarded = self.store.read(lambda db: _guarded(db, optimizer_id, attempt))
        if guarded is None:
            return Admission.FREE
        process, payload = guarded
        process_guard = self._guard_of(process.process_id)
        if not process_guard.lock.acquire(blocking=False):
            return Admission.LATER
        if process_guard.guard is None and process_guard.failure is None:
            self.background(lambda: self._prepare(process, process_guard))
            if not process_guard.lock.acquire(blocking=False):
                return Admission.LATER
        try:
            action = _sweeping(self.find_action, process)
            paths = [path for some in action.batches_of(payload).values() for path in some]
            needed = _prepared(process_guard).reachable(paths)
        except AmoroError as error:
            log.warning("ack.not_guarded", attempt=str(attempt), why=error.message)
            self._fail(optimizer_id, attempt, error)
            return Admission.REFUSED
        finally:
            process_guard.lock.release()
        failpoint("ack.after_guard")
        if not needed:
            return Admission.FREE
        self.signals.meters.count(metrics.GUARD_HITS, by=len(needed))
        self.store.write(lambda db: self._hold(db, process, needed))
        return Admission.REFUSED

    def begin(self, db: Connection, task: OptimizingTask) -> bool:
        """Record that the batches of an acknowledged task are being deleted.

        False if some of their files are no longer condemned: then nothing is recorded, and the task keeps the rest.
        """
        process = processes.get(db, task.task_id.process_id)
        action, payload = _sweeping(self.find_action, process), tasks.read_input(db, task.task_id)
        planned = action.batches_of(payload)
        batches = {batch_id: pending_deletions.get(db, batch_id) for batch_id in planned}
        rest = {
            batch_id: batch
            for batch_id, batch in batches.items()
            if batch is not None
            and batch.status in (BatchStatus.WAITING, BatchStatus.DELETING)
            and batch.table_uuid == process.table_uuid
            and not batch.moved_to
        }
        if any(batch_id not in rest or _paths(rest[batch_id]) != paths for batch_id, paths in planned.items()):
            narrowed = action.narrowed(payload, {batch_id: batch.files for batch_id, batch in rest.items()})
            tasks.save_input(db, task.task_id, narrowed)
            return False
        for batch in rest.values():
            pending_deletions.save(db, pending_deletions.begun(batch))
        return True

    def _guard_of(self, process_id: str) -> _ProcessGuard:
        with self._lock:
            if process_id not in self._guards:
                active = self.store.read(lambda db: {process.process_id for process in processes.list_active(db)})
                self._guards = {key: guard for key, guard in self._guards.items() if key in active}
            return self._guards.setdefault(process_id, _ProcessGuard())

    def _prepare(self, process: OptimizingProcess, held: _ProcessGuard) -> None:
        """Let a new guard read the table; releases the lock that was taken for it."""
        try:
            identifier = self.store.read(lambda db: tables.get(db, process.table_id)).identifier
            table = with_roles(self.tables.open(identifier), (Role.SWEEP,), process.type)
            if table.facts.uuid != process.table_uuid:
                raise CommitConflict(f"{identifier} is another table by now: UUID {table.facts.uuid}")
            guard = table.guard(process.sequence_number)
            guard.reachable(())
            held.guard = guard
        except AmoroError as error:
            held.failure = error
        except Exception as error:  # no caller waits for this work: the next attempt reports what happened
            log.exception("guard.failed", process=process.process_id)
            held.failure = CatalogUnavailable(f"the guard could not read the table: {type(error).__name__}: {error}")
        finally:
            held.lock.release()

    def _hold(self, db: Connection, process: OptimizingProcess, needed: Mapping[str, str]) -> None:
        """Release the files that are needed, and hold the process until a person has checked it."""
        due = pending_deletions.list_due(db, process.table_id, self.clock())
        for batch in (pending_deletions.get(db, batch_id) for batch_id in due):
            is_in_place = batch is not None and not batch.moved_to
            if batch is not None and is_in_place and not set(needed).isdisjoint(_paths(batch)):
                unmark_needed(db, batch, needed)
        if processes.get(db, process.process_id).status is ProcessStatus.RUNNING:
            words = needed_text(needed)
            move_process(db, process.process_id, process_machine.Hold(words), self.clock())
            cancel_open_tasks(db, process.process_id, words, self.clock())
            log.error("process.held", process=process.process_id, why=words)

    def _fail(self, optimizer_id: str, attempt: Attempt, error: AmoroError) -> None:
        """Fail the attempt before it began: it is retried, but not for ever."""
        effects = Effects()

        def fail(db: Connection) -> None:
            if _guarded(db, optimizer_id, attempt) is None:
                return  # taken back meanwhile
            task, now = tasks.get(db, attempt.task_id), self.clock()
            acked = advance_task(db, task, task_machine.Ack(attempt.number, optimizer_id), now)
            failed = task_machine.Fail(attempt.number, optimizer_id, error.code, error.message[:4000])
            advance_task(db, acked, failed, now)
            advance_process(db, attempt.task_id.process_id, effects, now)

        self.store.write(fail)
        self.signals.announce(effects)


def _sweeping(find_action: Callable[[str], Action], process: OptimizingProcess) -> Sweeping:
    action = find_action(process.type)
    if not isinstance(action, Sweeping):
        raise IllegalState(f"{process.type} deletes no files of the trash")
    return action


def _prepared(held: _ProcessGuard) -> Guard:
    """The guard. Raises why it could not be prepared, once, and CatalogUnavailable where that is not known."""
    failure, held.failure = held.failure, None
    if held.guard is None:
        raise failure or CatalogUnavailable("the table could not be read before files of it are deleted")
    return held.guard


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


def _paths(batch: pending_deletions.Batch) -> tuple[str, ...]:
    return tuple(file.path for file in batch.files)


#: Tries to delete a batch completely; after that it is given up, and the rest becomes orphans.
TRIES = 5


@dataclass
class SweepingService:
    """Deletes condemned files, never one that the table references at that time."""

    store: Store
    tables: Tables
    find_action: Callable[[str], Action]
    clock: Callable[[], datetime]
    meters: Meters
    delete_rate: int  # the maximum of files deleted per second and catalog
    _paces: dict[str, Pace] = field(init=False, default_factory=dict)  # by catalog

    def sweep(self, case: ProcessContext) -> Receipt:
        """Delete the due files of the process's table until none is left, or the process was closed.

        Each batch is guarded against the present table, recorded as begun, and deleted; failed files are retried by
        later sweeps. Raises FileStillReferenced when a file is needed after all, and what guard and storage raise;
        nothing of that batch was deleted then.
        """
        done = Counter(dict.fromkeys(("bytes_deleted", "files_absent", "files_changed", "files_failed"), 0))
        self._sweep(case, done, self._settle_tasks(case, done) if case.tasks else set())
        deleted = sum(number for name, number in done.items() if name.endswith("_files_deleted"))
        words = f"deleted {many(deleted, 'file')} ({format_bytes(done['bytes_deleted'])})"
        if moved := done["files_moved"]:
            words = f"{f'{words}, ' if deleted else ''}moved {many(moved, 'file')} to the trash folder"
        if failed := done["files_failed"]:
            words += f", failed to delete {failed}"
        figures = tuple(
            Figure(name, value, "bytes" if name == "bytes_deleted" else "files") for name, value in done.items()
        )
        return Receipt.brief(words, case.process.snapshot_id, figures)

    def _sweep(self, case: ProcessContext, done: Counter[str], tried: set[int]) -> None:
        """Sweep what is due and no task has had: all of it, what they were too many for, what lies in a trash."""
        if tried and not self._list_due(case, tried):
            return
        table = with_roles(open_planned(self.tables, case), (Role.SWEEP,), case.process.type)
        guard, trash = table.guard(case.process.sequence_number), table.trash()
        catalog = case.runtime.identifier.catalog
        pace = self._paces.setdefault(catalog, Pace(self.delete_rate))
        for batch_id in self._due(case, tried):
            batch = self.store.read(partial(pending_deletions.get, batch_id=batch_id))
            if batch is not None and batch.table_uuid != case.process.table_uuid:
                # Of an earlier table of that name: this table's guard does not cover its files.
                log.warning("batch.of_another_table", process=batch.process_id, table_uuid=batch.table_uuid)
                self.store.write(partial(pending_deletions.remove, batch_id=batch_id))
            elif batch is not None:
                began = pace.begin()
                pace.keep(self._sweep_batch(batch, table, guard, trash, done), began)

    def _list_due(self, case: ProcessContext, tried: Set[int]) -> list[int]:
        due = self.store.read(lambda db: pending_deletions.list_due(db, case.process.table_id, self.clock()))
        return [batch for batch in due if batch not in tried]

    def _due(self, case: ProcessContext, tried: set[int]) -> Iterator[int]:
        """The due batches, each once, those too that are made of others meanwhile; ends once the process is closed."""
        while due := self._list_due(case, tried):
            for batch_id in due:
                process = self.store.read(lambda db: processes.get(db, case.process.process_id))
                if process.status != ProcessStatus.CLEARING:
                    return
                tried.add(batch_id)
                yield batch_id

    def _settle_tasks(self, case: ProcessContext, done: Counter[str]) -> set[int]:
        """Apply the outcomes reported by optimizers; files without an outcome are retried by later sweeps.

        Returns the batches that the tasks had.
        """
        tried: set[int] = set()
        action = _sweeping(self.find_action, case.process)
        for result in case.results:
            removals = action.removals_of(result.output)
            for batch_id in action.batches_of(result.input):
                tried.add(batch_id)
                batch = self.store.read(partial(pending_deletions.get, batch_id=batch_id))
                if batch is None or batch.table_uuid != case.process.table_uuid:
                    continue
                endings = {file.path: removals.get(file.path, _NO_RESULT).ended for file in batch.files}
                failed = {path for path, ended in endings.items() if ended is Ended.FAILED}
                deleted = {path for path, ended in endings.items() if ended is Ended.DELETED}
                done["files_absent"] += sum(ended is Ended.ABSENT for ended in endings.values())
                done["files_changed"] += sum(ended is Ended.CHANGED for ended in endings.values())
                self._settle(batch, pending_deletions.without(batch, endings.keys() - failed), deleted, removals, done)
        return tried

    def _settle(
        self, batch: Batch, rest: Batch, deleted: Set[str], removals: Mapping[str, Removal], done: Counter[str]
    ) -> None:
        done[f"{batch.kind.value.replace('-', '_')}_files_deleted"] += len(deleted)
        done["files_failed"] += len(rest.files)
        done["bytes_deleted"] += sum(file.size_bytes or 0 for file in batch.files if file.path in deleted)
        self.store.write(lambda db: pending_deletions.settle(db, rest, TRIES))
        failpoint("sweep.after_batch")
        log.info(
            "files.swept", process=batch.process_id, kind=batch.kind.value, files=len(removals), left=len(rest.files)
        )

    def _sweep_batch(
        self, batch: Batch, table: Sweepable, guard: Guard, trash: Trash | None, done: Counter[str]
    ) -> Mapping[str, Removal]:
        failpoint("sweep.before_guard")
        if needed := _needed(batch, guard):
            back = restore_batch(table, batch, needed)[0] if batch.moved_to else needed
            reasons = {path: needed[path] for path in back}
            self.store.write(lambda db: unmark_needed(db, batch, reasons))
            self.meters.count(metrics.GUARD_HITS, by=len(needed))
            raise FileStillReferenced(
                needed_text(needed), hint="They were taken off; look at the rest before you confirm it."
            )
        if batch.status is BatchStatus.MOVING:
            # As long as by default where the table asks for no trash any more.
            return self._move(batch, table, batch.moved_to, trash.keep if trash else TrashConfig().keep, done)
        if trash is None or batch.moved_to:
            return self._delete(batch, table, done)
        part = self.store.write(lambda db: split_batch(db, batch, trash))
        if not part.files:
            return self._delete(batch, table, done)
        return self._move(part, table, trash.folder(part.purge_at, part.process_id), trash.keep, done)

    def _delete(self, batch: Batch, table: Sweepable, done: Counter[str]) -> Mapping[str, Removal]:
        """Delete the files, which lie in the table's locations or in its trash."""
        access, places = table.access(batch.moved_to), trash_paths(batch)
        stats = access.stat_many(places.values())
        same = [file for file in batch.files if file.is_still(stats[places[file.path]])]
        begun = pending_deletions.begun(replace(batch, files=tuple(same)))
        if not self.store.write(lambda db: pending_deletions.save_unless_restored(db, begun)):
            return {}
        absent = sum(stored is None for stored in stats.values())
        done["files_absent"] += absent
        done["files_changed"] += len(batch.files) - len(same) - absent
        failpoint("sweep.before_delete")
        removals = access.delete_many([places[file.path] for file in same]) if same else {}
        failpoint("sweep.after_delete")
        deleted = {file.path for file in same if removals[places[file.path]].ended is not Ended.FAILED}
        self._settle(batch, pending_deletions.without(begun, deleted), deleted, removals, done)
        if batch.moved_to:
            access.remove_empty_folders(root_of(batch.moved_to), _ANY_TIME)
        return removals

    def _move(
        self, batch: Batch, table: Sweepable, folder: str, keep: timedelta, done: Counter[str]
    ) -> Mapping[str, Removal]:
        """Move the files to a folder of the trash, those too that an interrupted move has left on the way."""
        access, places = table.access(folder), trash_paths(batch, folder)
        here, there = access.stat_many(places), access.stat_many(places.values())
        before = {file.path for file in batch.files if file.is_still(there[places[file.path]])}
        same = tuple(file for file in batch.files if file.path in before or file.is_still(here[file.path]))
        begun = replace(pending_deletions.begun(replace(batch, files=same)), status=BatchStatus.MOVING, moved_to=folder)
        if not self.store.write(lambda db: pending_deletions.save_unless_restored(db, begun)):
            return {}
        absent = sum(here[place] is None and there[places[place]] is None for place in places)
        done["files_absent"] += absent
        done["files_changed"] += len(batch.files) - len(same) - absent
        failpoint("sweep.before_move")
        removals = access.move_many({file.path: places[file.path] for file in same})
        failpoint("sweep.after_move")
        ended = {path: removal.ended for path, removal in removals.items()}
        # What lies there from before was moved; another file may have taken its place, and stays.
        moved = {path for path, end in ended.items() if end is Ended.MOVED or (end is Ended.CHANGED and path in before)}
        rest = {path for path, end in ended.items() if end is not Ended.ABSENT}.difference(moved)
        done["files_moved"] += len(moved)
        done["files_failed"] += len(rest)
        waiting = replace(begun, purge_at=self.clock() + keep)
        self.store.write(lambda db: pending_deletions.settle_moved(db, waiting, moved, rest, TRIES))
        failpoint("sweep.after_batch")
        log.info("files.moved", process=batch.process_id, folder=folder, files=len(moved), left=len(rest))
        return removals


def _needed(batch: Batch, guard: Guard) -> dict[str, str]:
    """The files that the table needs, where they were or where they are now, each with the reason."""
    places = trash_paths(batch)
    reachable = guard.reachable(dict.fromkeys((*places, *places.values())))
    return {path: reachable[alias] for path, place in places.items() for alias in (place, path) if alias in reachable}


_NO_RESULT = Removal(Ended.FAILED, "the storage reported no result for it")
#: Empty folders of a trash go whatever their time is: only the sweep fills it.
_ANY_TIME = datetime.max.replace(tzinfo=UTC)
