"""Statistics of large tables: values counted by optimizers are those that the coordinator counts alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyiceberg.table import Table

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.work import SKETCH, WorkResult
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.services.optimizing import Failure
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.large import Worker, count_as_large
from tests.services.rigs import Limits
from tests.services.test_statistics import NAME, begin, compute, ndv
from tests.services.test_statistics import table as table
from tests.services.world import World


def large(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    count_as_large(monkeypatch)
    limits(sketched_by_a_task=1)


def stored(table: Table) -> bytes:
    """What lies in the file of the head's columns."""
    metadata = table.refresh().metadata
    (entry,) = [one for one in metadata.statistics if one.snapshot_id == metadata.current_snapshot_id]
    return Path(local_path(entry.statistics_path)).read_bytes()


def test_live_rows_alone_are_counted(world: World, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    large(monkeypatch)
    done = Worker(world).run(NAME)
    assert (done.status, len(world.tasks(done.process_id)) > 1) == (ProcessStatus.SUCCESS, True)
    assert {task.kind for task in world.tasks(done.process_id)} == {SKETCH}
    assert ndv(table) == {1: 9, 2: 2, 3: 4}
    assert done.receipt is not None
    assert done.receipt.words == f"computed statistics of snapshot {table.metadata.current_snapshot_id}"


@pytest.mark.parametrize("seed", range(6))
def test_random_tables_have_the_same_statistics(world: World, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
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
    large(monkeypatch)
    assert Worker(world).run(NAME).status in (ProcessStatus.SUCCESS, ProcessStatus.CLEARING)
    assert stored(made) == alone


def test_a_table_up_to_the_size_is_read_in_the_coordinator(world: World, table: Table, limits: Limits) -> None:
    limits(large_table=1000)
    assert world.tasks(begin(world)) == ()


def test_a_preview_makes_no_tasks(world: World, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    large(monkeypatch)
    plan = world.maintaining.preview(world.table().identifier, NAME).plan
    assert plan is not None
    assert plan.tasks == ()


def test_statistics_of_a_part_of_the_files_are_never_committed(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a partial commit of a rewrite is allowed, too."""
    large(monkeypatch)
    with table.transaction() as change:
        change.set_properties(
            {"self-optimizing.allow-partial-commit": "true", "self-optimizing.execute.num-retries": "0"}
        )
    worker = Worker(world)
    process_id = begin(world)
    assert world.optimizing.find_process(process_id).process.allow_partial_commit
    first = True
    while handed := worker.poll():
        assert worker.ack(handed[0])
        if first:
            worker.complete(handed[0], Failure("AMORO-1001", "no"))
            first = False
        else:
            worker.complete(handed[0], worker.execute(handed[0]))
    world.committing.commit(process_id)
    failed = world.optimizing.find_process(process_id).process
    assert (failed.status, "the rest is not known" in failed.failure) == (ProcessStatus.FAILED, True)
    assert table.refresh().metadata.statistics == []


def test_a_result_that_lacks_a_column_is_not_believed(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    large(monkeypatch)
    worker = Worker(world)
    process_id = begin(world)
    while handed := worker.poll():
        assert worker.ack(handed[0])
        said = pb.SketchOutput.FromString(worker.execute(handed[0]).payload)
        del said.columns[0]
        worker.complete(handed[0], WorkResult(SKETCH, said.SerializeToString()))
    world.committing.commit(process_id)
    failed = world.optimizing.find_process(process_id).process
    assert (failed.status, "says nothing of the column 1" in failed.failure) == (ProcessStatus.FAILED, True)
