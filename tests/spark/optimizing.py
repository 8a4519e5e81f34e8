"""Our services on a catalog that Spark shares, and what Iceberg's Java runtime says of the tables afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amoro_core.model.clustering import CLUSTER, ClusterOptions
from amoro_core.model.processes import CatalogConfig, ProcessStatus, Receipt
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import WorkResult
from amoro_core.services.task_lifecycle import ScheduledTask
from tests.services.clustered import clusterer, commit_due, ordered
from tests.services.world import World

from .matching import assert_deletes_match_as_in_java
from .session import SharedCatalog
from .tables import file_counts, spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class JavaSnapshot:
    """A snapshot as Iceberg's metadata table lists it."""

    snapshot_id: int
    parent_id: int | None
    operation: str
    summary: dict[str, str]


@dataclass(frozen=True, slots=True)
class Services:
    """A coordinator's services, without threads, that know the shared catalog by its own name."""

    world: World
    catalog: SharedCatalog

    def begin(self, table: str, kind: OptimizingType) -> str:
        """Plan a process that somebody asked for, run its tasks, and leave it before its commit."""
        process_id = self.world.begin(kind, table)
        self.world.run_all(process_id)
        return process_id

    def finish(self, process_id: str) -> Receipt:
        """Commit the process as a whole; fails the test when anything is left out."""
        status = self.world.committing.commit(process_id)
        process = self.world.optimizing.find_process(process_id).process
        assert status is ProcessStatus.SUCCESS, process.failure
        assert process.receipt is not None
        return process.receipt

    def has_nothing_to_do(self, table: str, kind: OptimizingType) -> bool:
        """Whether an explicit request for that kind of optimizing finds nothing to gain."""
        table_id = self.world.table(table).table_id
        return self.world.planning.begin(table_id, trigger="request", requested=kind).process_id is None

    def optimize(self, table: str, kind: OptimizingType) -> Receipt:
        """Optimize once. Fails the test unless the commit is one snapshot, a REPLACE that names the process, files are
        fewer where any was rewritten, and Spark reads the same rows and plans the same deletes.
        """
        spark = self.catalog.spark
        rows, earlier, files = spark_rows(spark, table), snapshots(spark, table), file_counts(spark, table)
        assert_deletes_match_as_in_java(self.catalog, table)
        process_id = self.begin(table, kind)
        receipt = self.finish(process_id)

        *same, made = snapshots(spark, table)
        assert same == earlier
        assert (made.snapshot_id, made.parent_id) == (receipt.snapshot_id, earlier[-1].snapshot_id)
        assert made.operation == "replace"
        assert (made.summary["amoro.process-id"], made.summary["amoro.optimizing-type"]) == (process_id, kind.value)
        assert receipt.data_files_before == 0 or file_counts(spark, table).total() < files.total()
        assert_deletes_match_as_in_java(self.catalog, table)
        assert spark_rows(spark, table) == rows
        assert receipt.rows_before == receipt.rows_after
        return receipt


@contextmanager
def services_on(catalog: SharedCatalog, home: Path) -> Iterator[Services]:
    """Open services on a new state directory; they are closed at the end."""
    home.mkdir()
    config = CatalogConfig(catalog.name, tuple(catalog.properties.items()))
    world = World(home, catalog.pyiceberg, config=config if catalog.server else None)
    try:
        if not catalog.server:
            world.catalogs.add(config)
        yield Services(world, catalog)
    finally:
        world.close()


def snapshots(spark: SparkSession, table: str) -> list[JavaSnapshot]:
    """The table's snapshots, oldest first."""
    listed = spark.sql(f"SELECT * FROM {table}.snapshots ORDER BY committed_at").collect()
    return [JavaSnapshot(one.snapshot_id, one.parent_id, one.operation, dict(one.summary)) for one in listed]


def rewrite_all(spark: SparkSession, table: str) -> None:
    """Let Iceberg's own procedure write every file anew."""
    catalog, name = table.split(".", 1)
    spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    ).collect()


def cluster_table(
    services: Services,
    table: str,
    asked: ClusterOptions,
    after_task: Callable[[], object] = lambda: None,
    work: Callable[[ScheduledTask], WorkResult] = ordered,
) -> str:
    """Cluster the table until its process, whose id is returned, has succeeded; `after_task` comes before commits."""
    world = services.world
    table_id = world.table(table).table_id
    process_id = world.maintaining.begin(table_id, CLUSTER, trigger="request", cluster=asked).process_id
    optimizer = clusterer(world)
    while handed := world.poll(optimizer):
        assert world.optimizing.ack(optimizer, [handed[0].attempt]) != [None]
        assert world.optimizing.complete(optimizer, handed[0].attempt, work(handed[0]))
        after_task()
        commit_due(world, process_id)
    process = world.optimizing.find_process(process_id).process
    assert process.status is ProcessStatus.SUCCESS, process.failure
    return process_id
