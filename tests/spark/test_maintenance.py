"""Maintenance beside Iceberg's Java runtime: manifests, data that expires, dangling deletes, orphans, tags, sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from tests.iceberg import random_sweeps
from tests.iceberg import test_orphans as orphans
from tests.iceberg.orphan_tables import NOW, make_site, place_of

from .java import JavaTable, java_upsert, load_java_table
from .optimizing import Services
from .session import SharedCatalog
from .tables import (
    DATA,
    EQUALITY_DELETES,
    MERGE_ON_READ,
    POSITION_DELETES,
    Rows,
    delete,
    delete_notes,
    frozen,
    make_notes,
    notes_without,
    set_property,
)

PARTITIONS, APPENDS = 200, 3


def entries(services: Services) -> Counter[Any]:
    """What the live entries say but whether they are new, as Java reads them, each as often as it stands there."""
    listed = services.sql(f"SELECT * FROM {services.table}.entries WHERE status < 2")
    return Counter(
        (one.snapshot_id, one.sequence_number, one.file_sequence_number, frozen(one.data_file)) for one in listed
    )


def planned(java: JavaTable, part: int) -> tuple[int, int, int]:
    """How many manifests of data Java opens and passes over for one partition, and how many files it plans to read."""
    java.table.refresh()
    reporter = java.iceberg.metrics.InMemoryMetricsReporter()
    where = java.iceberg.expressions.Expressions.equal("part", part)
    files = len(java.items(java.table.newScan().metricsReporter(reporter).filter(where).planFiles()))
    seen = reporter.scanReport().scanMetrics()
    return seen.scannedDataManifests().value(), seen.skippedDataManifests().value(), files


def test_after_clustering_java_plans_one_partition_from_a_tenth_of_the_manifests_and_all_entries_are_equal(
    services: Services,
) -> None:
    spark, table = services.spark, services.table
    properties = f"{MERGE_ON_READ}, 'write.distribution-mode' = 'none', 'write.spark.fanout.enabled' = 'true'"
    services.sql(
        f"CREATE TABLE {table} (part INT, id INT) USING iceberg PARTITIONED BY (part) TBLPROPERTIES ({properties})"
    )
    for number in range(APPENDS):
        rows = f"SELECT CAST(id AS INT), CAST(id + {number * PARTITIONS} AS INT) FROM range(0, {PARTITIONS}, 1, 1)"
        services.sql(f"INSERT INTO {table} {rows}")
    java_upsert(spark, table, ["part", "id"], [{"part": part, "id": part} for part in (7, 8)], [])
    before, everything, java = services.rows(), entries(services), load_java_table(spark, table)
    assert planned(java, 7) == (APPENDS, 0, APPENDS)
    size = sum(one.length for one in services.sql(f"SELECT length FROM {table}.manifests WHERE content = 0"))
    set_property(spark, table, "commit.manifest.target-size-bytes", str(size // 20))

    process_id = services.maintain("rewrite-manifests")
    assert entries(services) == everything
    services.require(before)
    opened, skipped, files = planned(java, 7)
    assert files == APPENDS
    assert opened + skipped >= 20
    assert opened * 10 <= opened + skipped
    head = services.snapshots()[-1]
    assert (head.operation, head.summary["amoro.process-id"]) == ("replace", process_id)
    assert int(head.summary["manifests-created"]) + int(head.summary["manifests-kept"]) == opened + skipped + 1

    # Java merges, filters and rewrites what we have written.
    services.sql(f"DELETE FROM {table} WHERE part = 7")
    services.sql(f"INSERT INTO {table} VALUES (8, 8)")
    services.call("rewrite_manifests")
    services.require(Rows({one: count for one, count in before.items() if one[0] != 7}) + Rows([(8, 8)]))


def test_clustered_manifests_keep_the_numbers_by_which_java_drops_old_deletes(services: Services) -> None:
    """A commit of Java leaves out deletes below the least number that the manifests of data state."""
    spark, table = services.spark, services.table
    make_notes(spark, table)
    delete_notes(spark, table, 4)
    services.maintain("rewrite-manifests")
    set_property(spark, table, "write.delete.mode", "copy-on-write")
    delete(spark, table, 15)
    services.require(notes_without(30, 4, 15), {(DATA, 0): 3, (EQUALITY_DELETES, 0): 1})


def test_java_reads_and_goes_on_with_a_table_whose_data_expired(services: Services) -> None:
    spark, table, today = services.spark, services.table, datetime.now(UTC).date()
    expiry = "'data-expire.field' = 'at', 'data-expire.retention-time' = '30d'"
    services.sql(
        f"CREATE TABLE {table} (id BIGINT, at TIMESTAMP) USING iceberg PARTITIONED BY (days(at)) "
        f"TBLPROPERTIES ({MERGE_ON_READ}, {expiry})"
    )
    for first in (0, 100):
        for start, day in ((first, today - timedelta(days=90)), (first + 50, today)):
            some = f"SELECT /*+ COALESCE(1) */ id, TIMESTAMP '{day} 12:00:00' FROM range({start}, {start + 10})"
            services.sql(f"INSERT INTO {table} {some}")
    delete(spark, table, 1, 51)
    delete(spark, table, 2, 103)
    rows = services.rows()
    assert len(rows) == 36
    services.world.now = datetime.now(UTC)

    services.maintain("expire-data")
    kept = Rows({one: count for one, count in rows.items() if str(one[1]) >= str(today)})
    assert len(kept) == 19
    services.require(kept)
    counts = services.counts()
    assert (counts[(DATA, 0)], counts[(POSITION_DELETES, 0)]) == (2, 1)
    *_, base, made = services.snapshots()
    assert (made.operation, made.parent_id) == ("delete", base.snapshot_id)
    assert (made.summary["snapshot.producer"], made.summary["total-records"]) == ("DATA_EXPIRATION", "20")
    assert services.rows(base.snapshot_id) == rows  # until the snapshot is expired

    delete(spark, table, 52)
    services.sql(f"INSERT INTO {table} VALUES (1, TIMESTAMP '{today} 13:00:00')")
    services.rewrite_by_spark()
    assert sorted(one[0] for one in services.rows()) == sorted([1, 50, *range(53, 60), *range(150, 160)])


def test_java_reads_the_same_rows_without_the_deletes_that_dangled(services: Services) -> None:
    spark, table = services.spark, services.table
    make_notes(spark, table)
    delete_notes(spark, table, 4, 15)
    delete(spark, table, 6, 26)
    services.rewrite_by_spark()
    assert sum(services.counts().values()) > 1  # Java leaves deletes behind
    services.maintain("clean-dangling-delete-files")
    services.require(notes_without(30, 4, 15, 6, 26), {(DATA, 0): 1})
    assert services.snapshots()[-1].summary["total-delete-files"] == "0"
    delete_notes(spark, table, 7)
    services.sql(f"INSERT INTO {table} VALUES (4, 'note 4')")
    assert services.rows() == notes_without(30, 15, 6, 26, 7)


PROTECTED = {
    "Flink's manifest", "named by Flink's manifest", "used", "condemned", "active process", "ending process",
    "unreadable", "removed",
}  # fmt: skip


def test_orphans_are_those_of_java_but_for_what_is_protected(spark: SparkSession, catalog: SharedCatalog) -> None:
    """Java goes by names and age alone, and takes for orphans what only removed entries name."""
    assert differences_from_java(spark, catalog, range(24)) == PROTECTED


def differences_from_java(spark: SparkSession, catalog: SharedCatalog, numbers: Iterable[int]) -> set[str]:
    """What protects the files that Java would delete of the tables of these numbers, and we do not."""
    differences, before = set(), (NOW - timedelta(days=2)).strftime("%Y-%m-%d %H:%M:%S.%f")
    config = replace(catalog.config, allowed_locations=(f"file://{catalog.root}",))
    for number in numbers:
        site = make_site(catalog.pyiceberg, number, None, spellings=3)
        _, plan = orphans.planned(orphans.opened(config, site), site.around)
        called = spark.sql(
            f"CALL {catalog.name}.system.remove_orphan_files(table => '{'.'.join(site.table.name())}', "
            f"older_than => TIMESTAMP '{before}', dry_run => true)"
        )
        java = {row.orphan_file_location.removeprefix("file:") for row in called.collect()}
        ours = orphans.condemned(plan)
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
        self._spark, self._catalog, self.asked = spark, catalog, 0
        self._live: dict[str, frozenset[str]] = {}
        self._found: dict[str, set[str]] = {}  # by the location of the metadata

    def __call__(self, table: Table) -> set[str]:
        self.asked += 1
        location = table.refresh().metadata_location
        if location not in self._found:
            self._found[location] = {place_of(path) for path in self._reached(table)}
        return self._found[location]

    def _reached(self, table: Table) -> set[str]:
        java = load_java_table(self._spark, ".".join((self._catalog, *table.name())))
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
                    of, is_data = java.iceberg.ManifestFiles, manifest.content().toString() == "DATA"
                    read = of.read if is_data else of.readDeleteManifest
                    files = java.items(read(manifest, io, java.table.specs()))
                    self._live[path] = frozenset(str(file.location()) for file in files)
                found.add(path)
                found |= self._live[path]
        return found


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
