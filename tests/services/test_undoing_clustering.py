"""Taking back clustering, which commits several times: every group as one more snapshot, or nothing at all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.errors import CannotUndo
from amoro_core.model.processes import ProcessStatus
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.clustered import Grouping, cluster_with, clusterer, plan_groups_with, work_on
from tests.services.test_undoing import files_of, undo
from tests.services.world import World

Step = Callable[[Table], object]


@pytest.fixture
def world(tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    plan_groups_with(monkeypatch, Grouping())
    (tmp_path / "home").mkdir()
    made = World(tmp_path / "home", catalog)
    table = writer.make_table(made.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(4):
        writer.append(table, [row(number, "a"), row(number + 100, "b"), row(number + 10, "a"), row(number + 110, "b")])
    writer.upsert(table, [row(1, "a", "new"), row(101, "b", "new")], ["id"])
    writer.delete_where(table, lambda item: item["id"] == 2)
    yield made
    made.close()


def table_of(world: World) -> Table:
    return world.catalog.load_table("db.t")


def clustered(world: World, between: Step = lambda table: None) -> str:
    """A process whose first two groups are committed, then something else happens, then the other groups."""
    process_id = cluster_with(world, Grouping())
    optimizer = clusterer(world)
    assert work_on(world, process_id, optimizer, 2) == 2
    between(table_of(world))
    assert work_on(world, process_id, optimizer) > 0
    process = world.optimizing.find_process(process_id).process
    assert process.status is ProcessStatus.SUCCESS, process.failure
    return process_id


def test_files_and_deletes_of_all_groups_come_back_in_one_snapshot(world: World) -> None:
    before, rows = files_of(table_of(world)), oracle.live_rows(table_of(world))
    process_id = clustered(world)
    made = world.optimizing.find_process(process_id).process.receipt
    assert made is not None
    assert files_of(table_of(world)) != before
    snapshots = len(table_of(world).metadata.snapshots)
    receipt = undo(world, process_id)
    assert (files_of(table_of(world)), oracle.live_rows(table_of(world))) == (before, rows)
    assert len(table_of(world).metadata.snapshots) == snapshots + 1
    assert (receipt.unequal, receipt.rows_after) == ((), made.rows_before)


BETWEEN: dict[str, Step] = {
    "nothing": lambda table: None,
    "rows were appended": lambda table: writer.append(table, [row(50, "a"), row(51, "c")]),
    "other rows were upserted": lambda table: writer.upsert(table, [row(60, "a"), row(160, "b")], ["id"]),
    "rows of groups were upserted": lambda table: writer.upsert(
        table, [*(row(number, "a", "newest") for number in (0, 3, 13)), row(112, "b", "newest")], ["id"]
    ),
}


@pytest.mark.parametrize("since", BETWEEN)
@pytest.mark.parametrize("between", BETWEEN)
def test_what_others_committed_between_the_groups_and_since_stays(world: World, between: str, since: str) -> None:
    process_id = clustered(world, BETWEEN[between])
    BETWEEN[since](table_of(world))
    rows = oracle.live_rows(table_of(world))
    undo(world, process_id)
    assert oracle.live_rows(table_of(world)) == rows


def test_a_row_of_one_group_deleted_by_position_keeps_all_as_they_are(world: World) -> None:
    process_id = clustered(world)
    writer.delete_where(table_of(world), lambda item: item["id"] == 113)
    files = files_of(table_of(world))
    with pytest.raises(CannotUndo, match=r"the position delete .* came since and may apply to"):
        world.maintaining.undo(process_id)
    assert files_of(table_of(world)) == files


def test_an_output_of_a_later_group_that_was_rewritten_refuses_the_whole(world: World) -> None:
    process_id = clustered(world)
    writer.copy_on_write(table_of(world), lambda item: item["id"] == 113)
    files = files_of(table_of(world))
    with pytest.raises(CannotUndo, match="is no longer live"):
        world.maintaining.undo(process_id)
    assert files_of(table_of(world)) == files


def test_a_dry_run_tells_of_all_groups(world: World) -> None:
    process_id = clustered(world)
    receipt = world.optimizing.find_process(process_id).process.receipt
    plan = world.maintaining.preview_undo(process_id).plan
    assert receipt is not None
    assert plan is not None
    assert plan.document is not None
    assert plan.document["type"] == "cluster"
    assert plan.document["data_files_removed"] == receipt.data_files_after
    assert plan.document["data_files_restored"] == receipt.data_files_before


def test_a_snapshot_of_a_later_group_that_has_expired_refuses_the_whole(world: World) -> None:
    process_id = clustered(world)
    table = table_of(world)
    writer.append(table, [row(90, "c")])
    ours = [
        one.snapshot_id
        for one in table.metadata.snapshots
        if one.summary is not None and one.summary.get("amoro.process-id") == process_id
    ]
    table.maintenance.expire_snapshots().by_id(ours[-1]).commit()
    with pytest.raises(CannotUndo, match=f"its snapshot {ours[-1]} has expired"):
        world.maintaining.undo(process_id)


STORIES = 12


def test_rows_hold_whatever_others_write_at_any_moment(world: World) -> None:
    """Undone or refused: readers see the same rows as before."""
    ends = Counter(_story(world, random.Random(seed)) for seed in range(STORIES))
    assert min(ends["undone"], ends["refused"]) >= 1, ends


def _story(world: World, chance: random.Random) -> str:
    def others(table: Table) -> None:
        for _ in range(chance.randrange(3)):
            _write(table.refresh(), chance)

    try:
        process_id = clustered(world, others)
    except AssertionError:  # every group gave way, or there was none: tests of clustering have that
        return "not clustered"
    others(table_of(world))
    rows = oracle.live_rows(table_of(world))
    try:
        undo(world, process_id)
    except CannotUndo:
        end = "refused"
    else:
        end = "undone"
    assert oracle.live_rows(table_of(world)) == rows
    return end


def _write(table: Table, chance: random.Random) -> None:
    live = sorted(item[0] for item in oracle.live_rows(table))
    chosen = chance.choice(live)
    part = "a" if chosen < 100 else "b" if chosen < 200 else "c"
    match chance.randrange(4):
        case 0:
            writer.append(table, [row(200 + chance.randrange(100), "c")])
        case 1:
            writer.upsert(table, [row(chosen, part, f"by {chance.random()}")], ["id"])
        case 2:
            writer.delete_where(table, lambda item: item["id"] == chosen, per_file=chance.random() < 0.5)
        case 3:
            writer.append(table, [row(chance.randrange(20, 90), "a"), row(chance.randrange(120, 190), "b")])
