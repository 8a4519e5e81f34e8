"""Verifying real tables: what a rewrite did is proven, and what it did not do right is found."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.errors import AttemptAbandoned, SnapshotNotFound, TableNotFound
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.model.verification import Verification
from amoro_core.services.verification import VerifyingService
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files
from tests.engine.parquet_rows import local_path
from tests.services.world import World

TABLE = parse_table("cat.db.t")


@pytest.fixture
def verifying(world: World) -> VerifyingService:
    return world.verifying


def verify(service: VerifyingService, before: int | None = None, after: int | None = None) -> Verification:
    return service.verify(TABLE, before, after, lambda: False)


def table_with_deletes(catalog: SqlCatalog, properties: dict[str, str] | None = None) -> Table:
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART, properties=properties)
    for first in (0, 100):
        writer.append(table, [row(first + number, part) for number in range(10) for part in "ab"])
    writer.upsert(table, [row(3, "a", "new")], ["id"])
    writer.delete_where(table, lambda record: record["id"] == 105)
    return table


def replace_files(table: Table, rows: list[dict[str, object]]) -> None:
    """A rewrite of all data by somebody careless: these rows take the place of those that were there."""
    files = oracle.live_files(table)
    added = tuple(write_data_files(table, rows))
    commit(
        table,
        lambda head: Change(added, frozenset(file.path for file in files), summary={PROCESS_ID: "careless"}),
    )


def test_an_optimizing_with_writers_before_and_after_it_is_proven(
    world: World, catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    table = table_with_deletes(catalog)
    process = world.begin(OptimizingType.FULL)
    world.run_all(process)
    writer.append(table, [row(500, "a"), row(501, "b")])
    writer.upsert(table, [row(101, "b", "newer")], ["id"])
    parent = table.refresh().metadata.current_snapshot_id
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    ours = table.refresh().metadata.current_snapshot_id
    writer.delete_where(table, lambda record: record["id"] == 500)
    head = table.refresh().metadata.current_snapshot_id

    found = verify(verifying)

    assert found.is_sound
    assert found.selection.snapshot_id == head
    (comparison,) = found.comparisons
    assert (comparison.span.before, comparison.span.after) == (parent, ours)
    assert comparison.span.process_ids == (process,)
    assert comparison.files_in_both == 3  # what came between plan and commit
    rows = [(one.partition, one.before.rows, one.after.rows) for one in comparison.partitions]
    live = oracle.live_rows(table, ours).total()
    assert rows == [("part=a", 19, 19), ("part=b", 18, 18)]
    assert live == sum(count for _, count, _ in rows) + 3
    assert found.files == len(oracle.live_files(table))


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        ([row(number) for number in range(9)], (10, 9)),
        ([row(number) for number in range(11)], (10, 11)),
        ([*(row(number) for number in range(9)), row(9, value="other")], (10, 10)),
        ([*(row(number) for number in range(9)), row(8)], (10, 10)),
    ],
    ids=["lost", "added", "changed", "one twice and one lost"],
)
def test_a_rewrite_that_does_not_keep_every_row_is_found(
    catalog: SqlCatalog, verifying: VerifyingService, rows: list[dict[str, object]], counts: tuple[int, int]
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(table, [row(number) for number in range(10)], files=2)
    replace_files(table, rows)
    found = verify(verifying)
    (partition,) = found.comparisons[0].partitions
    assert (partition.before.rows, partition.after.rows) == counts
    assert (partition.is_equal, found.is_sound, found.problems) == (False, False, ())


def test_a_row_that_moved_to_another_partition_is_found(catalog: SqlCatalog, verifying: VerifyingService) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART)
    writer.append(table, [row(1, "a"), row(2, "b")])
    replace_files(table, [row(1, "b"), row(2, "b")])
    assert [one.is_equal for one in verify(verifying).comparisons[0].partitions] == [False, False]


def optimized(world: World, catalog: SqlCatalog) -> tuple[Table, Path]:
    """A table that was optimized to one file, which is not compressed."""
    plain = {"write.parquet.compression-codec": "uncompressed"}
    table = writer.make_table(catalog, "db.t", SCHEMA, properties=plain)
    for number in range(3):
        writer.append(table, [row(number, value=f"value-{number}")])
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    (file,) = oracle.live_files(table)
    return table, Path(local_path(file.path))


def test_a_changed_byte_of_a_rewritten_file_is_found(
    world: World, catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    _, path = optimized(world, catalog)
    assert verify(verifying).is_sound
    content = path.read_bytes()
    assert content.count(b"value-1") >= 1
    path.write_bytes(content.replace(b"value-1", b"value-7"))
    found = verify(verifying)
    assert not found.is_sound
    (problem,) = found.problems
    assert path.name in problem
    assert "CRC checksum verification failed" in problem


def test_a_rewritten_file_that_is_gone_or_cut_is_a_problem_with_its_name(
    world: World, catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    _, path = optimized(world, catalog)
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    cut = verify(verifying)
    assert not cut.is_sound
    assert any(f"has {len(content) - 10} bytes, but the manifest says {len(content)}" in text for text in cut.problems)
    path.unlink()
    gone = verify(verifying)
    assert not gone.is_sound
    assert [text for text in gone.problems if str(path) in text and "does not exist" in text] == list(gone.problems)


def test_a_file_that_no_rewrite_touched_is_looked_for_too(
    world: World, catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    table, _ = optimized(world, catalog)
    writer.append(table, [row(9)])
    (path,) = (Path(local_path(file.path)) for file in oracle.live_files(table) if file.data_sequence == 5)
    assert verify(verifying).is_sound
    path.unlink()
    found = verify(verifying)
    assert (found.comparisons[0].is_equal, found.is_sound) == (True, False)


def test_a_conversion_of_deletes_is_proven(world: World, catalog: SqlCatalog, verifying: VerifyingService) -> None:
    """The data file stays; its equality deletes become positions."""
    properties = {"self-optimizing.target-size": "4096", "self-optimizing.fragment-ratio": "8"}
    table = writer.make_table(catalog, "db.t", SCHEMA, properties=properties)
    writer.append(table, [row(number, value=f"{number:0200d}") for number in range(400)])
    for number in (1, 2, 3):
        writer.upsert(table, [row(number, value="new")], ["id"])
    assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS
    assert oracle.POSITION_DELETES in {file.content for file in oracle.live_files(table)}
    found = verify(verifying)
    assert found.is_sound
    assert [(one.before.rows, one.after.rows) for one in found.comparisons[0].partitions] == [(399, 399)]
    assert found.comparisons[0].files_in_both == 1  # the newest row has no delete


def test_a_rewrite_of_old_files_under_a_newer_schema_is_proven(
    world: World, catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    table = table_with_deletes(catalog)
    with table.update_schema() as change:
        change.rename_column("value", "text")
        change.add_column("more", SCHEMA.find_type("id"))
    writer.append(table, [{"id": 7, "part": "a", "text": "t", "more": 1}])
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    with table.update_schema() as change:
        change.delete_column("text")
        change.add_column("later", SCHEMA.find_type("id"))
    found = verify(verifying)
    assert (found.is_sound, len(found.comparisons[0].partitions)) == (True, 2)


def test_all_rewrites_since_a_snapshot_are_proven_and_others_are_named(
    world: World, catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    table = table_with_deletes(catalog)
    start = table.refresh().metadata.current_snapshot_id
    assert start is not None
    for number in range(2):
        assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
        writer.append(table, [row(900 + number)])
        writer.append(table, [row(950 + number)])
    found = verify(verifying, before=start)
    assert (found.is_sound, len(found.comparisons), len(found.selection.others)) == (True, 2, 4)


def test_a_table_that_was_never_optimized_has_nothing_to_compare(
    catalog: SqlCatalog, verifying: VerifyingService
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    empty = verify(verifying)
    assert (empty.is_sound, empty.selection.note) == (True, "the table has no snapshot")
    writer.append(table, [row(1)])
    found = verify(verifying)
    assert (found.is_sound, found.comparisons, found.files) == (True, (), 1)
    with pytest.raises(SnapshotNotFound):
        verify(verifying, before=1)
    with pytest.raises(TableNotFound):
        verifying.verify(parse_table("cat.db.nope"), None, None, lambda: False)


def test_reading_stops_when_nobody_waits_for_it(world: World, catalog: SqlCatalog, verifying: VerifyingService) -> None:
    optimized(world, catalog)
    with pytest.raises(AttemptAbandoned):
        verifying.verify(TABLE, None, None, lambda: True)
