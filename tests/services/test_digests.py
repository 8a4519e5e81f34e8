"""The digest of a table's files is kept by the evaluation that read them, and by no reading of its own."""

from __future__ import annotations

import pytest

from amoro_core.errors import StoreFailed, TableNotFound
from amoro_core.model.digests import BOUNDS, KeptDigest
from amoro_core.model.paging import Window
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.services.inspecting import InspectionService
from amoro_core.services.journal import JournalService
from amoro_core.store import digests
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.world import World


def kept(world: World) -> KeptDigest:
    found = JournalService(world.store).digest(parse_table("cat.db.t"))
    assert found is not None
    return found


def test_it_has_the_sizes_of_all_live_files_and_the_figures_of_partitions(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(4):
        writer.append(table, [row(number, "a")])
    writer.append(table, [row(100, "b")])
    writer.upsert(table, [row(1, "a", "new")], ["id"])
    writer.delete_where(table, lambda item: item["id"] == 2)
    world.tables.refresh(world.table().table_id)
    found = kept(world)
    files = InspectionService(world.store, world.tables_of, lambda: world.now).files(
        parse_table("cat.db.t"), Window(100)
    )
    summary = world.table().summary
    assert (found.read_at, found.digest.snapshot_id) == (world.now, world.table_head())
    assert sum(found.digest.data.files) == summary.data_files
    assert sum(found.digest.data.sizes) == summary.data_bytes
    assert sum(found.digest.position_deletes.files) == summary.position_delete_files
    assert sum(found.digest.equality_deletes.files) == summary.equality_delete_files == 1
    deletes = (*found.digest.position_deletes.sizes, *found.digest.equality_deletes.sizes)
    assert sum(deletes) == summary.delete_bytes
    assert files.files.total == summary.data_files + summary.equality_delete_files + summary.position_delete_files
    first, second = found.digest.partitions
    assert (first.path, first.data_files, first.equality_delete_files) == ("part=a", 5, 1)
    assert (second.path, second.data_files, second.records, second.health) == ("part=b", 1, 1, 100)
    assert first.small_files == 5
    assert found.digest.partitions_total == 2


def test_after_the_work_is_done_the_next_evaluation_replaces_it(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    world.tables.refresh(world.table().table_id)
    assert sum(kept(world).digest.data.files) == 3
    process = world.begin(OptimizingType.MINOR)
    world.run_all(process)
    world.committing.commit(process)
    world.later(3600)
    world.tables.refresh(world.table().table_id)
    found = kept(world)
    assert (sum(found.digest.data.files), found.digest.snapshot_id) == (1, world.table_head())


def test_a_table_without_a_snapshot_has_no_files(world: World) -> None:
    writer.make_table(world.catalog, "db.t", SCHEMA)
    world.tables.refresh(world.table().table_id)
    found = kept(world).digest
    assert (found.snapshot_id, found.partitions, sum(found.data.files)) == (None, (), 0)
    assert len(found.data.files) == len(BOUNDS)


def test_before_the_first_look_there_is_none_and_of_an_unknown_table_nothing_is_said(world: World) -> None:
    writer.make_table(world.catalog, "db.t", SCHEMA)
    world.table()
    assert JournalService(world.store).digest(parse_table("cat.db.t")) is None
    with pytest.raises(TableNotFound):
        JournalService(world.store).digest(parse_table("cat.db.u"))


def test_a_table_that_took_the_name_has_none_of_the_former_one(world: World) -> None:
    writer.append(writer.make_table(world.catalog, "db.t", SCHEMA), [row(1)])
    table_id = world.table().table_id
    world.tables.refresh(table_id)
    world.catalog.drop_table("db.t")
    writer.make_table(world.catalog, "db.t", SCHEMA)
    world.tables.refresh(table_id)
    assert kept(world).digest.snapshot_id is None
    world.catalog.drop_table("db.t")
    world.tables.refresh(table_id)
    assert world.store.read(lambda db: digests.find(db, table_id)) is None


def test_a_document_that_is_too_large_is_refused_by_the_database(world: World) -> None:
    writer.append(writer.make_table(world.catalog, "db.t", SCHEMA), [row(1)])
    table_id = world.table().table_id
    world.tables.refresh(table_id)
    made = kept(world)
    with pytest.raises(StoreFailed):
        world.store.write(lambda db: digests.save(db, table_id, b"x" * (digests.LARGEST + 1), made))
    assert kept(world) == made
