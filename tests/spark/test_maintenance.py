"""Maintenance beside Iceberg's Java runtime: manifests, data that expires, dangling deletes, orphans, tags, sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, NestedField

from amoro_core.model.maintenance import Options
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from tests.engine import writer
from tests.iceberg import random_sweeps
from tests.iceberg import test_orphans as orphans
from tests.iceberg.orphan_tables import NOW, Site, make_site, place_of

from .java import java_upsert, load_java_table
from .matching import assert_deletes_match_as_in_java
from .optimizing import Services, rewrite_all, snapshots
from .session import SharedCatalog
from .tables import (
    DATA,
    EQUALITY_DELETES,
    MERGE_ON_READ,
    POSITION_DELETES,
    Rows,
    delete_notes,
    file_counts,
    frozen,
    make_notes,
    notes,
    notes_without,
    spark_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PARTITIONS, APPENDS = 200, 3
BY_PART = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
PARTS = Schema(
    NestedField(1, "part", IntegerType(), required=False), NestedField(2, "id", IntegerType(), required=False)
)


def maintain(services: Services, table: str, action: str) -> str:
    """Do the action at once, whatever a breaker says; returns the process's id."""
    world = services.world
    confirmed = Options(confirmed=True)
    begun = world.maintaining.begin(world.table(table).table_id, action, trigger="request", options=confirmed)
    assert begun.process_id, begun.reason
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    return begun.process_id


def entries(spark: SparkSession, table: str) -> Counter[Any]:
    """What the live entries say but whether they are new, as Java reads them, each as often as it stands there."""
    listed = spark.sql(f"SELECT * FROM {table}.entries WHERE status < 2").collect()
    return Counter(
        (one.snapshot_id, one.sequence_number, one.file_sequence_number, frozen(one.data_file)) for one in listed
    )


def planned(catalog: SharedCatalog, table: str, part: int) -> tuple[int, int, int]:
    """How many manifests of data Java opens and passes over for one partition, and how many files it plans to read."""
    java = load_java_table(catalog.spark, catalog.name, table.removeprefix(f"{catalog.name}."))
    reporter = java.iceberg.metrics.InMemoryMetricsReporter()
    where = java.iceberg.expressions.Expressions.equal("part", part)
    tasks = java.table.newScan().metricsReporter(reporter).filter(where).planFiles()
    files = sum(1 for _ in _each(tasks.iterator()))
    tasks.close()
    seen = reporter.scanReport().scanMetrics()
    return seen.scannedDataManifests().value(), seen.skippedDataManifests().value(), files


def _each(iterator: Any) -> Any:
    while iterator.hasNext():
        yield iterator.next()


def test_after_clustering_java_plans_one_partition_from_a_tenth_of_the_manifests_and_all_entries_are_equal(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = catalog.full_name("db.parts")
    made = writer.make_table(catalog.pyiceberg, "db.parts", PARTS, BY_PART)
    for number in range(APPENDS):
        writer.append(made, [{"part": part, "id": number * PARTITIONS + part} for part in range(PARTITIONS)])
    deleted = [{"part": part, "id": part} for part in (7, 8)]
    java_upsert(spark, catalog.name, "db.parts", ["part", "id"], deleted, [])
    rows, before = spark_rows(spark, table), entries(spark, table)
    assert planned(catalog, table, 7) == (APPENDS, 0, APPENDS)
    size = sum(one.length for one in spark.sql(f"SELECT length FROM {table}.manifests WHERE content = 0").collect())
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('commit.manifest.target-size-bytes' = '{size // 20}')")

    process_id = maintain(services, table, "rewrite-manifests")
    assert entries(spark, table) == before
    assert spark_rows(spark, table) == rows
    assert_deletes_match_as_in_java(catalog, table)
    opened, skipped, files = planned(catalog, table, 7)
    assert files == APPENDS
    assert opened + skipped >= 20
    assert opened * 10 <= opened + skipped
    head = snapshots(spark, table)[-1]
    assert (head.operation, head.summary["amoro.process-id"]) == ("replace", process_id)
    assert int(head.summary["manifests-created"]) + int(head.summary["manifests-kept"]) == opened + skipped + 1

    # Java merges, filters and rewrites what we have written.
    spark.sql(f"DELETE FROM {table} WHERE part = 7")
    spark.sql(f"INSERT INTO {table} VALUES (8, 8)")
    expected = Rows({one: count for one, count in rows.items() if one[0] != 7}) + Rows([(8, 8)])
    spark.sql(f"CALL {catalog.name}.system.rewrite_manifests('db.parts')").collect()
    assert spark_rows(spark, table) == expected
    assert_deletes_match_as_in_java(catalog, table)


def test_clustered_manifests_keep_the_numbers_by_which_java_drops_old_deletes(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    """A commit of Java leaves out deletes below the least number that the manifests of data state."""
    table = make_notes(catalog, properties=MERGE_ON_READ)
    delete_notes(catalog, table, 4)
    maintain(services, table, "rewrite-manifests")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    spark.sql(f"DELETE FROM {table} WHERE id = 15")
    assert file_counts(spark, table) == {(DATA, 0): 3, (EQUALITY_DELETES, 0): 1}
    assert spark_rows(spark, table) == notes_without(30, 4, 15)
    assert_deletes_match_as_in_java(catalog, table)


def test_java_reads_and_goes_on_with_a_table_whose_data_expired(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table, today = catalog.full_name("db.events"), datetime.now(UTC).date()
    old, young = today - timedelta(days=90), today
    expiry = "'data-expire.field' = 'at', 'data-expire.retention-time' = '30d'"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, at TIMESTAMP) USING iceberg PARTITIONED BY (days(at)) "
        f"TBLPROPERTIES ({MERGE_ON_READ}, {expiry})"
    )
    for first in (0, 100):
        some = "SELECT /*+ COALESCE(1) */ id, TIMESTAMP '{day} 12:00:00' FROM range({start}, {end})"
        spark.sql(f"INSERT INTO {table} {some.format(day=old, start=first, end=first + 10)}")
        spark.sql(f"INSERT INTO {table} {some.format(day=young, start=first + 50, end=first + 60)}")
    spark.sql(f"DELETE FROM {table} WHERE id IN (1, 51)")
    spark.sql(f"DELETE FROM {table} WHERE id IN (2, 103)")
    rows = spark_rows(spark, table)
    assert len(rows) == 36
    services.world.now = datetime.now(UTC)

    maintain(services, table, "expire-data")
    kept = Rows({one: count for one, count in rows.items() if str(one[1]) >= str(young)})
    assert len(kept) == 19
    assert spark_rows(spark, table) == kept
    counts = file_counts(spark, table)
    assert (counts[(DATA, 0)], counts[(POSITION_DELETES, 0)]) == (2, 1)
    assert_deletes_match_as_in_java(catalog, table)
    *_, base, made = snapshots(spark, table)
    assert (made.operation, made.parent_id, made.summary["snapshot.producer"]) == (
        "delete", base.snapshot_id, "DATA_EXPIRATION",
    )  # fmt: skip
    assert made.summary["total-records"] == "20"
    assert spark_rows(spark, table, base.snapshot_id) == rows  # until the snapshot is expired

    spark.sql(f"DELETE FROM {table} WHERE id = 52")
    spark.sql(f"INSERT INTO {table} VALUES (1, TIMESTAMP '{young} 13:00:00')")
    rewrite_all(spark, table)
    assert sorted(one[0] for one in spark_rows(spark, table)) == sorted([1, 50, *range(53, 60), *range(150, 160)])


def test_java_reads_the_same_rows_without_the_deletes_that_dangled(
    spark: SparkSession, catalog: SharedCatalog, services: Services
) -> None:
    table = make_notes(catalog, properties=MERGE_ON_READ)
    delete_notes(catalog, table, 4, 15)
    spark.sql(f"DELETE FROM {table} WHERE id IN (6, 26)")
    rewrite_all(spark, table)
    assert file_counts(spark, table).total() > 1  # Java leaves deletes behind
    rows = spark_rows(spark, table)
    maintain(services, table, "clean-dangling-delete-files")
    assert file_counts(spark, table) == {(DATA, 0): 1}
    assert spark_rows(spark, table) == rows == notes_without(30, 4, 15, 6, 26)
    assert snapshots(spark, table)[-1].summary["total-delete-files"] == "0"
    delete_notes(catalog, table, 7)
    spark.sql(f"INSERT INTO {table} VALUES (4, 'note 4')")
    assert spark_rows(spark, table) == notes_without(30, 15, 6, 26, 7)
    assert notes([4]) <= spark_rows(spark, table)


ORPHAN_TABLES = 24
PROTECTED = {
    "Flink's manifest", "named by Flink's manifest", "used", "condemned", "active process", "ending process",
    "unreadable", "removed",
}  # fmt: skip


def java_orphans(spark: SparkSession, catalog: SharedCatalog, site: Site) -> set[str]:
    """What Iceberg's Java runtime would delete below the table's location."""
    before = (NOW - timedelta(days=2)).strftime("%Y-%m-%d %H:%M:%S.%f")
    called = spark.sql(
        f"CALL {catalog.name}.system.remove_orphan_files(table => '{'.'.join(site.table.name())}', "
        f"older_than => TIMESTAMP '{before}', dry_run => true)"
    )
    return {row.orphan_file_location.removeprefix("file:") for row in called.collect()}


def test_orphans_are_those_of_java_but_for_what_is_protected(spark: SparkSession, catalog: SharedCatalog) -> None:
    """Java goes by names and age alone, and takes for orphans what only removed entries name."""
    assert differences_from_java(spark, catalog, range(ORPHAN_TABLES)) == PROTECTED


def differences_from_java(spark: SparkSession, catalog: SharedCatalog, numbers: Iterable[int]) -> set[str]:
    """What protects the files that Java would delete of the tables of these numbers, and we do not."""
    differences = set()
    config = CatalogConfig(catalog.name, tuple(catalog.properties.items()), (f"file://{catalog.root}",))
    for number in numbers:
        site = make_site(catalog.pyiceberg, number, None, spellings=3)
        _, plan = orphans.planned(orphans.opened(config, site), site.around)
        ours, java = orphans.condemned(plan), java_orphans(spark, catalog, site)
        removed = site.named() - site.named(live=True)
        protected = {**dict.fromkeys(removed, "removed"), **site.kept}
        differences |= {protected.get(path, f"table {number}: {path}") for path in java - ours}
        early = {path for path in ours - java if site.orphans[path] == "ended process"}
        assert ours - java == early, number  # left over by a process of ours that has ended: younger than the age
    return differences


#: Others than those of `tests/iceberg/test_orphans.py`; `make prove` goes on after them.
FIRST_SWEPT, SWEPT_TABLES = 10_000, 4


class JavaReader:
    """The places of the files that Java reaches from all snapshots of a table: each state and manifest is read once."""

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self._spark, self._catalog = spark, catalog
        self._live: dict[str, frozenset[str]] = {}
        self._found: dict[str, set[str]] = {}  # by the location of the metadata
        self.asked = 0

    def __call__(self, table: Table) -> set[str]:
        self.asked += 1
        location = table.refresh().metadata_location
        if location not in self._found:
            self._found[location] = {place_of(path) for path in self._reached(table)}
        return self._found[location]

    def _reached(self, table: Table) -> set[str]:
        java = load_java_table(self._spark, self._catalog, ".".join(table.name()))
        util, io = java.iceberg.ReachableFileUtil, java.table.io()
        found = {
            *util.manifestListLocations(java.table),
            *util.metadataFileLocations(java.table, False),
            *util.statisticsFilesLocations(java.table),
        }
        for snapshot in java.table.snapshots():
            for manifest in snapshot.allManifests(io):
                path = manifest.path()
                if path not in self._live:
                    self._live[path] = frozenset(_live(java.iceberg, manifest, io, java.table.specs()))
                found.add(path)
                found |= self._live[path]
        return found


def _live(iceberg: Any, manifest: Any, io: Any, specs: Any) -> list[str]:
    """The paths of a manifest's live files."""
    files = iceberg.ManifestFiles
    of_data = manifest.content().toString() == "DATA"
    reader = (files.read if of_data else files.readDeleteManifest)(manifest, io, specs)
    try:
        return [str(file.location()) for file in reader.iterator()]
    finally:
        reader.close()


def test_no_file_that_java_reaches_is_in_any_batch(spark: SparkSession, catalog: SharedCatalog) -> None:
    totals: Counter[str] = Counter()
    swept_before_java(spark, catalog, range(FIRST_SWEPT, FIRST_SWEPT + SWEPT_TABLES), totals)
    assert totals["tables"] == SWEPT_TABLES
    assert min(totals["java asked"], totals["files deleted"]) > 10 * SWEPT_TABLES


def swept_before_java(spark: SparkSession, catalog: SharedCatalog, numbers: range, totals: Counter[str]) -> None:
    """The random tables of these numbers, expired, cleaned and emptied under Java's eyes."""
    reader = JavaReader(spark, catalog.name)
    random_sweeps.run_in(catalog.pyiceberg, numbers, catalog.root, totals, reader)
    totals["java asked"] += reader.asked
