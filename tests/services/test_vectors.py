"""Tables with deletion vectors: optimized, undone and maintained, without a row that changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.errors import DataFileMissing, TableRefused, UnreadableFile
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.formats.ports import Readable
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.files import TableScan
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.model.verification import Verification
from tests.engine import oracle, writer, writer3
from tests.engine.aging import aged
from tests.engine.builders import BY_PART, SCHEMA, make, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files
from tests.engine.oracle import lineage_of
from tests.engine.parquet_rows import local_path
from tests.engine.writer3 import upgrade
from tests.services.world import World
from tests.tiers import sample

MINOR, MAJOR, FULL = OptimizingType
#: Everything is a segment, so that minor converts.
SEGMENTS = {
    "self-optimizing.fragment-ratio": "1000000000",
    "self-optimizing.target-size": "1048576",
    "self-optimizing.major.trigger.duplicate-ratio": "0.5",
}
PARTS = ("a", 0), ("b", 100)
AT_ONCE = {
    "maintenance.expire-snapshots.trash-keep": "0",
    "maintenance.clean-orphan-files.trash-keep": "0",
    "snapshot.min-count": "1",
}


def made(world: World, version: int = 3, **properties: str) -> Table:
    """Four files in each of two partitions."""
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, version, {**AT_ONCE, **properties})
    for number in range(4):
        writer.append(table, [row(number * 20 + at + first, part) for part, first in PARTS for at in range(20)])
    return table


def vectors_of(table: Table) -> list[oracle.LiveFile]:
    table.refresh()
    return [one for one in oracle.live_files(table) if one.is_vector]


def by_kind(table: Table) -> Counter[str]:
    """How many vectors, position delete files and equality delete files the head has."""
    names = {0: "data", 1: "files", 2: "equality"}
    return Counter("vectors" if one.is_vector else names[one.content] for one in oracle.live_files(table.refresh()))


def has_nothing_to_do(world: World, kind: OptimizingType) -> bool:
    return world.planning.begin(world.table().table_id, trigger="request", requested=kind).process_id is None


def converted(world: World) -> Table:
    """Segments with vectors, a position delete file for each partition and an equality delete."""
    table = made(world, 2, **SEGMENTS)
    writer.delete_where(table, lambda item: item["id"] % 20 == 2)
    writer3.upgrade(table)
    writer3.delete_rows(table, lambda item: item["id"] % 100 in (0, 20, 60))
    writer3.delete_rows(table, lambda item: item["id"] % 100 in (1, 61))
    writer.upsert(table, [row(3, "a", "new")], ["id"])
    assert by_kind(table) == {"data": 9, "vectors": 6, "files": 2, "equality": 1}
    return table


@pytest.mark.parametrize("kind", list(OptimizingType))
def test_no_row_changes_by_rewriting_files_with_vectors(world: World, kind: OptimizingType) -> None:
    table = made(world)
    writer3.delete_rows(table, lambda item: item["id"] % 4 == 1)
    writer3.delete_rows(table, lambda item: item["id"] in (2, 102, 162))
    writer.upsert(table, [row(4, "a", "new")], ["id"])
    before, rows = lineage_of(table), oracle.live_rows(table)
    world.optimized(kind)
    assert (oracle.live_rows(table), lineage_of(table)) == (rows, before)
    assert by_kind(table) == {"data": 2}
    assert has_nothing_to_do(world, kind)


def test_conversions_leave_one_vector_for_each_file_and_nothing_else(world: World) -> None:
    table = converted(world)
    rows = oracle.live_rows(table)
    start = world.table_head()
    process_id = world.optimized(MINOR)
    assert oracle.live_rows(table) == rows
    assert world.verifying.verify(parse_table("cat.db.t"), start, None, lambda: False).is_sound
    assert by_kind(table) == {"data": 9, "vectors": 8}
    assert sorted(one.record_count for one in vectors_of(table)) == [1, 1, 2, 2, 3, 3, 3, 4]
    # The vectors of b's other files stayed as they were; each of two tasks has written a file.
    written = {one.path for one in vectors_of(table) if process_id in one.path}
    assert len(written) == len(world.tasks(process_id)) == 2
    assert has_nothing_to_do(world, MINOR)
    writer3.delete_rows(table, lambda item: item["id"] in (4, 44))
    rows = oracle.live_rows(table)
    world.optimized(FULL)
    assert oracle.live_rows(table) == rows
    assert by_kind(table) == {"data": 2}


def test_undoing_a_conversion_puts_vectors_back_beside_others_of_the_same_file(world: World) -> None:
    """With a limit of files only some are converted: their old vectors lie in a file with some that are still live."""
    table = converted(world)
    with table.transaction() as change:
        change.set_properties({"self-optimizing.max-file-count": "4"})
    before, rows = {(one.path, one.offset) for one in oracle.live_files(table.refresh())}, oracle.live_rows(table)
    process_id = world.optimized(MINOR)
    after = {(one.path, one.offset) for one in oracle.live_files(table.refresh())}
    gone = {path for path, offset in before - after if offset}
    assert gone & {path for path, _ in after}
    begun = world.maintaining.undo(process_id)
    assert begun.process_id, begun.reason
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS, world.process(begun.process_id).failure
    assert {(one.path, one.offset) for one in oracle.live_files(table.refresh())} == before
    assert oracle.live_rows(table) == rows


def test_a_conversion_whose_vector_was_replaced_since_is_not_undone(world: World) -> None:
    table = converted(world)
    process_id = world.optimized(MINOR)
    writer3.delete_rows(table, lambda item: item["id"] == 45)
    rows = oracle.live_rows(table)
    with pytest.raises(Exception, match=r"that it wrote is no longer live"):
        world.maintaining.undo(process_id)
    assert oracle.live_rows(table) == rows


def delete_meanwhile(table: Table, times: int) -> tuple[Counter[Any], Any]:
    """Others delete four rows so often; the rows then, and their lineage."""
    for at in range(times):
        writer3.delete_rows(table, lambda item, at=at: item["id"] in (4 + at, 44 + at, 65 + at, 150 + at))
    return oracle.live_rows(table), lineage_of(table)


@pytest.mark.parametrize("times", [1, 2])
def test_vectors_that_come_while_files_are_converted_are_joined(world: World, times: int) -> None:
    """Of files with an old vector, with a position delete file alone, and without deletes of rows so far."""
    table = converted(world)
    process_id = world.begin_and_run(MINOR)
    rows, _ = delete_meanwhile(table, times)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS, world.process(process_id).failure
    assert oracle.live_rows(table) == rows
    assert by_kind(table) == {"data": 9, "vectors": 8}
    # The files in which all vectors were joined with others are gone.
    named = {local_path(one.path) for one in vectors_of(table)}
    there = {str(path) for path in Path(local_path(table.location())).rglob(f"{process_id}*.puffin")}
    assert there <= named
    assert has_nothing_to_do(world, MINOR)


@pytest.mark.parametrize("times", [1, 2])
def test_vectors_that_come_while_files_are_rewritten_follow_into_the_outputs(world: World, times: int) -> None:
    table = made(world)
    writer3.delete_rows(table, lambda item: item["id"] in (2, 21, 102))
    process_id = world.begin_and_run(FULL)
    left = delete_meanwhile(table, times)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS, world.process(process_id).failure
    assert (oracle.live_rows(table), lineage_of(table)) == left
    assert by_kind(table) == {"data": 2, "vectors": 2}
    assert sum(one.record_count for one in vectors_of(table)) == 4 * times
    world.optimized(FULL)
    assert (oracle.live_rows(table), lineage_of(table)) == left


def test_a_conversion_of_rows_that_came_back_meanwhile_is_dropped(world: World) -> None:
    table = converted(world)
    process_id = world.begin_and_run(MINOR)
    old = next(one for one in vectors_of(table) if one.record_count == 3)
    data = next(one for one in oracle.live_files(table) if one.path == old.referenced)
    kept = oracle.vector_positions(old)[1:]
    change = Change(tuple(writer3.vectors(table, {data: kept})), removed_vectors=frozenset({(old.path, old.offset)}))
    commit(table, lambda head: change)
    rows, head = oracle.live_rows(table), world.table_head()
    world.committing.commit(process_id)
    assert oracle.live_rows(table) == rows
    assert old.referenced in {one.referenced for one in vectors_of(table)}
    assert world.table_head() != head or "rows of it have come back" in world.process(process_id).failure


def test_only_the_vectors_that_dangle_go(world: World) -> None:
    table = made(world)
    writer3.delete_rows(table, lambda item: item["id"] % 100 in (0, 20))
    first = min(oracle.live_files(table), key=lambda one: one.data_sequence).path
    writer.remove_files(table, {first})
    assert by_kind(table) == {"data": 7, "vectors": 4}
    rows = oracle.live_rows(table)
    assert world.run("clean-dangling-delete-files") is ProcessStatus.SUCCESS
    assert by_kind(table) == {"data": 7, "vectors": 3}
    assert {one.referenced for one in vectors_of(table)}.isdisjoint({first})
    assert oracle.live_rows(table) == rows


def test_a_puffin_file_is_deleted_with_the_last_snapshot_that_has_one_of_its_vectors(world: World) -> None:
    table = made(world)
    writer3.delete_rows(table, lambda item: item["id"] % 100 in (0, 20))
    (path,) = {local_path(one.path) for one in vectors_of(table)}
    writer3.delete_rows(
        table, lambda item: item["id"] % 100 == 1
    )  # of one file of each partition: two old vectors stay
    sweep(world, table)
    assert len([one for one in vectors_of(table) if local_path(one.path) == path]) == 2
    assert Path(path).exists()
    rows = oracle.live_rows(table)
    writer3.delete_rows(table, lambda item: item["id"] % 100 == 21)
    assert path not in {local_path(one.path) for one in vectors_of(table)}
    sweep(world, table)
    assert not Path(path).exists()
    assert set(oracle.live_rows(table)) < set(rows)
    for one in vectors_of(table):
        assert Path(local_path(one.path)).exists()


def sweep(world: World, table: Table) -> None:
    """Expire all snapshots but the head, and delete the files that are then due."""
    aged(table, 30)
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    world.done("expire-snapshots")
    assert len(table.refresh().metadata.snapshots) == 1
    world.later(86_400)
    world.done("empty-trash")


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_damaged_vector_fails_the_task_by_its_place_and_nothing_changes(world: World, is_gone: bool) -> None:
    table = made(world)
    writer3.delete_rows(table, lambda item: item["id"] == 0)
    (vector,) = vectors_of(table)
    path = Path(local_path(vector.path))
    content = path.read_bytes()
    path.unlink()
    if not is_gone:
        path.write_bytes(content[: vector.offset + 9] + b"?" + content[vector.offset + 10 :])
    head, files = world.table_head(), {one.path for one in oracle.live_files(table)}
    process_id = world.begin(FULL)
    where = f"{vector.path} does not exist" if is_gone else f"{vector.path} at {vector.offset} has another checksum"
    with pytest.raises(DataFileMissing if is_gone else UnreadableFile, match=where):
        world.run_all(process_id)
    assert (world.table_head(), {one.path for one in oracle.live_files(table)}) == (head, files)


def test_a_head_with_two_vectors_for_one_file_is_refused_and_nothing_changes(world: World) -> None:
    table = made(world)
    writer3.delete_rows(table, lambda item: item["id"] == 0)
    first = vectors_of(table)[0]
    data = next(one for one in oracle.live_files(table) if one.path == first.referenced)
    commit(table, lambda head: Change(tuple(writer3.vectors(head, {data: [1]}))))
    head = world.table_head()
    with pytest.raises(TableRefused, match=f"two deletion vectors name {data.path}") as refused:
        world.begin(FULL)
    assert refused.value.reason == "deletion-vector"
    assert f"{first.path} at {first.offset}" in refused.value.message
    assert world.table_head() == head


# Optimizing tables of format 3 from the plan to the commit: every row keeps its id and its last update


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


def test_a_rewrite_that_loses_the_lineage_of_rows_is_found(world: World, catalog: SqlCatalog) -> None:
    table = make(catalog, 3)
    writer.append(table, [row(number) for number in range(4)])
    replaced = frozenset(file.path for file in oracle.live_files(table))
    added = tuple(write_data_files(table, [row(number) for number in range(4)]))
    commit(table, lambda head: Change(added, replaced, summary={PROCESS_ID: "careless"}))
    found = verify(world)
    (partition,), (problem,) = found.comparisons[0].partitions, found.problems
    assert (partition.before.rows, partition.after.rows, partition.is_equal) == (4, 4, False)
    assert problem.startswith("the rows of the table are the same in snapshots ")
    assert problem.endswith(", but not their ids or last updates")


@pytest.mark.parametrize(("number", "other", "is_wrong"), [(0, None, True), (0, 7, True), (None, 7, False)])
def test_a_file_that_stays_but_whose_rows_get_other_ids_is_found(
    world: World, catalog: SqlCatalog, number: int | None, other: int | None, is_wrong: bool
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
