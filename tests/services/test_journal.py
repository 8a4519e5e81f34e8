"""What is written down as it happens, kept for a while, and sampled."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from amoro_core.errors import InvalidArgument, ProcessNotFound, TableNotFound
from amoro_core.model.history_events import AttemptOutcome, EventFilter, EventKind
from amoro_core.model.metrics import TABLE_SERIES, Point
from amoro_core.model.paging import Window
from amoro_core.model.processes import ProcessStatus, ResourceGroup
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.services.task_lifecycle import Failure
from amoro_core.services.time_series import Range
from amoro_core.store import events, tasks
from amoro_core.store.database import Connection
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.rigs import Limits, raising
from tests.services.world import START, World, make_small_files


@pytest.fixture
def planned(world: World) -> str:
    """A process with one task."""
    make_small_files(world.catalog)
    return world.begin(OptimizingType.MINOR)


def outcomes(world: World, process: str, task: int = 0) -> list[tuple[int, int, AttemptOutcome]]:
    _, page = world.services.journal.attempts(process, Window(100), task)
    return [(one.attempt.task_id.number, one.attempt.number, one.outcome) for one in page.items]


def told(world: World, *kinds: EventKind) -> list[tuple[str, str]]:
    """Kind and text of the events that are kept, in the order of storing."""
    found = world.store.read(lambda db: events.list_stored_after(db, EventFilter(kinds), 0, 1000))
    return [(one.kind.value, one.text) for one in found]


def test_each_attempt_of_a_task_is_kept_and_the_one_that_runs_is_listed(world: World, planned: str) -> None:
    optimizer = world.optimizer()
    assert outcomes(world, planned) == []
    world.run_one(optimizer, Failure("AMORO-1", "no disk"))
    (handed,) = world.poll(optimizer)
    assert outcomes(world, planned) == [(1, 1, AttemptOutcome.FAILED), (1, 2, AttemptOutcome.RUNNING)]
    world.later(60)
    world.optimizing.dismiss(optimizer, "silent", lost=True)
    other = world.optimizer()
    world.run_one(other)
    assert outcomes(world, planned) == [
        (1, 1, AttemptOutcome.FAILED),
        (1, 2, AttemptOutcome.LOST),
        (1, 3, AttemptOutcome.SUCCESS),
    ]
    _, page = world.services.journal.attempts(planned, Window(100))
    lost = page.items[1]
    assert (lost.thread.optimizer_id, lost.scheduled_at, lost.acked_at) == (optimizer, START, None)
    assert (lost.finished_at, lost.failure, lost.input_rows) == (world.now, "silent", 3)
    assert handed.attempt == lost.attempt


def test_a_write_that_is_taken_back_tells_nothing(world: World, planned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = world.optimizer()
    handed = world.take(optimizer)
    before = told(world)

    made = world.execute(handed)
    with monkeypatch.context() as patched:
        patched.setattr(tasks, "save_output", raising(RuntimeError("the disk is gone")))
        with pytest.raises(RuntimeError):
            world.complete(optimizer, handed.attempt, made)
    assert outcomes(world, planned) == [(1, 1, AttemptOutcome.RUNNING)]
    assert told(world) == before
    assert world.complete(optimizer, handed.attempt, made)
    assert outcomes(world, planned) == [(1, 1, AttemptOutcome.SUCCESS)]


def test_the_life_of_a_process_is_told_in_order(world: World, planned: str) -> None:
    optimizer = world.optimizer()
    world.run_one(optimizer, Failure("AMORO-1", "password=hunter2 is wrong"))
    world.run_all(planned, optimizer)
    assert world.committing.commit(planned) is ProcessStatus.SUCCESS
    snapshot = world.table_head()
    lately = [one for one in told(world) if one[0] != EventKind.LEADER_CHANGED]
    assert lately == [
        ("found", "cat.db.t was found"),
        ("planned", lately[1][1]),
        ("joined", f"optimizer {optimizer} joined group default with 2 threads"),
        ("failed", "attempt 1 of task 1 failed: [AMORO-1] password=*** is wrong"),
        ("committed", f"minor committed snapshot {snapshot}: 3 data files became 1, 3 rows"),
    ]
    assert lately[1][1].startswith("minor planned: ")
    page, _ = world.services.journal.events(EventFilter(process_id=planned[:8]), None, Window(10))
    assert [one.kind for one in page.items] == [EventKind.COMMITTED, EventKind.FAILED, EventKind.PLANNED]
    assert {(one.about.table, one.about.process_id) for one in page.items} == {("cat.db.t", planned)}


def test_optimizers_that_are_lost_or_leave_are_told(world: World) -> None:
    for lost in (True, False):
        world.optimizing.dismiss(world.optimizer(), "it is over", lost=lost)
    world.optimizing.dismiss("nobody", "it is over", lost=True)
    words = [(kind, text.split(" ", 2)[2]) for kind, text in told(world, EventKind.LOST, EventKind.LEFT)]
    assert words == [("lost", "was lost: it is over"), ("left", "left: it is over")]


def test_what_becomes_of_a_table_is_told_even_when_it_is_gone(world: World) -> None:
    writer.make_table(world.catalog, "db.t", SCHEMA)
    world.discovery.explore("cat")
    name = parse_table("cat.db.t")
    world.tables.set_enabled(name, True)
    world.tables.set_enabled(name, False)
    world.catalog.drop_table("db.t")
    world.discovery.explore("cat")
    service = world.services.journal
    page, _ = service.events(EventFilter(), name, Window(10))
    assert [one.kind for one in page.items] == [EventKind.GONE, EventKind.DISABLED, EventKind.ENABLED, EventKind.FOUND]
    with pytest.raises(TableNotFound, match=r"cat\.db\.u is not known"):
        service.events(EventFilter(), parse_table("cat.db.u"), Window(10))


def test_every_start_of_a_coordinator_is_told(world: World) -> None:
    world.restart()
    world.restart()
    epochs = [text for _, text in told(world, EventKind.LEADER_CHANGED)]
    assert epochs == ["a coordinator began, epoch 2", "a coordinator began, epoch 3"]


def test_attempts_of_nothing_are_refused_by_name(world: World) -> None:
    with pytest.raises(ProcessNotFound):
        world.services.journal.attempts("01997a4c", Window(5))


# What has ended is kept for a while; what is active stays


TABLES = ("table_process", "task_runtime", "task_payload", "commit_attempt")


def counts(world: World) -> list[int]:
    def count(db: Connection) -> list[int]:
        return [db.select(f"SELECT count(*) AS rows FROM {name}")[0]["rows"] for name in TABLES]

    return world.store.read(count)


def test_what_ended_longer_ago_goes_with_its_tasks_payloads_and_attempts(world: World) -> None:
    make_small_files(world.catalog)
    process = world.begin_and_run(OptimizingType.MINOR)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    world.later(30 * 86400)
    assert world.services.history.trim() == 0
    assert counts(world) == [1, 1, 1, 1]
    world.later(1)
    assert world.services.history.trim() == 1
    assert counts(world) == [0, 0, 0, 0]
    with pytest.raises(ProcessNotFound):
        world.optimizing.find_process(process)
    assert world.table().last_optimized_at is not None


def test_a_long_history_goes_in_chunks(world: World, limits: Limits) -> None:
    limits(trimmed_at_once=2)
    make_small_files(world.catalog)
    for _ in range(5):
        world.optimizing.cancel(world.begin(OptimizingType.MINOR), "no")
        world.later(10)
    world.later(30 * 86400 - 15)
    assert world.services.history.trim() == 4
    assert counts(world)[0] == 1


# What is sampled, what is counted where it happens, and what is read of it


Values = dict[tuple[str, str], list[int]]


def hour(world: World) -> Range:
    return Range(world.now - timedelta(hours=1), world.now + timedelta(minutes=1), 60)


def sums(world: World) -> Values:
    """The sums of every series by name and label, minute by minute."""
    found, _ = world.services.sampling.read((), None, hour(world))
    return {(one.name, one.label): [point.sum for point in one.points] for one in found}


def test_a_minute_is_sampled_once(world: World) -> None:
    sampler = world.services.sampling
    assert [sampler.sample(), sampler.sample()] == [True, False]
    world.later(59)
    assert sampler.sample() is False
    world.later(1)
    assert sampler.sample() is True
    found = sampler.read(["tables"], None, hour(world))[0][0].points
    assert found == (Point(START, 1, 0, 0, 0), Point(START + timedelta(minutes=1), 1, 0, 0, 0))


def test_levels_are_those_of_the_moment(world: World, planned: str) -> None:
    optimizer = world.optimizer(threads=3)
    sampler = world.services.sampling
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
    assert world.status(planned) is ProcessStatus.RUNNING


def test_the_age_of_the_backlog_is_that_of_the_oldest_pending_table(world: World) -> None:
    make_small_files(world.catalog, 20)
    table_id = world.table().table_id
    world.tables.set_enabled(parse_table("cat.db.t"), True)
    assert world.tables.refresh(table_id) is not None
    world.later(45)
    world.services.sampling.sample()
    assert (sums(world)["tables-pending", ""], sums(world)["backlog-age", ""]) == ([1], [45])


def test_a_commit_is_counted_once_where_it_happens(world: World, planned: str) -> None:
    world.run_all(planned)
    assert world.committing.commit(planned) is ProcessStatus.SUCCESS
    assert world.committing.commit(planned) is ProcessStatus.SUCCESS
    world.restart()
    world.services.sampling.sample()
    found = sums(world)
    assert found["processes-ended", "success"] == [1]
    assert found["processes-ended", "failed"] == [0]
    assert found["files-removed", ""] == [2]
    assert found["rows-rewritten", ""] == [3]
    receipt = world.receipt(planned)
    assert found["bytes-rewritten", ""] == [receipt.bytes_before]


def test_what_ends_without_a_commit_is_counted_by_its_status(world: World, planned: str) -> None:
    world.optimizing.cancel(planned, "changed my mind")
    again = world.begin(OptimizingType.MINOR)
    optimizer = world.optimizer()
    while world.status(again) is ProcessStatus.RUNNING:
        world.run_one(optimizer, Failure("AMORO-1", "no disk"))
    found = sums(world)
    assert found["processes-ended", "closed"] == [1]
    assert found["processes-ended", "failed"] == [1]
    assert ("bytes-rewritten", "") not in found


def test_time_without_a_coordinator_is_a_gap_and_a_minute_without_work_is_none(world: World) -> None:
    world.services.sampling.sample()
    world.later(600)
    world.restart()
    world.services.sampling.sample()
    (found,), _ = world.services.sampling.read(["rows-rewritten"], None, hour(world))
    assert [(point.at - START, point.sum) for point in found.points] == [(timedelta(0), 0), (timedelta(minutes=10), 0)]


def test_more_groups_than_are_kept_leave_out_those_without_work(world: World, limits: Limits) -> None:
    limits(sampled_groups=2)
    for name in ("a", "b", "z"):
        world.groups.create(ResourceGroup(name))
    world.optimizers.register(group="z", threads=1, memory_bytes=1, labels={}, heartbeat_interval=timedelta(seconds=10))
    world.services.sampling.sample()
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
    found, _ = world.services.sampling.read_table(name, (), wanted)
    assert [one.name for one in found] == list(TABLE_SERIES)
    by_name = {one.name: [(point.at - START, point.sum) for point in one.points] for one in found}
    assert by_name["data-files"] == [(timedelta(0), 1), (timedelta(hours=3), 2)]
    assert by_name["records"] == [(timedelta(0), 1), (timedelta(hours=3), 2)]
    (only,), _ = world.services.sampling.read_table(name, ["health"], wanted)
    assert only.name == "health"


def test_without_the_setting_nothing_of_a_table_is_kept(world: World) -> None:
    writer.append(writer.make_table(world.catalog, "db.t", SCHEMA), [row(1)])
    tables = replace(world.tables, keeps_series=False)
    tables.refresh(world.table().table_id)
    wanted = Range(START - timedelta(hours=1), world.now + timedelta(hours=1))
    assert {one.points for one in world.services.sampling.read_table(parse_table("cat.db.t"), (), wanted)[0]} == {()}


def test_what_is_not_kept_is_refused_by_name(world: World) -> None:
    wanted = hour(world)
    of_table = Range(wanted.since, wanted.until)
    for names, told in ((["tabels"], "no series 'tabels'"), (["health"], "no series 'health'")):
        with pytest.raises(InvalidArgument, match=told):
            world.services.sampling.read(names, None, wanted)
    with pytest.raises(InvalidArgument, match="no step of 61 seconds") as refused:
        world.services.sampling.read((), None, Range(wanted.since, wanted.until, 61))
    assert refused.value.hint == "One of: 60, 600, 7200."
    with pytest.raises(InvalidArgument, match="not after its beginning"):
        world.services.sampling.read((), None, Range(world.now, world.now))
    with pytest.raises(TableNotFound):
        world.services.sampling.read_table(parse_table("cat.db.t"), (), of_table)


def test_an_answer_is_bounded(world: World, limits: Limits) -> None:
    world.services.sampling.sample()
    limits(points_of_an_answer=3)
    with pytest.raises(InvalidArgument, match="are more than 3"):
        world.services.sampling.read((), None, hour(world))
    assert len(world.services.sampling.read(["tables", "backlog-age"], None, hour(world))[0]) == 2
