"""Strategies of tables and turns of groups: commits, bytes of a plan, classes, ageing, values, predictions."""

from __future__ import annotations

import random
from datetime import timedelta
from shutil import rmtree
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField

from amoro_core.errors import InvalidArgument
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from amoro_core.services.groups import GroupChange
from amoro_core.transactions.store_plan import EVALUATION
from tests.engine import writer
from tests.engine.builders import SCHEMA, ids, row
from tests.engine.files import Layout
from tests.services.test_groups import made
from tests.services.world import World

ON = {"self-optimizing.enabled": "true"}
COMMITS = {**ON, "self-optimizing.minor.trigger.commits": "5"}


def priority(number: int) -> dict[str, str]:
    return {"self-optimizing.priority": str(number)}


def begun(world: World, name: str, **properties: str) -> str:
    """A process of a new table, planned now."""
    made(world, name, **properties)
    return world.begin(OptimizingType.MINOR, f"cat.db.{name}")


def test_a_table_of_class_0_that_is_planned_last_gets_the_next_free_thread(world: World) -> None:
    world.groups.update("default", GroupChange("priority"))
    optimizer = world.optimizer(threads=1)
    for name in ("a", "b"):
        begun(world, name)
        world.later(1)
    running = world.take(optimizer)
    first = begun(world, "urgent", **priority(0))
    assert [(one.table.name, one.place) for one in world.queue.list_queue().waiting] == [("urgent", 1), ("b", 2)]
    world.complete(optimizer, running.attempt, world.execute(running))
    assert world.run_one(optimizer).attempt.task_id.process_id == first
    made(world, "c", **ON)
    made(world, "d", **ON, **priority(1))
    turns = [one.identifier.name for one in world.groups.in_turn(world.tables.list_pending())]
    assert turns == ["d", "c"], "in planning, too"
    listed = world.queue.list_queue().pending
    assert [(one.table.identifier.name, one.table.priority, one.policy) for one in listed] == [
        ("d", 1, "priority"),
        ("c", 5, "priority"),
    ]


def test_class_9_runs_within_nine_agings_beside_a_stream_of_class_0(world: World) -> None:
    world.groups.update("default", GroupChange("priority", {"priority-aging": "10s"}))
    optimizer = world.optimizer(threads=1)
    last = begun(world, "last", **priority(9))
    planned_at, number = world.now, 0
    while True:
        # Two urgent tables for each task of seven seconds: the queue of class 0 never runs dry.
        for _ in range(2):
            begun(world, f"t{number}", **priority(0))
            number += 1
        handed = world.take(optimizer)
        if handed.attempt.task_id.process_id == last:
            break
        world.later(7)
        world.complete(optimizer, handed.attempt, world.execute(handed))
        assert world.now - planned_at <= timedelta(seconds=90 + 7)
    assert world.now - planned_at >= timedelta(seconds=84), "not before its time"


def test_value_takes_what_saves_most_files_for_its_work_and_learns_its_rate(world: World) -> None:
    world.groups.update("default", GroupChange("value"))
    optimizer = world.optimizer(threads=1)
    few = begun(world, "few", **ON)
    table = writer.make_table(world.catalog, "db.many", SCHEMA, properties=ON)
    for number in range(12):
        writer.append(table, [row(number)])
    assert world.refresh("cat.db.many").value > 0
    many = world.begin(None, "cat.db.many")
    assert world.process(many).value > world.process(few).value > 0
    assert world.queue.list_queue().waiting[0].process.process_id == many
    predicted_ms = world.process(many).predicted_ms
    handed = world.take(optimizer)
    world.later(2 * predicted_ms / 1000)
    world.complete(optimizer, handed.attempt, world.execute(handed))
    assert world.committing.commit(many) is ProcessStatus.SUCCESS
    assert world.process(many).measured_ms == pytest.approx(2 * predicted_ms, abs=2)
    assert world.table("cat.db.many").rate == pytest.approx(2**0.3, rel=0.01)
    for number in range(12):
        writer.append(table, [row(100 + number)])
    preview = world.tables.preview(world.table("cat.db.many").identifier, OptimizingType.MINOR, False)
    assert preview.predicted_ms == pytest.approx(predicted_ms * 2**0.3, rel=0.1)
    assert preview.last.measured_ms == world.process(many).measured_ms


def status(world: World) -> tuple[OptimizingStatus, str]:
    runtime = world.refresh()
    return runtime.status, runtime.status_reason


def test_four_commits_do_nothing_and_the_fifth_plans_after_restart_and_expiry_too(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, properties=COMMITS)
    for round_ in range(3):
        for number in range(1, 5):
            writer.append(table, [row(10 * round_ + number)])
            idle, why = status(world)
            assert idle is OptimizingStatus.IDLE
            assert f"{number} commit" in why
            assert "since the last plan, 5 needed" in why
            if round_ == 1:
                world.restart()
            if round_ == 2:  # the head alone stays
                writer.expire_snapshots(table)
        writer.append(table, [row(10 * round_ + 5)])
        pending, why = status(world)
        assert (pending, "5 commits since the last plan, 5 are enough for minor" in why) == (
            OptimizingStatus.PENDING,
            True,
        )
        begin = world.planning.begin(world.table().table_id, trigger=EVALUATION)
        assert begin.process_id is not None
        world.run_all(begin.process_id)
        assert world.committing.commit(begin.process_id) is ProcessStatus.SUCCESS
        world.later(61)
        assert status(world)[0] is OptimizingStatus.IDLE


def test_every_plan_keeps_to_max_plan_bytes_and_the_last_leaves_nothing_due(world: World) -> None:
    limit = 6_000
    properties = {
        **ON,
        "self-optimizing.max-plan-bytes": str(limit),
        "self-optimizing.target-size": "4096",
        "self-optimizing.max-task-size-bytes": "4096",
        "self-optimizing.minor.trigger.file-count": "2",
        "read.split.open-file-cost": "0",
    }
    table = writer.make_table(world.catalog, "db.t", SCHEMA, properties=properties)
    for number in range(24):
        writer.append(table, [row(number)])
    writer.row_delta(table, equality_deletes=[(("id",), [{"id": 3}, {"id": 20}])])
    rows = ids(table)
    sizes: list[int] = []
    left: list[bool] = []
    while world.refresh().status is OptimizingStatus.PENDING:
        process_id = world.planning.begin(world.table().table_id, trigger=EVALUATION).process_id
        assert process_id is not None
        sizes.append(sum(task.input_bytes for task in world.tasks(process_id)))
        left.append("left to the next plan by self-optimizing.max-plan-bytes" in world.process(process_id).reason)
        world.run_all(process_id)
        assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
        assert ids(table.refresh()) == rows
        world.later(61)
        assert len(sizes) < 20
    assert len(sizes) >= 3
    assert max(sizes) <= limit
    assert left[0]
    summary = world.refresh().summary
    assert summary.equality_delete_files == 0


def test_two_gigabytes_converge_by_processes_of_500_mb(world: World) -> None:
    properties = {**ON, "self-optimizing.max-plan-bytes": "500MB", "write.parquet.compression-codec": "uncompressed"}
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "data", BinaryType()))
    table = writer.make_table(world.catalog, "db.t", schema, properties=properties)
    chance, written = random.Random(1), {}
    for first in range(0, 2100, 150):
        rows = {number: chance.randbytes(1_000_000) for number in range(first, first + 150)}
        written |= {number: crc32(data) for number, data in rows.items()}
        writer.append(table, pa.table({"id": [*rows], "data": [*rows.values()]}), 10, layout=Layout(codec="none"))
    sizes: list[int] = []
    while world.refresh().status is OptimizingStatus.PENDING:
        process_id = world.planning.begin(world.table().table_id, trigger=EVALUATION).process_id
        assert process_id is not None
        sizes.append(sum(task.input_bytes for task in world.tasks(process_id)))
        world.run_all(process_id)
        assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
        world.later(61)
        assert len(sizes) < 20
    assert sum(sizes) >= 2_000_000_000
    assert max(sizes) <= 500 * 2**20
    assert world.table().summary.fragment_files == 0
    left: list[tuple[int, int]] = []
    for task in table.refresh().scan().plan_files():
        for batch in pq.ParquetFile(task.file.file_path.removeprefix("file://")).iter_batches(8):
            left += [(one["id"], crc32(one["data"])) for one in batch.to_pylist()]
    assert sorted(left) == sorted(written.items())
    rmtree(table.location().removeprefix("file://"))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("max-plan-bytes", "-1", "expected a number of bytes"),
        ("minor.trigger.delete-bytes", "-1", "expected a number of bytes"),
        ("minor.trigger.commits", "0", "expected a whole number of at least 1"),
        ("priority", "11", "expected a whole number of at least 0 and at most 9"),
    ],
)
def test_a_malformed_strategy_refuses_the_table_by_key_and_value(
    world: World, key: str, value: str, expected: str
) -> None:
    made(world, "t", **ON)
    with pytest.raises(InvalidArgument, match=rf"self-optimizing.{key} has the malformed value '{value}': {expected}"):
        world.tables.set_properties(world.table().identifier, {f"self-optimizing.{key}": value}, dry_run=False)
