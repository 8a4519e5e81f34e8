"""What is written down as it happens, kept for a while, sampled, and told to Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions.registry import Actions
from amoro_core.errors import (
    CatalogUnavailable,
    CheckFailed,
    CommitConflict,
    Fenced,
    InvalidArgument,
    ProcessNotFound,
    TableNotFound,
)
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.model.history_events import AttemptOutcome, EventFilter, EventKind
from amoro_core.model.maintenance import FileKind
from amoro_core.model.metrics import METRICS, TABLE_SERIES
from amoro_core.model.paging import Window
from amoro_core.model.processes import ProcessStatus, ResourceGroup
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.services.groups import GroupChange
from amoro_core.services.metrics import OPTIMIZING_TYPES, ConditionService, MeteringService
from amoro_core.services.task_lifecycle import Failure
from amoro_core.services.time_series import Range
from amoro_core.store import events, processes, tasks
from amoro_core.store.database import Connection
from tests.condemning import Condemn
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
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


def test_the_life_of_a_process_and_each_attempt_of_its_tasks_are_told_in_order(world: World, planned: str) -> None:
    optimizer = world.optimizer()
    assert outcomes(world, planned) == []
    world.run_one(optimizer, Failure("AMORO-1", "password=hunter2 is wrong"))
    (handed,) = world.poll(optimizer)
    attempts = [(1, 1, AttemptOutcome.FAILED), (1, 2, AttemptOutcome.RUNNING)]
    assert outcomes(world, planned) == attempts
    world.later(60)
    world.optimizing.dismiss(optimizer, "silent", lost=True)
    world.run_all(planned, other := world.optimizer())
    attempts[1:] = [(1, 2, AttemptOutcome.LOST), (1, 3, AttemptOutcome.SUCCESS)]
    assert outcomes(world, planned) == attempts
    _, page = world.services.journal.attempts(planned, Window(100))
    lost = page.items[1]
    assert (lost.thread.optimizer_id, lost.scheduled_at, lost.acked_at) == (optimizer, START, None)
    assert (lost.finished_at, lost.failure, lost.input_rows) == (world.now, "silent", 3)
    assert handed.attempt == lost.attempt

    assert world.committing.commit(planned) is ProcessStatus.SUCCESS
    lately = [one for one in told(world) if one[0] != EventKind.LEADER_CHANGED]
    assert lately == [
        ("found", "cat.db.t was found"),
        ("planned", lately[1][1]),
        ("joined", f"optimizer {optimizer} joined group default with 2 threads"),
        ("failed", "attempt 1 of task 1 failed: [AMORO-1] password=*** is wrong"),
        ("lost", "attempt 2 of task 1 was lost: silent"),
        ("lost", f"optimizer {optimizer} was lost: silent"),
        ("joined", f"optimizer {other} joined group default with 2 threads"),
        ("committed", f"minor committed snapshot {world.table_head()}: 3 data files became 1, 3 rows"),
    ]
    assert lately[1][1].startswith("minor planned: ")
    page, _ = world.services.journal.events(EventFilter(process_id=planned[:8]), None, Window(10))
    assert [one.kind for one in page.items] == ["committed", "lost", "failed", "planned"]
    assert {(one.about.table, one.about.process_id) for one in page.items} == {("cat.db.t", planned)}


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


def test_optimizers_that_are_lost_or_leave_and_starts_of_coordinators_are_told(world: World) -> None:
    for lost in (True, False):
        world.optimizing.dismiss(world.optimizer(), "it is over", lost=lost)
    world.optimizing.dismiss("nobody", "it is over", lost=True)
    words = [(kind, text.split(" ", 2)[2]) for kind, text in told(world, EventKind.LOST, EventKind.LEFT)]
    assert words == [("lost", "was lost: it is over"), ("left", "left: it is over")]
    world.restart()
    world.restart()
    epochs = [text for _, text in told(world, EventKind.LEADER_CHANGED)]
    assert epochs == ["a coordinator began, epoch 2", "a coordinator began, epoch 3"]
    with pytest.raises(ProcessNotFound):
        world.services.journal.attempts("01997a4c", Window(5))


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


# What has ended is kept for a while; what is active stays


def counts(world: World) -> list[int]:
    """How many rows there are of processes, tasks, payloads and commits."""

    def count(db: Connection, table: str) -> int:
        return db.select(f"SELECT count(*) AS rows FROM {table}")[0]["rows"]

    tables = ("table_process", "task_runtime", "task_payload", "commit_attempt")
    return world.store.read(lambda db: [count(db, one) for one in tables])


def test_what_ended_longer_ago_goes_in_chunks_with_all_that_is_its_own(world: World, limits: Limits) -> None:
    limits(trimmed_at_once=2)
    make_small_files(world.catalog)
    for _ in range(4):
        world.optimizing.cancel(world.begin(OptimizingType.MINOR), "no")
    process = world.optimized(OptimizingType.MINOR)
    kept = counts(world)
    world.later(30 * 86400)
    assert (world.services.history.trim(), counts(world)) == (0, kept)
    world.later(1)
    assert [world.services.history.trim() for _ in range(2)] == [5, 0]
    assert counts(world) == [0, 0, 0, 0]
    with pytest.raises(ProcessNotFound):
        world.optimizing.find_process(process)
    assert world.table().last_optimized_at is not None


# What is sampled, what is counted where it happens, and what is read of it


def hour(world: World) -> Range:
    return Range(world.now - timedelta(hours=1), world.now + timedelta(minutes=1), 60)


def sums(world: World) -> dict[tuple[str, str], list[int]]:
    """The sums of every series by name and label, minute by minute."""
    found, _ = world.services.sampling.read((), None, hour(world))
    return {(one.name, one.label): [point.sum for point in one.points] for one in found}


def test_a_minute_is_sampled_once_and_time_without_a_coordinator_is_a_gap(world: World) -> None:
    def points(name: str) -> list[tuple[timedelta, int]]:
        (found,), _ = world.services.sampling.read([name], None, hour(world))
        return [(point.at - START, point.sum) for point in found.points]

    sampler = world.services.sampling
    assert [sampler.sample(), sampler.sample()] == [True, False]
    world.later(59)
    assert sampler.sample() is False
    world.later(1)
    assert sampler.sample() is True
    assert points("tables") == [(timedelta(minutes=minute), 0) for minute in (0, 1)]
    world.later(600)
    world.restart()
    world.services.sampling.sample()
    # A minute without work is none.
    assert points("rows-rewritten") == [(timedelta(minutes=minute), 0) for minute in (0, 1, 11)]


def test_levels_and_the_age_of_the_backlog_are_those_of_the_moment(world: World, planned: str) -> None:
    optimizer = world.optimizer(threads=3)
    sampler = world.services.sampling
    world.later(45)
    make_small_files(world.catalog, 20, {"self-optimizing.enabled": "true"}, name="db.u")
    world.refresh("cat.db.u")
    world.later(45)
    sampler.sample()
    world.poll(optimizer)
    world.later(60)
    sampler.sample()
    found = sums(world)
    levels = {
        ("tables", ""): [2, 2],
        ("tables-pending", ""): [1, 1],
        ("backlog-age", ""): [45, 105],
        ("processes-active", ""): [1, 1],
        ("threads", "default"): [3, 3],
        ("threads-busy", "default"): [0, 1],
        ("queue-tasks", "default"): [1, 0],
        ("queue-age", "default"): [90, 0],
    }
    assert {series: found[series] for series in levels} == levels
    assert world.status(planned) is ProcessStatus.RUNNING


def test_what_ends_is_counted_once_by_its_status_where_it_happens(world: World, planned: str) -> None:
    world.run_all(planned)
    assert world.committing.commit(planned) is ProcessStatus.SUCCESS
    assert world.committing.commit(planned) is ProcessStatus.SUCCESS
    world.restart()
    world.services.sampling.sample()
    for number in range(3):
        writer.append(world.catalog.load_table("db.t"), [row(number)])
    world.optimizing.cancel(world.begin(OptimizingType.MINOR), "changed my mind")
    failing, optimizer = world.begin(OptimizingType.MINOR), world.optimizer()
    while world.status(failing) is ProcessStatus.RUNNING:
        world.run_one(optimizer, Failure("AMORO-1", "no disk"))
    found = sums(world)
    assert [found["processes-ended", end] for end in ("success", "closed", "failed")] == [[1], [1], [1]]
    assert (found["files-removed", ""], found["rows-rewritten", ""]) == ([2], [3])
    assert found["bytes-rewritten", ""] == [world.receipt(planned).bytes_before]


def test_more_groups_than_are_kept_leave_out_those_without_work(world: World, limits: Limits) -> None:
    limits(sampled_groups=2)
    for name in ("a", "b", "z"):
        world.groups.create(ResourceGroup(name))
    world.optimizer(1, group="z")
    world.services.sampling.sample()
    assert {label for name, label in sums(world) if name == "threads"} == {"z", "a"}


def test_numbers_of_a_table_are_kept_when_they_have_changed_and_the_setting_says_so(world: World) -> None:
    table = make_small_files(world.catalog, 1)
    name, table_id = parse_table("cat.db.t"), world.table().table_id
    wanted = Range(START - timedelta(hours=1), START + timedelta(hours=5), 3600)
    for _ in range(3):
        world.tables.refresh(table_id)
        world.later(3600)
    writer.append(table, [row(2)])
    world.tables.refresh(table_id)
    found, _ = world.services.sampling.read_table(name, (), wanted)
    assert [one.name for one in found] == list(TABLE_SERIES)
    by_name = {one.name: [(point.at - START, point.sum) for point in one.points] for one in found}
    assert by_name["data-files"] == by_name["records"] == [(timedelta(0), 1), (timedelta(hours=3), 2)]
    (only,), _ = world.services.sampling.read_table(name, ["health"], wanted)
    assert only.name == "health"
    writer.make_table(world.catalog, "db.u", SCHEMA)
    other = world.table("cat.db.u")
    replace(world.tables, keeps_series=False).refresh(other.table_id)
    assert {one.points for one in world.services.sampling.read_table(other.identifier, (), wanted)[0]} == {()}


def test_what_is_not_kept_or_too_much_is_refused_by_name(world: World, limits: Limits) -> None:
    read, wanted = world.services.sampling.read, hour(world)
    for names in (["tabels"], ["health"]):
        with pytest.raises(InvalidArgument, match=f"no series '{names[0]}'"):
            read(names, None, wanted)
    with pytest.raises(InvalidArgument, match="no step of 61 seconds") as refused:
        read((), None, replace(wanted, step_s=61))
    assert refused.value.hint == "One of: 60, 600, 7200."
    with pytest.raises(InvalidArgument, match="not after its beginning"):
        read((), None, Range(world.now, world.now))
    with pytest.raises(TableNotFound):
        world.services.sampling.read_table(parse_table("cat.db.t"), (), replace(wanted, step_s=None))
    world.services.sampling.sample()
    limits(points_of_an_answer=3)
    with pytest.raises(InvalidArgument, match="are more than 3"):
        read((), None, wanted)
    assert len(read(["tables", "backlog-age"], None, wanted)[0]) == 2


# The values that Prometheus is told, from a store in which things happen


FULL = OptimizingType.FULL


ALWAYS = (
    "amoro_build_info",
    "amoro_start_time_seconds",
    "amoro_coordinator_epoch",
    "amoro_store_up",
    "amoro_catalog_up",
)


#: What the program around the services tells, and what is measured.
OTHERS = {
    metrics.LEADER,
    metrics.DISK_FREE,
    metrics.CERTIFICATE_END,
    *(metric for metric in METRICS if metric.kind is metrics.MetricKind.HISTOGRAM),
}


def measured(metering: MeteringService) -> dict[str, float]:
    """What is above zero, but for what every start has."""
    return {
        ".".join((sample.name.removeprefix("amoro_"), *sample.labels)): sample.value
        for sample in metering.meters.samples()
        if sample.value and sample.name not in ALWAYS
    }


@pytest.fixture
def metering(world: World) -> MeteringService:
    return MeteringService(world.store, lambda: world.now, "7", Actions().names, meters=world.meters)


def small_files(world: World) -> None:
    """Three more small files in the table db.t."""
    if not world.catalog.table_exists("db.t"):
        writer.make_table(world.catalog, "db.t", SCHEMA)
    table = world.catalog.load_table("db.t")
    for number in range(3):
        writer.append(table, [row(number), row(number + 10)])


def test_every_group_status_and_result_is_told_from_the_start(world: World, metering: MeteringService) -> None:
    world.groups.create(ResourceGroup("nightly"))
    writer.make_table(world.catalog, "db.lost", SCHEMA, properties={"self-optimizing.group": "gone"})
    world.tables.refresh(world.table("cat.db.lost").table_id)
    samples = metering.meters.samples()
    found: dict[str, set[tuple[str, ...]]] = {}
    for sample in samples:
        found.setdefault(sample.name.removeprefix("amoro_"), set()).add(sample.labels)
    groups, ends = ("default", "gone", "nightly"), ("success", "partial", "failed", "closed")
    actions = [name for name in Actions().names if name not in OPTIMIZING_TYPES]
    plain = {one.name.removeprefix("amoro_") for one in METRICS if not one.labels and one not in OTHERS}
    labelled = {"catalog_errors_total", "events_total", "failed_checks_total", "groups_dropped_total", "open_tasks"}
    assert found.keys() >= plain | labelled
    assert {status for group, status in found["tables"] if group == "gone"} >= {"idle", "pending", "refused"}
    assert found["processes_total"] == set(product(Actions().names, ends))
    assert found["maintenance_processes_total"] == set(product(actions, ends))
    assert found["refused_tables"] == {(word,) for word in REFUSALS}
    assert found["optimizers"] == set(product(groups, ("active", "draining")))
    assert found["files_deleted_total"] == {(kind.value,) for kind in FileKind}
    assert found["commit_attempts_total"] == {("done",), ("conflict",), ("refused",), ("unknown",), ("refuted",)}
    assert len(samples) == sum(len(labels) for labels in found.values())


def test_each_step_of_a_process_is_seen(world: World, metering: MeteringService) -> None:
    assert measured(metering) == {}
    small_files(world)
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == 2)
    process_id = world.begin(FULL)
    optimizer = world.optimizer(threads=4)
    optimizers = {"optimizers.default.active": 1.0, "optimizer_threads.default": 4.0}
    assert measured(metering) == {
        **optimizers,
        "tables.default.full_optimizing": 1.0,
        "active_processes.full.running": 1.0,
        "open_tasks.default.planned": 1.0,
    }
    world.run_all(process_id, optimizer)
    assert measured(metering) == {
        **optimizers,
        "tables.default.committing": 1.0,
        "active_processes.full.committing": 1.0,
        "task_attempts_total.success": 1.0,
    }

    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    world.optimizers.drain(optimizer)
    found = measured(metering)
    assert found.pop("rewritten_bytes_total") > 0
    assert found == {
        "optimizers.default.draining": 1.0,
        "optimizer_threads.default": 4.0,
        "tables.default.idle": 1.0,
        "processes_total.full.success": 1.0,
        "data_files_removed_total": 3.0,
        "data_files_added_total": 1.0,
        "delete_files_removed_total": 1.0,
        "verified_rows_total": 5.0,
        "task_attempts_total.success": 1.0,
        "commit_attempts_total.done": 1.0,
    }


def test_counters_grow_with_each_process_and_with_nothing_else(world: World, metering: MeteringService) -> None:
    for number in range(1, 4):
        small_files(world)
        world.optimize(FULL)
        assert [measured(metering)["processes_total.full.success"] for _ in range(3)] == [number] * 3
        world.later(7 * 60)
    world.later(3600)
    world.store.write(lambda db: processes.remove_ended(db, world.now, 100))  # as the history forgets
    assert measured(metering)["processes_total.full.success"] == 3
    # What ended before the start does not count.
    small_files(world)
    world.optimize(FULL)
    world.later(1)
    anew = MeteringService(world.store, lambda: world.now, "7", ("full",), Meters())
    assert "processes_total.full.success" not in measured(anew)


def test_maintenance_is_counted_by_action_kind_and_result(new_world: Callable[..., World], catalog: SqlCatalog) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(table, [row(1)])
    strays = [Path(table.location().removeprefix("file://")) / f"data/stray-{one}.parquet" for one in range(3)]
    for path in strays:
        path.write_bytes(b"x" * 10)
    action = Condemn(lambda: [(path.as_uri(), FileKind.DATA) for path in strays], most=2)
    action.sizes = {path.as_uri(): 10 for path in strays}
    world = new_world(action)
    metering = MeteringService(world.store, lambda: world.now, "7", ("minor", "condemn", "empty-trash"), world.meters)
    world.maintaining.begin(world.table().table_id, "condemn", trigger="request")
    assert measured(metering)["maintenance_held.condemn"] == 1
    world.confirm("condemn")
    world.leasing.take(world.table(), world.table_head(), "bob")
    found = measured(metering)
    assert "maintenance_held.condemn" not in found
    assert (found["maintenance_processes_total.condemn.success"], found["files_condemned_total.data"]) == (1, 3)
    assert (found["trash_bytes"], found["leases"]) == (30, 1)
    world.later(86400)
    world.run("empty-trash")
    found = measured(metering)
    assert (found["files_deleted_total.data"], found["deleted_bytes_total"]) == (3, 30)
    assert "trash_bytes" not in found


def test_what_ends_is_counted_by_outcome_and_measured(world: World, metering: MeteringService) -> None:
    small_files(world)
    optimizer = world.optimizer()
    process_id = world.begin(FULL)
    handed = world.take(optimizer)
    world.optimizing.dismiss(optimizer, "silent", lost=True)
    world.later(3600)
    optimizer = world.optimizer()
    handed = world.take(optimizer)
    world.later(42)
    world.complete(optimizer, handed.attempt, world.execute(handed))
    world.committing.commit(process_id)
    found = measured(metering)
    assert {name: value for name, value in found.items() if "attempts" in name or "lost" in name} == {
        "optimizers_lost_total": 1,
        "task_attempts_total.lost": 1,
        "task_attempts_total.success": 1,
        "commit_attempts_total.done": 1,
    }
    lines = metering.meters.exposed().decode().splitlines()
    assert 'amoro_task_seconds_sum{kind="rewrite"} 42.0' in lines
    assert 'amoro_task_seconds_bucket{kind="rewrite",le="30.0"} 0.0' in lines
    assert 'amoro_task_seconds_bucket{kind="rewrite",le="60.0"} 1.0' in lines
    assert 'amoro_commit_seconds_count{type="full"} 1.0' in lines
    assert any(line.startswith("amoro_transaction_seconds_count ") and not line.endswith(" 0.0") for line in lines)


def test_a_lost_race_a_failed_check_and_what_was_kept_beside_other_writers_are_counted(
    world: World, metering: MeteringService
) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(2):
        writer.append(table, [row(number, "a"), row(10 + number, "a"), row(20 + number, "b")])
    process_id = world.begin_and_run(FULL)
    writer.delete_where(table, lambda item: item["id"] == 1)
    writer.copy_on_write(table, lambda item: item["id"] == 20)
    kept = [world.output_of(task).data_files[0] for task in world.tasks(process_id) if "=a" in task.partition]
    world.iceberg.before_sending(raising(CommitConflict("another writer was first")))
    assert world.committing.commit(process_id) is ProcessStatus.PARTIAL
    found = measured(metering)
    assert (found["groups_rebased_total"], found["rebased_bytes_total"]) == (1, kept[0].size_bytes)
    assert found["groups_dropped_total.full"] == 1
    assert (found["commit_attempts_total.conflict"], found["commit_attempts_total.done"]) == (1, 1)

    world.iceberg.table(stage=raising(CheckFailed("rows are missing")))
    small_files(world)
    process_id = world.begin_and_run(FULL)
    assert world.committing.commit(process_id) is ProcessStatus.FAILED
    assert measured(metering)["failed_checks_total.full"] == 1


def test_a_catalog_that_does_not_answer_is_down_until_it_does(world: World, metering: MeteringService) -> None:
    small_files(world)

    silent = raising(CatalogUnavailable("no route to host"))
    with world.iceberg.catalog(list_tables=silent):
        with pytest.raises(CatalogUnavailable):
            world.discovery.explore("cat")
        assert values(metering, metrics.CATALOG_UP) == {("cat",): 0}
    assert values(metering, metrics.CATALOG_ERRORS) == {("cat",): 1}
    world.discovery.explore("cat")
    assert values(metering, metrics.CATALOG_UP) == {("cat",): 1}
    with world.iceberg.catalog(load=silent), pytest.raises(CatalogUnavailable):
        world.tables_of.open(parse_table("cat.db.t"))
    assert values(metering, metrics.CATALOG_UP) == {("cat",): 0}
    assert values(metering, metrics.CATALOG_ERRORS) == {("cat",): 2}


def test_tables_have_series_of_their_own_where_their_group_says_so_until_the_state_database_fails(
    world: World, metering: MeteringService
) -> None:
    small_files(world)
    world.refresh()
    assert values(metering, metrics.TABLE_FILES) == {}
    world.groups.update("default", GroupChange(properties={"table-metrics": "true"}))
    for metric, value in ((metrics.TABLE_FILES, 3), (metrics.TABLE_SMALL, 3), (metrics.TABLE_HEALTH, 100)):
        assert values(metering, metric) == {("cat.db.t",): value}
    with pytest.raises(InvalidArgument, match="table-metrics has the malformed value 'yes': it is true or false"):
        world.groups.update("default", GroupChange(properties={"table-metrics": "yes"}))
    assert values(metering, metrics.STORE_UP) == {(): 1}
    world.store.fence(Fenced("another coordinator"))
    assert values(metering, metrics.STORE_UP) == {(): 0}
    assert values(metering, metrics.TABLES) == {}


def values(metering: MeteringService, metric: metrics.Metric) -> dict[tuple[str, ...], float]:
    return {sample.labels: sample.value for sample in metering.meters.samples() if sample.name == metric.name}


def test_a_commit_that_is_put_off_ten_times_in_a_row_is_a_condition(world: World, metering: MeteringService) -> None:
    conditions = ConditionService(metering.meters.samples, lambda: world.now)

    def raised() -> list[str]:
        return [one.text for one in conditions.look()[0] if one.condition.name == "commit-delayed"]

    small_files(world)
    process_id = world.begin_and_run(FULL)
    with world.iceberg.catalog(load=raising(CatalogUnavailable("no route to host"))):
        for _ in range(10):
            assert raised() == []
            with pytest.raises(CatalogUnavailable):
                world.committing.commit(process_id)
            world.later(60)
        assert raised() == ["Processes of full whose commit or clean-up is put off again and again: 1"]
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    world.later(60)
    assert raised() == []
