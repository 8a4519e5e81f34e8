"""Expiry beside Iceberg's Java runtime: the same snapshots and files go, and readers, streams and committers go on."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table

from amoro_core.iceberg.commit import committing
from amoro_core.iceberg.maintenance.expiry import stage_expiry
from amoro_core.iceberg.maintenance.reachable import would_release
from amoro_core.iceberg.metadata import history_of
from amoro_core.maintenance.snapshots import RetentionConfig, SnapshotSelection, Target, select
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle
from tests.engine.aging import aged
from tests.engine.histories import random_history
from tests.engine.parquet_rows import local_path
from tests.tiers import seeds

from .java import load_java_table
from .optimizing import Services
from .session import SharedCatalog, set_for_now
from .tables import set_property


def ids(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.refresh().metadata.snapshots]


def selected(table: Table) -> SnapshotSelection:
    history = history_of(table.refresh())
    config = parse_into(RetentionConfig, history.properties)
    return select(history.snapshots, history.refs, config, Target(), datetime.now(UTC))


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
        java = load_java_table(catalog.spark, f"{catalog.name}.db.t{seed}").table
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


def expire_by_us(table: Table, *gone: int) -> None:
    payload, _ = stage_expiry(table.refresh(), set(gone), (), clean=False, own_metadata=True)
    committing.send(table.catalog, table, payload)
    table.refresh()


def made(services: Services, snapshots: int) -> Table:
    """A table with a row of each snapshot, of which each is a day younger than the one before it."""
    services.sql(f"CREATE TABLE {services.table} (id BIGINT, note STRING)")
    for number in range(snapshots):
        services.sql(f"INSERT INTO {services.table} VALUES ({number}, 'note {number}')")
    table = services.catalog.load(services.table)
    return aged(table, {one: 30.0 - at for at, one in enumerate(ids(table))})


def test_java_keeps_to_a_lease_that_was_taken_as_a_tag(services: Services) -> None:
    table, world = made(services, 3), services.world
    first, _, head = ids(table)
    world.now = datetime.now(UTC)
    leased = world.table(services.table)
    held = world.leasing.take(leased, first, "report", held_for=timedelta(hours=1), as_tag=True)
    load_java_table(services.spark, services.table).table.expireSnapshots().commit()
    assert ids(table) == [first, head]
    world.leasing.release(held.lease.lease_id)
    load_java_table(services.spark, services.table).table.expireSnapshots().commit()
    assert ids(table) == [head]


def test_after_our_expiry_spark_reads_what_is_left_and_walks_the_history(services: Services) -> None:
    """Parents that are gone stay named, and a time before the gap falls to no wrong snapshot."""
    table, name = made(services, 4), services.table
    first, second, third, fourth = ids(table)
    expire_by_us(table, second)
    services.sql(f"REFRESH TABLE {name}")
    listed = {one.snapshot_id: one.parent_id for one in services.snapshots()}
    assert listed == {first: None, third: second, fourth: third}
    assert [one.snapshot_id for one in services.sql(f"SELECT * FROM {name}.history")] == [third, fourth]
    for snapshot_id, rows in ((first, 1), (third, 3), (fourth, 4)):
        assert services.rows(snapshot_id).total() == rows
    between = datetime.now(UTC) - timedelta(days=28.5)  # when the second one was current
    with pytest.raises(Exception, match="Cannot find a snapshot older than"):
        services.sql(f"SELECT * FROM {name} TIMESTAMP AS OF '{between:%Y-%m-%d %H:%M:%S}'")


def test_a_cherry_picked_file_stays_with_the_snapshot_that_picked_it(services: Services) -> None:
    """As TestExpireSnapshotsAction's testWithCherryPickTableSnapshot and testWithExpiringStagedThenCherrypick."""
    table, name = made(services, 1), services.table
    set_property(services.spark, name, "write.wap.enabled", "true")
    with set_for_now(services.spark, {"spark.wap.id": "staged"}):
        services.sql(f"INSERT INTO {name} VALUES (7, 'staged')")
    staged = ids(table)[-1]
    services.sql(f"INSERT INTO {name} VALUES (8, 'between')")
    services.call("cherrypick_snapshot", f"snapshot_id => {staged}")
    aged(table, 30)
    found = selected(table)
    assert staged in found.go
    assert set(found.stay) == {table.metadata.current_snapshot_id}
    kept = {one.path for one in oracle.live_files(table)}
    gone = {one.path for one in would_release(table, frozenset(found.go))}
    assert not kept & gone
    expire_by_us(table, *found.go)
    for path in gone:
        Path(local_path(path)).unlink()
    services.sql(f"REFRESH TABLE {name}")
    assert services.rows().total() == 3


FILES, ROWS = 6, 200


@pytest.mark.parametrize(("keep", "ends"), [("1d", True), ("0", False)], ids=["in the trash", "without trash"])
def test_a_query_that_began_before_an_expiry_ends(services: Services, keep: str, ends: bool) -> None:
    """It is planned, has read one file, and reads the others once the snapshot has gone and what was due is deleted."""
    table, world = services.table, services.world
    services.sql(
        f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ("
        f"'maintenance.expire-snapshots.trash-keep' = '{keep}', 'read.split.open-file-cost' = '134217728')"
    )
    for first in range(0, FILES * ROWS, ROWS):
        services.sql(f"INSERT INTO {table} SELECT id, 'before' FROM range({first}, {first + ROWS}, 1, 1)")
    running = services.spark.sql(f"SELECT id FROM {table}").toLocalIterator(prefetchPartitions=False)
    seen = [next(running).id]

    world.now = datetime.now(UTC) + timedelta(seconds=5)
    services.rewrite(OptimizingType.FULL)
    loaded = aged(services.catalog.load(table), 30)
    services.maintain("expire-snapshots")
    assert len(loaded.refresh().metadata.snapshots) == 1
    emptied = world.maintaining.begin(world.table(table).table_id, "empty-trash", trigger="request")
    assert bool(emptied.process_id) is not ends
    if ends:
        assert sorted([*seen, *(one.id for one in running)]) == list(range(FILES * ROWS))
    else:
        world.committing.commit(emptied.process_id)
        with pytest.raises(Exception, match=r"does not exist|FileNotFound|FAILED_READ"):
            list(running)


DAYS = 6


def stream(services: Services, directory: Path, *numbers: int) -> None:
    """Offer these rows to the job, and let it take all that is new, file by file, and stop."""
    source = directory / "source"
    source.mkdir(exist_ok=True)
    for number in numbers:
        (source / f"{number:03d}.json").write_text(json.dumps({"id": number, "note": "streamed"}), encoding="utf-8")
    query = (
        services.spark.readStream.schema("id BIGINT, note STRING")
        .option("maxFilesPerTrigger", "1")
        .json(source.as_uri())
        .writeStream.format("iceberg")
        .outputMode("append")
        .option("checkpointLocation", (directory / "checkpoint").as_uri())
        .trigger(availableNow=True)
        .toTable(services.table)
    )
    query.awaitTermination()


def a_day_passes(services: Services, number: int) -> None:
    """Another writer adds rows, files are rewritten, and what is past its time goes."""
    table, world = services.table, services.world
    services.sql(f"INSERT INTO {table} VALUES ({1000 + number}, 'other')")
    world.now = datetime.now(UTC) + timedelta(seconds=5)
    services.rewrite(OptimizingType.FULL)
    begun = world.maintaining.begin(world.table(table).table_id, "expire-snapshots", trigger="request")
    if begun.process_id:
        services.finish(begun.process_id)
    aged(services.catalog.load(table), 1)
    services.sql(f"REFRESH TABLE {table}")


@pytest.mark.parametrize(("retention", "times"), [("7d", 1), ("0d", 2)], ids=["with its chain", "without"])
def test_a_job_that_was_stopped_for_six_days_writes_no_row_twice(
    services: Services, tmp_path: Path, retention: str, times: int
) -> None:
    """It died after the commit to the table and before it noted that: it finds its epoch in the table's history.

    amoro #930, iceberg #5846: without the chain it writes its last rows again.
    """
    table = services.table
    services.sql(
        f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ("
        f"'snapshot.keep.duration' = '1h', 'snapshot.keep.flink.checkpoint-retention' = '{retention}')"
    )
    stream(services, tmp_path, 1, 2, 3)
    noted = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    noted.unlink()
    noted.with_name(f".{noted.name}.crc").unlink(missing_ok=True)
    snapshots = len(services.snapshots())
    for number in range(DAYS):
        a_day_passes(services, number)
    assert len(services.snapshots()) < snapshots + 2 * DAYS
    stream(services, tmp_path, 4)
    rows = Counter(one.id for one in services.sql(f"SELECT id FROM {table} WHERE note = 'streamed'"))
    assert (set(rows), max(rows.values()), rows.total()) == ({1, 2, 3, 4}, times, 3 + times)
    assert len(services.sql(f"SELECT id FROM {table} WHERE note = 'other'")) == DAYS
