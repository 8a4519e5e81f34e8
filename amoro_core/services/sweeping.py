"""Deleting what was condemned and is due: batch after batch, each guarded once more right before."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from amoro_core.errors import GuardSpoke
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.formats.port import Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.formats.upkeep import Guard, Sweepable
from amoro_core.model.actions import Case
from amoro_core.model.maintenance import Condemned
from amoro_core.model.processes import Figure, ProcessStatus, Receipt
from amoro_core.model.stored import Ended, Removal, StoredFile
from amoro_core.store import condemned, processes
from amoro_core.store.condemned import Batch, BatchStatus
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.cases import open_planned

log = get_logger("amoro.sweeping")

#: A batch that could not be deleted as a whole so often is given up: what is left of it becomes an orphan.
TRIES = 5
#: How storages say that they are asked too often.
_SLOWER = ("503", "SlowDown", "Slow Down", "429", "ServerBusy")


class SweepingService:
    """Deletes condemned files, none that the table reaches as it is then."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        clock: Callable[[], datetime],
        delete_rate: int = 1000,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """`delete_rate`: files of a catalog that are deleted in a second, at most."""
        self._store = store
        self._tables = tables_of
        self._clock = clock
        self._delete_rate = delete_rate
        self._monotonic = monotonic
        self._wait = wait
        self._rates: dict[str, float] = {}  # by catalog, where the storage has asked for less
        self.guard_hits = 0  # files that the guard has kept, since the start

    def sweep(self, case: Case) -> Receipt:
        """Delete what is due of the process's table until nothing is, or until the process was closed.

        Each batch is guarded by the table as it is then, written down as begun, and deleted; what failed is tried
        again by later sweeps. Raises GuardSpoke when a file is needed after all, with nothing of its batch deleted,
        and what guard and storage raise; then nothing was deleted of the batch either.
        """
        table = with_roles(open_planned(self._tables, case), (Role.SWEEP,), case.process.type)
        guard = table.guard(case.process.sequence_number)
        done = Counter(dict.fromkeys(("bytes_deleted", "files_absent", "files_changed", "files_failed"), 0))
        left = list(self._store.read(lambda db: condemned.list_due(db, case.process.table_id, self._clock())))
        for batch_id in left:
            if self._store.read(lambda db: processes.get(db, case.process.process_id)).status != ProcessStatus.CLEARING:
                break
            batch = self._store.read(partial(condemned.get, batch_id=batch_id))
            if batch is not None and batch.table_uuid != case.process.table_uuid:
                self._leave(batch)
            elif batch is not None:
                began = self._monotonic()
                removals = self._sweep_batch(batch, table, guard, done)
                self._pause(case.runtime.identifier.catalog, removals, self._monotonic() - began)
        words = f"deleted {sum(number for name, number in done.items() if name.endswith('_files_deleted'))} files"
        figures = tuple(
            Figure(name, value, "bytes" if name == "bytes_deleted" else "files") for name, value in done.items()
        )
        return Receipt.told(words, case.process.snapshot_id, figures)

    def _pause(self, catalog: str, removals: Mapping[str, Removal], took_s: float) -> None:
        """Keep to the rate of the catalog's storage: half of it once it has said to slow down, growing again after."""
        rate = self._rates.get(catalog, float(self._delete_rate))
        is_slowed = any(any(word in one.why for word in _SLOWER) for one in removals.values())
        self._rates[catalog] = max(1.0, rate / 2) if is_slowed else min(float(self._delete_rate), rate * 1.1)
        if (left_s := len(removals) / rate - took_s) > 0:
            self._wait(left_s)

    def _sweep_batch(self, batch: Batch, table: Sweepable, guard: Guard, done: Counter[str]) -> Mapping[str, Removal]:
        paths = [one.path for one in batch.files]
        failpoint("sweep.before_guard")
        needed = guard.reachable(paths)
        if needed:
            self._spare(batch, needed)
            raise GuardSpoke(_words(needed), hint="They were taken off; look at the rest before you confirm it.")
        found = table.stat_many(paths)
        same = [one for one in batch.files if _is_same(one, found[one.path])]
        begun = replace(batch, files=tuple(same), status=BatchStatus.DELETING, tries=batch.tries + 1)
        if not self._store.write(lambda db: condemned.save_unless_restored(db, begun)):
            return {}
        absent = sum(stored is None for stored in found.values())
        done["files_absent"] += absent
        done["files_changed"] += len(batch.files) - len(same) - absent
        failpoint("sweep.before_delete")
        removals = table.delete_many([one.path for one in same]) if same else {}
        failpoint("sweep.after_delete")
        gone = {path for path, removal in removals.items() if removal.ended is not Ended.FAILED}
        left = condemned.without(begun, gone)
        done[f"{batch.kind.value.replace('-', '_')}_files_deleted"] += len(gone)
        done["files_failed"] += len(left.files)
        done["bytes_deleted"] += sum(one.size_bytes or 0 for one in same if one.path in gone)
        self._store.write(lambda db: condemned.settle(db, left, TRIES))
        failpoint("sweep.after_batch")
        self._tell(batch, removals, left)
        return removals

    def _leave(self, batch: Batch) -> None:
        """Forget a batch of another table that had the name: this one's guard says nothing about its files."""
        log.warning("batch.of_another_table", process=batch.process_id, table_uuid=batch.table_uuid)
        self._store.write(lambda db: condemned.remove(db, batch.batch_id))

    def _spare(self, batch: Batch, needed: Mapping[str, str]) -> None:
        """Take off what is needed; the rest of the batch waits as before."""
        for path, why in needed.items():
            log.error("guard.spoke", process=batch.process_id, path=path, why=why)
        spared = condemned.without(replace(batch, status=BatchStatus.WAITING), needed)

        def keep(db: Connection) -> None:
            if not spared.files:
                condemned.remove(db, batch.batch_id)
            else:
                condemned.save_unless_restored(db, spared)

        self._store.write(keep)
        self.guard_hits += len(needed)

    def _tell(self, batch: Batch, removals: Mapping[str, Removal], left: Batch) -> None:
        log.info(
            "files.swept", process=batch.process_id, kind=batch.kind.value, files=len(removals), left=len(left.files)
        )


def _is_same(one: Condemned, stored: StoredFile | None) -> bool:
    """Whether the stored file is the one that was condemned, by what was known of it then."""
    if stored is None:
        return False
    if one.size_bytes is not None and stored.size_bytes != one.size_bytes:
        return False
    if one.modified_at is None or stored.modified_at is None:
        return True
    # What was condemned is kept to the millisecond, what storages say is finer.
    return abs(stored.modified_at - one.modified_at) < timedelta(milliseconds=1)


def _words(needed: Mapping[str, str]) -> str:
    path, why = next(iter(sorted(needed.items())))
    more = f" and {len(needed) - 1} more" if len(needed) > 1 else ""
    return f"the table needs {path} ({why}){more}, which was condemned"
