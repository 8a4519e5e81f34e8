"""What is known of a table: properties, health, files, digests, snapshots compared, how it is read, statistics."""

from __future__ import annotations

import json
import random
import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import datasketches
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType, StringType

from amoro_core.actions.registry import Actions
from amoro_core.actions.snapshots import NAME as EXPIRY
from amoro_core.errors import (
    AttemptAbandoned,
    CommitConflict,
    InvalidArgument,
    StorageFull,
    TableNotFound,
    TableRefused,
)
from amoro_core.files.storage.io import FileAccess
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.formats.tables import Tables
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.maintenance import FileKind
from amoro_core.model.optimizing_config import EffectiveProperty
from amoro_core.model.paging import Window
from amoro_core.model.plans import StoredDigest
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.scan_stats import ColumnChoice, ColumnFilter, Operator, ScanRecord, ScanUse
from amoro_core.model.tables import OptimizingType, Origin, parse_table
from amoro_core.model.task_payload import SKETCH, WorkResult
from amoro_core.planning.clustering.model import ClusterVerdict
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.services.scan_learning import MOST_SCANS, MOST_TOLD
from amoro_core.services.tables import InspectionService
from amoro_core.services.task_lifecycle import Failure
from amoro_core.store import table_stats
from amoro_core.transactions.process_context import read_context
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.iceberg.scenarios import port
from tests.large import Worker, count_as_large
from tests.services.rigs import Limits, raising
from tests.services.test_expiring import ids, made
from tests.services.world import World, make_small_files
from tests.tiers import seeds

TABLE = parse_table("cat.db.t")


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
    assert inspection.files(TABLE, Window(10))[1].total == 0
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
        inspection.files(TABLE, Window(10), 5)
    assert [item.file.record_count for item in inspection.files(TABLE, Window(10))[1].items] == [1, 1, 1, 1]


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


def test_what_goes_is_what_the_expiry_itself_takes_and_removes(world: World) -> None:
    table = made(world)
    _, selection = world.services.snapshots.retention(TABLE)
    planned = world.maintaining.preview(TABLE, EXPIRY).plan
    assert list(selection.go) == json.loads(planned.detail)["ids"] == ids(table)[:3]
    assert world.run(EXPIRY) == ProcessStatus.SUCCESS
    assert ids(table) == list(selection.stay)
    assert world.services.snapshots.retention(TABLE)[1].go == {}


def test_two_snapshots_are_compared_by_their_totals_and_how_one_led_to_the_other(world: World) -> None:
    table = make_small_files(world.catalog)
    first, *_, last = ids(table)
    world.optimized(OptimizingType.MINOR)
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
    table = make_small_files(world.catalog, 4, spec=BY_PART)
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
    # It has grown.
    learner.services.learning.learn(table, [ScanRecord(day, (ID,), 8, source="app-1"), ScanRecord(day, (ID,), 1)])
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
    learner.set_properties({"self-optimizing.cluster.columns": "auto"})
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
    learner.set_properties({"self-optimizing.filter": "value > 'a' and id >= 0"})
    again = learner.services.learning.suggest(parse_table("cat.db.t"))
    named = {one.column for one in again.columns if "self-optimizing.filter names it" in one.reason}
    assert named == {"id", "value"}
    learner.services.learning.learn(learner.table(), [ScanRecord(None, (ID,), 100)])
    choice = learner.services.learning.suggest(parse_table("cat.db.t")).auto.choice
    assert choice.columns == ("id",)
    assert choice_of(learner) is None


# Statistics of tables: of live rows only, due when enough has changed, named by one commit that lands once


NAME = "compute-statistics"
SEND = IcebergTable.send


@pytest.fixture
def table(world: World) -> Table:
    """Ids 0 to 9 but for 1, which was replaced by equality, and 2, which was deleted by position."""
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    writer.append(made, [row(number, "a" if number < 5 else "b", f"value {number % 3}") for number in range(10)])
    writer.upsert(made, [row(1, "a", "new")], ["id"])
    writer.delete_where(made, lambda item: item["id"] == 2)
    return made.refresh()


def compute(world: World) -> str:
    process_id = world.begin_action(NAME)
    assert world.committing.commit(process_id) in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)
    return process_id


def reason(world: World) -> str:
    preview = world.maintaining.preview(world.table().identifier, NAME)
    assert preview.plan is None
    return preview.reason


def entry_of(table: Table) -> StatisticsFile:
    """The head's."""
    metadata = table.refresh().metadata
    (entry,) = [one for one in metadata.statistics if one.snapshot_id == metadata.current_snapshot_id]
    return entry


def partitions(table: Table) -> list[dict[str, Any]]:
    """What the head's file of partitions says."""
    metadata = table.refresh().metadata
    (entry,) = [one for one in metadata.partition_statistics if one.snapshot_id == metadata.current_snapshot_id]
    return pq.read_table(local_path(entry.statistics_path)).to_pylist()


def ndv(table: Table) -> dict[int, int]:
    """What the head's entry says, by field id."""
    return {blob.fields[0]: int((blob.properties or {})["ndv"]) for blob in entry_of(table).blob_metadata}


def stored_files(table: Table) -> list[str]:
    places = Path(local_path(table.location())) / "metadata"
    return sorted(one.name for one in places.iterdir() if one.suffix in (".stats", ".parquet"))


def test_live_rows_alone_are_counted_and_the_file_is_read_by_others(world: World, table: Table) -> None:
    head = table.metadata.current_snapshot_id
    plan = world.maintaining.preview(world.table().identifier, NAME).plan
    assert json.loads(json.dumps(plan.document)) == {
        "snapshot_id": head,
        "columns": ["id", "part", "value"],
        "partition_statistics": True,
        "replaced_files": [],
    }
    receipt = world.receipt(compute(world))
    assert receipt.words == f"computed statistics of snapshot {head}"
    assert ndv(table) == {1: 9, 2: 2, 3: 4}
    assert port(table).distinct_values() == ndv(table)
    entry = entry_of(table)
    content = Path(local_path(entry.statistics_path)).read_bytes()
    assert len(content) == entry.file_size_in_bytes
    figures = {figure.name: figure.value for figure in receipt.figures}
    assert (figures["columns"], figures["partitions"]) == (3, 2)
    footer = PuffinFile(content).footer
    assert content[-entry.file_footer_size_in_bytes :][:4] == b"PFA1"
    read = {}
    for blob in footer.blobs:
        stored = pa.py_buffer(content[blob.offset : blob.offset + blob.length])
        assert (blob.compression_codec, blob.snapshot_id) == ("zstd", head)
        read[blob.fields[0]] = pa.input_stream(stored, compression="zstd").read()
    ids = datasketches.update_theta_sketch()
    for number in (0, 1, *range(3, 10)):
        ids.update(number)
    assert sorted(datasketches.compact_theta_sketch.deserialize(read[1])) == sorted(ids.compact())


@pytest.mark.parametrize("version", [1, 2])
def test_partitions_of_several_specs_lie_in_one_file_nulls_first(world: World, version: int) -> None:
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, version)
    writer.append(made, [row(1, "b"), row(2, None), row(3, "a")])
    with made.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "shard")
    writer.append(made, [row(4, "b"), row(5, None)])
    compute(world)
    rows = partitions(made)
    places = [(one["partition"]["part"], one["partition"]["shard"] is None, one["spec_id"]) for one in rows]
    assert places == [(None, True, 0), (None, False, 1), ("a", True, 0), ("b", True, 0), ("b", False, 1)]
    assert [one["total_record_count"] for one in rows] == [1] * 5


def test_an_equality_delete_that_holds_everywhere_leaves_every_number_of_rows_open(world: World) -> None:
    made = writer.make_table(world.catalog, "db.t", SCHEMA)
    writer.append(made, [row(1)])
    with made.update_spec() as spec:
        spec.add_identity("part")
    writer.append(made, [row(2, "b")])
    compute(world)
    assert [(one["partition"]["part"], one["total_record_count"]) for one in partitions(made)] == [(None, 1), ("b", 1)]
    delete = writer.EqualityDelete(["id"], [row(1)], (), writer.unpartitioned_spec_id(made))
    writer.row_delta(made, equality_deletes=[delete])
    compute(world)
    assert [one["total_record_count"] for one in partitions(made)] == [None, None]


def test_they_are_due_when_enough_rows_have_changed(world: World, table: Table) -> None:
    action = Actions().of(NAME)
    assert action.enabled({}) is False
    compute(world)
    head = table.refresh().metadata.current_snapshot_id
    assert reason(world) == f"snapshot {head} has its statistics"
    writer.append(table, [row(100, "b")])

    def plan(**properties: str) -> tuple[bool, str]:
        world.set_properties({"maintenance.compute-statistics.enabled": "true", **properties})
        world.later(timedelta(days=2).total_seconds())
        begun = world.maintaining.begin(world.table().table_id, NAME, trigger="evaluation")
        if begun.process_id:
            world.optimizing.cancel(begun.process_id, "by hand")
        return bool(begun.process_id), begun.reason

    key = "maintenance.compute-statistics.min-change"
    told = f"9.1% of the rows have changed since the statistics of snapshot {head}"
    assert plan() == (False, f"{told}, less than 10.0%")
    assert plan(**{key: "0.095"}) == (False, f"{told}, less than 9.5%")
    assert plan(**{key: "0.09"}) == (True, told)
    compute(world)  # asked for, whatever has changed
    assert len(table.refresh().metadata.statistics) == 2


def test_only_the_columns_that_are_named_are_counted(world: World, table: Table) -> None:
    key = "maintenance.compute-statistics.columns"
    world.set_properties({key: "value, id", "maintenance.compute-statistics.partition": "false"})
    compute(world)
    assert ndv(table) == {1: 9, 3: 4}
    assert table.metadata.partition_statistics == []
    world.set_properties({key: "value"})
    assert "has its statistics" in reason(world)
    world.set_properties({key: "part"})
    compute(world)  # another column: read again, and the entry replaced
    assert ndv(table) == {2: 2}
    world.set_properties({key: "price"})
    with pytest.raises(TableRefused, match="names 'price', which is no top-level column of a primitive") as caught:
        world.begin_action(NAME)
    assert (caught.value.reason, caught.value.hint) == ("configuration", "One of: id, part, value.")


def test_columns_that_came_later_or_by_partition_alone_are_counted(world: World, table: Table) -> None:
    with table.update_schema() as change:
        change.add_column("late", StringType())
        change.add_column("later", IntegerType())
    writer.append(table, [{**row(50, "c"), "late": "x", "later": 7}, {**row(51, "c"), "late": "y", "later": 7}])
    compute(world)
    assert ndv(table) == {1: 11, 2: 3, 3: 5, 4: 2, 5: 1}
    assert port(table).distinct_values() == ndv(table)  # of the newest, not of the snapshot before


def test_a_table_without_rows_partitions_or_snapshots(world: World) -> None:
    made = writer.make_table(world.catalog, "db.t", SCHEMA)
    assert reason(world) == "the table has no snapshot"
    writer.append(made, [row(1)])
    writer.delete_where(made, lambda item: True)
    compute(world)
    assert ndv(made) == {1: 0, 2: 0, 3: 0}
    assert made.metadata.partition_statistics == []


def test_replaced_files_are_condemned_and_entries_without_snapshot_go(world: World, table: Table) -> None:
    compute(world)
    old = {*(one.statistics_path for one in table.refresh().metadata.statistics)}
    old |= {one.statistics_path for one in table.metadata.partition_statistics}
    gone = table.metadata.current_snapshot_id
    assert gone is not None
    writer.append(table, [row(100, "b")])
    # pyiceberg leaves the entry of partitions behind.
    table.maintenance.expire_snapshots().by_id(gone).commit()
    assert [one.snapshot_id for one in table.refresh().metadata.partition_statistics] == [gone]
    process_id = world.begin_action(NAME)
    case = world.store.read(lambda db: read_context(db, process_id))
    action = Actions().of(NAME)
    named = {one.statistics_path for one in table.metadata.partition_statistics}
    assert list(action.condemned(world.tables_of.open(world.table().identifier), case)) == []
    assert world.committing.commit(process_id) in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)
    head = table.refresh().metadata.current_snapshot_id
    assert [one.snapshot_id for one in table.metadata.partition_statistics] == [head]
    found = list(action.condemned(world.tables_of.open(world.table().identifier), case))
    assert {one.path for one in found} == named
    assert {one.kind for one in found} == {FileKind.STATISTICS}
    assert all(one.size_bytes == Path(local_path(one.path)).stat().st_size for one in found)


def test_a_lost_commit_is_staged_again_and_leaves_no_file(world: World, table: Table) -> None:
    tries: list[int] = []

    def send(self: IcebergTable, payload: bytes) -> None:
        tries.append(len(stored_files(table)))
        if len(tries) == 1:
            raise CommitConflict("somebody was faster")
        SEND(self, payload)

    world.iceberg.table(send=send)
    compute(world)
    assert tries == [2, 2]
    named = [*table.refresh().metadata.statistics, *table.metadata.partition_statistics]
    assert stored_files(table) == sorted(Path(one.statistics_path).name for one in named)


def test_a_snapshot_that_has_gone_ends_it_and_its_files(world: World, table: Table) -> None:
    process_id = world.begin_action(NAME)
    head = table.refresh().metadata.current_snapshot_id
    assert head is not None
    writer.append(table, [row(100, "b")])
    table.maintenance.expire_snapshots().by_id(head).commit()
    assert world.committing.commit(process_id) is ProcessStatus.FAILED
    failure = world.process(process_id).failure
    assert failure.startswith(f"snapshot {head} is not in the table any more")
    assert stored_files(table) == []


def test_what_was_written_is_deleted_when_staging_fails(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "amoro_core.iceberg.maintenance.statistics.count_partitions", raising(StorageFull("no space left"))
    )
    process_id = world.begin_action(NAME)
    with pytest.raises(StorageFull):
        world.committing.commit(process_id)
    assert stored_files(table) == []
    monkeypatch.undo()
    world.later(3600)
    assert world.committing.commit(process_id) in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)


def test_a_coordinator_that_stops_does_not_wait_for_what_is_read(world: World, table: Table) -> None:
    process_id = world.begin_action(NAME)
    world.maintaining.interrupt()
    with pytest.raises(AttemptAbandoned):
        world.committing.commit(process_id)
    assert world.status(process_id) is ProcessStatus.COMMITTING
    assert stored_files(table) == []
    world.restart()
    assert world.committing.commit(process_id) in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)
    assert ndv(table) == {1: 9, 2: 2, 3: 4}


def test_what_is_cancelled_stops_reading_at_the_next_file(world: World, table: Table) -> None:
    process_id = world.begin_action(NAME)
    read: list[str] = []

    def access(opened: IcebergTable) -> FileAccess:
        read.append(process_id)
        world.optimizing.cancel(process_id, "by hand")
        return IcebergTable.access(opened)

    world.iceberg.table(access=access)
    assert world.committing.commit(process_id) is ProcessStatus.CLOSED
    assert (len(read), stored_files(table)) == (1, [])


# Statistics of large tables: values counted by optimizers are those that the coordinator counts alone


@pytest.fixture
def worker(world: World, limits: Limits, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """Of tables that count as large, whose tasks read a file each."""
    count_as_large(monkeypatch)
    limits(sketched_by_a_task=1)
    return Worker(world)


def stored(table: Table) -> bytes:
    """What lies in the file of the head's columns."""
    return Path(local_path(entry_of(table).statistics_path)).read_bytes()


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_random_tables_have_the_same_statistics(
    world: World, limits: Limits, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for _ in range(chance.randint(1, 4)):
        ids = [chance.randrange(40) for _ in range(chance.randint(1, 20))]
        rows = [row(one, chance.choice("abc"), f"value {chance.randrange(9)}") for one in ids]
        writer.append(made, rows)
        if chance.random() < 0.6:
            writer.upsert(made, [row(chance.choice(ids), chance.choice("abc"), "new")], ["id"])
        if chance.random() < 0.6:
            gone = chance.choice(ids)
            writer.delete_where(made, lambda item, gone=gone: item["id"] == gone)
    compute(world)
    alone = stored(made)
    with made.refresh().update_statistics() as update:
        update.remove_statistics(made.metadata.current_snapshot_id or 0)
    count_as_large(monkeypatch)
    limits(sketched_by_a_task=1)
    assert Worker(world).run(NAME).status in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)
    assert stored(made) == alone


def test_statistics_of_a_part_of_the_files_are_never_committed(world: World, table: Table, worker: Worker) -> None:
    """Where a partial commit of a rewrite is allowed, too."""
    world.set_properties({"self-optimizing.allow-partial-commit": "true", "self-optimizing.execute.num-retries": "0"})
    process_id = world.begin_action(NAME)
    assert world.process(process_id).allow_partial_commit
    (first,) = worker.poll()
    assert worker.ack(first)
    worker.complete(first, Failure("AMORO-1001", "no"))
    worker.work()
    world.committing.commit(process_id)
    failed = world.process(process_id)
    assert (failed.status, "only 2 of 3 tasks counted their files" in failed.failure) == (ProcessStatus.FAILED, True)
    assert table.refresh().metadata.statistics == []


def test_a_result_that_lacks_a_column_is_not_believed(world: World, table: Table, worker: Worker) -> None:
    process_id = world.begin_action(NAME)
    while handed := worker.poll():
        assert worker.ack(handed[0])
        said = pb.SketchOutput.FromString(worker.execute(handed[0]).payload)
        del said.columns[0]
        worker.complete(handed[0], WorkResult(SKETCH, said.SerializeToString()))
    world.committing.commit(process_id)
    failed = world.process(process_id)
    assert (failed.status, "says nothing of the column 1" in failed.failure) == (ProcessStatus.FAILED, True)
