"""Which alerts of the documentation are raised in which state of a coordinator: exactly those, by Prometheus's engine.

The series are what a coordinator exposes, minute by minute.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from amoro_core.errors import CatalogUnavailable, CommitUnknown, DataFileMissing, WorkFailed
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.model.alert_rules import CONDITIONS
from amoro_core.model.group_config import Scaling
from amoro_core.model.processes import OPTIMIZING_ACTION, Delay, Figure, ProcessStatus, Receipt, ResourceGroup
from amoro_core.model.tables import ActionRecord, OptimizingType
from amoro_core.services.task_lifecycle import Failure
from amoro_core.store import actions, groups, processes
from docs.meanings import QUERIES
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.prometheus import promtool
from tests.prometheus.promtool import ALERTS, ROOT
from tests.prometheus.scraping import Prometheus
from tests.services.world import START, World
from tests.tiers import sample
from tests.unit.test_machines import RUNNING

FULL = OptimizingType.FULL
IMPATIENT = {"self-optimizing.enabled": "true", "self-optimizing.minor.trigger.file-count": "2"}


def make_table(world: World, name: str = "t", properties: dict[str, str] | None = None) -> None:
    """The table db.`name` with three small files."""
    table = writer.make_table(world.catalog, f"db.{name}", SCHEMA, properties=properties)
    for number in range(3):
        writer.append(table, [row(number)])


def rest(seen: Prometheus) -> None:
    """An optimizer is there, and nothing is to be done."""
    seen.world.optimizer()
    seen.watch(90)


def no_optimizer(seen: Prometheus) -> None:
    seen.watch(12)


def no_work_on_demand(seen: Prometheus) -> None:
    """Optimizers are started once there is work."""
    on_demand = ResourceGroup("nightly", properties=(("max-instances", "2"),), container="local")
    seen.world.store.write(lambda db: groups.add(db, on_demand))
    seen.watch(12)


def no_optimizer_for_tasks(seen: Prometheus) -> None:
    make_table(seen.world)
    seen.world.begin(FULL)
    seen.watch(12)


def no_optimizer_for_tasks_of_one_group(seen: Prometheus) -> None:
    seen.world.groups.create(ResourceGroup("nightly"))
    seen.world.optimizer()
    make_table(seen.world, properties={"self-optimizing.group": "nightly"})
    seen.world.begin(FULL)
    seen.watch(12)


def work(seen: Prometheus) -> None:
    """An optimizer is at work, and commits after a while."""
    optimizer = seen.world.optimizer()
    seen.watch(15)
    for name in ("t", "u"):
        make_table(seen.world, name)
        process = seen.world.begin(FULL, f"cat.db.{name}")
        (handed,) = seen.world.poll(optimizer)
        seen.world.optimizing.ack(optimizer, [handed.attempt])
        seen.watch(25)
        seen.world.complete(optimizer, handed.attempt, seen.world.execute(handed))
        seen.watch(1)
        assert seen.world.committing.commit(process) is ProcessStatus.SUCCESS
    seen.watch(2)


def an_optimizer_that_takes_nothing(seen: Prometheus) -> None:
    seen.world.optimizer()
    make_table(seen.world)
    seen.world.begin(FULL)
    seen.watch(17)


def an_unknown_commit(seen: Prometheus) -> None:
    optimizer = seen.world.optimizer()
    make_table(seen.world)
    process = seen.world.begin(FULL)
    seen.world.run_all(process, optimizer)
    assert seen.world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN
    seen.watch(12)


def delayed(tries: int, status: ProcessStatus, minutes: int = 22) -> Callable[[Prometheus], None]:
    """A commit that was put off so often in a row."""

    def happen(seen: Prometheus) -> None:
        seen.world.optimizer()
        make_table(seen.world)
        _store(seen.world, status, delay=Delay(CatalogUnavailable.code, "no answer", seen.world.now, tries))
        seen.watch(minutes)

    happen.__name__ = f"a_{status}_process_put_off_{tries}_times_{minutes}_minutes_ago"
    return happen


def a_backlog(seen: Prometheus) -> None:
    """A table waits for its plan; nobody plans in this world."""
    seen.world.optimizer()
    make_table(seen.world, properties=IMPATIENT)
    seen.world.tables.refresh(seen.world.table().table_id)
    seen.watch(75)


def failures(seen: Prometheus) -> None:
    optimizer = seen.world.optimizer()
    seen.watch(5)
    for name in ("t", "u", "v"):
        make_table(seen.world, name, {"self-optimizing.execute.num-retries": "0"})
        seen.world.begin(FULL, f"cat.db.{name}")
        seen.world.run_one(optimizer, Failure("AMORO-1001", "no luck"))
        seen.watch(5)


def refusals(seen: Prometheus) -> None:
    seen.world.optimizer()
    make_table(seen.world, properties={"self-optimizing.target-size": "abc"})
    seen.world.tables.refresh(seen.world.table().table_id)
    seen.watch(62)


def restarts(seen: Prometheus) -> None:
    seen.world.optimizer()
    for _ in range(4):
        seen.watch(3)
        seen.restart()
    seen.watch(1)


def a_guard_that_spoke(seen: Prometheus) -> None:
    seen.world.optimizer()
    seen.watch(5)
    seen.world.meters.count(metrics.GUARD_HITS, by=2)
    seen.watch(2)


def a_lost_ref(seen: Prometheus) -> None:
    """An expiry had to bring a tag back."""
    seen.world.optimizer()
    make_table(seen.world)
    seen.watch(5)
    receipt = Receipt.brief("expired", more=(Figure("mended", 1, ""),))
    _store(seen.world, ProcessStatus.SUCCESS, finished_at=seen.world.now, receipt=receipt)
    seen.watch(2)


def a_held_process(seen: Prometheus) -> None:
    seen.world.optimizer()
    make_table(seen.world)
    _store(seen.world, ProcessStatus.HELD)
    seen.watch(62)


def a_paused_action(seen: Prometheus) -> None:
    seen.world.optimizer()
    make_table(seen.world)
    table_id, now = seen.world.table().table_id, seen.world.now
    paused = ActionRecord(table_id, "expire-snapshots", paused_at=now, paused_for="3 failures in a row")
    seen.world.store.write(lambda db: actions.save(db, paused))
    seen.watch(2)


def failing_tables(code: str, times: int, action: str = OPTIMIZING_ACTION) -> Callable[[Prometheus], None]:
    """An action that failed so often in a row, and optimizing another table that failed twice."""

    def happen(seen: Prometheus) -> None:
        seen.world.optimizer()
        make_table(seen.world)
        table_id, now = seen.world.table().table_id, seen.world.now
        for named, number, why in ((action, times, code), ("cluster", 2, WorkFailed.code)):
            record = ActionRecord(table_id, named, failures=number, failure_code=why, failing_since=now)
            seen.world.store.write(lambda db, record=record: actions.save(db, record))
        seen.watch(2)

    happen.__name__ = f"{times}_failures_of_{action}_by_{code}"
    return happen


def _store(world: World, status: ProcessStatus, **more: object) -> None:
    """A process of expiry, as an earlier coordinator has left it."""
    kind = {"type": "expire-snapshots", "action": "expire-snapshots", "lane": "metadata", "status": status, **more}
    process = replace(RUNNING, table_id=world.table().table_id, created_at=world.now, **kind)
    world.store.write(lambda db: processes.add(db, process))


def nobody_answers(seen: Prometheus) -> None:
    seen.watch(2)
    seen.stop()
    seen.watch(7)


def a_lost_optimizer(seen: Prometheus) -> None:
    seen.world.optimizer()
    lost = seen.world.optimizer()
    seen.watch(3)
    seen.world.optimizing.dismiss(lost, "silent", lost=True)
    seen.watch(3)


def told(metric: metrics.Metric, value: float, *labels: str, minutes: int = 12) -> Callable[[Prometheus], None]:
    """A coordinator that counts or measures this from its third minute on."""

    def happen(seen: Prometheus) -> None:
        seen.world.optimizer()
        seen.watch(3)
        if metric.kind is metrics.MetricKind.COUNTER:
            seen.world.meters.count(metric, *labels, by=value)
        else:
            seen.world.meters.ask(metric, lambda: {labels: value})
        seen.watch(minutes)

    happen.__name__ = f"{metric.name}_{value:g}_for_{minutes}"
    return happen


def conflicts(lost: int, done: int) -> Callable[[Prometheus], None]:
    """Commits of which some lost to other writers."""

    def happen(seen: Prometheus) -> None:
        seen.world.optimizer()
        seen.watch(3)
        seen.world.meters.count(metrics.COMMIT_ATTEMPTS, "conflict", by=lost)
        seen.world.meters.count(metrics.COMMIT_ATTEMPTS, "done", by=done)
        seen.watch(3)

    happen.__name__ = f"{lost}_conflicts_beside_{done}"
    return happen


def failing_starts(times: int) -> Callable[[Prometheus], None]:
    """Starts of optimizers of a group that failed in a row."""

    def happen(seen: Prometheus) -> None:
        seen.world.optimizer()
        scaling = Scaling(1, times, None, "no such file")
        seen.world.store.write(lambda db: groups.save_scaling(db, "default", scaling))
        seen.watch(2)

    happen.__name__ = f"{times}_failing_starts"
    return happen


def an_hour_after_a_failed_check(seen: Prometheus) -> None:
    """What happened more than an hour ago is not raised any more."""
    told(metrics.FAILED_CHECKS, 1, "full", minutes=64)(seen)


DAY_S = 86400.0
GROUP = {"group": "default"}
FAILING = {"table": "cat.db.t", "action": "optimizing"}
FAILING_EXPIRY = {"table": "cat.db.t", "action": "expire-data", "code": "AMORO-1001"}
#: What happens, and which alerts are raised at the end of it, with their labels.
STATES: dict[Callable[[Prometheus], None], dict[str, dict[str, str]]] = {
    rest: {},
    work: {},
    no_optimizer: {"AmoroNoOptimizer": {}},
    no_work_on_demand: {},
    no_optimizer_for_tasks: {"AmoroNoOptimizer": {}, "AmoroTasksWait": GROUP},
    no_optimizer_for_tasks_of_one_group: {"AmoroTasksWait": {"group": "nightly"}},
    an_optimizer_that_takes_nothing: {"AmoroTasksNotTaken": GROUP},
    an_unknown_commit: {"AmoroCommitUnknown": {}},
    delayed(10, ProcessStatus.COMMITTING): {"AmoroCommitDelayed": {"type": "expire-snapshots"}},
    delayed(9, ProcessStatus.COMMITTING): {},
    delayed(10, ProcessStatus.COMMIT_UNKNOWN): {"AmoroCommitUnknown": {}},
    a_backlog: {"AmoroBacklog": GROUP},
    failures: {"AmoroProcessesFail": {}},
    refusals: {"AmoroTablesRefused": {"reason": "configuration"}},
    restarts: {"AmoroRestarts": {}},
    a_guard_that_spoke: {"AmoroGuardSpoke": {}},
    told(metrics.LISTENER_LAG, DAY_S, "hooks"): {"AmoroListenerBehind": {"listener": "hooks"}},
    told(metrics.LISTENER_LAG, DAY_S - 1, "hooks"): {},
    a_lost_ref: {"AmoroLostRefs": {}},
    a_held_process: {"AmoroMaintenanceHeld": {"action": "expire-snapshots"}},
    a_paused_action: {"AmoroMaintenancePaused": {"action": "expire-snapshots"}},
    failing_tables(WorkFailed.code, 3): {"AmoroTableFailing": {**FAILING, "code": "AMORO-1001"}},
    failing_tables(WorkFailed.code, 2): {},
    failing_tables(CatalogUnavailable.code, 9): {},
    failing_tables(DataFileMissing.code, 1): {"AmoroTableFailing": {**FAILING, "code": "AMORO-1002"}},
    failing_tables(WorkFailed.code, 3, "expire-data"): {"AmoroTableFailing": FAILING_EXPIRY},
    a_lost_optimizer: {"AmoroOptimizersLost": {}},
    told(metrics.FAILED_CHECKS, 1, "full"): {"AmoroCheckFailed": {"type": "full"}},
    an_hour_after_a_failed_check: {},
    told(metrics.STORE_UP, 0): {"AmoroStoreFailed": {}},
    told(metrics.LEADER, 0): {"AmoroNoLeader": {}},
    told(metrics.DISK_FREE, 0.09): {"AmoroDiskLow": {}},
    told(metrics.DISK_FREE, 0.1): {},
    told(metrics.CATALOG_UP, 0, "cat"): {"AmoroCatalogUnreachable": {"catalog": "cat"}},
    told(metrics.CERTIFICATE_END, START.timestamp() + 14 * DAY_S): {"AmoroCertificateEnds": {}},
    told(metrics.CERTIFICATE_END, START.timestamp() + 15 * DAY_S): {},
    told(metrics.LATE_DELETES, 1): {"AmoroLateDeletes": {}},
    told(metrics.LOGIN_FAILURES, 20): {"AmoroLoginFailures": {}},
    told(metrics.LOGIN_FAILURES, 19): {},
    conflicts(11, 9): {"AmoroCommitsConflict": {}},
    conflicts(11, 11): {},
    failing_starts(3): {"AmoroInstancesCannotStart": GROUP},
    failing_starts(2): {},
    nobody_answers: {"AmoroCoordinatorAbsent": {"instance": "127.0.0.1:1630", "job": "amoro"}},
}
#: What a coordinator can't see of itself.
OUTSIDE = {"AmoroCoordinatorAbsent", "AmoroRestarts"}  # only Prometheus can see these


def rules() -> dict[str, dict[str, str]]:
    """The alerts of the documentation by their names."""
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@pytest.mark.parametrize("state", sample(list(STATES), every=8), ids=lambda state: state.__name__)
def test_each_state_raises_its_alerts_and_no_others(
    state: Callable[[Prometheus], None], prometheus: Prometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(table: IcebergTable, payload: bytes) -> None:
        raise CommitUnknown("503")

    if state is an_unknown_commit:
        monkeypatch.setattr(IcebergTable, "send", lose)
    state(prometheus)
    raised = {}
    for name, labels in STATES[state].items():
        severity = rules()[name]["labels"]["severity"]
        raised[_series("ALERTS", alertname=name, alertstate="firing", severity=severity, **labels)] = 1.0
    promtool.check(tmp_path, prometheus.scrapes, {'ALERTS{alertstate="firing"}': raised})
    itself = {held.condition.alert: held.named for held in prometheus.raised}
    assert itself == {name: labels for name, labels in STATES[state].items() if name not in OUTSIDE}


def test_every_alert_is_raised_in_a_state() -> None:
    promtool.run("check", "rules", ALERTS)
    assert set(rules()) == {condition.alert for condition in CONDITIONS}
    assert {name for raised in STATES.values() for name in raised} == set(rules())


def test_every_metric_is_named_as_prometheus_wants_it() -> None:
    meters = Meters()
    for metric in metrics.METRICS:
        labels = tuple("a" for _ in metric.labels)
        match metric.kind:
            case metrics.MetricKind.HISTOGRAM:
                meters.observe(metric, 0.1, *labels)
            case metrics.MetricKind.COUNTER:
                meters.count(metric, *labels)
            case _:
                meters.set(metric, 1.0, *labels)
    text = meters.exposed()
    done = subprocess.run([promtool.found(), "check", "metrics"], input=text, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_each_query_of_the_reference_has_the_value_that_it_should(prometheus: Prometheus, tmp_path: Path) -> None:
    work(prometheus)
    make_table(prometheus.world, "waits")
    prometheus.world.begin(FULL, "cat.db.waits")
    prometheus.watch(1)
    tables, waiting, files, ended = QUERIES
    expected = {
        tables: {_series("", status="idle"): 2.0, _series("", status="full_optimizing"): 1.0},
        waiting: {_series("", group="default"): 0.5},
        files: {"{}": 4.0},
        ended: {_series("", type="full", result="success"): 2.0},
    }
    promtool.check(tmp_path, prometheus.scrapes, expected)


def test_no_page_has_an_expression_that_is_not_tried() -> None:
    tried = " ".join([*QUERIES, *(" ".join(rule["expr"].split()) for rule in rules().values())])
    for page in (ROOT / "docs").rglob("*.md"):
        for code in re.findall(r"`([^`\n]*\bamoro_[a-z_]+[^`\n]*)`", page.read_text(encoding="utf-8")):
            if re.search(r"[{(<>]|==", code):
                assert code in tried, f"{page.name}: {code}"


def _series(name: str, **labels: str) -> str:
    pairs = ", ".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{pairs}}}"
