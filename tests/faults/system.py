"""The coordinator's services and an optimizer in one thread, for the table `cat.db.t`: every step is a call."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import AmoroError
from amoro_core.model.processes import Attempt, CatalogConfig, CommitAttempt, OptimizingProcess, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.services.task_lifecycle import Failure
from amoro_core.store import processes
from tests.services.world import World as Services


class System(Services):
    """All services on one state directory; they reach the catalog as `config` says."""

    def __init__(self, home: Path, catalog: SqlCatalog, config: CatalogConfig) -> None:
        home.mkdir()
        super().__init__(home, catalog, config=config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    @property
    def commits_due(self) -> list[str]:
        return self.heard.commits

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

    def rewritten(self, kind: OptimizingType = OptimizingType.FULL) -> str:
        """A process whose commit is due."""
        process_id = self.begin(kind)
        assert self.work() == []
        assert self.commits_due[-1] == process_id
        return process_id

    def optimized(self, kind: OptimizingType = OptimizingType.FULL) -> OptimizingProcess:
        """A process, from its plan to its commit."""
        process_id = self.rewritten(kind)
        self.commit(process_id)
        return self.process(process_id)

    def commit(self, process_id: str) -> ProcessStatus:
        """What the coordinator's loop does once: errors mean that it is tried again later."""
        return self.committing.commit(process_id)

    def process(self, process_id: str) -> OptimizingProcess:
        return self.optimizing.find_process(process_id).process

    def attempts(self, process_id: str) -> tuple[CommitAttempt, ...]:
        return tuple(self.store.read(lambda db: processes.list_commits(db, process_id)))

    def outcomes(self, process_id: str) -> list[str]:
        return [attempt.outcome for attempt in self.attempts(process_id)]

    def outputs(self, process_id: str) -> dict[int, tuple[str, ...]]:
        """The files that each task's counted result names, by the task's number."""
        made = {
            task.task_id.number: self.output(Attempt(task.task_id, task.attempt)) for task in self.tasks(process_id)
        }
        return {
            number: () if output is None else tuple(one.path for one in (*output.data_files, *output.delete_files))
            for number, output in made.items()
        }

    def _left_over(self, process_id: str, catalog: str) -> None:
        self.clearing.clean_up(process_id)
