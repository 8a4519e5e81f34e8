"""Deleting condemned files that are due, or moving them to a trash: batch after batch, each guarded right before."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from amoro_core.actions.contract import Action, Sweeping
from amoro_core.errors import GuardSpoke, IllegalState
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.files.pace import Pace
from amoro_core.formats.port import Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.formats.upkeep import Guard, Sweepable
from amoro_core.maintaining.trash import Trash, TrashConfig, root_of
from amoro_core.model.actions import Case
from amoro_core.model.processes import Figure, ProcessStatus, Receipt
from amoro_core.model.stored import Ended, Removal
from amoro_core.store import condemned, processes
from amoro_core.store.condemned import Batch, BatchStatus
from amoro_core.store.database import Store
from amoro_core.transactions.cases import open_planned
from amoro_core.transactions.sparing import spare, spared_words
from amoro_core.transactions.trashing import places_of, put_back, split

log = get_logger("amoro.sweeping")

#: Tries to delete a batch completely; after that it is given up, and the rest becomes orphans.
TRIES = 5


class SweepingService:
    """Deletes condemned files, never one that the table references at that time."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        find_action: Callable[[str], Action],
        clock: Callable[[], datetime],
        delete_rate: int = 1000,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """`delete_rate`: the maximum of files deleted per second and catalog."""
        self._store = store
        self._tables = tables_of
        self._find_action = find_action
        self._clock = clock
        self._delete_rate = delete_rate
        self._monotonic = monotonic
        self._wait = wait
        self._paces: dict[str, Pace] = {}  # by catalog
        self.guard_hits = 0  # files that the guard has kept, since the start

    def sweep(self, case: Case) -> Receipt:
        """Delete the due files of the process's table until none is left, or the process was closed.

        Each batch is guarded against the present table, recorded as begun, and deleted; failed files are retried by
        later sweeps. Raises GuardSpoke when a file is needed after all, and what guard and storage raise; in both cases
        nothing of that batch was deleted.
        """
        done = Counter(dict.fromkeys(("bytes_deleted", "files_absent", "files_changed", "files_failed"), 0))
        self._sweep(case, done, self._settle_tasks(case, done) if case.tasks else set())
        words = f"deleted {sum(number for name, number in done.items() if name.endswith('_files_deleted'))} files"
        if moved := done["files_moved"]:
            words += f", moved {moved} to the trash"
        figures = tuple(
            Figure(name, value, "bytes" if name == "bytes_deleted" else "files") for name, value in done.items()
        )
        return Receipt.told(words, case.process.snapshot_id, figures)

    def _sweep(self, case: Case, done: Counter[str], tried: set[int]) -> None:
        """Sweep what is due and no task has had: all of it, what they were too many for, what lies in a trash."""
        if tried and self._left(case, tried) == []:
            return
        table = with_roles(open_planned(self._tables, case), (Role.SWEEP,), case.process.type)
        guard, trash = table.guard(case.process.sequence_number), table.trash()
        pace = self._pace(case.runtime.identifier.catalog)
        for batch_id in self._due(case, tried):
            batch = self._store.read(partial(condemned.get, batch_id=batch_id))
            if batch is not None and batch.table_uuid != case.process.table_uuid:
                self._leave(batch)
            elif batch is not None:
                began = pace.begin()
                pace.keep(self._sweep_batch(batch, table, guard, trash, done), began)

    def _left(self, case: Case, tried: Set[int]) -> list[int]:
        due = self._store.read(lambda db: condemned.list_due(db, case.process.table_id, self._clock()))
        return [one for one in due if one not in tried]

    def _due(self, case: Case, tried: set[int]) -> Iterator[int]:
        """The due batches, each once, those too that are made of others meanwhile; ends once the process is closed."""
        while left := self._left(case, tried):
            for batch_id in left:
                process = self._store.read(lambda db: processes.get(db, case.process.process_id))
                if process.status != ProcessStatus.CLEARING:
                    return
                tried.add(batch_id)
                yield batch_id

    def _settle_tasks(self, case: Case, done: Counter[str]) -> set[int]:
        """Apply the outcomes reported by optimizers; files without an outcome are retried by later sweeps.

        Returns the batches that the tasks had.
        """
        tried: set[int] = set()
        action = self._find_action(case.process.type)
        if not isinstance(action, Sweeping):
            raise IllegalState(f"{case.process.type} deletes no condemned files")
        for result in case.results:
            removals = action.removals_of(result.output)
            for batch_id in action.batches_of(result.input):
                tried.add(batch_id)
                batch = self._store.read(partial(condemned.get, batch_id=batch_id))
                if batch is not None and batch.table_uuid == case.process.table_uuid:
                    self._settle(batch, removals, done)
        return tried

    def _settle(self, batch: Batch, removals: Mapping[str, Removal], done: Counter[str]) -> None:
        said = {one.path: removals.get(one.path, _UNSAID).ended for one in batch.files}
        left = condemned.without(batch, {path for path, ended in said.items() if ended is not Ended.FAILED})
        counts = Counter(said.values())
        done[f"{batch.kind.value.replace('-', '_')}_files_deleted"] += counts[Ended.DELETED]
        done["files_absent"] += counts[Ended.ABSENT]
        done["files_changed"] += counts[Ended.CHANGED]
        done["files_failed"] += counts[Ended.FAILED]
        done["bytes_deleted"] += sum(one.size_bytes or 0 for one in batch.files if said[one.path] is Ended.DELETED)
        self._store.write(lambda db: condemned.settle(db, left, TRIES))
        failpoint("sweep.after_batch")
        self._tell(batch, removals, left)

    def _pace(self, catalog: str) -> Pace:
        return self._paces.setdefault(catalog, Pace(self._delete_rate, self._monotonic, self._wait))

    def _sweep_batch(
        self, batch: Batch, table: Sweepable, guard: Guard, trash: Trash | None, done: Counter[str]
    ) -> Mapping[str, Removal]:
        failpoint("sweep.before_guard")
        if needed := _needed(batch, guard):
            kept = put_back(table, batch, needed) if batch.moved_to else needed
            self._store.write(lambda db: spare(db, batch, kept))
            self.guard_hits += len(needed)
            raise GuardSpoke(spared_words(needed), hint="They were taken off; look at the rest before you confirm it.")
        if batch.status is BatchStatus.MOVING:
            return self._move(batch, table, batch.moved_to, _keep_of(trash), done)
        if trash is None or batch.moved_to:
            return self._delete(batch, table, done)
        taken = self._store.write(lambda db: split(db, batch, trash))
        if not taken.files:
            return self._delete(batch, table, done)
        return self._move(taken, table, trash.folder(taken.purge_at, taken.process_id), trash.keep, done)

    def _delete(self, batch: Batch, table: Sweepable, done: Counter[str]) -> Mapping[str, Removal]:
        """Delete the files, which lie in the table's locations or in its trash."""
        access = table.trash_access(batch.moved_to) if batch.moved_to else table
        places = places_of(batch)
        found = access.stat_many(places.values())
        same = [one for one in batch.files if one.is_still(found[places[one.path]])]
        begun = condemned.begun(replace(batch, files=tuple(same)))
        if not self._store.write(lambda db: condemned.save_unless_restored(db, begun)):
            return {}
        absent = sum(stored is None for stored in found.values())
        done["files_absent"] += absent
        done["files_changed"] += len(batch.files) - len(same) - absent
        failpoint("sweep.before_delete")
        removals = access.delete_many([places[one.path] for one in same]) if same else {}
        failpoint("sweep.after_delete")
        gone = {one.path for one in same if removals[places[one.path]].ended is not Ended.FAILED}
        left = condemned.without(begun, gone)
        done[f"{batch.kind.value.replace('-', '_')}_files_deleted"] += len(gone)
        done["files_failed"] += len(left.files)
        done["bytes_deleted"] += sum(one.size_bytes or 0 for one in same if one.path in gone)
        self._store.write(lambda db: condemned.settle(db, left, TRIES))
        failpoint("sweep.after_batch")
        self._tell(batch, removals, left)
        if batch.moved_to:
            table.trash_access(batch.moved_to).remove_empty_folders(root_of(batch.moved_to), _ANY_TIME)
        return removals

    def _move(
        self, batch: Batch, table: Sweepable, folder: str, keep: timedelta, done: Counter[str]
    ) -> Mapping[str, Removal]:
        """Move the files to a folder of the trash, those too that an interrupted move has left on the way."""
        access, places = table.trash_access(folder), places_of(batch, folder)
        here, there = access.stat_many(places), access.stat_many(places.values())
        before = {one.path for one in batch.files if one.is_still(there[places[one.path]])}
        same = tuple(one for one in batch.files if one.path in before or one.is_still(here[one.path]))
        begun = replace(condemned.begun(replace(batch, files=same)), status=BatchStatus.MOVING, moved_to=folder)
        if not self._store.write(lambda db: condemned.save_unless_restored(db, begun)):
            return {}
        absent = sum(here[one] is None and there[places[one]] is None for one in places)
        done["files_absent"] += absent
        done["files_changed"] += len(batch.files) - len(same) - absent
        failpoint("sweep.before_move")
        removals = access.move_many({one.path: places[one.path] for one in same})
        failpoint("sweep.after_move")
        ended = {path: removal.ended for path, removal in removals.items()}
        # What lies there from before was moved; another file may have taken its place, and stays.
        moved = {path for path, end in ended.items() if end is Ended.MOVED or (end is Ended.CHANGED and path in before)}
        left = {path for path, end in ended.items() if end is not Ended.ABSENT}.difference(moved)
        done["files_moved"] += len(moved)
        done["files_failed"] += len(left)
        waiting = replace(begun, purge_at=self._clock() + keep)
        self._store.write(lambda db: condemned.settle_moved(db, waiting, moved, left, TRIES))
        failpoint("sweep.after_batch")
        log.info("files.moved", process=batch.process_id, folder=folder, files=len(moved), left=len(left))
        return removals

    def _leave(self, batch: Batch) -> None:
        """Drop a batch of an earlier table of the name: this table's guard tells nothing about its files."""
        log.warning("batch.of_another_table", process=batch.process_id, table_uuid=batch.table_uuid)
        self._store.write(lambda db: condemned.remove(db, batch.batch_id))

    def _tell(self, batch: Batch, removals: Mapping[str, Removal], left: Batch) -> None:
        log.info(
            "files.swept", process=batch.process_id, kind=batch.kind.value, files=len(removals), left=len(left.files)
        )


def _needed(batch: Batch, guard: Guard) -> dict[str, str]:
    """The files that the table needs, where they were or where they are now, each with the reason."""
    places = places_of(batch)
    reachable = guard.reachable(dict.fromkeys((*places, *places.values())))
    return {path: reachable[one] for path, place in places.items() for one in (place, path) if one in reachable}


def _keep_of(trash: Trash | None) -> timedelta:
    """How long what is on the way to a trash stays there; as by default where the table asks for none any more."""
    return TrashConfig().keep if trash is None else trash.keep


_UNSAID = Removal(Ended.FAILED, "nobody says what became of it")
#: Empty folders of a trash go whatever their time is: only the sweep fills it.
_ANY_TIME = datetime.max.replace(tzinfo=UTC)
