"""A CDC-like feed: flights are announced, completed, corrected and cancelled; each change is one commit."""

import threading
import time
from collections import deque
from dataclasses import field, replace

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from amoro_core.demo.commits import RowDelta, commit
from amoro_core.demo.flights import Flights, Ids
from amoro_core.demo.ledger import Ledger
from amoro_core.demo.table import IDENTIFIER, FileCounts
from amoro_core.demo.writing import TableFiles, month_of
from amoro_core.errors import CheckFailed
from amoro_core.iceberg.scan import scan
from amoro_core.model.files import DataFile
from amoro_core.records import record

HISTORY_MONTHS = 4  # written before the feed begins
HISTORY_COMMITS = 12
_ANNOUNCED = 400  # flights in a commit
_IN_THE_AIR = 2  # announcements between that of a flight and its completion
_CORRECTED = 40
_CORRECTED_MONTHS = 2
_DELETED = 25
_SEED = 2013


@record
class Written:
    """What the feed has written so far."""

    commits: int = 0
    files: FileCounts = field(default_factory=FileCounts)
    rows: int = 0  # rows that the table must now hold


class Feed:
    """The only writer of rows of a table; it keeps the ledger of the rows that the table must hold."""

    def __init__(self, catalog: Catalog, table: Table, flights: Flights) -> None:
        self._catalog = catalog
        self._flights = flights
        self._files = TableFiles(table)
        self._random = np.random.default_rng(_SEED)
        self._in_the_air: deque[Ids] = deque()
        self._steps = 0
        self._next = int(np.searchsorted(flights.months, flights.months[0] + HISTORY_MONTHS))
        self.ledger = Ledger()
        self.written = Written()

    def write_history(self, part: int) -> None:
        """Append part `part` of HISTORY_COMMITS of the months before the feed, one file for each month."""
        ids = np.arange(part, self._next, HISTORY_COMMITS)
        ids = ids[~self._flights.cancelled[ids]]
        self._append(ids, np.ones_like(ids))

    def step(self) -> None:
        """Make the next commit: announcements and changes by key in turn, and occasionally deletes by position."""
        self._steps += 1
        if self._steps % 5 == 0:
            self._delete_by_position()
        elif len(self._in_the_air) > _IN_THE_AIR:
            self._upsert(self._in_the_air.popleft(), self._to_be_corrected())
        else:
            self._append(*self._announced())

    def _announced(self) -> tuple[Ids, Ids]:
        ids = np.arange(self._next, min(self._next + _ANNOUNCED, len(self._flights.months)))
        self._next += len(ids)
        self._in_the_air.append(ids)
        return ids, np.zeros_like(ids)

    def _to_be_corrected(self) -> Ids:
        """Some completed flights of some months."""
        first = self._flights.months[0]
        months = first + self._random.choice(HISTORY_MONTHS, _CORRECTED_MONTHS, replace=False)
        places = np.searchsorted(self._flights.months, [[month, month + 1] for month in months])
        return np.concatenate(
            [low + self._random.choice(high - low, _CORRECTED, replace=False) for low, high in places]
        )

    def _append(self, ids: Ids, revisions: Ids) -> None:
        if not len(ids):
            return
        rows = self._flights.versions(ids, revisions)
        added = tuple(self._files.write_rows(rows))
        self._commit(RowDelta(data=added))
        self.ledger.put(rows)
        self._note_rows()

    def _upsert(self, ended: Ids, corrected: Ids) -> None:
        """Delete the rows by key and write their next revisions in one commit; cancelled flights are only deleted."""
        asked = np.concatenate([corrected, ended])
        keys = asked[[self.ledger.revision(int(key)) is not None for key in asked]]
        gone = keys[self._flights.cancelled[keys]]
        kept = keys[~self._flights.cancelled[keys]]
        rows = self._flights.versions(kept, np.array([(self.ledger.revision(int(key)) or 0) + 1 for key in kept]))
        deletes = tuple(self._files.write_equality_deletes(keys, self._flights.months[keys]))
        self._commit(RowDelta(tuple(self._files.write_rows(rows)), deletes))
        self.ledger.remove(gone.tolist())
        self.ledger.put(rows)
        self._note_rows()

    def _delete_by_position(self) -> None:
        """Delete some rows of one data file of exactly the head that is committed on.

        The file is of a past month: the month being optimized all the time would conflict with each such delete.
        """
        chosen: list[int] = []

        def build(head: Table) -> RowDelta:
            found = scan(head, [head.location()])
            if found is None:
                raise CheckFailed(f"{IDENTIFIER} has lost its snapshots")
            past = [file.data for file in found.files if self._is_past(file.data)]
            data = past[self._random.integers(len(past))]
            ids, revisions = self._files.read_versions(data)
            # A row whose revision is not the latest was deleted from this file already.
            live = [place for place, key in enumerate(ids) if self.ledger.revision(int(key)) == revisions[place]]
            places = np.sort(self._random.choice(np.array(live, np.int64), min(_DELETED, len(live)), replace=False))
            chosen[:] = ids[places].tolist()
            return RowDelta(deletes=(self._files.write_position_deletes(data, places),) if len(places) else ())

        self._note(commit(self._catalog, IDENTIFIER, build))
        self.ledger.remove(chosen)
        self._note_rows()

    def _is_past(self, data: DataFile) -> bool:
        return month_of(data) < int(self._flights.months[0]) + HISTORY_MONTHS

    def _commit(self, delta: RowDelta) -> None:
        self._note(commit(self._catalog, IDENTIFIER, lambda head: delta))

    def _note(self, delta: RowDelta) -> None:
        kinds = [file.kind.value for file in delta.deletes]
        size = sum(file.size_bytes for file in delta.data) + sum(file.size_bytes for file in delta.deletes)
        added = FileCounts(len(delta.data), kinds.count("equality"), kinds.count("position"), size)
        self.written = replace(self.written, commits=self.written.commits + 1, files=self.written.files + added)

    def _note_rows(self) -> None:
        self.written = replace(self.written, rows=len(self.ledger))


class FeedThread:
    """Runs a feed until it is stopped. An error ends it, and is raised by `require_healthy`.

    It pauses longer when steps take long: a busy machine must do the optimizing too.
    """

    def __init__(self, feed: Feed, pause_s: float) -> None:
        self._feed = feed
        self._pause = pause_s
        self._stopping = threading.Event()
        self._failed: list[Exception] = []
        self._thread = threading.Thread(target=self._run, name="feed")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the step that runs now."""
        self._stopping.set()
        self._thread.join()

    def require_healthy(self) -> None:
        """Raise what ended the feed."""
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._feed.step()
            except Exception as error:
                self._failed.append(error)
                return
            self._stopping.wait(max(self._pause, 2 * (time.monotonic() - began)))
