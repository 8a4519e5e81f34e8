"""What a process removes after its work, and metadata files that fall out of the log with its commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.errors import AccessDenied, CatalogUnavailable
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.maintenance import Ended, Removal
from amoro_core.model.processes import CatalogConfig, ProcessStatus, Receipt
from amoro_core.model.tables import OptimizingType
from amoro_core.store import actions, processes
from tests.condemning import Sweeping
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.faults.rest import RestServer
from tests.services.rigs import Limits, dying_at, raising
from tests.services.test_expiring import NAME, RestWorld, expire, ids, made
from tests.services.world import World, make_small_files


class Place:
    """A table with files that nothing names, and the services."""

    def __init__(self, new_world: Callable[..., World]) -> None:
        self.listed: list[str] = []
        self.world = new_world(Sweeping(lambda table: self.listed))
        self.table = writer.make_table(self.world.catalog, "db.t", SCHEMA, BY_PART)
        writer.append(self.table, [row(1, "a"), row(2, "a")])
        self.data = Path(self.table.location().removeprefix("file://")) / "data"

    def stray(self, number: int) -> list[str]:
        """So many more files that are to be removed."""
        made = [self.data / f"stray-{len(self.listed) + one}.parquet" for one in range(number)]
        for path in made:
            path.write_bytes(b"x")
        self.listed += [path.as_uri() for path in made]
        return [path.as_uri() for path in made]

    def left(self) -> list[str]:
        return sorted(path.name for path in self.data.rglob("stray-*"))

    def begin(self) -> str:
        return self.world.maintaining.begin(self.world.table().table_id, "sweep", trigger="request").process_id

    def written(self, process_id: str) -> list[str]:
        return self.world.store.read(lambda db: processes.list_clearing(db, process_id, 100))


@pytest.fixture
def place(new_world: Callable[..., World]) -> Place:
    return Place(new_world)


def test_it_ends_without_a_commit_and_its_files_are_gone(place: Place) -> None:
    place.stray(3)
    process_id = place.begin()
    assert (place.world.process(process_id).status, place.world.heard.commits) == (ProcessStatus.RUNNING, [process_id])
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert place.left() == []
    assert place.world.process(process_id).receipt == Receipt.brief("swept")
    assert len(place.table.refresh().metadata.snapshots) == 1
    record = place.world.store.read(lambda db: actions.get(db, place.world.table().table_id, "sweep"))
    assert (record.last_at, record.reason) == (place.world.now, "sweep has ended")


def test_a_file_that_the_table_names_stays_and_is_told(place: Place) -> None:
    place.stray(2)
    live = [file.path for file in oracle.live_files(place.table)]
    place.listed += live
    process_id = place.begin()
    assert place.world.committing.commit(process_id) is ProcessStatus.PARTIAL
    assert place.left() == []
    assert all(Path(path.removeprefix("file://")).exists() for path in live)
    kept = f"{len(live)} file not removed: the table names them, or they could not be removed"
    assert place.world.process(process_id).failure == kept


@pytest.mark.parametrize("point", ["clear.before_delete", "clear.after_delete", "clear.after_done"])
def test_killed_anywhere_it_goes_on_with_what_was_written_down(place: Place, limits: Limits, point: str) -> None:
    limits(cleared_at_once=2)
    listed = place.stray(5)
    process_id = place.begin()
    with dying_at(point):
        place.world.committing.commit(process_id)
    if point != "clear.after_done":
        assert place.world.process(process_id).status is ProcessStatus.CLEARING
        assert place.written(process_id) == listed  # all of them before the first goes
        place.listed.clear()
    place.world.restart()
    assert place.world.heard.commits == ([] if point == "clear.after_done" else [process_id])
    assert place.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert (place.left(), place.written(process_id)) == ([], [])


def test_what_storage_refuses_for_good_is_given_up_and_told(place: Place) -> None:
    place.stray(3)
    process_id = place.begin()

    place.world.iceberg.table(delete_unreferenced=raising(AccessDenied("no right to delete")))
    for _ in range(2):
        with pytest.raises(AccessDenied):
            place.world.committing.commit(process_id)
    assert place.world.committing.commit(process_id) is ProcessStatus.PARTIAL
    assert place.world.process(process_id).failure == "3 files not removed: no right to delete"
    assert len(place.left()) == 3


# Metadata files that fall out of the log: deleted after our own commits where the table says so, and kept else


ON = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
OFF = {"write.metadata.previous-versions-max": "2"}


def make_table(catalog: SqlCatalog, properties: Mapping[str, str]) -> Table:
    return make_small_files(catalog, properties=dict(properties))


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
        process_id = world.begin_and_run(OptimizingType.FULL, force=True)
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


@pytest.mark.parametrize("properties", [{**ON, "table-trash.enabled": "true"}, OFF], ids=["to be moved", "off"])
def test_where_deleted_files_are_to_be_moved_and_without_the_property_they_stay(
    world: World, properties: dict[str, str]
) -> None:
    table = make_table(world.catalog, properties)
    fallen = optimize(world, table)
    assert len(fallen) == 3
    assert fallen <= stored(table)


def test_a_rest_catalog_s_are_its_own_matter(new_world: Callable[..., World], catalog: SqlCatalog) -> None:
    world = new_world(kind=RestWorld)
    with RestServer(catalog) as server:
        warehouse = catalog.properties["warehouse"]
        world.catalogs.add(CatalogConfig("rest", (("type", "rest"), ("uri", server.uri), ("warehouse", warehouse))))
        table = make_table(catalog, ON)
        before = stored(table)
        process_id = world.begin_and_run(OptimizingType.FULL, "rest.db.t")
        assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
        assert len(in_log(table)) == 3
        assert stored(table) == before | in_log(table)
        assert len(stored(table)) == len(before) + 1


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
    assert oracle.live_rows(table, back.snapshot_id) == rows


def test_an_expiry_that_has_not_condemned_yet_finds_its_files(world: World) -> None:
    table = made(world, properties=ON)
    base = Path(local_path(table.metadata_location)).name
    process_id = world.begin_action(NAME)

    world.iceberg.table(released=raising(CatalogUnavailable("not now")))
    with pytest.raises(CatalogUnavailable):
        world.committing.commit(process_id)
    assert base in optimize(world, table)
    assert base in stored(table)
    world.iceberg.restore()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    receipt = world.receipt(process_id)
    assert {one.name for one in receipt.figures if one.name.endswith("_condemned")} >= {"manifest_list_files_condemned"}


def test_once_its_files_are_deleted_what_an_expiry_was_based_on_goes_as_others_do(world: World) -> None:
    table = made(world, properties={**ON, "maintenance.expire-snapshots.trash-keep": "0"})
    base = Path(local_path(table.metadata_location)).name
    expire(world)
    assert world.run("empty-trash") is ProcessStatus.SUCCESS
    fallen = optimize(world, table)
    assert base in fallen
    assert fallen.isdisjoint(stored(table))


@pytest.mark.parametrize("answers", [True, False])
def test_one_that_can_t_be_deleted_is_no_failure_nor_is_a_storage_that_does_not_answer(
    world: World, answers: bool
) -> None:
    def delete(self: FileAccess, paths: Iterable[str]) -> Mapping[str, Removal]:
        if not answers:
            raise CatalogUnavailable("no answer")
        return {path: Removal(Ended.FAILED, "denied") for path in paths}

    table = make_table(world.catalog, ON)
    world.iceberg.files(delete_many=delete)
    assert optimize(world, table) <= stored(table)


def test_after_a_commit_of_which_nobody_knows_none_goes(world: World) -> None:
    table = make_table(world.catalog, ON)
    before = stored(table)
    process_id = world.begin_and_run(OptimizingType.FULL)
    world.commit_unknown(process_id, arrives=True)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert stored(table) > before
