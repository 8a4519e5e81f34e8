"""Metadata files that fall out of the log: deleted after our own commits where the table says so, and kept else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.errors import CatalogUnavailable
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.stored import Ended, Removal
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.faults.rest import RestServer
from tests.services.test_expiring import RestWorld, begin, expire, ids, made
from tests.services.world import World

ON = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
OFF = {"write.metadata.previous-versions-max": "2"}
SEND = IcebergTable.send


def make_table(catalog: SqlCatalog, properties: Mapping[str, str]) -> Table:
    table = writer.make_table(catalog, "db.t", SCHEMA, properties=dict(properties))
    for number in range(3):
        writer.append(table, [row(number)])
    return table


def stored(table: Table) -> set[str]:
    folder = Path(local_path(table.refresh().metadata_location)).parent
    return {path.name for path in folder.glob("*.metadata.json")}


def in_log(table: Table) -> set[str]:
    """The names of the newest metadata file and of those that its log has."""
    table.refresh()
    places = [table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)]
    return {Path(local_path(place)).name for place in places}


def optimize(world: World, table: Table, times: int = 3) -> set[str]:
    """Rewrite all files so many times, nobody else commits; the names of what fell out of the log."""
    fallen: set[str] = set()
    for _ in range(times):
        before = in_log(table)
        process_id = world.begin(OptimizingType.FULL, force=True)
        world.run_all(process_id)
        assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
        fallen |= before - in_log(table)
    return fallen


def test_those_that_fall_out_of_the_log_go_with_our_commits(world: World) -> None:
    table = make_table(world.catalog, ON)
    fallen = optimize(world, table)
    assert len(fallen) == 3
    assert fallen.isdisjoint(stored(table))
    assert in_log(table) <= stored(table)
    assert oracle.live_rows(table).total() == 3


def test_where_deleted_files_are_to_be_moved_they_stay(world: World) -> None:
    table = make_table(world.catalog, {**ON, "table-trash.enabled": "true"})
    fallen = optimize(world, table)
    assert len(fallen) == 3
    assert fallen <= stored(table)


def test_without_the_property_they_stay(world: World) -> None:
    table = make_table(world.catalog, OFF)
    fallen = optimize(world, table)
    assert len(fallen) == 3
    assert fallen <= stored(table)


def test_a_rest_catalog_s_are_its_own_matter(tmp_path: Path, catalog: SqlCatalog) -> None:
    (tmp_path / "home").mkdir()
    world = RestWorld(tmp_path / "home", catalog)
    with RestServer(catalog) as server:
        warehouse = catalog.properties["warehouse"]
        world.catalogs.add(CatalogConfig("rest", (("type", "rest"), ("uri", server.uri), ("warehouse", warehouse))))
        table = make_table(catalog, ON)
        before = stored(table)
        process_id = world.begin(OptimizingType.FULL, "rest.db.t")
        world.run_all(process_id)
        assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
        assert len(in_log(table)) == 3
        assert stored(table) == before | in_log(table)
        assert len(stored(table)) == len(before) + 1
    world.close()


def test_what_an_expiry_was_based_on_stays_until_it_can_t_be_undone_any_more(world: World) -> None:
    table = made(world, properties=ON)
    rows = oracle.live_rows(table, ids(table)[0])
    first = ids(table)[0]
    base = Path(local_path(table.metadata_location)).name
    expired = expire(world).process_id
    fallen = optimize(world, table)
    assert base in fallen
    assert fallen & stored(table) == {base}
    undo = world.maintaining.undo(expired).process_id
    assert world.committing.commit(undo) is ProcessStatus.SUCCESS
    back = table.refresh().snapshot_by_name(f"restored-{first}")
    assert back is not None
    assert oracle.live_rows(table, back.snapshot_id) == rows


def test_an_expiry_that_has_not_condemned_yet_finds_its_files(world: World) -> None:
    table = made(world, properties=ON)
    base = Path(local_path(table.metadata_location)).name
    process_id = begin(world)

    def fail(*_: object) -> None:
        raise CatalogUnavailable("not now")

    world.iceberg.table(released=fail)
    with pytest.raises(CatalogUnavailable):
        world.committing.commit(process_id)
    assert base in optimize(world, table)
    assert base in stored(table)
    world.iceberg.restore()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    receipt = world.optimizing.find_process(process_id).process.receipt
    assert receipt is not None
    assert {one.name for one in receipt.figures if one.name.endswith("_condemned")} >= {"manifest_list_files_condemned"}


def test_once_its_files_are_deleted_what_an_expiry_was_based_on_goes_as_others_do(world: World) -> None:
    table = made(world, properties={**ON, "maintenance.expire-snapshots.trash-keep": "0"})
    base = Path(local_path(table.metadata_location)).name
    expire(world)
    assert world.run("empty-trash") is ProcessStatus.SUCCESS
    fallen = optimize(world, table)
    assert base in fallen
    assert fallen.isdisjoint(stored(table))


def test_one_that_can_t_be_deleted_is_no_failure(world: World) -> None:
    def delete(self: IcebergTable, paths: Iterable[str]) -> Mapping[str, Removal]:
        return {path: Removal(Ended.FAILED, "denied") for path in paths}

    table = make_table(world.catalog, ON)
    world.iceberg.table(delete_many=delete)
    assert optimize(world, table) <= stored(table)


def test_nor_is_a_storage_that_does_not_answer(world: World) -> None:
    def delete(self: IcebergTable, paths: Iterable[str]) -> Mapping[str, Removal]:
        raise CatalogUnavailable("no answer")

    table = make_table(world.catalog, ON)
    world.iceberg.table(delete_many=delete)
    assert optimize(world, table) <= stored(table)


def test_after_a_commit_of_which_nobody_knows_none_goes(world: World) -> None:
    table = make_table(world.catalog, ON)
    before = stored(table)
    process_id = world.begin(OptimizingType.FULL)
    world.run_all(process_id)
    world.iceberg.lose_answers(arrives=True)
    assert world.committing.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.iceberg.restore()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert stored(table) > before
