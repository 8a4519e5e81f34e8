"""Most of what is rewritten is kept beside writers; the same is planned and every row kept in every mode."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.tables import Formats, Tables
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.store import processes, tables
from tests.engine import oracle, writer, writer3
from tests.engine.writer import make_catalog
from tests.model.lake import COPIES, Lake, row
from tests.services.rigs import DECODED, reaching, remembering
from tests.services.world import World
from tests.tiers import sample, seeds

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "version", LongType(), required=False),
    NestedField(3, "filler", StringType(), required=False),
)
FILES, ROWS, WIDTH, TARGET_BYTES = 24, 20_000, 200, 16_000_000  # 4 MB each


class Writer:
    """Another writer, with what it has made of the rows: the version of each id that is live."""

    def __init__(self, table: Table) -> None:
        self.rows = dict.fromkeys(range(FILES * ROWS), 0)
        self._table, self._chance = table, random.Random(1)

    def delete(self) -> None:
        """Delete one random row by position."""
        self._marked(1, merged=False)

    def merge(self) -> None:
        """Give three random rows another version: deleted by position and written anew in one snapshot."""
        self._marked(3, merged=True)

    def _marked(self, count: int, *, merged: bool) -> None:
        files = oracle.files_in(self._table.refresh().metadata)
        path = self._chance.choice([file.path for file in files if file.content == oracle.DATA])
        read = pq.read_table(path.removeprefix("file://"), columns=["id", "version"])
        positions = sorted(self._chance.sample(range(len(read)), min(count, len(read))))
        # A row of an earlier version, and one that is deleted, stays so.
        hit = {
            id_: version + 1
            for id_, version in zip(*(column.to_pylist() for column in read.take(positions).columns), strict=True)
            if self.rows.get(id_) == version
        }
        new = [{"id": id_, "version": version, "filler": "merged"} for id_, version in hit.items()] if merged else []
        if self._table.metadata.format_version == 3:
            writer3.delete_positions(self._table, {path: positions}, new)
        else:
            writer.row_delta(self._table, new, position_deletes=[(path, positions)], per_file=True)
        if merged:
            self.rows.update(hit)
        else:
            for id_ in hit:
                self.rows.pop(id_)


def made_table(directory: Path, version: int, rebase: bool) -> World:
    """A world whose table has the files, with rows of random text."""
    catalog = make_catalog(directory)
    properties = {
        "self-optimizing.target-size": str(TARGET_BYTES),
        "self-optimizing.max-task-size-bytes": str(TARGET_BYTES),
        "self-optimizing.rebase.enabled": str(rebase).lower(),
        "write.parquet.compression-codec": "zstd",
    }
    table = writer.make_table(catalog, "db.t", SCHEMA, format_version=version, properties=properties)
    chance = np.random.default_rng(1)
    for number in range(FILES):
        text = chance.integers(32, 127, (ROWS, WIDTH), np.uint8).tobytes().decode()
        filler = [text[at : at + WIDTH] for at in range(0, len(text), WIDTH)]
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        writer.append(table, pa.table({"id": ids, "version": np.zeros(ROWS, np.int64), "filler": filler}))
    return World(directory, catalog)


def rewritten_beside(world: World, write: Callable[[], None]) -> tuple[float, int]:
    """Rewrite the whole table, while another writer commits after every second task, and once between the staging and
    the sending of the commit, which then loses and is made anew: the share of bytes that a commit has, and rows carried
    over."""
    optimizer, tasks, lost = world.optimizer(1), 0, list[str]()

    def reach(point: str) -> None:
        if point == "commit.after_intent" and not lost:
            lost.append(point)
            write()

    with reaching(reach):
        process_id = world.begin(OptimizingType.FULL, force=True)
        while world.status(process_id) is ProcessStatus.RUNNING:
            world.run_one(optimizer)
            tasks += 1
            if tasks % 2 == 0:
                write()
        world.committing.commit(process_id)
    assert lost
    attempts = world.store.read(lambda db: processes.list_commits(db, process_id))
    done = [one for one in attempts if one.outcome is CommitOutcome.DONE]
    landed = {number for one in done for number in one.groups}
    sizes = {
        task.task_id.number: sum(file.size_bytes for file in world.output_of(task).data_files)
        for task in world.tasks(process_id)
    }
    carried = [one.value for each in done for one in each.receipt.figures if one.name == "rows_carried_over"]
    return sum(sizes[number] for number in landed) / sum(sizes.values()), sum(carried)


@pytest.mark.parametrize(
    ("version", "write", "rebase"), [(2, Writer.delete, True), (3, Writer.merge, True), (3, Writer.delete, False)]
)
def test_beside_a_writer_that_deletes_or_merges_by_position_or_by_vector_work_is_kept(
    tmp_path: Path, write: Callable[[Writer], None], rebase: bool, version: int
) -> None:
    world = made_table(tmp_path, version, rebase)
    other = Writer(world.catalog.load_table("db.t"))
    try:
        share, carried = rewritten_beside(world, lambda: write(other))
        read = world.catalog.load_table("db.t").scan(selected_fields=("id", "version")).to_arrow()
    finally:
        world.close()
    found = Counter(zip(read.column("id").to_pylist(), read.column("version").to_pylist(), strict=True))
    assert found == Counter(other.rows.items())
    assert (carried > 0, share >= 0.9) == (True, True) if rebase else not carried, (share, carried)


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
