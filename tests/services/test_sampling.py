"""What is sampled, what is counted where it happens, and what is read of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from amoro_core.errors import InvalidArgument, TableNotFound
from amoro_core.model.processes import ProcessStatus, ResourceGroup
from amoro_core.model.series import SYSTEM_SERIES, TABLE_SERIES, Point
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.services.optimizing import Failure
from amoro_core.services.sampling import Range, SamplingService
from amoro_core.services.tables import TableService
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.rigs import Limits
from tests.services.world import START, World

Values = dict[tuple[str, str], list[int]]


def service(world: World) -> SamplingService:
    return SamplingService(world.store, lambda: world.now)


def hour(world: World) -> Range:
    return Range(world.now - timedelta(hours=1), world.now + timedelta(minutes=1), 60)


def sums(world: World) -> Values:
    """The sums of every series by name and label, minute by minute."""
    found = service(world).read((), None, hour(world)).series
    return {(one.name, one.label): [point.sum for point in one.points] for one in found}


def made(world: World) -> str:
    """A planned process with one task of three small files."""
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    return world.begin(OptimizingType.MINOR)


def test_a_minute_is_sampled_once(world: World) -> None:
    sampler = service(world)
    assert [sampler.sample(), sampler.sample()] == [True, False]
    world.later(59)
    assert sampler.sample() is False
    world.later(1)
    assert sampler.sample() is True
    found = sampler.read(["tables"], None, hour(world)).series[0].points
    assert found == (Point(START, 1, 0, 0, 0), Point(START + timedelta(minutes=1), 1, 0, 0, 0))


def test_levels_are_those_of_the_moment(world: World) -> None:
    process = made(world)
    optimizer = world.optimizer(threads=3)
    sampler = service(world)
    world.later(90)
    sampler.sample()
    world.poll(optimizer)
    world.later(60)
    sampler.sample()
    found = sums(world)
    assert found["tables", ""] == [1, 1]
    assert found["processes-active", ""] == [1, 1]
    assert found["threads", "default"] == [3, 3]
    assert found["threads-busy", "default"] == [0, 1]
    assert found["queue-tasks", "default"] == [1, 0]
    assert found["queue-age", "default"] == [90, 0]
    assert world.status(process) is ProcessStatus.RUNNING


def test_every_series_that_is_sampled_is_described_and_every_described_one_is_sampled(world: World) -> None:
    service(world).sample()
    found = sums(world)
    assert {name for name, _ in found} == set(SYSTEM_SERIES)
    assert {name for name, label in found if label} == {name for name, facts in SYSTEM_SERIES.items() if facts.label}


def test_the_age_of_the_backlog_is_that_of_the_oldest_pending_table(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(20):
        writer.append(table, [row(number)])
    table_id = world.table().table_id
    world.tables.set_enabled(parse_table("cat.db.t"), True)
    assert world.tables.refresh(table_id) is not None
    world.later(45)
    service(world).sample()
    assert (sums(world)["tables-pending", ""], sums(world)["backlog-age", ""]) == ([1], [45])


def test_a_commit_is_counted_once_where_it_happens(world: World) -> None:
    process = made(world)
    world.run_all(process)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    world.restart()
    service(world).sample()
    found = sums(world)
    assert found["processes-ended", "success"] == [1]
    assert found["processes-ended", "failed"] == [0]
    assert found["files-removed", ""] == [2]
    assert found["rows-rewritten", ""] == [3]
    receipt = world.optimizing.find_process(process).process.receipt
    assert receipt is not None
    assert found["bytes-rewritten", ""] == [receipt.bytes_before]


def test_what_ends_without_a_commit_is_counted_by_its_status(world: World) -> None:
    process = made(world)
    world.optimizing.cancel(process, "changed my mind")
    again = world.begin(OptimizingType.MINOR)
    optimizer = world.optimizer()
    while world.status(again) is ProcessStatus.RUNNING:
        world.run_one(optimizer, Failure("AMORO-1", "no disk"))
    found = sums(world)
    assert found["processes-ended", "closed"] == [1]
    assert found["processes-ended", "failed"] == [1]
    assert ("bytes-rewritten", "") not in found


def test_time_without_a_coordinator_is_a_gap_and_a_minute_without_work_is_none(world: World) -> None:
    service(world).sample()
    world.later(600)
    world.restart()
    service(world).sample()
    (found,) = service(world).read(["rows-rewritten"], None, hour(world)).series
    assert [(point.at - START, point.sum) for point in found.points] == [(timedelta(0), 0), (timedelta(minutes=10), 0)]


def test_more_groups_than_are_kept_leave_out_those_without_work(world: World, limits: Limits) -> None:
    limits(sampled_groups=2)
    for name in ("a", "b", "z"):
        world.groups.create(ResourceGroup(name))
    world.optimizers.register(group="z", threads=1, memory_bytes=1, labels={}, heartbeat_interval=timedelta(seconds=10))
    service(world).sample()
    assert {label for name, label in sums(world) if name == "threads"} == {"z", "a"}


def test_numbers_of_a_table_are_kept_when_an_evaluation_has_changed_them(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    writer.append(table, [row(1)])
    name, table_id = parse_table("cat.db.t"), world.table().table_id
    for _ in range(3):
        world.tables.refresh(table_id)
        world.later(3600)
    writer.append(table, [row(2)])
    world.tables.refresh(table_id)
    wanted = Range(START - timedelta(hours=1), world.now + timedelta(hours=1), 3600)
    found = service(world).read_table(name, (), wanted)
    assert [one.name for one in found.series] == list(TABLE_SERIES)
    by_name = {one.name: [(point.at - START, point.sum) for point in one.points] for one in found.series}
    assert by_name["data-files"] == [(timedelta(0), 1), (timedelta(hours=3), 2)]
    assert by_name["records"] == [(timedelta(0), 1), (timedelta(hours=3), 2)]
    (only,) = service(world).read_table(name, ["health"], wanted).series
    assert only.name == "health"


def test_without_the_setting_nothing_of_a_table_is_kept(world: World) -> None:
    writer.append(writer.make_table(world.catalog, "db.t", SCHEMA), [row(1)])
    tables = TableService(world.store, world.tables_of, lambda: world.now, keeps_series=False)
    tables.refresh(world.table().table_id)
    wanted = Range(START - timedelta(hours=1), world.now + timedelta(hours=1))
    assert {one.points for one in service(world).read_table(parse_table("cat.db.t"), (), wanted).series} == {()}


def test_what_is_not_kept_is_refused_by_name(world: World) -> None:
    wanted = hour(world)
    of_table = Range(wanted.since, wanted.until)
    for names, told in ((["tabels"], "no series 'tabels'"), (["health"], "no series 'health'")):
        with pytest.raises(InvalidArgument, match=told):
            service(world).read(names, None, wanted)
    with pytest.raises(InvalidArgument, match="no step of 61 seconds") as refused:
        service(world).read((), None, Range(wanted.since, wanted.until, 61))
    assert refused.value.hint == "One of: 60, 600, 7200."
    with pytest.raises(InvalidArgument, match="not after its beginning"):
        service(world).read((), None, Range(world.now, world.now))
    with pytest.raises(TableNotFound):
        service(world).read_table(parse_table("cat.db.t"), (), of_table)


def test_an_answer_is_bounded(world: World, limits: Limits) -> None:
    service(world).sample()
    limits(points_of_an_answer=3)
    with pytest.raises(InvalidArgument, match="are more than 3"):
        service(world).read((), None, hour(world))
    assert len(service(world).read(["tables", "backlog-age"], None, hour(world)).series) == 2
