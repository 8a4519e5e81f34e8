"""Random tables of format 3 under random writers: no rewrite changes a row's id or its last update."""

from __future__ import annotations

import random

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, make, row
from tests.engine.files import Layout
from tests.engine.lineage import Lineage, lineage_of
from tests.engine.writer3 import delete_rows, upgrade
from tests.services.world import World

KINDS = (OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL)
COPIES = "self-optimizing.rewrite.use-parquet-row-group-merge.enabled"
#: Else files as small as these are encoded all the same.
ALL_SIZES = {"self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes": "0"}


def known(before: Lineage, after: Lineage) -> Lineage:
    """What of the lineage after a rewrite was known before: rows from before format 3 get their ids with the commit."""
    return (None if before[0] is None else after[0], after[1])


class Story:
    """A table, and what its writers and a coordinator do to it."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        spec = chance.choice([BY_PART, UNPARTITIONED_PARTITION_SPEC])
        self.table: Table = make(world.catalog, chance.choice([2, 3, 3]), spec)
        self._next = 0
        self.copying = 0  # of these, with files that were copied whole

    def append(self) -> None:
        numbers = range(self._next, self._next + self._chance.randint(1, 30))
        self._next = numbers.stop
        layout = Layout(row_group_rows=self._chance.choice([4, 1000]))
        writer.append(self.table, [row(number, "ab"[number % 2]) for number in numbers], layout=layout)

    def upsert(self) -> None:
        """In their own partition: no key is live twice."""
        chosen = self._chance.sample(range(self._next), min(3, self._next))
        writer.upsert(self.table, [row(number, "ab"[number % 2], "new") for number in chosen], ["id"])

    def delete(self) -> None:
        divisor, rest = self._chance.randint(3, 9), self._chance.randint(0, 2)
        is_new = self.table.refresh().metadata.format_version == 3
        (delete_rows if is_new else writer.delete_where)(self.table, lambda record: record["id"] % divisor == rest)

    def upgrade(self) -> None:
        if self.table.refresh().metadata.format_version < 3:
            upgrade(self.table)

    def optimize(self) -> bool:
        """Whether a process was committed; writers come between its plan and its commit, or don't."""
        with self.table.transaction() as change:
            change.set_properties({**ALL_SIZES, COPIES: self._chance.choice(["true", "false"])})
        kind = self._chance.choice(KINDS)
        table_id = self._world.table().table_id
        process_id = self._world.planning.begin(table_id, trigger="request", requested=kind).process_id
        if process_id is None:
            return False
        self._world.run_all(process_id)
        if self._chance.random() < 0.5:
            self._chance.choice([self.append, self.upsert, self.delete])()
        before, rows = lineage_of(self.table), oracle.live_rows(self.table)
        is_done = self._world.committing.commit(process_id) is ProcessStatus.SUCCESS
        after = lineage_of(self.table)
        oracle.assert_same_rows(rows, oracle.live_rows(self.table))
        if self.table.refresh().metadata.format_version < 3:
            return is_done
        assert {key: known(one, after[key]) for key, one in before.items()} == before
        if is_done:
            ids = [row_id for row_id, _ in after.values()]
            assert len({*ids} - {None}) == len(ids)
        return is_done


@pytest.mark.parametrize("seed", range(8))
def test_rows_keep_their_lineage_through_random_stories(world: World, seed: int) -> None:
    chance = random.Random(seed)
    story = Story(world, chance)
    story.append()
    done = 0
    for _ in range(10):
        step = chance.choice([story.append, story.append, story.upsert, story.delete, story.optimize, story.upgrade])
        step()
    for _ in range(3):
        story.append()
        story.append()
        done += story.optimize()
    assert done
    assert world.files_copied
    assert world.verifying.verify(parse_table("cat.db.t"), None, None, lambda: False).is_sound


def test_rows_that_got_ids_since_the_plan_keep_them(world: World, catalog: SqlCatalog) -> None:
    """The outputs leave the ids of an upgraded table's rows to the commit, but another commit gave them theirs."""
    table = make(catalog, 2)
    for number in range(4):
        writer.append(table, [row(number)])
    upgrade(table)
    process_id = world.begin(OptimizingType.FULL)
    world.run_all(process_id)
    writer.append(table, [row(9)])
    before = lineage_of(table)
    assert None not in {row_id for row_id, _ in before.values()}
    assert world.committing.commit(process_id) is not ProcessStatus.SUCCESS
    assert lineage_of(table) == before
