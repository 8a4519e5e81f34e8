"""Most of what is rewritten is kept beside writers, in every mode; many tables are looked at in one go."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.tables import Formats, Tables
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.tables import FAULTLESS, OptimizingStatus, OptimizingType, TableRuntime, parse_table
from amoro_core.store import tables
from tests.engine.lakes import MIB, append_unwritten, make_lake, name_of
from tests.engine.writer import make_catalog
from tests.model.lake import COPIES, Lake, row
from tests.services.kept_work import FILES, Writer, made_table, require_rows, rewrite_beside, rewrite_for
from tests.services.rigs import DECODED, remembering
from tests.services.world import World
from tests.tiers import sample, seeds

FORMATS = 2, 3


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., tuple[World, Writer]]]:
    """Makes a world with a table of that format, whose rewrites are rebased or not, and its other writer."""
    worlds: list[World] = []

    def one(version: int, rebase: bool = True, files: int = FILES) -> tuple[World, Writer]:
        worlds.append(made_table(tmp_path / str(len(worlds)), rebase=rebase, version=version, files=files))
        return worlds[-1], Writer(worlds[-1].catalog.load_table("db.t"), seed=1, files=files)

    yield one
    for world in worlds:
        world.close()
    shutil.rmtree(tmp_path)  # gigabytes


@pytest.mark.parametrize(
    ("version", "write", "rebase"), [(2, Writer.delete, True), (3, Writer.merge, True), (3, Writer.delete, False)]
)
def test_beside_a_writer_that_deletes_or_merges_by_position_or_by_vector_work_is_kept(
    make: Callable[..., tuple[World, Writer]], write: Callable[[Writer], None], rebase: bool, version: int
) -> None:
    world, other = make(version, rebase, files=24)
    kept = rewrite_beside(world, lambda: write(other))
    require_rows(world, other)
    assert other.failed == 0
    assert (bool(kept.carried), kept.share >= 0.9) == (True, True) if rebase else not kept.carried, kept


@pytest.mark.parametrize("version", FORMATS)
def test_beside_a_writer_that_replaces_a_file_after_every_sixth_task_most_work_is_kept(
    make: Callable[..., tuple[World, Writer]], version: int
) -> None:
    (world, other), tasks = make(version), 0

    def after_task() -> None:
        nonlocal tasks
        tasks += 1
        if tasks % 6 == 0:
            other.replace()

    kept = rewrite_for(world, lambda: tasks >= 20, after_task)
    require_rows(world, other)
    assert (other.failed, kept.share >= 0.7) == (0, True), kept


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


@pytest.mark.parametrize("seed", seeds(3, 9))
def test_files_that_are_copied_in_another_order_keep_what_others_delete_meanwhile(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    catalog = make_catalog(tmp_path)
    properties = {"self-optimizing.minor.trigger.file-count": "3", f"{COPIES}.enabled": "true"}
    lake = Lake.created(catalog, properties={**properties, f"{COPIES}.min-avg-row-group-size-bytes": "0"})
    world = World(tmp_path, catalog)
    try:
        for at in range(4 + seed % 3):  # every other one has columns of other names
            lake.append([row(10 * at + number) for number in range(chance.randrange(2, 8))])
        process_id = world.begin_and_run(OptimizingType.FULL)
        [task] = world.tasks(process_id)
        position_map = world.output_of(task).position_map
        assert position_map is not None
        assert list(position_map.order) != sorted(position_map.order)
        deleted = set(chance.sample([one.record["id"] for one in lake.placed()], k=5))
        lake.delete_positions(lambda one: one["id"] in deleted)
        assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
        lake.require()
    finally:
        world.close()


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


# Two hundred tables in one catalog: found, evaluated, listed, and a change in one planned within its interval


TABLES = 200
CHANGED = name_of(77)


def look(world: World) -> list[TableRuntime]:
    """Look at every table that is due, as the refreshing loop does."""
    looked = [world.tables.refresh(table_id) for table_id, _ in world.tables.list_due()]
    return [runtime for runtime in looked if runtime is not None]


@pytest.fixture
def lake(world: World, tmp_path: Path) -> CatalogConfig:
    catalog = make_lake(tmp_path / "lake", TABLES)
    world.catalogs.remove("cat")
    properties = {**catalog.properties, "type": "sql", "table.self-optimizing.enabled": "true"}
    return world.catalogs.add(CatalogConfig("cat", tuple(properties.items())))


def test_many_tables_are_found_evaluated_and_listed_once_and_only_what_changed_is_planned(
    world: World, lake: CatalogConfig, tmp_path: Path
) -> None:
    assert len(world.discovery.explore("cat").added) == TABLES
    assert world.discovery.explore("cat").added == ()
    assert len(look(world)) == TABLES
    assert look(world) == []
    listed = world.tables.list_tables("cat")
    assert [runtime.identifier.name for runtime in listed] == [name_of(number) for number in range(TABLES)]
    assert {(runtime.status, runtime.health, runtime.summary.data_files) for runtime in listed} == {
        (OptimizingStatus.IDLE, FAULTLESS, 1)
    }
    assert len({runtime.uuid for runtime in listed}) == TABLES
    catalog = make_catalog(tmp_path / "lake")
    append_unwritten(catalog.load_table(f"db.{CHANGED}"), 12, MIB)
    before = world.tables.find(parse_table(f"cat.db.{CHANGED}"))
    assert before.refreshed_at is not None
    assert before.refresh_at == before.refreshed_at + timedelta(seconds=60)
    world.now = before.refresh_at
    look(world)
    assert [runtime.identifier.name for runtime in world.tables.list_pending()] == [CHANGED]
    catalog.close()
