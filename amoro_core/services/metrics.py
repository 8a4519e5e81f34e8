"""Prometheus metrics, read from the store on each scrape, and the conditions that are derived from them."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, product
from statistics import median

from amoro_core.errors import Fenced, StorageFull, StoreFailed
from amoro_core.logger import get_logger
from amoro_core.metrics_registry import Meters, Series
from amoro_core.model import metrics
from amoro_core.model.alert_rules import CONDITIONS, ActiveAlert, Counted, counters, evaluate_rules
from amoro_core.model.alert_rules import CounterKey as ConditionsSeries
from amoro_core.model.group_config import parse_group, parse_scaling
from amoro_core.model.history_events import EventKind
from amoro_core.model.maintenance import FileKind
from amoro_core.model.metrics import Metric, MetricSample
from amoro_core.model.processes import (
    ACTIVE_PROCESS_STATUSES,
    CommitOutcome,
    OptimizingProcess,
    ProcessStatus,
    ResourceGroup,
    TaskStatus,
)
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from amoro_core.state.processes import is_delayed
from amoro_core.store import actions, groups, pending_deletions, processes, queue_stats, snapshot_leases, tables
from amoro_core.store.database import Connection, Store, current_epoch

OPTIMIZING_TYPES = tuple(kind.value for kind in OptimizingType)

#: A process may be stored a little after its recorded end.
_OVERLAP = timedelta(minutes=5)


@dataclass
class MeteringService:
    """Values of all metrics. Counters grow from the coordinator's start, independent of scrapes."""

    store: Store
    clock: Callable[[], datetime]
    version: str
    types: Sequence[str]  # of processes
    meters: Meters
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _counted: dict[str, datetime] = field(init=False, default_factory=dict)  # processes that ended lately, and when

    def __post_init__(self) -> None:
        self._started = self.clock()
        self._read_at = self._started
        self._store_writes = True
        for metric, labels in _counters(self.types):
            self.meters.count(metric, *labels, by=0)
        self.meters.ask_all("store", self._stored)

    def note_write(self, seconds: float, worked: bool) -> None:
        """Note a write transaction of the store; one that failed counts until another works."""
        self.meters.observe(metrics.TRANSACTION_TIME, seconds)
        self._store_writes = worked

    def _stored(self) -> dict[Series, float]:
        """The gauges of the state database; if that fails, only that it does. Counts processes that have ended."""
        own = {(metrics.BUILD, (self.version,)): 1.0, (metrics.STARTED, ()): self._started.timestamp()}
        now = self.clock()
        with self._lock:
            since = max(self._started, self._read_at - _OVERLAP)
            try:
                gauges, ended = self.store.read(
                    lambda db: (_gauges(db, now, self.types), processes.list_ended_since(db, since))
                )
                for process in ended:
                    if process.process_id not in self._counted:
                        self._count(process)
                        if not process.is_optimizing:
                            self._count_maintenance(process)
            except (StoreFailed, StorageFull, Fenced):
                return {**own, (metrics.STORE_UP, ()): 0.0}
            self._read_at = now
            self._counted = {key: at for key, at in self._counted.items() if at >= now - 2 * _OVERLAP}
            return {**own, **gauges, (metrics.STORE_UP, ()): float(self._store_writes)}

    def _count(self, process: OptimizingProcess) -> None:
        self._counted[process.process_id] = process.finished_at or self._read_at
        self.meters.count(metrics.ENDED, process.type, str(process.status), by=1)
        if done := process.receipt:
            self.meters.count(metrics.FILES_REMOVED, by=done.data_files_before)
            self.meters.count(metrics.FILES_ADDED, by=done.data_files_after)
            self.meters.count(metrics.DELETES_REMOVED, by=max(0, done.delete_files_before - done.delete_files_after))
            self.meters.count(metrics.BYTES_READ, by=done.bytes_before)
            self.meters.count(metrics.ROWS, by=done.rows_after)
            for figure in done.figures:
                if (counter := _OF_FIGURES.get(figure.name)) is not None:
                    self.meters.count(counter, by=figure.value)

    def _count_maintenance(self, process: OptimizingProcess) -> None:
        self.meters.count(metrics.MAINTAINED, process.action, str(process.status), by=1)
        for kind, files in self.store.read(lambda db: pending_deletions.count_kinds(db, process.process_id)).items():
            self.meters.count(metrics.CONDEMNED, kind.value, by=files)
        for figure in process.receipt.figures if process.receipt else ():
            kind_word = figure.name.removesuffix("_files_deleted").replace("_", "-")
            if figure.name.endswith("_files_deleted") and kind_word in _KINDS:
                self.meters.count(metrics.DELETED, kind_word, by=figure.value)


#: Figures of receipts that are added to counters directly.
_OF_FIGURES = {
    "groups_rebased": metrics.REBASED_GROUPS,
    "bytes_rebased": metrics.REBASED_BYTES,
    "bytes_deleted": metrics.DELETED_BYTES,
    "files_failed": metrics.DELETE_FAILURES,
    "mended": metrics.LOST_REFS,
}
_KINDS = tuple(kind.value for kind in FileKind)
_RESULTS = tuple(status.value for status in ProcessStatus if status not in ACTIVE_PROCESS_STATUSES)


def _counters(types: Sequence[str]) -> Iterator[Series]:
    """Counters that begin at 0: a series that appears with its first event would hide that event from `increase`."""
    plain = (metric for metric in metrics.METRICS if metric.kind is metrics.MetricKind.COUNTER and not metric.labels)
    ended = ((metrics.ENDED, labels) for labels in product(types, _RESULTS))
    maintained = ((metrics.MAINTAINED, labels) for labels in product(_actions(types), _RESULTS))
    kinds = ((metric, (kind,)) for metric in (metrics.CONDEMNED, metrics.DELETED) for kind in _KINDS)
    tried = ((metrics.TASK_ATTEMPTS, (outcome,)) for outcome in metrics.ATTEMPT_OUTCOMES)
    sent = ((metrics.COMMIT_ATTEMPTS, (outcome.value,)) for outcome in CommitOutcome if outcome != CommitOutcome.SENT)
    named = ((metric, (name,)) for metric in (metrics.FAILED_CHECKS, metrics.DROPPED_GROUPS) for name in types)
    events = ((metrics.EVENTS, (result,)) for result in metrics.EVENT_RESULTS)
    seen = ((metrics.CHANGES_SEEN, (by,)) for by in ("event", "look"))
    return chain(((metric, ()) for metric in plain), ended, maintained, kinds, tried, sent, named, events, seen)


def _actions(types: Sequence[str]) -> list[str]:
    """The types other than optimizing: each is the name of its action."""
    return [name for name in types if name not in OPTIMIZING_TYPES]


def _resting(names: Sequence[str], types: Sequence[str]) -> dict[Series, float]:
    """Zeros for all series of these groups: to Prometheus a missing series is not 0."""
    labels: tuple[tuple[Metric, Iterable[tuple[str, ...]]], ...] = (
        (metrics.TABLES, product(names, (status.value for status in OptimizingStatus))),
        (metrics.REFUSED, product(REFUSALS)),
        (metrics.OLDEST_PENDING, product(names)),
        (metrics.ACTIVE, product(types, (status.value for status in ACTIVE_PROCESS_STATUSES))),
        (metrics.DELAYED, product(types)),
        (metrics.TASKS, product(names, (status.value for status in _OPEN))),
        (metrics.OPTIMIZERS, product(names, _STATES)),
        (metrics.THREADS, product(names)),
        (metrics.HELD, product(_actions(types))),
        (metrics.PAUSED, product(_actions(types))),
    )
    return {(metric, values): 0.0 for metric, all_values in labels for values in all_values}


_OPEN = (TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED)
_STATES = ("active", "draining")
_PREDICTIONS = 1000


def _gauges(db: Connection, now: datetime, types: Sequence[str]) -> dict[Series, float]:
    result: Counter[Series] = Counter()
    oldest: dict[Series, float] = {}
    uses = tables.count_by_status(db)
    for use in uses:
        result[metrics.TABLES, (use.group, use.status.value)] += use.tables
        if use.refusal:
            result[metrics.REFUSED, (use.refusal,)] += use.tables
        if use.status is OptimizingStatus.PENDING:
            oldest[metrics.OLDEST_PENDING, (use.group,)] = max(0.0, (now - use.oldest_since).total_seconds())
    active = processes.list_active(db)
    result.update((metrics.DELAYED, (process.type,)) for process in active if is_delayed(process))
    for process in active:
        result[metrics.ACTIVE, (process.type, str(process.status))] += 1
        if process.status == ProcessStatus.HELD:
            result[metrics.HELD, (process.action,)] += 1
    for action, number in actions.count_paused(db).items():
        result[metrics.PAUSED, (action,)] = number
    result[metrics.TRASH, ()] = sum(batch.bytes for batch in pending_deletions.list_facts(db))
    result[metrics.LEASES, ()] = len(snapshot_leases.list_leases(db, now))
    for (group, status), number in queue_stats.count_open(db).items():
        result[metrics.TASKS, (group, status.value)] += number
    for optimizer in groups.list_optimizers(db):
        result[metrics.OPTIMIZERS, (optimizer.group, _STATES[optimizer.draining])] += 1
        result[metrics.THREADS, (optimizer.group,)] += optimizer.threads
    # A table may name a group that does not exist: no optimizer works for it, which is worth an alert.
    configured = groups.list_groups(db)
    for group_ in configured:
        result[metrics.FAILED_STARTS, (group_.name,)] = groups.get_scaling(db, group_.name).failed_starts
        result[metrics.ON_DEMAND, (group_.name,)] = parse_scaling(group_.properties).max_instances or 0
    result[metrics.EPOCH, ()] = current_epoch(db)
    errors = processes.prediction_errors(db, _PREDICTIONS) or [0.0]
    rest = {**_of_tables(db, configured), **_failing(db), (metrics.PREDICTION_ERROR, ()): median(errors)}
    names = {group.name for group in configured} | {use.group for use in uses}
    return {**_resting(sorted(names), types), **{key: float(value) for key, value in result.items()}, **oldest, **rest}


#: The most failing actions of tables with series of their own.
MOST_FAILING = 100


def _failing(db: Connection) -> dict[Series, float]:
    """The series of each table that keeps failing."""
    values: dict[Series, float] = {}
    records = actions.list_failing(db, MOST_FAILING)
    names = tables.names(db, {record.table_id for record in records})
    for record in records:
        labels = str(names[record.table_id]), record.action, record.failure_code
        values[metrics.FAILURES, labels] = record.failures
        if record.failing_since is not None:
            values[metrics.FAILING_SINCE, labels] = record.failing_since.timestamp()
    return values


#: The most tables of a group with series of their own: each costs Prometheus memory.
MOST_TABLES = 2000


def _of_tables(db: Connection, every_group: Iterable[ResourceGroup]) -> dict[Series, float]:
    """The series of each evaluated table, of groups that ask for them."""
    values: dict[Series, float] = {}
    for group in every_group:
        if not parse_group(group.properties).has_table_metrics:
            continue
        for runtime in tables.list_of_group(db, group.name, MOST_TABLES):
            summary, labels = runtime.summary, (str(runtime.identifier),)
            if summary.health_score >= 0:
                deletes = summary.equality_delete_files + summary.position_delete_files
                values[metrics.TABLE_HEALTH, labels] = float(summary.health_score)
                values[metrics.TABLE_FILES, labels] = float(summary.data_files)
                values[metrics.TABLE_SMALL, labels] = float(summary.fragment_files + summary.undersized_files)
                values[metrics.TABLE_DELETES, labels] = float(deletes)
                values[metrics.TABLE_BYTES, labels] = float(summary.data_bytes)
    return values


log = get_logger("amoro.conditions")

_HOUR, _MINUTE = timedelta(hours=1), timedelta(minutes=1)
#: How long an evaluation is reused.
FRESH = timedelta(seconds=1)


@dataclass
class ConditionService:
    """Evaluates the conditions. Its history is in memory: at a restart durations begin anew."""

    read: Callable[[], Sequence[MetricSample]]  # the samples of all metrics
    clock: Callable[[], datetime]
    tell: Callable[[EventKind, ActiveAlert], None] = lambda kind, alert: None  # a condition was raised or cleared
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _evaluated_at: datetime | None = field(init=False, default=None)
    #: Counters, at most one a minute.
    _history: deque[tuple[datetime, dict[ConditionsSeries, float]]] = field(init=False, default_factory=deque)
    _active: tuple[ActiveAlert, ...] = field(init=False, default=())

    def look(self) -> tuple[tuple[ActiveAlert, ...], datetime]:
        """Every condition that holds, the worst first, and the time of its evaluation.

        Call it regularly, so that durations are measured.
        """
        with self._lock:
            now = self.clock()
            if self._evaluated_at is None or not timedelta() <= now - self._evaluated_at < FRESH:
                self._evaluate(now)
                self._evaluated_at = now
            return self._active, self._evaluated_at

    def _evaluate(self, now: datetime) -> None:
        samples = self.read()
        alerts = evaluate_rules(CONDITIONS, Counted(samples, self._hour_ago(now), now.timestamp()), self._active, now)
        before = self._evaluated_at or now
        earlier = {(alert.condition.name, alert.labels): alert for alert in self._active if alert.is_raised(before)}
        current = {(alert.condition.name, alert.labels): alert for alert in alerts}
        changed = [(EventKind.CONDITION_CLEARED, alert) for key, alert in earlier.items() if key not in current]
        for key, alert in current.items():
            if alert.is_raised(now) and key not in earlier:
                log.warning("condition.raised", condition=alert.condition.name, **alert.named, what=alert.text)
                changed.append((EventKind.CONDITION_RAISED, alert))
        for kind, alert in changed:
            with suppress(StoreFailed, StorageFull, Fenced):  # which are conditions, too
                self.tell(kind, alert)
        self._active = alerts
        if not self._history or now - self._history[-1][0] >= _MINUTE:
            self._history.append((now, counters(samples)))

    def _hour_ago(self, now: datetime) -> dict[ConditionsSeries, float]:
        """The counters of an hour ago; empty if they began later."""
        while len(self._history) > 1 and self._history[1][0] <= now - _HOUR:
            self._history.popleft()
        if self._history and self._history[0][0] <= now - _HOUR:
            return self._history[0][1]
        return {}
