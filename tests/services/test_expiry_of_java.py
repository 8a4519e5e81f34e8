"""Iceberg's `TestRemoveSnapshots` and `TestExpireSnapshotsAction`, test by test: what proves the same here, or why not.

Those that need files and no other test has are below, each with the name of Java's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from tests.engine import oracle, writer
from tests.engine.aging import DAY_MS, aged
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.engine.reached import reached
from tests.services.test_expiring import AT_ONCE, expire, ids, made, sweep, whole
from tests.services.world import World


def _lost(table: Table) -> set[str]:
    return {path for path in reached(table.refresh().metadata) if not Path(local_path(path)).exists()}


def test_expire_with_statistics_files_with_reuse(world: World) -> None:
    table = made(world, 2, AT_ONCE)
    first, second = ids(table)
    path = f"{table.location()}/metadata/shared.stats"
    Path(local_path(path)).write_bytes(b"puffin")
    for one in (first, second):
        said: dict[str, Any] = {"snapshot-id": one, "statistics-path": path, "file-size-in-bytes": 6}
        with table.update_statistics() as update:
            update.set_statistics(StatisticsFile(**said, **{"file-footer-size-in-bytes": 1, "blob-metadata": []}))
    aged(table, 30)
    expire(world)
    sweep(world)
    assert [one.snapshot_id for one in table.refresh().metadata.statistics] == [second]
    assert _lost(table) == set()


def test_retain_files_on_retained_branches(world: World) -> None:
    """A file that main has removed stays as long as a branch has it, and goes with the branch."""
    table = made(world, 1, AT_ONCE)
    writer.create_branch(table, "test", max_ref_age_ms=60 * DAY_MS)
    path = oracle.live_files(table)[0].path
    writer.append(table, [row(5)], branch="test")
    writer.remove_files(table, [path])
    writer.append(table, [row(6)])
    aged(table, 30)
    expire(world)
    sweep(world)
    assert Path(local_path(path)).exists()
    whole(table)
    aged(table, 40)
    expire(world)
    sweep(world)
    assert not Path(local_path(path)).exists()
    assert (set(table.refresh().metadata.refs), _lost(table)) == ({"main"}, set())


def test_file_cleanup_on_a_branch_that_aged_off(world: World) -> None:
    table = made(world, 1, AT_ONCE)
    writer.create_branch(table, "branch", max_ref_age_ms=1)
    writer.append(table, [row(5)], branch="branch")
    files = {one.path for one in oracle.live_files(table, table.metadata.refs["branch"].snapshot_id)}
    kept = {one.path for one in oracle.live_files(table)}
    aged(table, 30)
    expire(world)
    sweep(world)
    assert set(table.refresh().metadata.refs) == {"main"}
    assert {path for path in files if Path(local_path(path)).exists()} == files & kept


def test_cleanup_when_branch_on_main_aged_off(world: World) -> None:
    """The branch stands in main's history: only its name goes."""
    table = made(world, 2, {**AT_ONCE, "history.expire.max-snapshot-age-ms": str(90 * DAY_MS)})
    writer.create_branch(table, "branch", ids(table)[0], max_ref_age_ms=1)
    process = expire(world)
    assert (len(ids(table)), set(table.metadata.refs), _lost(table)) == (2, {"main"}, set())
    assert process.receipt is not None
    assert process.receipt.words == "expired 0 of 2 snapshots, removed branch"


def test_expire_two_snapshots_by_id(world: World) -> None:
    table = made(world, 3, AT_ONCE, days=1)
    first, second, third = ids(table)
    expire(world, snapshot_ids=(first, second))
    sweep(world)
    assert (ids(table), _lost(table)) == ([third], set())


def test_expire_on_empty_table(world: World) -> None:
    writer.make_table(world.catalog, "db.t", SCHEMA)
    begun = world.maintaining.begin(world.table().table_id, "expire-snapshots", trigger="request")
    assert (begun.process_id, begun.reason) == ("", "no snapshot is past its time: none stays")
