"""Optimizing tables of format 3 from the plan to the commit: every row keeps its id and its last update."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.formats.iceberg import IcebergTable
from amoro_core.formats.ports import Readable
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.files import TableScan
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.model.verification import Verification
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, make, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files
from tests.engine.oracle import lineage_of
from tests.engine.writer3 import upgrade
from tests.services.world import World
from tests.tiers import sample

TABLE = parse_table("cat.db.t")
MERGE = "self-optimizing.rewrite.use-parquet-row-group-merge"


def verify(world: World, before: int | None = None) -> Verification:
    return world.verifying.verify(TABLE, before, None, lambda: False)


def written(catalog: SqlCatalog, version: int = 3) -> Table:
    """Rows in many small files of two partitions, some of which were written anew."""
    table = make(catalog, version, BY_PART)
    for first in range(0, 60, 10):
        writer.append(table, [row(first + number, "ab"[number % 2]) for number in range(10)])
    writer.upsert(table, [row(3, "b", "new"), row(40, "a", "new")], ["id"])
    return table


@pytest.mark.parametrize(
    ("kind", "copies"),
    sample([*product((OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL), ("true", "false"))], every=3),
)
def test_every_row_keeps_its_lineage_however_often_it_is_rewritten(
    world: World, catalog: SqlCatalog, kind: OptimizingType, copies: str
) -> None:
    table = written(catalog)
    with table.transaction() as change:
        change.set_properties({f"{MERGE}.enabled": copies, f"{MERGE}.min-avg-row-group-size-bytes": "0"})
    start = table.refresh().metadata.current_snapshot_id
    before = lineage_of(table)
    assert len({row_id for row_id, _ in before.values()}) == len(before) == 60
    assert {updated for _, updated in before.values()} == set(range(1, 8))
    assert world.optimize(kind) is ProcessStatus.SUCCESS
    assert lineage_of(table) == before
    writer.append(table, [row(100 + number, "ab"[number % 2]) for number in range(10)])
    before = lineage_of(table)
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    assert lineage_of(table) == before
    assert world.files_copied == (2 if copies == "true" else 0)  # outputs of the first: they store the lineage
    found = verify(world, start)
    assert (found.is_sound, len(found.comparisons)) == (True, 2)


def test_rows_of_an_upgraded_table_get_their_ids_with_the_rewrite_and_keep_their_last_updates(
    world: World, catalog: SqlCatalog
) -> None:
    table = upgrade(written(catalog, 2))
    before = lineage_of(table)
    assert {row_id for row_id, _ in before.values()} == {None}
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    after = lineage_of(table)
    assert {key: updated for key, (_, updated) in after.items()} == {key: one for key, (_, one) in before.items()}
    assert sorted(row_id for row_id, _ in after.values() if row_id is not None) == list(range(60))
    assert verify(world).is_sound


def test_old_and_new_rows_of_an_upgraded_table_keep_theirs_after_a_commit(world: World, catalog: SqlCatalog) -> None:
    table = upgrade(written(catalog, 2))
    writer.append(table, [row(200, "a"), row(201, "b")])
    before = lineage_of(table)
    assert len({row_id for row_id, _ in before.values()} - {None}) == 62
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    assert lineage_of(table) == before
    assert verify(world).is_sound


def rewritten_carelessly(world: World, catalog: SqlCatalog, rows: list[int]) -> Verification:
    """What is found where files without lineage, of these rows, took the place of those of four rows."""
    table = make(catalog, 3)
    writer.append(table, [row(number) for number in range(4)])
    replaced = frozenset(file.path for file in oracle.live_files(table))
    added = tuple(write_data_files(table, [row(number) for number in rows]))
    commit(table, lambda head: Change(added, replaced, summary={PROCESS_ID: "careless"}))
    found = verify(world)
    (partition,) = found.comparisons[0].partitions
    assert (partition.before.rows, partition.after.rows, partition.is_equal) == (4, len(rows), False)
    return found


def test_a_rewrite_that_loses_the_lineage_of_rows_is_found(world: World, catalog: SqlCatalog) -> None:
    (problem,) = rewritten_carelessly(world, catalog, [0, 1, 2, 3]).problems
    assert problem.startswith("the rows of the table are the same in snapshots ")
    assert problem.endswith(", but not their ids or last updates")


def test_other_rows_are_not_said_to_be_the_same(world: World, catalog: SqlCatalog) -> None:
    assert rewritten_carelessly(world, catalog, [0, 1, 2, 4]).problems == ()


@pytest.mark.parametrize(("number", "other", "is_wrong"), [(0, None, True), (0, 7, True), (None, 7, False)])
def test_a_file_that_stays_but_whose_rows_get_other_ids_is_found(
    world: World,
    catalog: SqlCatalog,
    number: int | None,
    other: int | None,
    is_wrong: bool,
) -> None:
    table = make(catalog, 3)
    writer.append(table, [row(1)])
    writer.append(table, [row(2)])
    before, head = (one.snapshot_id for one in table.refresh().metadata.snapshots)
    read = IcebergTable.scan_of

    def scanned(opened: Readable, snapshot_id: int) -> TableScan:
        """As if a careless rewrite of manifests had lost what the first file's rows are numbered from."""
        found = read(opened, snapshot_id)
        first = other if snapshot_id == head else number
        return replace(found, files=[replace(one, data=replace(one.data, first_row_id=first)) for one in found.files])

    world.iceberg.table(scan_of=scanned)
    found = world.verifying.verify(TABLE, None, head, lambda: False)
    (path,) = (file.path for file in oracle.live_files(table, before))
    assert [problem for problem in found.problems if path in problem] == [
        f"the first row id of {path} is {number} in snapshot {before}, and {other} in {head}"
    ] * is_wrong


def test_snapshots_from_before_format_3_are_compared_without_lineage(world: World, catalog: SqlCatalog) -> None:
    table = make(catalog, 2)
    for number in range(4):
        writer.append(table, [row(number)])
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    upgrade(table)
    assert verify(world).is_sound
