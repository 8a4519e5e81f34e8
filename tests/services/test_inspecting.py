"""Looking into a table: properties with origins, health by parts, live files."""

import shutil
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import InvalidArgument, TableNotFound, TableRefused
from amoro_core.formats.tables import Tables
from amoro_core.model.config import EffectiveProperty, Enabled, Origin
from amoro_core.model.paging import Page, Window
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.services.catalogs import CatalogChange
from amoro_core.services.inspecting import InspectionService
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.rigs import raising
from tests.services.world import World

TABLE = parse_table("cat.db.t")
TEN = Window(10)


@pytest.fixture
def inspection(world: World) -> InspectionService:
    return InspectionService(world.store, world.tables_of, lambda: world.now)


def test_properties_say_who_said_them(world: World, catalog: SqlCatalog, inspection: InspectionService) -> None:
    writer.make_table(catalog, "db.t", SCHEMA, properties={"self-optimizing.quota": "0.9"})
    world.catalogs.update("cat", CatalogChange({"table.self-optimizing.target-size": "1000"}))
    properties, enabled = inspection.properties(TABLE)
    known = {item.key: item for item in properties}
    assert known["self-optimizing.quota"] == EffectiveProperty("self-optimizing.quota", "0.9", Origin.TABLE, "0.5")
    assert known["self-optimizing.target-size"].origin is Origin.CATALOG
    assert known["self-optimizing.group"] == EffectiveProperty(
        "self-optimizing.group", "default", Origin.DEFAULT, "default"
    )
    assert enabled == Enabled(False, "observed only: it was never enabled")
    world.tables.set_enabled(TABLE, True)
    assert inspection.properties(TABLE)[1] == Enabled(True, "amoro table enable")


def test_a_malformed_property_is_shown_and_refused_only_by_the_evaluation(
    catalog: SqlCatalog, inspection: InspectionService
) -> None:
    writer.make_table(catalog, "db.t", SCHEMA, properties={"self-optimizing.quota": "lots"})
    assert [item.value for item in inspection.properties(TABLE)[0] if item.key == "self-optimizing.quota"] == ["lots"]
    with pytest.raises(TableRefused, match="has the malformed value 'lots'"):
        inspection.health(TABLE)


def test_health_is_that_of_the_head_now(catalog: SqlCatalog, inspection: InspectionService) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    assert inspection.health(TABLE).summary.health_score == 100
    for number in range(3):
        writer.append(table, [row(number)])
    evaluation = inspection.health(TABLE)
    assert evaluation.health is not None
    assert evaluation.health.score == evaluation.summary.health_score
    assert evaluation.summary.data_files == 3
    assert evaluation.basis is not None
    assert 0 < evaluation.basis.weight < 0.001  # three tiny files


def test_a_snapshot_is_the_head_until_the_next_one(catalog: SqlCatalog, inspection: InspectionService) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(table, [row(1)])
    first = catalog.load_table("db.t").current_snapshot().snapshot_id
    assert inspection.is_head(TABLE, first)
    writer.append(table, [row(2)])
    assert not inspection.is_head(TABLE, first)
    catalog.drop_table("db.t")
    assert not inspection.is_head(TABLE, first)


def test_files_are_listed_by_partition_up_to_a_limit(catalog: SqlCatalog, inspection: InspectionService) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART)
    assert inspection.files(TABLE, TEN).files.total == 0
    writer.append(table, [row(1, "b"), row(2, "a")])
    writer.append(table, [row(3, "a")])
    shown = inspection.files(TABLE, Window(2))
    assert (shown.files.total, [item.partition for item in shown.files.items]) == (3, ["part=a", "part=a"])
    writer.append(table, [row(4, "c")])
    rest = inspection.files(TABLE, Window(2, shown.files.next), shown.snapshot_id)
    assert (rest.snapshot_id, rest.files.next) == (shown.snapshot_id, "")
    assert [item.partition for item in rest.files.items] == ["part=b"]
    with pytest.raises(InvalidArgument, match="the table has no live file 'x'"):
        inspection.files(TABLE, Window(2, "x"))
    with pytest.raises(InvalidArgument, match="has no snapshot 5"):
        inspection.files(TABLE, TEN, 5)
    assert [item.file.record_count for item in inspection.files(TABLE, TEN).files.items] == [1, 1, 1, 1]


def test_a_table_that_does_not_exist_is_not_found(inspection: InspectionService) -> None:
    for look in (inspection.properties, inspection.health, lambda name: inspection.files(name, Window(1))):
        with pytest.raises(TableNotFound):
            look(TABLE)


def test_snapshots_are_listed_newest_first_with_the_process_that_made_them(world: World, catalog: SqlCatalog) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    inspection = InspectionService(world.store, world.tables_of, lambda: world.now)
    assert inspection.snapshots(TABLE, TEN) == Page((), 0)
    for number in range(2):
        writer.append(table, [row(number)])
    process = world.begin(OptimizingType.MINOR)
    world.run_all(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    head, middle, first = inspection.snapshots(TABLE, TEN).items
    assert (head.operation, head.refs, head.parent_id) == ("replace", ("main",), middle.snapshot_id)
    assert head.summary["amoro.process-id"] == process
    assert (first.parent_id, first.refs, first.sequence_number) == (None, (), 1)


def test_health_is_told_where_nothing_can_be_committed(world: World, catalog: SqlCatalog, tmp_path: Path) -> None:
    """A file-system catalog is read only: `amoro table files` and `snapshots` read it, so does `amoro table health`."""
    table = writer.make_table(catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    place = tmp_path / "lake" / "db" / "t" / "metadata"
    place.mkdir(parents=True)
    shutil.copy(table.metadata_location.removeprefix("file://"), place / "v1.metadata.json")
    config = CatalogConfig(
        "files",
        (("type", "hadoop"), ("warehouse", (tmp_path / "lake").as_uri())),
        allowed_locations=(table.location(),),
    )
    inspection = InspectionService(world.store, Tables(world.formats, lambda _: config), lambda: world.now)
    evaluation = inspection.health(parse_table("files.db.t"))
    assert (evaluation.summary.data_files, evaluation.health) == (3, inspection_of(world).health(TABLE).health)


def inspection_of(world: World) -> InspectionService:
    return InspectionService(world.store, world.tables_of, lambda: world.now)


def test_what_is_known_is_told_without_the_catalog(
    world: World, catalog: SqlCatalog, inspection: InspectionService
) -> None:
    writer.make_table(catalog, "db.t", SCHEMA, properties={"self-optimizing.quota": "0.9"})
    known = world.tables.refresh(world.table().table_id)
    assert known is not None

    world.iceberg.catalog(load=raising(AssertionError("the catalog is asked")))
    assert world.catalogs.resolve(str(known.table_id)) == TABLE
    assert world.tables.find_known(TABLE) == known
    properties, _ = inspection.properties(TABLE, known_only=True)
    assert EffectiveProperty("self-optimizing.quota", "0.9", Origin.TABLE, "0.5") in properties
    other = parse_table("cat.db.other")
    with pytest.raises(TableNotFound, match=r"table cat\.db\.other is not known"):
        world.tables.find_known(other)
    with pytest.raises(TableNotFound, match=r"table cat\.db\.other is not known"):
        inspection.properties(other, known_only=True)
    for number in (known.table_id + 1, 2**64):
        with pytest.raises(TableNotFound, match=f"no table has the number {number}"):
            world.catalogs.resolve(str(number))
