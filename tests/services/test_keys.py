"""Equality deletes whose keys readers understand differently: refused, or told."""

import math
import uuid
from collections.abc import Callable

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, UUIDType

from amoro_core.errors import TableRefused
from amoro_core.model.paging import Window
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.services.inspecting import InspectionService
from amoro_core.store.database import Connection
from tests.engine import oracle, writer
from tests.services.world import World

TABLE = parse_table("cat.db.t")
MEASURED = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "ratio", DoubleType(), required=False)
)
NAN = writer.EqualityDelete(["ratio"], [{"ratio": math.nan}])


def test_every_entry_refuses_a_delete_by_a_double_and_looking_stays(world: World, catalog: SqlCatalog) -> None:
    table = writer.make_table(catalog, "db.t", MEASURED)
    for number in range(3):
        writer.append(table, [{"id": number, "ratio": math.nan if number else 1.0}])
    writer.row_delta(table, equality_deletes=[NAN])
    enters: tuple[Callable[[], object], ...] = (
        lambda: world.tables.preview(TABLE, OptimizingType.FULL, True),
        lambda: world.tables.require_optimizable(TABLE),
        lambda: world.begin(OptimizingType.FULL),
    )
    for enter in enters:
        with pytest.raises(TableRefused, match="compares column ratio of the type double") as refused:
            enter()
        assert refused.value.reason == "equality-ids"
    inspection = InspectionService(world.store, world.tables_of, lambda: world.now)
    assert inspection.health(TABLE).summary.equality_delete_files == 1
    assert inspection.files(TABLE, Window(10)).files.total == 4
    verified = world.verifying.verify(TABLE, None, None, lambda: False)
    assert (verified.files, verified.problems) == (4, ())


def test_a_delete_by_a_double_that_comes_while_a_process_runs_keeps_it_from_committing(
    world: World, catalog: SqlCatalog
) -> None:
    table = writer.make_table(catalog, "db.t", MEASURED)
    for number in range(3):
        writer.append(table, [{"id": number, "ratio": math.nan if number else 1.0}])
    process = world.begin(OptimizingType.FULL)
    world.run_all(process)
    writer.row_delta(table, equality_deletes=[NAN])
    head = table.refresh().metadata.current_snapshot_id
    before = oracle.live_rows(table)
    assert world.committing.commit(process) is ProcessStatus.FAILED
    assert world.optimizing.find_process(process).process.failure_code == "AMORO-6001"
    assert table.refresh().metadata.current_snapshot_id == head
    oracle.assert_same_rows(before, oracle.live_rows(table))


def test_a_delete_by_a_double_that_an_overwrite_left_behind_refuses_nothing(world: World, catalog: SqlCatalog) -> None:
    table = writer.make_table(catalog, "db.t", MEASURED)
    writer.append(table, [{"id": 0, "ratio": math.nan}])
    writer.row_delta(table, equality_deletes=[NAN])
    writer.remove_files(table, [file.path for file in oracle.live_files(table) if file.content == oracle.DATA])
    for number in range(3):
        writer.append(table, [{"id": number, "ratio": math.nan}])
    before = oracle.live_rows(table)
    process = world.begin(OptimizingType.FULL)
    world.run_all(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, oracle.live_rows(table))


NAMED = Schema(NestedField(1, "uid", UUIDType(), required=False), NestedField(2, "value", StringType(), required=False))


@pytest.mark.parametrize(
    ("numbers", "disputed"), [((1, 2**127 + 1), 1), ((1, 2), 0)], ids=["both sides of 80…", "one side"]
)
def test_a_delete_by_uuid_that_java_passes_over_is_applied_and_told_by_plan_receipt_and_verification(
    world: World, catalog: SqlCatalog, numbers: tuple[int, int], disputed: int
) -> None:
    table = writer.make_table(catalog, "db.t", NAMED)
    keys = [uuid.UUID(int=number) for number in numbers]
    for key in keys:
        writer.append(table, [{"uid": key, "value": "old"}, {"uid": uuid.UUID(int=key.int + 5), "value": "kept"}])
    writer.row_delta(table, equality_deletes=[writer.EqualityDelete(["uid"], [{"uid": key} for key in keys])])
    before = oracle.live_rows(table)
    assert sum(before.values()) == 2
    preview = world.tables.preview(TABLE, OptimizingType.FULL, False)
    assert preview.disputed_deletes == disputed
    process = world.begin(OptimizingType.FULL)
    world.run_all(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, oracle.live_rows(table))
    receipt = world.optimizing.find_process(process).process.receipt
    assert receipt is not None
    assert receipt.disputed_deletes == disputed
    verified = world.verifying.verify(TABLE, None, None, lambda: False)
    assert verified.is_sound
    assert [one.disputed_deletes for one in verified.comparisons] == [disputed]


def test_a_receipt_from_before_there_was_such_a_line_is_read(world: World, process: str) -> None:
    assert world.committing.commit(process) is ProcessStatus.SUCCESS

    def forget(db: Connection) -> None:
        for table in ("commit_attempt", "table_process"):
            db.execute(f"UPDATE {table} SET receipt_json = json_remove(receipt_json, '$.disputed_deletes')")

    world.store.write(forget)
    receipt = world.optimizing.find_process(process).process.receipt
    assert receipt is not None
    assert receipt.disputed_deletes == 0
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
