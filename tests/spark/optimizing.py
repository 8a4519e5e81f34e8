"""Our services on a catalog that Spark shares, and what Iceberg's Java runtime says of its table afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amoro_core.model.clustering import CLUSTER, ClusterOptions
from amoro_core.model.processes import ProcessStatus, Receipt
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import WorkResult
from amoro_core.services.task_lifecycle import ScheduledTask
from tests.services.clustered import clusterer, commit_due, ordered
from tests.services.world import World

from .matching import assert_deletes_match_as_in_java
from .session import SharedCatalog
from .tables import Rows, frozen

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


@dataclass(frozen=True, slots=True)
class Services:
    """A coordinator's services, without threads, and the table `db.t` of a catalog that they share with Spark."""

    world: World
    catalog: SharedCatalog

    @property
    def spark(self) -> SparkSession:
        return self.catalog.spark

    @property
    def table(self) -> str:
        """The table's full name."""
        return self.catalog.table

    def sql(self, statement: str) -> list[Row]:
        return self.spark.sql(statement).collect()

    def rows(self, snapshot_id: int | None = None) -> Rows:
        """The rows of the head, or of one snapshot, in the order of the columns, as Spark reads them."""
        version = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"
        return Counter(tuple(map(frozen, row)) for row in self.sql(f"SELECT * FROM {self.table}{version}"))

    def counts(self) -> Counter[tuple[int, int]]:
        """How many live files of each content and spec id the head has, from Iceberg's metadata table."""
        return Counter(map(tuple, self.sql(f"SELECT content, spec_id FROM {self.table}.files")))

    def formats(self) -> set[tuple[int, str]]:
        """Content and format of the live files."""
        return set(map(tuple, self.sql(f"SELECT DISTINCT content, lower(file_format) FROM {self.table}.files")))

    def paths(self) -> set[str]:
        """The live data files."""
        return {one.file_path for one in self.sql(f"SELECT file_path FROM {self.table}.data_files")}

    def snapshots(self) -> list[Row]:
        """The table's snapshots as Iceberg's metadata table lists them, oldest first."""
        return self.sql(f"SELECT * FROM {self.table}.snapshots ORDER BY committed_at")

    def require(self, rows: Rows, files: dict[tuple[int, int], int] | None = None) -> None:
        """Fail unless Spark reads these rows, Java plans the deletes that we do, and these are the live files."""
        assert self.rows() == rows
        assert_deletes_match_as_in_java(self.catalog, self.table)
        assert files is None or self.counts() == files

    def begin(self, kind: OptimizingType) -> str:
        """Plan a process that somebody asked for, run its tasks, and leave it before its commit."""
        return self.world.begin_and_run(kind, self.table)

    def finish(self, process_id: str) -> None:
        """Commit the process as a whole; fails the test when anything is left out."""
        assert self.world.committing.commit(process_id) is ProcessStatus.SUCCESS, self.world.process(process_id).failure

    def rewrite(self, kind: OptimizingType) -> Receipt:
        """Plan, run and commit."""
        process_id = self.begin(kind)
        self.finish(process_id)
        return self.world.receipt(process_id)

    def maintain(self, action: str) -> str:
        """Do the action at once, whatever a breaker says; the process's id."""
        process_id = self.world.begin_action(action, self.table, confirmed=True)
        self.finish(process_id)
        return process_id

    def undo(self, process_id: str) -> None:
        self.finish(self.world.maintaining.undo(process_id).process_id)

    def has_nothing_to_do(self, kind: OptimizingType) -> bool:
        """Whether an explicit request for that kind of optimizing finds nothing to gain."""
        table_id = self.world.table(self.table).table_id
        return self.world.planning.begin(table_id, trigger="request", requested=kind).process_id is None

    def optimize(self, kind: OptimizingType) -> Receipt:
        """Optimize once. Fails the test unless the commit is one snapshot, a REPLACE that names the process, files are
        fewer where any was rewritten, and Spark reads the same rows and plans the same deletes.
        """
        rows, earlier, files = self.rows(), self.snapshots(), self.counts()
        assert_deletes_match_as_in_java(self.catalog, self.table)
        process_id = self.begin(kind)
        self.finish(process_id)
        receipt = self.world.receipt(process_id)

        *same, made = self.snapshots()
        assert same == earlier
        assert (made.snapshot_id, made.parent_id) == (receipt.snapshot_id, earlier[-1].snapshot_id)
        assert made.operation == "replace"
        assert (made.summary["amoro.process-id"], made.summary["amoro.optimizing-type"]) == (process_id, kind.value)
        assert receipt.data_files_before == 0 or sum(self.counts().values()) < sum(files.values())
        self.require(rows)
        assert receipt.rows_before == receipt.rows_after
        return receipt

    def cluster(
        self,
        asked: ClusterOptions,
        after_task: Callable[[], object] = lambda: None,
        work: Callable[[ScheduledTask], WorkResult] = ordered,
    ) -> str:
        """Cluster the table until its process, whose id is returned, has succeeded; `after_task` is before commits."""
        world = self.world
        table_id, optimizer = world.table(self.table).table_id, clusterer(world)
        process_id = world.maintaining.begin(table_id, CLUSTER, trigger="request", cluster=asked).process_id
        while handed := world.poll(optimizer):
            assert world.optimizing.ack(optimizer, [handed[0].attempt]) != [None]
            assert world.optimizing.complete(optimizer, handed[0].attempt, work(handed[0]))
            after_task()
            commit_due(world, process_id)
        assert world.status(process_id) is ProcessStatus.SUCCESS, world.process(process_id).failure
        return process_id

    def rewrite_by_spark(self) -> None:
        """Let Iceberg's own procedure write every file anew."""
        self.call("rewrite_data_files", "options => map('rewrite-all', 'true')")

    def call(self, procedure: str, *more: str) -> list[Row]:
        """Let Iceberg's own procedure do it to the table."""
        given = ", ".join(["table => 'db.t'", *more])
        return self.sql(f"CALL {self.catalog.name}.system.{procedure}({given})")


@contextmanager
def services_on(catalog: SharedCatalog, home: Path) -> Iterator[Services]:
    """Open services on a new state directory; they are closed at the end."""
    home.mkdir()
    with closing(World(home, catalog.pyiceberg, config=catalog.config)) as world:
        yield Services(world, catalog)
