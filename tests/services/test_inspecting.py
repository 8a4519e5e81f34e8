"""Looking into a table: properties with origins, health, files, digests, snapshots compared, and how it is read."""

from __future__ import annotations

import json
import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.actions.snapshots import NAME
from amoro_core.errors import InvalidArgument, TableNotFound, TableRefused
from amoro_core.formats.tables import Tables
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.optimizing_config import EffectiveProperty
from amoro_core.model.paging import Window
from amoro_core.model.plans import StoredDigest
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.scan_stats import ColumnChoice, ColumnFilter, Operator, ScanRecord, ScanUse
from amoro_core.model.tables import OptimizingType, Origin, parse_table
from amoro_core.planning.clustering.model import ClusterVerdict
from amoro_core.services.scan_learning import MOST_SCANS, MOST_TOLD
from amoro_core.services.tables import InspectionService
from amoro_core.store import table_stats
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.clustered import with_property
from tests.services.rigs import raising
from tests.services.test_expiring import ids, made
from tests.services.world import World, make_small_files

TABLE = parse_table("cat.db.t")
TEN = Window(10)


@pytest.fixture
def inspection(world: World) -> Any:
    return world.services.inspection


def test_a_malformed_property_is_shown_and_refused_only_by_the_evaluation(catalog: SqlCatalog, inspection: Any) -> None:
    writer.make_table(catalog, "db.t", SCHEMA, properties={"self-optimizing.quota": "lots"})
    assert [item.value for item in inspection.properties(TABLE)[0] if item.key == "self-optimizing.quota"] == ["lots"]
    with pytest.raises(TableRefused, match="has the malformed value 'lots'"):
        inspection.health(TABLE)


def test_files_are_listed_by_partition_up_to_a_limit(catalog: SqlCatalog, inspection: Any) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART)
    assert inspection.files(TABLE, TEN)[1].total == 0
    writer.append(table, [row(1, "b"), row(2, "a")])
    writer.append(table, [row(3, "a")])
    snapshot_id, shown = inspection.files(TABLE, Window(2))
    assert (shown.total, [item.partition for item in shown.items]) == (3, ["part=a", "part=a"])
    writer.append(table, [row(4, "c")])
    same, rest = inspection.files(TABLE, Window(2, shown.next), snapshot_id)
    assert (same, rest.next) == (snapshot_id, "")
    assert [item.partition for item in rest.items] == ["part=b"]
    with pytest.raises(InvalidArgument, match="the table has no live file 'x'"):
        inspection.files(TABLE, Window(2, "x"))
    with pytest.raises(InvalidArgument, match="has no snapshot 5"):
        inspection.files(TABLE, TEN, 5)
    assert [item.file.record_count for item in inspection.files(TABLE, TEN)[1].items] == [1, 1, 1, 1]


def test_health_is_told_where_nothing_can_be_committed(world: World, catalog: SqlCatalog, tmp_path: Path) -> None:
    """A file-system catalog is read only: `amoro table files` and `snapshots` read it, so does `amoro table health`."""
    table = make_small_files(catalog)
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
    assert (evaluation.summary.data_files, evaluation.health) == (3, world.services.inspection.health(TABLE).health)


def test_what_is_known_is_told_without_the_catalog(world: World, catalog: SqlCatalog, inspection: Any) -> None:
    writer.make_table(catalog, "db.t", SCHEMA, properties={"self-optimizing.quota": "0.9"})
    known, other = world.refresh(), parse_table("cat.db.other")
    world.iceberg.catalog(load=raising(AssertionError("the catalog is asked")))
    assert world.catalogs.resolve(str(known.table_id)) == TABLE
    assert world.tables.find_stored(TABLE) == known
    properties, _ = inspection.properties(TABLE, known_only=True)
    assert EffectiveProperty("self-optimizing.quota", "0.9", Origin.TABLE, "0.5") in properties
    for find in (world.tables.find_stored, lambda name: inspection.properties(name, known_only=True)):
        with pytest.raises(TableNotFound, match=r"table cat\.db\.other is not known"):
            find(other)
    for number in (known.table_id + 1, 2**64):
        with pytest.raises(TableNotFound, match=f"no table has the number {number}"):
            world.catalogs.resolve(str(number))


# Two snapshots compared, and what the next expiry would take: as expiry itself decides it


@pytest.fixture
def table(world: World) -> Table:
    """Four snapshots that are a month old."""
    return made(world)


def test_what_goes_is_what_the_expiry_itself_takes_and_removes(world: World, table: Table) -> None:
    _, selection = world.services.snapshots.retention(TABLE)
    planned = world.maintaining.preview(TABLE, NAME).plan
    assert list(selection.go) == json.loads(planned.detail)["ids"] == ids(table)[:3]
    assert world.run(NAME) == ProcessStatus.SUCCESS
    assert ids(table) == list(selection.stay)
    assert world.services.snapshots.retention(TABLE)[1].go == {}


def test_two_snapshots_are_compared_by_their_totals_and_how_one_led_to_the_other(world: World) -> None:
    table = make_small_files(world.catalog)
    first, *_, last = ids(table)
    process = world.begin_and_run(OptimizingType.MINOR)
    world.committing.commit(process)
    head = world.table_head()
    found = world.services.snapshots.compare(TABLE, first, head)
    assert (found.is_ancestor, found.commits, found.own_commits) == (True, 3, 1)
    assert (found.totals_before.data_files, found.totals_after.data_files) == (1, 1)
    assert (found.totals_before.records, found.totals_after.records) == (1, 3)
    again = world.services.snapshots.compare(TABLE, last, head)
    assert (again.totals_before.data_files, again.commits, again.own_commits) == (3, 1, 1)
    back = world.services.snapshots.compare(TABLE, head, first)
    assert (back.is_ancestor, back.commits, back.own_commits) == (False, 0, 0)
    assert [world.services.inspection.is_head(TABLE, one) for one in (first, head)] == [False, True]
    same = world.services.snapshots.compare(TABLE, head, head)
    assert (same.is_ancestor, same.commits) == (True, 0)


# The digest of a table's files is kept by the evaluation that read them, and by no reading of its own


def kept(world: World) -> StoredDigest:
    found = world.services.journal.digest(parse_table("cat.db.t"))
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
    _, files = world.services.inspection.files(parse_table("cat.db.t"), Window(100))
    summary = world.table().summary
    assert (found.read_at, found.digest.snapshot_id) == (world.now, world.table_head())
    assert sum(found.digest.data.files) == summary.data_files
    assert sum(found.digest.data.sizes) == summary.data_bytes
    assert sum(found.digest.position_deletes.files) == summary.position_delete_files
    assert sum(found.digest.equality_deletes.files) == summary.equality_delete_files == 1
    deletes = (*found.digest.position_deletes.sizes, *found.digest.equality_deletes.sizes)
    assert sum(deletes) == summary.delete_bytes
    assert files.total == summary.data_files + summary.equality_delete_files + summary.position_delete_files
    first, second = found.digest.partitions
    assert (first.path, first.data_files, first.equality_delete_files) == ("part=a", 5, 1)
    assert (second.path, second.data_files, second.records, second.health) == ("part=b", 1, 1, 100)
    assert first.small_files == 5
    assert found.digest.partitions_total == 2


def test_a_digest_is_of_the_first_look_on_and_of_no_former_table_of_the_name(world: World) -> None:
    writer.append(writer.make_table(world.catalog, "db.t", SCHEMA), [row(1)])
    table_id = world.table().table_id
    assert world.services.journal.digest(TABLE) is None
    with pytest.raises(TableNotFound):
        world.services.journal.digest(parse_table("cat.db.u"))
    world.tables.refresh(table_id)
    world.catalog.drop_table("db.t")
    writer.make_table(world.catalog, "db.t", SCHEMA)
    world.tables.refresh(table_id)
    assert kept(world).digest.snapshot_id is None
    world.catalog.drop_table("db.t")
    world.tables.refresh(table_id)
    assert world.store.read(lambda db: table_stats.find_digest(db, table_id)) is None


# How a table is read, told by others and kept


ID = ColumnFilter("id", Operator.EQUAL)
OTHER = ColumnFilter("other", Operator.EQUAL)


@pytest.fixture
def learner(world: World) -> World:
    writer.append(writer.make_table(world.catalog, "db.t", SCHEMA), [row(1)])
    return world


def kept_reading(world: World) -> tuple[ScanUse, ...]:
    return world.store.read(lambda db: table_stats.list_scans(db, world.table().table_id))


def test_a_source_that_tells_again_takes_the_place_of_what_it_told(learner: World) -> None:
    day, table = learner.now.date(), learner.table()
    log = [ScanRecord(day, (ID,), 5, source="app-1"), ScanRecord(day - timedelta(days=1), (), 2, source="app-1")]
    learner.services.learning.learn(table, [*log, ScanRecord(day, (ID,), 1, source="app-2"), ScanRecord(day, (ID,), 1)])
    before = kept_reading(learner)
    assert before == (ScanUse(day - timedelta(days=1), (), 2), ScanUse(day, (ID,), 7))
    assert learner.services.learning.learn(table, log).recent_scans == 9
    assert kept_reading(learner) == before
    learner.services.learning.learn(
        table, [ScanRecord(day, (ID,), 8, source="app-1"), ScanRecord(day, (ID,), 1)]
    )  # it has grown
    assert kept_reading(learner) == (ScanUse(day, (ID,), 11),)
    learner.services.learning.learn(table, [ScanRecord(day - timedelta(days=31), (ID,), 8, source="app-1")])
    assert kept_reading(learner) == (ScanUse(day, (ID,), 3),)


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ([ScanRecord(None, (OTHER,), 1, "q, line 7")], "q, line 7 names column other, which the table does not have"),
        ([ScanRecord(date(2999, 1, 1), (ID,), 1)], "scans of 2999-01-01 have not been yet"),
        ([ScanRecord(None, (ID,), MOST_SCANS + 1)], "scans at once"),
        ([ScanRecord(None, (ID,), 1)] * MOST_TOLD, r"50,001 sets of filters"),
    ],
    ids=["a column", "a day", "scans", "sets"],
)
def test_of_a_report_with_a_mistake_nothing_is_kept(learner: World, told: list[ScanRecord], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        learner.services.learning.learn(learner.table(), [ScanRecord(None, (ID,), 1), *told])
    assert kept_reading(learner) == ()


def choice_of(world: World) -> ColumnChoice | None:
    return world.store.read(lambda db: table_stats.find_choice(db, world.table().table_id))


def test_auto_waits_for_scans_and_its_choice_is_kept_for_a_week(learner: World) -> None:
    with_property(learner, {"self-optimizing.cluster.columns": "auto"})
    table, value = learner.table(), ColumnFilter("value", Operator.EQUAL)

    def chosen() -> ColumnChoice | None:
        learner.maintaining.begin(table.table_id, CLUSTER, trigger="request")
        return choice_of(learner)

    learner.services.learning.learn(table, [ScanRecord(None, (ID,), 60)])
    waiting = learner.maintaining.begin(table.table_id, CLUSTER, trigger="request")
    assert waiting.reason == "nothing to do yet: auto needs 100 scans in 7 d to choose columns, and knows 60"
    learner.services.learning.learn(table, [ScanRecord(None, (ID,), 40)])
    looked = learner.maintaining.preview(table.identifier, CLUSTER)
    assert isinstance(looked.verdict, ClusterVerdict)
    assert looked.verdict.choice is not None
    assert choice_of(learner) is None  # a look changes nothing
    made = chosen()
    assert (made.columns, made.scans, made.chosen_at) == (("id",), 100, learner.now)
    learner.now += timedelta(days=6)
    learner.services.learning.learn(table, [ScanRecord(None, (value,), 9000)])
    assert chosen() == made
    learner.now += timedelta(days=1)
    learner.services.learning.learn(table, [ScanRecord(None, (value,), 9000)])
    assert chosen().columns == ("value",)


def test_columns_are_suggested_with_reasons_also_without_reports(learner: World) -> None:
    table = learner.catalog.load_table("db.t")
    for number in range(3):
        writer.append(table, [row(number), row(number + 10)])
    found = learner.services.learning.suggest(parse_table("cat.db.t"))
    assert {one.column: one.reason for one in found.columns}["id"] == "its values are spread over many files"
    assert (found.auto.choice, found.files) == (None, 4)
    with_property(learner, {"self-optimizing.filter": "value > 'a' and id >= 0"})
    again = learner.services.learning.suggest(parse_table("cat.db.t"))
    named = {one.column for one in again.columns if "self-optimizing.filter names it" in one.reason}
    assert named == {"id", "value"}
    learner.services.learning.learn(learner.table(), [ScanRecord(None, (ID,), 100)])
    choice = learner.services.learning.suggest(parse_table("cat.db.t")).auto.choice
    assert choice.columns == ("id",)
    assert choice_of(learner) is None
