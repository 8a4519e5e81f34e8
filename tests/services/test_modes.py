"""With everything on that makes looks and rewrites cheap, and with all of it off: the same plans, and all rows."""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.tables import Formats, Tables
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.services.tables import TableService
from amoro_core.store import tables
from tests.engine.writer import make_catalog
from tests.model.lake import COPIES, Lake, row
from tests.services.remembering import DECODED, remembering
from tests.services.world import World

SEED = int(os.environ.get("AMORO_SEED") or secrets.randbits(32))
COMMITS = 12


@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_with_all_modes_and_with_none_the_same_is_planned_and_each_row_is_kept(
    tmp_path: Path, version: int, is_on: bool
) -> None:
    print(f"replay with AMORO_SEED={SEED}")
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
    others = TableService(world.store, found, lambda: world.now)
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
    process_id = world.begin(requested)
    world.run_all(process_id)
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
