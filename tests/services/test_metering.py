"""The values that Prometheus is told, from a store in which things happen."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions.registry import Actions
from amoro_core.errors import CatalogUnavailable, CheckFailed, CommitConflict, Fenced, InvalidArgument
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.model.maintenance import FileKind
from amoro_core.model.metrics import METRICS
from amoro_core.model.processes import ProcessStatus, ResourceGroup
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.services.groups import GroupChange
from amoro_core.services.metrics import OPTIMIZING_TYPES, ConditionService, MeteringService
from amoro_core.store import processes
from tests.condemning import Condemn
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.rigs import raising
from tests.services.world import World

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


def told(metering: MeteringService) -> dict[str, float]:
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
    assert told(metering) == {}
    small_files(world)
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == 2)
    process_id = world.begin(FULL)
    optimizer = world.optimizer(threads=4)
    optimizers = {"optimizers.default.active": 1.0, "optimizer_threads.default": 4.0}
    assert told(metering) == {
        **optimizers,
        "tables.default.full_optimizing": 1.0,
        "active_processes.full.running": 1.0,
        "open_tasks.default.planned": 1.0,
    }
    world.run_all(process_id, optimizer)
    assert told(metering) == {
        **optimizers,
        "tables.default.committing": 1.0,
        "active_processes.full.committing": 1.0,
        "task_attempts_total.success": 1.0,
    }

    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    world.optimizers.drain(optimizer)
    found = told(metering)
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
        assert [told(metering)["processes_total.full.success"] for _ in range(3)] == [number] * 3
        world.later(7 * 60)
    assert told(metering)["processes_total.full.success"] == 3
    world.later(3600)
    world.store.write(lambda db: processes.remove_ended(db, world.now, 100))  # as the history forgets
    assert told(metering)["processes_total.full.success"] == 3


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
    assert told(metering)["maintenance_held.condemn"] == 1
    world.confirm("condemn")
    world.leasing.take(world.table(), world.table_head(), "bob")
    found = told(metering)
    assert "maintenance_held.condemn" not in found
    assert (found["maintenance_processes_total.condemn.success"], found["files_condemned_total.data"]) == (1, 3)
    assert (found["trash_bytes"], found["leases"]) == (30, 1)
    world.later(86400)
    world.run("empty-trash")
    found = told(metering)
    assert (found["files_deleted_total.data"], found["deleted_bytes_total"]) == (3, 30)
    assert "trash_bytes" not in found


def test_what_ended_before_the_start_does_not_count(world: World) -> None:
    small_files(world)
    world.optimize(FULL)
    world.later(1)
    assert "processes_total.full.success" not in told(
        MeteringService(world.store, lambda: world.now, "7", ("full",), Meters())
    )


def test_waiting_and_refused_tables_are_told(world: World, metering: MeteringService) -> None:
    for name, properties in (
        ("waits", {"self-optimizing.enabled": "true", "self-optimizing.minor.trigger.file-count": "2"}),
        ("bad", {"self-optimizing.target-size": "abc"}),
    ):
        table = writer.make_table(world.catalog, f"db.{name}", SCHEMA, properties=properties)
        for number in range(3):
            writer.append(table, [row(number)])
        world.tables.refresh(world.table(f"cat.db.{name}").table_id)
    world.later(90)
    assert told(metering) == {
        "tables.default.pending": 1.0,
        "tables.default.refused": 1.0,
        "refused_tables.configuration": 1.0,
        "oldest_pending_table_seconds.default": 90.0,
    }


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
    found = told(metering)
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


def test_losing_to_another_writer_and_a_failed_check_are_counted(world: World, metering: MeteringService) -> None:
    small_files(world)
    process_id = world.begin_and_run(FULL)
    writer.append(world.catalog.load_table("db.t"), [row(77)])
    world.iceberg.before_sending(raising(CommitConflict("another writer was first")))
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    found = told(metering)
    assert (found["commit_attempts_total.conflict"], found["commit_attempts_total.done"]) == (1, 1)

    world.iceberg.table(stage=raising(CheckFailed("rows are missing")))
    small_files(world)
    process_id = world.begin_and_run(FULL)
    assert world.committing.commit(process_id) is ProcessStatus.FAILED
    assert told(metering)["failed_checks_total.full"] == 1


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
    assert (values(metering, metrics.CATALOG_UP), values(metering, metrics.CATALOG_ERRORS)) == (
        {("cat",): 0},
        {("cat",): 2},
    )


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


def test_tables_have_series_of_their_own_where_their_group_says_so(world: World, metering: MeteringService) -> None:
    small_files(world)
    world.tables.refresh(world.table().table_id)
    assert values(metering, metrics.TABLE_FILES) == {}
    world.groups.update("default", GroupChange(properties={"table-metrics": "true"}))
    assert values(metering, metrics.TABLE_FILES) == {("cat.db.t",): 3}
    assert values(metering, metrics.TABLE_SMALL) == {("cat.db.t",): 3}
    assert values(metering, metrics.TABLE_HEALTH) == {("cat.db.t",): 100}
    with pytest.raises(InvalidArgument, match="table-metrics has the malformed value 'yes': it is true or false"):
        world.groups.update("default", GroupChange(properties={"table-metrics": "yes"}))


def test_a_state_database_that_fails_is_told_as_such(world: World, metering: MeteringService) -> None:
    assert values(metering, metrics.STORE_UP) == {(): 1}
    world.store.fence(Fenced("another coordinator"))
    assert values(metering, metrics.STORE_UP) == {(): 0}
    assert values(metering, metrics.TABLES) == {}


def values(metering: MeteringService, metric: metrics.Metric) -> dict[tuple[str, ...], float]:
    return {sample.labels: sample.value for sample in metering.meters.samples() if sample.name == metric.name}


def test_what_was_kept_beside_other_writers_is_counted_and_what_was_not(
    world: World, metering: MeteringService
) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(2):
        writer.append(table, [row(number, "a"), row(10 + number, "a"), row(20 + number, "b")])
    process_id = world.begin_and_run(FULL)
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == 1)
    writer.copy_on_write(world.catalog.load_table("db.t"), lambda item: item["id"] == 20)
    kept = [world.output_of(task).data_files[0] for task in world.tasks(process_id) if "=a" in task.partition]
    assert world.committing.commit(process_id) is ProcessStatus.PARTIAL
    found = told(metering)
    assert [found[name] for name in ("groups_rebased_total", "rebased_bytes_total", "groups_dropped_total.full")] == [
        1.0, kept[0].size_bytes, 1.0,
    ]  # fmt: skip
