"""A coordinator's services over a real store and real tables, without threads, and with a clock that is set by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions.known import Actions
from amoro_core.files.io import open_access
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.tables import Formats, Tables
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.model.processes import Attempt, CatalogConfig, OptimizingTask, ProcessStatus
from amoro_core.model.rewrite import RewriteOutput
from amoro_core.model.secrets import masked
from amoro_core.model.tables import OptimizingType, TableRuntime, parse_table
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb
from amoro_core.services.blockers import BlockerService
from amoro_core.services.catalogs import CatalogService
from amoro_core.services.committing import CommittingService
from amoro_core.services.groups import GroupService
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.optimizing import Failure, HandedTask, OptimizingService, Signals
from amoro_core.services.planning import PlanningService
from amoro_core.services.tables import TableService
from amoro_core.store import tables, tasks
from amoro_core.store.database import Store
from amoro_optimizer.rewrite.engine import rewrite
from tests.work import as_result, rewrite_input

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Heard:
    """What the services signalled, in order."""

    work: int = 0
    commits: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    changes: int = 0


class World:
    """Services on one state directory; `restart` makes them anew on the same store's file."""

    def __init__(self, home: Path, catalog: SqlCatalog) -> None:
        self.home = home
        self.catalog = catalog
        self.now = START
        self.seconds = 1000.0
        self.heard = Heard()
        self._open()
        self.catalogs.add(CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items())))

    def _open(self) -> None:
        self.store = Store.open(self.home / "amoro.db")
        formats = self.formats = Formats([IcebergFormat()])
        clock: Callable[[], datetime] = lambda: self.now  # noqa: E731
        self.catalogs = CatalogService(self.store, formats, list, masked)
        known = lambda name: self.store.read(lambda db: tables.find(db, name))  # noqa: E731
        tables_of = self.tables_of = Tables(formats, self.catalogs.get, known)
        self.tables = TableService(self.store, tables_of, clock)
        signals = Signals(self._work, self._commit_due, self._left_over, self._changed)
        self.planning = PlanningService(
            self.store, tables_of, Actions().of, clock, work_planned=self._work, changed=self._changed
        )
        self.optimizing = OptimizingService(self.store, tables_of, clock, signals)
        self.optimizers = OptimizerService(
            self.store, clock, lambda: self.seconds, self.optimizing.adopt, timedelta(seconds=60)
        )
        self.groups = GroupService(self.store, clock)
        self.blockers = BlockerService(self.store, clock, timedelta(minutes=1))
        self.committing = CommittingService(self.store, tables_of, Actions().of, clock, self._changed)

    def close(self) -> None:
        self.store.close()
        close_catalogs()

    def restart(self) -> None:
        """As after a kill: nothing of memory is left."""
        self.store.close()
        self.heard = Heard()
        self._open()
        self.optimizing.recover()

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds

    def table(self, name: str = "cat.db.t") -> TableRuntime:
        """The table as it is kept now."""
        return self.tables.ensure(parse_table(name))

    def begin(self, kind: OptimizingType | None = None, name: str = "cat.db.t", force: bool = False) -> str:
        """Plan a process as if somebody asked for it; fails the test when there is nothing to do."""
        begun = self.planning.begin(self.table(name).table_id, trigger="request", requested=kind, force=force)
        assert begun.process_id is not None, begun.evaluation.reason
        return begun.process_id

    def optimizer(self, threads: int = 2, **more: object) -> str:
        """Register an optimizer of the default group."""
        registered = self.optimizers.register(
            group="default",
            threads=threads,
            labels={},
            heartbeat_interval=timedelta(seconds=10),
            **{"memory_bytes": 1, **more},  # type: ignore[arg-type]
        )
        return registered.optimizer.optimizer_id

    def poll(self, optimizer: str, *threads: int) -> list[HandedTask]:
        return self.optimizing.poll(optimizer, "default", threads or (1,))

    def execute(self, handed: HandedTask) -> RewriteOutput:
        """Do the rewriting of a handed task, as an optimizer does."""
        work = rewrite_input(handed.work)
        access = open_access(
            {},
            work.table.location,
            read_locations=work.table.read_locations,
            write_locations=(work.table.location, work.table.data_location),
        )
        return rewrite(
            work,
            access,
            handed.attempt,
            on_progress=lambda done, total: None,
            is_cancelled=lambda: False,
            memory_limit_bytes=512 * 1024 * 1024,
        )

    def complete(self, optimizer: str, attempt: Attempt, result: RewriteOutput | Failure) -> bool:
        """Report what came of an attempt."""
        return self.optimizing.complete(optimizer, attempt, as_result(result))

    def run_one(self, optimizer: str, result: RewriteOutput | Failure | None = None) -> HandedTask:
        """Poll, acknowledge, execute and complete one task."""
        (handed,) = self.poll(optimizer)
        assert self.optimizing.ack(optimizer, [handed.attempt]) != [None]
        assert self.complete(optimizer, handed.attempt, result or self.execute(handed))
        return handed

    def run_all(self, process_id: str, optimizer: str | None = None) -> None:
        """Run every task of a process and leave it at its commit."""
        hands = optimizer or self.optimizer()
        while self.status(process_id) is ProcessStatus.RUNNING:
            self.run_one(hands)

    def optimize(self, kind: OptimizingType | None = None, name: str = "cat.db.t") -> ProcessStatus:
        """Plan, run and commit."""
        process_id = self.begin(kind, name)
        self.run_all(process_id)
        return self.committing.commit(process_id)

    def status(self, process_id: str) -> ProcessStatus:
        return self.optimizing.find_process(process_id).process.status

    def tasks(self, process_id: str) -> tuple[OptimizingTask, ...]:
        return self.optimizing.find_process(process_id).tasks

    def output_of(self, task: OptimizingTask) -> RewriteOutput:
        """The result of a completed task."""
        output = self.output(Attempt(task.task_id, task.attempt))
        assert output is not None
        return output

    def output(self, attempt: Attempt) -> RewriteOutput | None:
        stored = self.store.read(lambda db: tasks.read_output(db, attempt.task_id))
        return None if stored is None else codec.decode_output(pb.RewriteOutput.FromString(stored[1]))

    def _work(self) -> None:
        self.heard.work += 1

    def _commit_due(self, process_id: str, catalog: str) -> None:
        assert catalog == self.catalog.name
        self.heard.commits.append(process_id)

    def _left_over(self, process_id: str, catalog: str) -> None:
        assert catalog == self.catalog.name
        self.heard.left_over.append(process_id)

    def _changed(self) -> None:
        self.heard.changes += 1
