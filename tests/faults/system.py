"""The coordinator's services and an optimizer in one thread: no loops, no network, every step a call."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from amoro_core.actions.known import Actions
from amoro_core.errors import AmoroError
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.tables import Formats, Tables
from amoro_core.formats.vending import Vending
from amoro_core.model.processes import (
    CatalogConfig,
    CommitAttempt,
    OptimizingProcess,
    ProcessStatus,
    ResourceGroup,
    TaskId,
)
from amoro_core.model.rewrite import RewriteOutput
from amoro_core.model.tables import OptimizingType, TableIdentifier, TableRuntime
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb
from amoro_core.services.ack_guarding import AckGuardService
from amoro_core.services.clearing import ClearingService
from amoro_core.services.committing import CommittingService
from amoro_core.services.gathering import GatheringService
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.optimizing import Failure, OptimizingService, ScheduledTask, Signals
from amoro_core.services.planning import PlanningService
from amoro_core.services.sweeping import SweepingService
from amoro_core.services.tables import TableService
from amoro_core.store import commits, groups, processes, tables, tasks
from amoro_optimizer.backends.standalone import InProcess
from tests.store.ready import open_store
from tests.work import as_result, rewrite_input, rewriting

TABLE = TableIdentifier("cat", ("db",), "t")
_MEMORY_BYTES = 64 * 1024 * 1024


class System:
    """All services on one state directory, for the table `cat.db.t`; `restarted` gives others on the same one."""

    def __init__(self, home: Path, catalog: CatalogConfig) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home, self._catalog = home, catalog
        self.store = open_store(home / "amoro.db")
        self.store.write(lambda db: groups.add(db, ResourceGroup("default")))
        tables_of, nothing = Tables(Formats([IcebergFormat()]), self._find), lambda: None
        vending = Vending(lambda one: tables_of.open(one).io_properties(), now)
        self.commits_due: list[str] = []
        self.tables = TableService(self.store, tables_of, now)
        self.planning = PlanningService(
            self.store,
            tables_of,
            Actions().optimizing,
            Actions().by_own_name.__getitem__,
            now,
            vending,
            work_planned=nothing,
            changed=nothing,
        )
        signals = Signals(
            work_planned=nothing,
            commit_due=lambda process_id, _: self.commits_due.append(process_id),
            left_over=lambda process_id, _: self._clean_up(process_id),
            changed=nothing,
        )
        guarding = AckGuardService(self.store, tables_of, Actions().of, now, lambda effects: None)
        self.optimizing = OptimizingService(self.store, vending, now, signals, Actions().of, guarding)
        optimizers = OptimizerService(self.store, now, time.monotonic, self.optimizing.adopt, timedelta(seconds=60))
        self.clearing = ClearingService(
            self.store, tables_of, Actions().of, now, nothing, SweepingService(self.store, tables_of, Actions().of, now)
        )
        gathering = GatheringService(self.store, tables_of, Actions().of, now, timedelta(hours=2))
        self.committing = CommittingService(self.store, tables_of, Actions().of, now, nothing, self.clearing, gathering)
        self._optimizer_id = optimizers.register(
            group="default", threads=1, memory_bytes=_MEMORY_BYTES, labels={}, heartbeat_interval=timedelta(seconds=10)
        ).optimizer.optimizer_id
        self._execute = rewriting(InProcess(), _MEMORY_BYTES)
        self.optimizing.recover()

    def restarted(self) -> System:
        """The same after a death of the coordinator: nothing but the store is left."""
        self.store.close()
        return System(self._home, self._catalog)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def plan(self, kind: OptimizingType) -> str:
        """The id of a new process. Raises AssertionError when there is nothing to do."""
        begun = self.planning.begin(self.tables.ensure(TABLE).table_id, trigger="request", requested=kind)
        assert begun.process_id is not None, begun.evaluation.reason
        return begun.process_id

    def execute(self) -> list[Failure]:
        """Work until no task is planned any more; returns the failures of attempts, which are tried again."""
        failures = []
        while handed := self.optimizing.poll(self._optimizer_id, "default", [0]):
            for task in handed:
                result = self._run(task)
                self.optimizing.complete(self._optimizer_id, task.attempt, as_result(result))
                if isinstance(result, Failure):
                    failures.append(result)
        return failures

    def _run(self, task: ScheduledTask) -> RewriteOutput | Failure:
        (properties,) = self.optimizing.ack(self._optimizer_id, [task.attempt])
        assert properties is not None
        work = rewrite_input(task.work)
        try:
            return self._execute(work, properties, task.attempt, lambda done, of: None, lambda: False)
        except AmoroError as error:
            return Failure(error.code, error.message)

    def optimize(self, kind: OptimizingType) -> OptimizingProcess:
        """Plan, rewrite and commit."""
        process_id = self.plan(kind)
        assert self.execute() == []
        self.commit(process_id)
        return self.process(process_id)

    def commit(self, process_id: str) -> ProcessStatus:
        """What the coordinator's loop does once: errors mean that it is tried again later."""
        return self.committing.commit(process_id)

    def process(self, process_id: str) -> OptimizingProcess:
        return self.store.read(lambda db: processes.get(db, process_id))

    def attempts(self, process_id: str) -> tuple[CommitAttempt, ...]:
        return tuple(self.store.read(lambda db: commits.list_for_process(db, process_id)))

    def runtime(self) -> TableRuntime:
        return self.store.read(lambda db: _found(tables.find(db, TABLE)))

    def outputs(self, process_id: str) -> dict[int, tuple[str, ...]]:
        """The files that each task's counted result names, by the task's number."""

        def read(task_id: TaskId) -> tuple[str, ...]:
            stored = self.store.read(lambda db: tasks.read_output(db, task_id))
            if stored is None:
                return ()
            output = codec.decode_output(pb.RewriteOutput.FromString(stored[1]))
            return (*(file.path for file in output.data_files), *(file.path for file in output.delete_files))

        listed = self.store.read(lambda db: tasks.list_for_process(db, process_id))
        return {task.task_id.number: read(task.task_id) for task in listed}

    def _clean_up(self, process_id: str) -> None:
        self.clearing.clean_up(process_id)

    def _find(self, name: str) -> CatalogConfig:
        assert name == self._catalog.name
        return self._catalog


def _found(runtime: TableRuntime | None) -> TableRuntime:
    assert runtime is not None
    return runtime


def now() -> datetime:
    """The wall clock in whole milliseconds."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
