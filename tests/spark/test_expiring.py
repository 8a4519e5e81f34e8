"""Expiry beside Iceberg's Java runtime: the same snapshots and files go, and readers, streams and committers go on."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.table import Table

from amoro_core.actions.snapshots import NAME
from amoro_core.iceberg.commit import committing
from amoro_core.iceberg.maintenance.expiry import stage_expiry
from amoro_core.iceberg.maintenance.reachable import would_release
from amoro_core.iceberg.metadata import history_of
from amoro_core.maintenance.snapshots import RetentionConfig, SnapshotSelection, Target, select
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle
from tests.engine.aging import aged
from tests.engine.builders import SCHEMA, row
from tests.engine.histories import random_history
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, make_table
from tests.services.world import World
from tests.tiers import seeds

from .java import load_java_table
from .optimizing import Services
from .session import SharedCatalog
from .tables import spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ids(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.refresh().metadata.snapshots]


def selected(table: Table, **target: object) -> SnapshotSelection:
    history = history_of(table.refresh())
    config = parse_into(RetentionConfig, history.properties)
    wanted = Target(**target)
    return select(history.snapshots, history.refs, config, wanted, datetime.now(UTC))


def files_of(table: Table) -> set[str]:
    root = Path(local_path(table.location()))
    return {str(path) for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")}


def test_on_random_tables_the_same_snapshots_refs_and_files_go_as_by_java(catalog: SharedCatalog) -> None:
    chosen = seeds(4, 24)
    went, released = expired_as_by_java(catalog, chosen)
    assert min(went, released) > len(chosen) // 2


def expired_as_by_java(catalog: SharedCatalog, seeds: Iterable[int]) -> tuple[int, int]:
    """How many snapshots and files go of the tables of these seeds: of each those that Java takes.

    Java deletes, on the same table, after we have said what we would.
    """
    went = released = 0
    for seed in seeds:
        table = random_history(catalog.pyiceberg, f"db.t{seed}", random.Random(seed), operations=8)
        found = selected(table)
        ours = {local_path(one.path) for one in would_release(table, frozenset(found.go))}
        java = load_java_table(catalog.spark, catalog.name, f"db.t{seed}").table
        # An id that is not there makes Java compare what is reached, and not follow the history (iceberg #13568).
        expiry = java.expireSnapshots().expireSnapshotId(1)
        assert {int(one.snapshotId()) for one in expiry.apply()} == set(found.go), seed
        before, refs = files_of(table), set(table.metadata.refs)
        expiry.commit()
        gone = before - files_of(table)
        assert {path for path in gone if not path.endswith(".metadata.json")} == ours, seed
        assert refs - table.refresh().metadata.refs.keys() == set(found.refs), seed
        assert set(ids(table)) == set(found.stay), seed
        went, released = went + len(found.go), released + len(ours)
    return went, released


def test_java_keeps_to_a_lease_that_was_taken_as_a_tag(catalog: SharedCatalog, tmp_path: Path) -> None:
    table = make_table(catalog.pyiceberg, "db.leased", SCHEMA)
    for number in range(3):
        append(table, [row(number)])
    aged(table, 30)
    first, _, head = ids(table)
    config = CatalogConfig(catalog.name, tuple(catalog.properties.items()))
    world = World(tmp_path, catalog.pyiceberg, config=config)
    leased = world.table(catalog.full_name("db.leased"))
    world.now = datetime.now(UTC)
    held = world.leasing.take(leased, first, "report", held_for=timedelta(hours=1), as_tag=True)

    def expire() -> None:
        load_java_table(catalog.spark, catalog.name, "db.leased").table.expireSnapshots().commit()

    expire()
    assert ids(table) == [first, head]
    world.leasing.release(held.lease.lease_id)
    expire()
    assert ids(table) == [head]
    world.close()


def made(spark: SparkSession, catalog: SharedCatalog, snapshots: int = 4) -> tuple[str, Table]:
    name = catalog.full_name("db.made")
    spark.sql(f"CREATE TABLE {name} (id BIGINT, note STRING)")
    for number in range(snapshots):
        spark.sql(f"INSERT INTO {name} VALUES ({number}, 'note {number}')")
    table = catalog.load("db.made")
    return name, aged(table, {one: 30.0 - at for at, one in enumerate(ids(table))})


def expire(table: Table, *gone: int) -> None:
    payload, _ = stage_expiry(table.refresh(), set(gone), (), clean=False, own_metadata=True)
    committing.send(table.catalog, table, payload)
    table.refresh()


def test_after_our_expiry_spark_reads_what_is_left_and_walks_the_history(
    spark: SparkSession, catalog: SharedCatalog
) -> None:
    """Parents that are gone stay named, and a time before the gap falls to no wrong snapshot."""
    name, table = made(spark, catalog)
    first, second, third, fourth = ids(table)
    expire(table, second)
    spark.sql(f"REFRESH TABLE {name}")
    listed = {one.snapshot_id: one.parent_id for one in spark.sql(f"SELECT * FROM {name}.snapshots").collect()}
    assert listed == {first: None, third: second, fourth: third}
    assert [one.snapshot_id for one in spark.sql(f"SELECT * FROM {name}.history").collect()] == [third, fourth]
    for snapshot_id, rows in ((first, 1), (third, 3), (fourth, 4)):
        assert spark.sql(f"SELECT * FROM {name} VERSION AS OF {snapshot_id}").count() == rows
    between = datetime.now(UTC) - timedelta(days=28.5)  # when the second one was current
    with pytest.raises(Exception, match="Cannot find a snapshot older than"):
        spark.sql(f"SELECT * FROM {name} TIMESTAMP AS OF '{between:%Y-%m-%d %H:%M:%S}'").count()


def test_a_cherry_picked_file_stays_with_the_snapshot_that_picked_it(
    spark: SparkSession, catalog: SharedCatalog
) -> None:
    """As TestExpireSnapshotsAction's testWithCherryPickTableSnapshot and testWithExpiringStagedThenCherrypick."""
    name, table = made(spark, catalog, 1)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    spark.conf.set("spark.wap.id", "staged")
    spark.sql(f"INSERT INTO {name} VALUES (7, 'staged')")
    spark.conf.unset("spark.wap.id")
    staged = ids(table)[-1]
    spark.sql(f"INSERT INTO {name} VALUES (8, 'between')")
    spark.sql(f"CALL {catalog.name}.system.cherrypick_snapshot('{name}', {staged})")
    aged(table, 30)
    head = table.metadata.current_snapshot_id
    found = selected(table)
    assert staged in found.go
    assert set(found.stay) == {head}
    kept = {one.path for one in oracle.live_files(table)}
    gone = {one.path for one in would_release(table, frozenset(found.go))}
    assert not kept & gone
    expire(table, *found.go)
    for path in gone:
        Path(local_path(path)).unlink()
    spark.sql(f"REFRESH TABLE {name}")
    assert spark_rows(spark, name).total() == 3


FILES, ROWS = 6, 200


@pytest.mark.parametrize(("keep", "ends"), [("1d", True), ("0", False)], ids=["in the trash", "without trash"])
def test_a_query_that_began_before_an_expiry_ends(
    spark: SparkSession, catalog: SharedCatalog, services: Services, keep: str, ends: bool
) -> None:
    """It is planned, has read one file, and reads the others once the snapshot has gone and what was due is deleted."""
    table = catalog.full_name("db.read")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ("
        f"'maintenance.expire-snapshots.trash-keep' = '{keep}', 'read.split.open-file-cost' = '134217728')"
    )
    for number in range(FILES):
        first = number * ROWS
        spark.range(first, first + ROWS, 1, 1).selectExpr("id", "'before' AS note").writeTo(table).append()
    running = spark.sql(f"SELECT id FROM {table}").toLocalIterator(prefetchPartitions=False)
    seen = [next(running).id]

    services.world.now = datetime.now(UTC) + timedelta(seconds=5)
    services.finish(services.begin(table, OptimizingType.FULL))
    loaded = aged(catalog.load(table), 30)
    table_id = services.world.table(table).table_id
    begun = services.world.maintaining.begin(table_id, "expire-snapshots", trigger="request")
    assert services.world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    assert len(loaded.refresh().metadata.snapshots) == 1
    emptied = services.world.maintaining.begin(table_id, "empty-trash", trigger="request")
    assert bool(emptied.process_id) is not ends
    if emptied.process_id:
        services.world.committing.commit(emptied.process_id)

    if ends:
        assert sorted([*seen, *(one.id for one in running)]) == list(range(FILES * ROWS))
    else:
        with pytest.raises(Exception, match=r"does not exist|FileNotFound|FAILED_READ"):
            list(running)


DAYS = 6


def stream(spark: SparkSession, source: Path, checkpoint: Path, table: str) -> None:
    """Let the job take all that is new, file by file, and stop."""
    query = (
        spark.readStream.schema("id BIGINT, note STRING")
        .option("maxFilesPerTrigger", "1")
        .json(source.as_uri())
        .writeStream.format("iceberg")
        .outputMode("append")
        .option("checkpointLocation", checkpoint.as_uri())
        .trigger(availableNow=True)
        .toTable(table)
    )
    query.awaitTermination()


def offer(source: Path, *numbers: int) -> None:
    for number in numbers:
        source.mkdir(exist_ok=True)
        (source / f"{number:03d}.json").write_text(json.dumps({"id": number, "note": "streamed"}), encoding="utf-8")


def a_day_passes(services: Services, table: str, number: int) -> None:
    """Another writer adds rows, files are rewritten, and what is past its time goes."""
    services.catalog.spark.sql(f"INSERT INTO {table} VALUES ({1000 + number}, 'other')")
    services.world.now = datetime.now(UTC) + timedelta(seconds=5)
    services.finish(services.begin(table, OptimizingType.FULL))
    begun = services.world.maintaining.begin(services.world.table(table).table_id, NAME, trigger="request")
    if begun.process_id:
        assert services.world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    aged(services.catalog.load(table), 1)
    services.catalog.spark.sql(f"REFRESH TABLE {table}")


@pytest.mark.parametrize(("retention", "times"), [("7d", 1), ("0d", 2)], ids=["with its chain", "without"])
def test_a_job_that_was_stopped_for_six_days_writes_no_row_twice(
    spark: SparkSession, catalog: SharedCatalog, services: Services, tmp_path: Path, retention: str, times: int
) -> None:
    """It died after the commit to the table and before it noted that: it finds its epoch in the table's history.

    amoro #930, iceberg #5846: without the chain it writes its last rows again.
    """
    table, source, checkpoint = catalog.full_name("db.streamed"), tmp_path / "source", tmp_path / "checkpoint"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ("
        f"'snapshot.keep.duration' = '1h', 'snapshot.keep.flink.checkpoint-retention' = '{retention}')"
    )
    offer(source, 1, 2, 3)
    stream(spark, source, checkpoint, table)
    noted = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    noted.unlink()
    noted.with_name(f".{noted.name}.crc").unlink(missing_ok=True)
    snapshots = len(catalog.load(table).metadata.snapshots)
    for number in range(DAYS):
        a_day_passes(services, table, number)
    left = catalog.load(table).metadata.snapshots
    assert len(left) < snapshots + 2 * DAYS
    offer(source, 4)
    stream(spark, source, checkpoint, table)
    rows = Counter(one.id for one in spark.sql(f"SELECT id FROM {table} WHERE note = 'streamed'").collect())
    assert (set(rows), max(rows.values()), rows.total()) == ({1, 2, 3, 4}, times, 3 + times)
    assert spark.sql(f"SELECT id FROM {table} WHERE note = 'other'").count() == DAYS
