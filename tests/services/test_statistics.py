"""Statistics of tables: of live rows only, due when enough has changed, named by one commit that lands once."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import datasketches
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType, StringType

from amoro_core.actions.registry import Actions
from amoro_core.errors import AttemptAbandoned, CommitConflict, StorageFull, TableRefused
from amoro_core.files.storage.io import FileAccess
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.maintenance import FileKind
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.task_payload import SKETCH, WorkResult
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.services.task_lifecycle import Failure
from amoro_core.transactions.process_context import read_context
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.iceberg.scenarios import port
from tests.large import Worker, count_as_large
from tests.services.rigs import Limits, raising
from tests.services.world import World
from tests.tiers import seeds

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


def set_properties(table: Table, properties: dict[str, str]) -> None:
    with table.transaction() as change:
        change.set_properties(properties)


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
        with table.transaction() as change:
            change.set_properties({"maintenance.compute-statistics.enabled": "true", **properties})
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
    set_properties(table, {key: "value, id", "maintenance.compute-statistics.partition": "false"})
    compute(world)
    assert ndv(table) == {1: 9, 3: 4}
    assert table.metadata.partition_statistics == []
    set_properties(table, {key: "value"})
    assert "has its statistics" in reason(world)
    set_properties(table, {key: "part"})
    compute(world)  # another column: read again, and the entry replaced
    assert ndv(table) == {2: 2}
    set_properties(table, {key: "price"})
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
    partly = {"self-optimizing.allow-partial-commit": "true", "self-optimizing.execute.num-retries": "0"}
    set_properties(table, partly)
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
