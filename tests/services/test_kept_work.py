"""Most of what is rewritten is kept beside writers; the same is planned and every row kept in every mode."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.tables import Formats, Tables
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.store import tables
from tests.engine.writer import make_catalog
from tests.model.lake import COPIES, Lake, ids_are, row
from tests.services.rigs import DECODED, reaching, remembering
from tests.services.world import World
from tests.tiers import sample, seeds

FILES = 24


@pytest.mark.parametrize(("version", "merges", "rebase"), [(2, False, True), (3, True, True), (3, False, False)])
def test_beside_a_writer_that_deletes_or_merges_by_position_or_by_vector_work_is_kept(
    tmp_path: Path, version: int, merges: bool, rebase: bool
) -> None:
    """It commits after each task, and between the staging and the sending of the commit, which then loses."""
    properties = {
        "self-optimizing.target-size": "6000",
        "self-optimizing.max-task-size-bytes": "6000",
        "self-optimizing.rebase.enabled": str(rebase).lower(),
    }
    lake = Lake.created(make_catalog(tmp_path), version, properties=properties)
    for number in range(FILES):
        lake.append([row(20 * number + at) for at in range(20)])
    world, chance, lost = World(tmp_path, lake.catalog), random.Random(1), list[str]()

    def write() -> None:
        gone = chance.choice(lake.placed()).record["id"]
        lake.delete_positions(ids_are(gone))
        if merges:
            lake.append([row(gone, value="merged")])

    def reach(point: str) -> None:
        if point == "commit.after_intent" and not lost:
            lost.append(point)
            write()

    try:
        process_id, optimizer = world.begin(OptimizingType.FULL, force=True), world.optimizer(1)
        with reaching(reach):
            while world.status(process_id) is ProcessStatus.RUNNING:
                world.run_one(optimizer)
                write()
            world.committing.commit(process_id)
        lake.require()
        done = [one for one in world.commits(process_id) if one.outcome is CommitOutcome.DONE]
        sizes = {
            task.task_id.number: sum(file.size_bytes for file in world.output_of(task).data_files)
            for task in world.tasks(process_id)
        }
    finally:
        world.close()
    share = sum(sizes[number] for one in done for number in one.groups) / sum(sizes.values())
    carried = [one.value for each in done for one in each.receipt.figures if one.name == "rows_carried_over"]
    assert (len(sizes) > 3, bool(lost)) == (True, True)
    assert (sum(carried) > 0, share >= 0.9) == (True, True) if rebase else not sum(carried), (share, carried)


# With everything on that makes looks and rewrites cheap, and with all of it off: the same plans, and all rows


[SEED] = seeds(1, 1)  # fixed in `make test`; `make test-all` draws and prints the base
COMMITS = 12


@pytest.mark.parametrize(
    ("version", "is_on"), sample([(3, True), (1, False), (2, False), (1, True), (2, True), (3, False)], every=2)
)
def test_with_all_modes_and_with_none_the_same_is_planned_and_each_row_is_kept(
    tmp_path: Path, version: int, is_on: bool
) -> None:
    chance, counts = random.Random(f"{SEED} {version}"), Counter[str]()
    catalog = make_catalog(tmp_path)
    properties = {
        "self-optimizing.target-size": "40000",
        "self-optimizing.minor.trigger.file-count": "3",
        f"{COPIES}.min-avg-row-group-size-bytes": "0",
        f"{COPIES}.enabled": "true" if is_on else "false",
    }
    lake = Lake.created(catalog, version, partitioned=True, properties=properties)
    on, off = partial(remembering, counts=counts), lambda home: IcebergFormat(columns=None)
    world = World(tmp_path, catalog, iceberg=on if is_on else off)
    other = Formats([(off if is_on else on)(tmp_path / "other")])
    found = Tables(other, world.catalogs.get, lambda name: world.store.read(lambda db: tables.find(db, name)))
    others = replace(world.tables, tables=found)
    try:
        lake.append([row(at, "ab"[at % 2]) for at in range(6)])
        for number in range(COMMITS):
            _change(lake, chance, number)
            requested, table = chance.choice((None, *OptimizingType)), world.table()
            plan = world.tables.preview(table.identifier, requested, False)
            assert others.preview(table.identifier, requested, False) == plan
            if plan.plan is not None and number % 2:
                counts += _optimized(world, requested)
            lake.require()
        lake.append([row(at, "ab"[at % 2]) for at in range(500, 506)], files=3)
        counts += _optimized(world, OptimizingType.MINOR)
        lake.require()
    finally:
        world.close()
    assert counts[DECODED]
    assert bool(counts["files copied"]) is is_on


def _optimized(world: World, requested: OptimizingType | None) -> Counter[str]:
    process_id = world.begin_and_run(requested)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    return Counter({"files copied": sum(world.output_of(task).files_copied for task in world.tasks(process_id))})


def _change(lake: Lake, chance: random.Random, number: int) -> None:
    """A commit of any kind that the format has."""
    keys = [one.record["id"] for one in lake.placed()]
    some = chance.sample(keys, k=min(2, len(keys)))
    match chance.randrange(4 if lake.version == 1 else 7):
        case 0 | 1:
            lake.append([row(100 + 10 * number + at, "ab"[at % 2]) for at in range(4)], files=2)
        case 2:
            lake.overwrite(lambda one: one["id"] in some, {"value": f"over {number}"})
        case 3:
            lake.expire()
        case 4:
            lake.upsert([row(chance.randrange(8), "a", f"new {number}")])
        case 5:
            lake.delete_equal([row(chance.randrange(8), "b")], everywhere=chance.random() < 0.5)
        case _:
            lake.delete_positions(lambda one: one["id"] in some, per_file=chance.random() < 0.5)
