"""Services over a catalog that fails, a writer beside them, and what must hold whatever fails."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import AmoroError
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.processes import Attempt, CatalogConfig, CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import MAP_ENDING
from amoro_core.services.task_lifecycle import Failure
from tests.engine import writer
from tests.engine.parquet_rows import local_path
from tests.faults.rest import RestServer
from tests.model import invariants
from tests.model.crashes import SteppedWorld
from tests.model.lake import MAIN, Lake, ids_are, process_of, row

PARTS = ("a", "b")
OPEN = (CommitOutcome.SENT, CommitOutcome.UNKNOWN)


@contextmanager
def rest_catalog(directory: Path) -> Iterator[tuple[SqlCatalog, RestServer, CatalogConfig]]:
    """The writer's own way to the tables, a REST catalog over them, and how the coordinator reaches that."""
    catalog, beneath = writer.make_catalog(directory), writer.make_catalog(directory)
    try:
        with RestServer(beneath) as server:
            yield catalog, server, server.config()
            server.proxy.release()  # what it still held back must find the catalog open
    finally:
        close_catalogs()
        catalog.close()
        beneath.close()


class World(SteppedWorld):
    """All services on one state directory, and the table `db.t` with the rows that it must hold."""

    def __init__(
        self,
        home: Path,
        catalog: SqlCatalog,
        config: CatalogConfig | None = None,
        *,
        version: int = 2,
        partitioned: bool = False,
    ) -> None:
        home.mkdir()
        super().__init__(home, catalog, config=config)
        self.lake = Lake.created(catalog, version, partitioned=partitioned)
        self._next_id = 0

    # Writing

    @property
    def ids(self) -> list[int]:
        return sorted(one[1] for one in self.lake.rows[MAIN])

    def new_rows(self, parts: tuple[str, ...], count: int) -> list[dict[str, Any]]:
        """Rows with new ids, in these partitions by turns."""
        first = self._next_id
        self._next_id += count
        return [row(id_, parts[(id_ - first) % len(parts)], f"new-{id_}") for id_ in range(first, first + count)]

    def append(self, count: int = 4, files: int = 1) -> None:
        """Rows with new ids, in so many files for each partition."""
        self.lake.append(self.new_rows(PARTS, count), files=files)

    def upsert(self, *ids: int) -> None:
        """New values for rows with these ids, by equality deletes."""
        parts = {one[1]: one[2] for one in self.lake.rows[MAIN]}
        self.lake.upsert([row(id_, parts.get(id_, "a"), f"changed-{self._next_id}-{id_}") for id_ in ids])

    def delete(self, *ids: int) -> None:
        """Delete rows by position (copy-on-write in format 1, by vectors in format 3)."""
        remove = self.lake.overwrite if self.lake.version == 1 else self.lake.delete_positions
        remove(ids_are(*ids))

    def fill(self) -> None:
        """Small files, and deletes of both kinds where the format has them."""
        self.append(8, files=2)
        if self.lake.version > 1:
            self.upsert(*self.ids[:2])
        self.delete(self.ids[-1])

    def change(self, chance: random.Random) -> None:
        """One commit of any kind."""
        some = chance.sample(self.ids, 2) if len(self.ids) > 2 else []
        ways = ("append", "upsert", "delete", "delete") if self.lake.version > 1 else ("append", "delete")
        match chance.choice(ways):
            case "upsert" if some:
                self.upsert(*some)
            case "delete" if some:
                self.delete(some[0])
            case _:
                self.append(2)

    def files(self, pattern: str) -> list[Path]:
        """The files below the table that are named so, in order."""
        return sorted(Path(local_path(self.lake.table.location())).rglob(pattern))

    # Optimizing

    def work(self) -> list[Failure]:
        """Work until no task is planned any more; returns the failures of attempts, which are tried again."""
        failures, optimizer = [], self.optimizer(1)
        while handed := self.poll(optimizer):
            for task in handed:
                assert self.optimizing.ack(optimizer, [task.attempt]) != [None]
                try:
                    self.complete(optimizer, task.attempt, self.execute(task))
                except AmoroError as error:
                    failures.append(Failure(error.code, error.message))
                    self.complete(optimizer, task.attempt, failures[-1])
        return failures

    def rewritten(self) -> str:
        """A process whose commit is due."""
        process_id = self.begin(OptimizingType.FULL)
        assert self.work() == []
        assert self.heard.commits[-1] == process_id
        return process_id

    def commit(self, process_id: str) -> ProcessStatus:
        """What the coordinator's loop does once: errors mean that it is tried again later."""
        return self.committing.commit(process_id)

    def outputs(self, process_id: str) -> set[str]:
        """The files that its tasks' counted results name."""
        made = [self.output(Attempt(one.task_id, one.attempt)) for one in self.tasks(process_id)]
        return {
            local_path(file.path) for one in made if one is not None for file in (*one.data_files, *one.delete_files)
        }

    def _left_over(self, process_id: str, catalog: str) -> None:
        self.clearing.clean_up(process_id)

    # What must hold

    def require_consistent(self, process_id: str) -> list[int]:
        """Rows are right on one line of snapshots, the process landed at most once, and what may still land is there.

        Returns the process's snapshots.
        """
        self.lake.require()
        snapshots = self.lake.table.metadata.snapshots
        parents = [one.parent_snapshot_id for one in snapshots]
        assert parents == [None, *(one.snapshot_id for one in snapshots[:-1])]
        if self.lake.version > 1:
            assert [one.sequence_number for one in snapshots] == list(range(1, len(snapshots) + 1))
        landed = [one.snapshot_id for one in snapshots if process_of(one) == process_id]
        assert len(landed) <= 1
        for attempt in self.commits(process_id):
            if attempt.outcome in OPEN or attempt.may_come_back:
                assert missing((*attempt.files, *attempt.metadata_files)) == []
        if self.status(process_id) in (ProcessStatus.SUCCESS, ProcessStatus.PARTIAL):
            assert len(landed) == 1
        return landed

    def require_ended(self, process_id: str, *, leaves_files: bool = False) -> ProcessStatus:
        """The process has ended and says what is true; nothing is left behind unless files could not be removed."""
        landed = self.require_consistent(process_id)
        status, process = invariants.require_ended(self, self.lake, process_id), self.process(process_id)
        if status is ProcessStatus.FAILED:
            assert (landed, process.receipt) == ([], None)
        else:
            assert process.receipt is not None
            assert [process.receipt.snapshot_id] == landed
            (done,) = [one for one in self.commits(process_id) if one.outcome is CommitOutcome.DONE]
            every = {one.task_id.number for one in self.tasks(process_id)}
            assert (status is ProcessStatus.SUCCESS) == (set(done.groups) == every)
        if not leaves_files:
            invariants.require_tidy(self, self.lake, process_id)
            assert self.files(f"{process_id}*{MAP_ENDING}") == []
        return status


def missing(paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if not Path(local_path(path)).exists()]
