"""Snapshots that left main's history: nothing goes by them any more, and commits of ours among them are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.actions import clustering
from amoro_core.actions.action_api import PlanningContext
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.commits import ROLLBACK_MARKS, SnapshotAdded, rolled_back
from amoro_core.model.history_events import Event, EventFilter, EventKind
from amoro_core.model.optimizing_config import parse_config
from amoro_core.model.processes import CatalogConfig, CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType, SnapshotFacts
from amoro_core.planning.clustering.planner import commits_since
from amoro_core.store import events, groups, processes, tables
from tests.engine import oracle, writer
from tests.engine.aging import aged
from tests.engine.builders import BY_PART, SCHEMA, ids, make, row
from tests.engine.oracle import reached
from tests.engine.parquet_rows import local_path
from tests.faults.rest import RestServer
from tests.services.world import START, World

AT_ONCE = {"maintenance.expire-snapshots.trash-keep": "0"}


def told(world: World) -> list[Event]:
    """What was told of rolled back commits after a look at the table, the oldest first."""
    wanted = EventFilter(kinds=(EventKind.ROLLED_BACK,), table_id=world.refresh().table_id)
    return world.store.read(lambda db: events.list_newest(db, wanted, None, 100))[::-1]


def filled(world: World, version: int = 2) -> Table:
    """A table of four files in two partitions, with a delete."""
    table = make(world.catalog, version, BY_PART)
    with table.transaction() as change:
        change.set_properties(AT_ONCE)
    for number in range(2):
        writer.append(table, [row(number, "a"), row(10 + number, "a"), row(20 + number, "b")])
    writer.upsert(table, [row(1, "a", "new")], ["id"])
    return table


@pytest.mark.parametrize("version", [2, 3])
def test_nothing_goes_by_snapshots_that_a_rollback_abandoned(world: World, version: int) -> None:
    """Of other engines one planned, one validated, one expired and one read on from the newest snapshot there was."""
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    table = filled(world, version)
    start, before = world.table_head(), oracle.live_rows(table)
    process_id = world.optimized(force=True)
    ours = world.table_head()
    writer.append(table, [row(90, "a")])
    writer.remove_files(table, [file.path for file in oracle.live_files(table) if file.partition == ("b",)])
    stale = world.begin_and_run(OptimizingType.FULL, force=True)
    abandoned = world.table_head()
    kept = world.refresh()
    assert told(world) == []
    writer.rollback(table, start)
    oracle.assert_same_rows(before, oracle.live_rows(table))

    # Validation: what was planned on an abandoned snapshot conflicts.
    assert world.committing.commit(stale) is ProcessStatus.FAILED
    assert "does not descend" in world.process(stale).failure
    oracle.assert_same_rows(before, oracle.live_rows(table))
    # The next look: told with the process, once, also after a restart; the last data is that of the history.
    runtime = world.refresh()
    [event] = told(world)
    assert (event.about.process_id, event.data) == (process_id, {"snapshot": str(ours), "head": str(start)})
    assert runtime.status_reason.startswith(f"snapshot {ours} of process {process_id} was rolled back")
    world.restart()
    writer.append(table, [row(50, "b")])
    assert told(world) == [event]
    commit = world.store.read(lambda db: tables.find_data_commit(db, runtime.table_id, runtime.uuid))
    assert (commit.snapshot_id, kept.snapshot_id) == (world.table_head(), abandoned)
    # Planning: the files of the present head, and no others.
    rows, live = oracle.live_rows(table), {file.path for file in oracle.live_files(table) if not file.content}
    again = world.begin_and_run(OptimizingType.FULL, force=True)
    assert sum(task.input_files for task in world.tasks(again)) == len(live)
    assert world.committing.commit(again) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(rows, oracle.live_rows(table))
    assert told(world) == [event]
    # Expiry: abandoned snapshots go with what only they needed, and of the history's nothing.
    aged(table, 30)
    assert world.run("expire-snapshots") is ProcessStatus.SUCCESS
    assert world.run("empty-trash") is ProcessStatus.SUCCESS
    table.refresh()
    assert not {ours, abandoned} & {one.snapshot_id for one in table.metadata.snapshots}
    assert all(Path(local_path(path)).exists() for path in reached(table.metadata))
    oracle.assert_same_rows(rows, oracle.live_rows(table))
    assert told(world) == [event]


def test_neither_commits_nor_statistics_of_other_snapshots_than_the_historys_count(world: World) -> None:
    """What clustering goes by: how many commits there were, and how many values a column has."""
    properties = {"maintenance.compute-statistics.columns": "id"}
    table = writer.make_table(world.catalog, "db.t", SCHEMA, properties=properties)
    writer.append(table, [row(1), row(2)])
    assert world.run("compute-statistics") in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)
    start = world.table_head()
    for number in range(3):
        writer.append(table, [row(10 + number)])
    assert world.run("compute-statistics") in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)
    writer.rollback(table, start)
    writer.append(table, [row(20)])
    capacity = world.store.read(lambda db: groups.capacity(db, "default"))
    situation = PlanningContext(parse_config({}), {}, {}, capacity, world.now)
    opened = world.tables_of.open(world.table().identifier)
    assert isinstance(opened, IcebergTable)
    found = clustering._facts(opened, situation)
    assert [one.snapshot_id for one in found.snapshots] == [world.table_head(), start]
    assert commits_since(None, found.snapshots) == 2
    assert opened.distinct_values() == {1: 2}


def test_an_expired_commit_was_not_rolled_back(world: World) -> None:
    table = filled(world)
    world.optimized(force=True)
    for number in range(3):
        writer.append(table, [row(60 + number)])
        writer.expire_snapshots(table)
        assert told(world) == []
    # What a removed snapshot was rolled back from is told, too: Polaris removes it.
    start, process_id = world.table_head(), world.optimized(force=True)
    ours = world.table_head()
    writer.rollback(table, start)
    writer.expire_snapshots(table, [ours])
    assert told(world) == [], "the catalog may answer with a state from before the commit"
    writer.append(table, [row(70)])
    assert [one.about.process_id for one in told(world)] == [process_id]


OURS, NEXT = SnapshotAdded(2, 1, 6), SnapshotAdded(3, 2, 7)


def facts(*chain: tuple[int, int]) -> list[SnapshotFacts]:
    """Snapshots by id, each the child of the one before, with their sequence numbers."""
    parents = [None, *(snapshot_id for snapshot_id, _ in chain)]
    return [
        SnapshotFacts(snapshot_id, parent, number, START, "append", {}, ())
        for (snapshot_id, number), parent in zip(chain, parents, strict=False)
    ]


@pytest.mark.parametrize(
    ("snapshots", "head", "added", "gone"),
    [
        (facts((1, 5), (2, 6), (3, 7)), 3, [NEXT, OURS], []),
        (facts((1, 5)), 1, [NEXT, OURS], []),  # a replica that lags, or nothing but a rollback
        (facts((0, 4)), 0, [OURS], []),
        (facts((1, 5), (9, 6)), 9, [OURS], [OURS]),
        (facts((1, 5), (9, 6)), 9, [NEXT, OURS], [NEXT, OURS]),  # Polaris sets sequence numbers back
        ([*facts((1, 5), (2, 6)), *facts((1, 5))], 1, [OURS], [OURS]),
        (facts((1, 5), (2, 6), (9, 7))[2:], 9, [OURS], []),  # expired: its child names it
        (facts((1, 5), (2, 6), (8, 7), (9, 8))[3:], 9, [OURS], []),
        (facts((9, 6))[:1], 9, [OURS], []),  # a writer that drops the parent of what was expired
        (facts((1, 0), (9, 0)), 9, [SnapshotAdded(2, 1, 0)], [SnapshotAdded(2, 1, 0)]),
        (facts((1, 0)), 1, [SnapshotAdded(2, 1, 0)], []),
        (facts((1, 5)), None, [OURS], []),
    ],
)
def test_what_was_rolled_back_follows_from_the_history(
    snapshots: list[SnapshotFacts], head: int | None, added: list[SnapshotAdded], gone: list[SnapshotAdded]
) -> None:
    assert rolled_back(added, snapshots, head) == gone


OURS, NEXT = SnapshotAdded(2, 1, 6), SnapshotAdded(3, 2, 7)


# Polaris: a server that rolls a commit back for a writer


@pytest.fixture
def polaris(tmp_path: Path, catalog: SqlCatalog) -> Iterator[World]:
    """A world whose catalog is a REST server with Polaris's endpoints."""
    with RestServer(catalog) as server:
        server.endpoints = [*map(str, DEFAULT_ENDPOINTS), "GET /polaris/v1/{prefix}/applicable-policies"]
        home = tmp_path / "polaris"
        home.mkdir()
        given = {"type": "rest", "uri": server.uri, "warehouse": catalog.properties["warehouse"]}
        made = World(home, catalog, config=CatalogConfig("cat", tuple(given.items())))
        yield made
        made.close()


def marks(table: Table) -> dict[str, str]:
    head = table.refresh().current_snapshot()
    summary = head.summary.additional_properties
    return {key: value for key, value in summary.items() if key.startswith("polaris.")}


ALLOWED = {"self-optimizing.polaris-rollback": "true"}


def test_in_polaris_commits_may_be_rolled_back_where_the_table_says_so(polaris: World) -> None:
    table = filled(polaris)
    polaris.optimized(force=True)
    assert marks(table) == {}
    with table.transaction() as change:
        change.set_properties(ALLOWED)
    writer.append(table, [row(30)])
    start, process_id = polaris.table_head(), polaris.optimized(force=True)
    assert marks(table) == ROLLBACK_MARKS
    assert ROLLBACK_MARKS["polaris.internal.rollback.compaction.on-conflict"] == "true"
    # What is refuted here may land later, since the snapshots between may be rolled back: its files stay.
    [attempt] = polaris.store.read(lambda db: processes.list_commits(db, process_id))
    refuted = replace(attempt, outcome=CommitOutcome.REFUTED)
    assert (attempt.may_come_back, refuted.may_come_back) == (False, True)
    assert not replace(refuted, payload=b"{}").may_come_back
    # As Polaris does for a writer that had begun before.
    ours = polaris.table_head()
    writer.rollback(table, start)
    writer.expire_snapshots(table, [ours])
    writer.append(table, [row(31)])
    assert [one.about.process_id for one in told(polaris)] == [process_id]
    assert ids(table)[-2:] == [30, 31]


def test_elsewhere_the_property_has_no_effect_and_other_commits_carry_no_mark(world: World, polaris: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=ALLOWED)
    for number in range(3):
        writer.append(table, [row(number)])
    world.optimized(force=True)
    assert marks(table) == {}
    writer.append(table, [row(9)])
    writer.upsert(table, [row(1, "a", "new")], ["id"])
    writer.remove_files(table, [file.path for file in oracle.live_files(table) if not file.content])
    assert polaris.run("clean-dangling-delete-files") is ProcessStatus.SUCCESS
    assert marks(table) == {}
