"""A coordinator's services over a real store and real tables, without threads, and with a clock that is set by hand."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import Table

from amoro_core.actions.action_api import Action
from amoro_core.actions.registry import Actions
from amoro_core.bootstrap.composition import CoordinatorHooks, Dependencies, Services
from amoro_core.bootstrap.settings import Settings
from amoro_core.containers.base import Container, ExternalContainer
from amoro_core.files.storage.io import open_access
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.tables import Formats
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model import metrics
from amoro_core.model.group_config import EXTERNAL
from amoro_core.model.listeners import Listener
from amoro_core.model.maintenance import Options
from amoro_core.model.processes import (
    Attempt,
    CatalogConfig,
    CommitAttempt,
    CommitOutcome,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    Receipt,
)
from amoro_core.model.tables import OptimizingType, TableRuntime, parse_table
from amoro_core.model.task_payload import RewriteOutput
from amoro_core.notifier import Changes
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb
from amoro_core.scheduling.policy import POLICIES
from amoro_core.services.listeners import Receive
from amoro_core.store import pending_deletions, processes, tasks
from amoro_core.store.connection import Connection
from amoro_core.store.pending_deletions import BatchStatus
from amoro_core.transactions.process_context import Pins, pins
from amoro_core.transactions.task_queue import ScheduledTask
from amoro_core.transactions.task_reports import Failure
from amoro_optimizer.rewrite.engine import rewrite
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.rigs import RiggedIceberg
from tests.store.builders import open_store
from tests.work import as_result, rewrite_input

SETTINGS = replace(Settings(), heartbeat_timeout=timedelta(seconds=60), blocker_timeout=timedelta(minutes=1))
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def make_small_files(
    catalog: Catalog,
    count: int = 3,
    properties: Mapping[str, str] | None = None,
    *,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    name: str = "db.t",
) -> Table:
    """A new table of so many files with a row each, all in partition a if there are any."""
    table = writer.make_table(catalog, name, SCHEMA, spec, properties=properties)
    for number in range(count):
        writer.append(table, [row(number)])
    return table


def make_two_partitions(catalog: Catalog, properties: Mapping[str, str] | None = None, count: int = 4) -> Table:
    """A new table db.t of so many files with a row each in each of the partitions a and b."""
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART, properties=properties)
    for number in range(count):
        writer.append(table, [row(number, "a"), row(number + 100, "b")])
    return table


class Heard(Changes):
    """What the services signalled, in order, and how often something changed."""

    def __init__(self) -> None:
        super().__init__()
        self.commits, self.left_over, self.changes = list[str](), list[str](), 0

    def fire(self) -> None:
        self.changes += 1


class World:
    """Services on one state directory; `restart` makes them anew on the same store's file."""

    def __init__(
        self,
        home: Path,
        catalog: SqlCatalog | RestCatalog,
        more_actions: tuple[Action, ...] = (),
        config: CatalogConfig | None = None,
        iceberg: Callable[[Path], IcebergFormat] | None = None,
    ) -> None:
        """The services reach the catalog by `config`, without one as the catalog itself does.

        `iceberg` makes, for that state directory, the format that reads the tables; without it nothing is remembered.
        """
        self.more_actions = more_actions
        self._plain_iceberg = iceberg or (lambda home: IcebergFormat())
        self.iceberg = RiggedIceberg()
        self.home = home
        self.catalog = catalog
        self.now = START
        self.seconds = 1000.0
        self.listeners: dict[Listener, Receive] = {}
        self.files_copied = 0  # by all tasks that were executed here
        self.heard = Heard()
        self.containers: dict[str, Container] = {EXTERNAL: ExternalContainer(home)}
        self._open()
        self.catalogs.add(config or CatalogConfig("cat", tuple({**catalog.properties, "type": "sql"}.items())))

    def _open(self) -> None:
        self.store = open_store(self.home / "amoro.db")
        self.iceberg.plain = self._plain_iceberg(self.home)
        self.formats = Formats([self.iceberg])
        parts = Dependencies(
            self.formats,
            self.containers,
            POLICIES,
            list,
            Actions(self.more_actions),
            clock=lambda: self.now,
            monotonic=lambda: self.seconds,
            work=Changes(),
            changes=self.heard,
            listeners=self.listeners,
        )
        around = CoordinatorHooks(
            lambda: "here:1", lambda: "here:1", self._commit_due, self._left_over, look=self._look
        )
        self.services = Services(self.store, self.home, SETTINGS, {}, around, parts)

    def __getattr__(self, name: str) -> Any:
        """A service by its name."""
        return getattr(self.services, name)

    def close(self) -> None:
        self.services.change_notifications.stop()
        self.store.close()
        close_catalogs()

    def restart(self) -> None:
        """As after a kill: nothing of memory is left."""
        self.services.change_notifications.stop()
        self.store.close()
        self.heard = Heard()
        self._open()
        self.optimizing.recover()

    @property
    def guard_hits(self) -> float:
        """How many condemned files the guards found to be needed."""
        return next((one.value for one in self.meters.samples() if one.name == metrics.GUARD_HITS.name), 0.0)

    def pinned(self, table_id: int) -> Pins:
        """What active processes of the table need."""
        return self.store.read(lambda db: pins(db, table_id, self.services.actions.of))

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds

    def table(self, name: str = "cat.db.t") -> TableRuntime:
        """The table as it is kept now."""
        return self.tables.ensure(parse_table(name))

    def refresh(self, name: str = "cat.db.t") -> TableRuntime:
        """The table, loaded and evaluated now; fails the test when it is gone."""
        runtime = self.tables.refresh(self.table(name).table_id)
        assert runtime is not None
        return runtime

    def table_head(self, name: str = "cat.db.t") -> int:
        """The snapshot that is the table's head now."""
        head = self.catalog.load_table(name.removeprefix("cat.")).metadata.current_snapshot_id
        assert head is not None
        return head

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table db.t, as its owner does."""
        with self.catalog.load_table("db.t").transaction() as change:
            change.set_properties(dict(properties))

    def refresh_with(self, properties: Mapping[str, str]) -> TableRuntime:
        """The table db.t, whose owner sets properties, loaded and evaluated then."""
        self.set_properties(properties)
        return self.refresh()

    def begin_action(self, action: str, name: str = "cat.db.t", **options: object) -> str:
        """Begin a process of the action as if somebody asked for it; fails the test when there is nothing to do."""
        asked = replace(Options(), **options)
        begun = self.maintaining.begin(self.table(name).table_id, action, trigger="request", options=asked)
        assert begun.process_id, begun.reason
        return begun.process_id

    def run(self, action: str, name: str = "cat.db.t") -> str:
        """A process of the action, as if somebody asked for it, to its end; where it stands then."""
        return self.committing.commit(self.begin_action(action, name))

    def done(self, action: str, **options: object) -> str:
        """A process of the action that has ended with success."""
        process_id = self.begin_action(action, **options)
        assert self.committing.commit(process_id) is ProcessStatus.SUCCESS, self.process(process_id).failure
        return process_id

    def confirm(self, action: str, name: str = "cat.db.t") -> str:
        """Let a held process of the action go on, to its end; where it stands then."""
        options = Options(confirmed=True)
        begun = self.maintaining.begin(self.table(name).table_id, action, trigger="request", options=options)
        return self.committing.commit(begun.process_id)

    def begin(
        self, kind: OptimizingType | None = None, name: str = "cat.db.t", force: bool = False, where: str = ""
    ) -> str:
        """Plan a process as if somebody asked for it; fails the test when there is nothing to do."""
        table_id = self.table(name).table_id
        begun = self.planning.begin(table_id, trigger="request", requested=kind, force=force, where=where)
        assert begun.process_id is not None, begun.evaluation.reason
        return begun.process_id

    def begin_and_run(self, kind: OptimizingType | None = None, name: str = "cat.db.t", force: bool = False) -> str:
        """Plan a process, and run its tasks: it is at its commit."""
        process_id = self.begin(kind, name, force)
        self.run_all(process_id)
        return process_id

    def commit_unknown(self, process_id: str, *, arrives: bool) -> None:
        """Commit while nobody hears of what is sent, whether it lands or not; afterwards everything works again."""
        self.iceberg.lose_answers(arrives=arrives)
        assert self.committing.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
        self.iceberg.restore()

    def take(self, optimizer: str) -> ScheduledTask:
        """The next task of an optimizer, acknowledged."""
        (handed,) = self.poll(optimizer)
        self.optimizing.ack(optimizer, [handed.attempt])
        return handed

    def optimizer(self, threads: int = 2, **more: object) -> str:
        """Register an optimizer, of the default group unless another is named."""
        usual = {"group": "default", "memory_bytes": 1, "labels": {}, "heartbeat_interval": timedelta(seconds=10)}
        return self.optimizers.register(threads=threads, **{**usual, **more}).optimizer.optimizer_id

    def poll(self, optimizer: str, *threads: int) -> list[ScheduledTask]:
        return self.optimizing.poll(optimizer, "default", threads or (1,))

    def execute(self, handed: ScheduledTask) -> RewriteOutput:
        """Do the rewriting of a handed task, as an optimizer does."""
        work = rewrite_input(handed.work)
        access = open_access(
            self.catalog.properties,
            work.table.location,
            read_locations=work.table.read_locations,
            write_locations=(work.table.location, work.table.data_location),
        )
        output = rewrite(
            work,
            access,
            handed.attempt,
            on_progress=lambda done, total: None,
            is_cancelled=lambda: False,
            memory_limit_bytes=512 * 1024 * 1024,
        )
        self.files_copied += output.files_copied
        return output

    def complete(self, optimizer: str, attempt: Attempt, result: RewriteOutput | Failure) -> bool:
        """Report what came of an attempt."""
        return self.optimizing.complete(optimizer, attempt, as_result(result))

    def run_one(self, optimizer: str, result: RewriteOutput | Failure | None = None) -> ScheduledTask:
        """Poll, acknowledge, execute and complete one task."""
        (handed,) = self.poll(optimizer)
        assert self.optimizing.ack(optimizer, [handed.attempt]) != [None]
        assert self.complete(optimizer, handed.attempt, result or self.execute(handed))
        return handed

    def run_all(self, process_id: str, optimizer: str | None = None) -> None:
        """Run every task of a process and leave it at its commit."""
        optimizer_id = optimizer or self.optimizer()
        while self.status(process_id) is ProcessStatus.RUNNING:
            self.run_one(optimizer_id)

    def optimize(self, kind: OptimizingType | None = None, name: str = "cat.db.t") -> ProcessStatus:
        """Plan, run and commit."""
        return self.committing.commit(self.begin_and_run(kind, name))

    def optimized(self, kind: OptimizingType = OptimizingType.FULL, force: bool = False) -> str:
        """A process that was planned, run and committed with success."""
        process_id = self.begin_and_run(kind, force=force)
        assert self.committing.commit(process_id) is ProcessStatus.SUCCESS, self.process(process_id).failure
        return process_id

    def condemned(self, process_id: str = "", statuses: Sequence[BatchStatus] = tuple(BatchStatus)) -> list[str]:
        """The paths of the files of db.t that were condemned, by the process where one is given."""
        table_id = self.table().table_id

        def read(db: Connection) -> list[str]:
            facts = pending_deletions.list_facts(db, table_id, process_id, statuses)
            batches = [pending_deletions.get(db, one.batch_id) for one in facts]
            return [file.path for batch in batches if batch is not None for file in batch.files]

        return self.store.read(read)

    def commits(self, process_id: str) -> tuple[CommitAttempt, ...]:
        """Its attempts to commit."""
        return tuple(self.store.read(lambda db: processes.list_commits(db, process_id)))

    def outcomes(self, process_id: str) -> list[CommitOutcome]:
        return [attempt.outcome for attempt in self.commits(process_id)]

    def snapshots_of(self, process_id: str) -> int:
        """How many snapshots of db.t name the process."""
        snapshots = self.catalog.load_table("db.t").metadata.snapshots
        return sum(one.summary is not None and one.summary.get("amoro.process-id") == process_id for one in snapshots)

    def rows(self) -> Counter[object]:
        """The live rows of the table db.t."""
        return oracle.live_rows(self.catalog.load_table("db.t"))

    def process(self, process_id: str) -> OptimizingProcess:
        return self.optimizing.find_process(process_id).process

    def receipt(self, process_id: str) -> Receipt:
        receipt = self.process(process_id).receipt
        assert receipt is not None
        return receipt

    def status(self, process_id: str) -> ProcessStatus:
        return self.process(process_id).status

    def tasks(self, process_id: str) -> tuple[OptimizingTask, ...]:
        return self.optimizing.find_process(process_id).tasks

    def output_of(self, task: OptimizingTask) -> RewriteOutput:
        """The result of a completed task."""
        output = self.output(Attempt(task.task_id, task.attempt))
        assert output is not None
        return output

    def output(self, attempt: Attempt) -> RewriteOutput | None:
        stored = self.store.read(lambda db: tasks.read_output(db, attempt.task_id))
        return None if stored is None else codec.decode(RewriteOutput, pb.RewriteOutput.FromString(stored[1]))

    def _commit_due(self, process_id: str, catalog: str) -> None:
        assert catalog == self.catalog.name
        self.heard.commits.append(process_id)

    def _look(self, table_id: int, catalog: str) -> bool:
        assert catalog == self.catalog.name
        self.tables.refresh(table_id)
        self.starting.check_files(table_id)
        self.services.change_notifications.refreshed(table_id)
        return True

    def _left_over(self, process_id: str, catalog: str) -> None:
        assert catalog == self.catalog.name
        self.heard.left_over.append(process_id)
