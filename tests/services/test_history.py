"""What has ended is kept for a while; what is active stays."""

from datetime import timedelta

import pytest

from amoro_core.errors import ProcessNotFound
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.scans import ScanUse
from amoro_core.model.tables import OptimizingType
from amoro_core.services.history import HistoryService
from amoro_core.store import table_scans
from amoro_core.store.database import Connection
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.rigs import Limits
from tests.services.world import World

TABLES = ("table_process", "task_runtime", "task_payload", "commit_attempt")


def counts(world: World) -> list[int]:
    def count(db: Connection) -> list[int]:
        return [db.select(f"SELECT count(*) AS rows FROM {name}")[0]["rows"] for name in TABLES]

    return world.store.read(count)


def service(world: World) -> HistoryService:
    return HistoryService(world.store, lambda: world.now, timedelta(days=30))


def test_what_ended_longer_ago_goes_with_its_tasks_payloads_and_attempts(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    process = world.begin(OptimizingType.MINOR)
    world.run_all(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    world.later(30 * 86400)
    assert service(world).trim() == 0
    assert counts(world) == [1, 1, 1, 1]
    world.later(1)
    assert service(world).trim() == 1
    assert counts(world) == [0, 0, 0, 0]
    with pytest.raises(ProcessNotFound):
        world.optimizing.find_process(process)
    assert world.table().last_optimized_at is not None


def test_an_active_process_stays_however_old(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    process = world.begin(OptimizingType.MINOR)
    world.later(365 * 86400)
    assert service(world).trim() == 0
    assert world.status(process) is ProcessStatus.RUNNING


def test_a_long_history_goes_in_chunks(world: World, limits: Limits) -> None:
    limits(trimmed_at_once=2)
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    for _ in range(5):
        world.optimizing.cancel(world.begin(OptimizingType.MINOR), "no")
        world.later(10)
    world.later(30 * 86400 - 15)
    assert service(world).trim() == 4
    assert counts(world)[0] == 1


def test_scans_are_known_for_thirty_days(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    writer.append(table, [row(1)])
    table_id = world.table().table_id
    days = [(world.now - timedelta(days=age)).date() for age in (31, 30, 0)]
    world.store.write(lambda db: table_scans.add(db, table_id, [ScanUse(day, (), 1) for day in days]))
    service(world).trim()
    assert [one.day for one in world.store.read(lambda db: table_scans.list_of(db, table_id))] == days[1:]
