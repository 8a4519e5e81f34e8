"""Prometheus metrics, read from the store on each scrape, and the conditions that are derived from them."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, product

from amoro_core.errors import Fenced, StorageFull, StoreFailed
from amoro_core.logger import get_logger
from amoro_core.metrics_registry import Meters, Series
from amoro_core.model import metrics
from amoro_core.model.alert_rules import CONDITIONS, ActiveAlert, Counted, counters, evaluate_rules
from amoro_core.model.alert_rules import CounterKey as ConditionsSeries
from amoro_core.model.group_config import parse_group
from amoro_core.model.maintenance import FileKind
from amoro_core.model.metrics import Metric, MetricSample
from amoro_core.model.processes import (
    ACTIVE_PROCESS_STATUSES,
    CommitOutcome,
    OptimizingProcess,
    ProcessStatus,
    Receipt,
    ResourceGroup,
    TaskStatus,
)
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableRuntime
from amoro_core.store import actions, groups, pending_deletions, processes, queue_stats, snapshot_leases, tables
from amoro_core.store.connect import current_epoch
from amoro_core.store.database import Connection, Store

OPTIMIZING_TYPES = tuple(kind.value for kind in OptimizingType)

#: A process may be stored a little after its recorded end.
_OVERLAP = timedelta(minutes=5)


class MeteringService:
    """Values of all metrics. Counters grow from the coordinator's start, independent of scrapes."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime],
        version: str,
        types: Sequence[str] = OPTIMIZING_TYPES,
        guard_hits: Callable[[], int] = int,
        meters: Meters | None = None,
    ) -> None:
        """`types` are the types of processes; `guard_hits` returns how many files the guard has kept so far; `meters`
        are what the coordinator counts in memory."""
        self._meters = meters or Meters()
        self._store = store
        self._types = tuple(types)
        self._clock = clock
        self._version = version
        self._started = clock()
        self._lock = threading.Lock()
        self._read_at = self._started
        self._counted: dict[str, datetime] = {}  # processes that ended lately, and when
        self._store_writes = True
        for metric, labels in _counters(self._types):
            self._meters.count(metric, *labels, by=0)
        self._meters.ask(metrics.GUARD_HITS, lambda: {(): float(guard_hits())})
        self._meters.ask_all("store", self._stored)

    def note_write(self, seconds: float, worked: bool) -> None:
        """Note a write transaction of the store; one that failed counts until another works."""
        self._meters.observe(metrics.TRANSACTION_TIME, seconds)
        self._store_writes = worked

    def read(self) -> list[MetricSample]:
        """Every present value but those of histograms."""
        return self._meters.samples()

    def exposed(self) -> bytes:
        """Every present value in Prometheus's text format."""
        return self._meters.exposed()

    def _stored(self) -> dict[Series, float]:
        """The gauges of the state database; if that fails, only that it does. Counts processes that have ended."""
        own = {(metrics.BUILD, (self._version,)): 1.0, (metrics.STARTED, ()): self._started.timestamp()}
        now = self._clock()
        with self._lock:
            since = max(self._started, self._read_at - _OVERLAP)
            try:
                gauges, ended = self._store.read(
                    lambda db: (_gauges(db, now, self._types), processes.list_ended_since(db, since))
                )
                for process in ended:
                    if process.process_id not in self._counted:
                        self._count(process)
                        self._count_maintenance(process)
            except (StoreFailed, StorageFull, Fenced):
                return {**own, (metrics.STORE_UP, ()): 0.0}
            self._read_at = now
            self._counted = {key: at for key, at in self._counted.items() if at >= now - 2 * _OVERLAP}
            return {**own, **gauges, (metrics.STORE_UP, ()): float(self._store_writes)}

    def _count(self, process: OptimizingProcess) -> None:
        self._counted[process.process_id] = process.finished_at or self._read_at
        self._meters.count(metrics.ENDED, process.type, str(process.status), by=1)
        if done := process.receipt:
            self._meters.count(metrics.FILES_REMOVED, by=done.data_files_before)
            self._meters.count(metrics.FILES_ADDED, by=done.data_files_after)
            self._meters.count(metrics.DELETES_REMOVED, by=max(0, done.delete_files_before - done.delete_files_after))
            self._meters.count(metrics.BYTES_READ, by=done.bytes_before)
            self._meters.count(metrics.ROWS, by=done.rows_after)
            self._add(_OF_COMMITS, done)

    def _count_maintenance(self, process: OptimizingProcess) -> None:
        if process.is_optimizing:
            return
        self._meters.count(metrics.MAINTAINED, process.action, str(process.status), by=1)
        for kind, files in self._store.read(lambda db: pending_deletions.count_kinds(db, process.process_id)).items():
            self._meters.count(metrics.CONDEMNED, kind.value, by=files)
        for figure in process.receipt.figures if process.receipt else ():
            kind_word = figure.name.removesuffix("_files_deleted").replace("_", "-")
            if figure.name.endswith("_files_deleted") and kind_word in _KINDS:
                self._meters.count(metrics.DELETED, kind_word, by=figure.value)
        if process.receipt is not None:
            self._add(_OF_MAINTENANCE, process.receipt)

    def _add(self, totals: Mapping[str, Metric], receipt: Receipt) -> None:
        """Add figures of a receipt to the counters named for them."""
        for figure in receipt.figures:
            if (total := totals.get(figure.name)) is not None:
                self._meters.count(total, by=figure.value)


#: Figures of receipts that are added to counters directly.
_OF_COMMITS = {"groups_rebased": metrics.REBASED_GROUPS, "bytes_rebased": metrics.REBASED_BYTES}
_OF_MAINTENANCE = {
    "bytes_deleted": metrics.DELETED_BYTES,
    "files_failed": metrics.DELETE_FAILURES,
    "mended": metrics.LOST_REFS,
}
_KINDS = tuple(kind.value for kind in FileKind)
_RESULTS = tuple(status.value for status in ProcessStatus if status not in ACTIVE_PROCESS_STATUSES)


def _counters(types: Sequence[str]) -> Iterator[Series]:
    """Counters that begin at 0: a series that appears with its first event would hide that event from `increase`."""
    plain = (
        one
        for one in metrics.METRICS
        if one.kind is metrics.MetricKind.COUNTER and not one.labels and one is not metrics.GUARD_HITS
    )
    ended = ((metrics.ENDED, labels) for labels in product(types, _RESULTS))
    maintained = ((metrics.MAINTAINED, labels) for labels in product(_actions(types), _RESULTS))
    kinds = ((metric, (kind,)) for metric in (metrics.CONDEMNED, metrics.DELETED) for kind in _KINDS)
    tried = ((metrics.TASK_ATTEMPTS, (outcome,)) for outcome in metrics.ATTEMPT_OUTCOMES)
    sent = ((metrics.COMMIT_ATTEMPTS, (outcome.value,)) for outcome in CommitOutcome if outcome != CommitOutcome.SENT)
    named = ((metric, (name,)) for metric in (metrics.FAILED_CHECKS, metrics.DROPPED_GROUPS) for name in types)
    return chain(((metric, ()) for metric in plain), ended, maintained, kinds, tried, sent, named)


def _actions(types: Sequence[str]) -> list[str]:
    """The types other than optimizing: each is the name of its action."""
    return [name for name in types if name not in OPTIMIZING_TYPES]


def _resting(known: Sequence[str], types: Sequence[str]) -> dict[Series, float]:
    """Zeros for all series of these groups: to Prometheus a missing series is not 0."""
    labels: tuple[tuple[Metric, Iterable[tuple[str, ...]]], ...] = (
        (metrics.TABLES, product(known, (status.value for status in OptimizingStatus))),
        (metrics.REFUSED, product(REFUSALS)),
        (metrics.OLDEST_PENDING, product(known)),
        (metrics.ACTIVE, product(types, (status.value for status in ACTIVE_PROCESS_STATUSES))),
        (metrics.TASKS, product(known, (status.value for status in _OPEN))),
        (metrics.OPTIMIZERS, product(known, _STATES)),
        (metrics.THREADS, product(known)),
        (metrics.HELD, product(_actions(types))),
        (metrics.PAUSED, product(_actions(types))),
    )
    return {(metric, values): 0.0 for metric, all_values in labels for values in all_values}


_OPEN = (TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED)
_STATES = ("active", "draining")


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
    for process in processes.list_active(db):
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
    made = groups.list_groups(db)
    for group_ in made:
        result[metrics.FAILED_STARTS, (group_.name,)] = groups.get_scaling(db, group_.name).failed_starts
    result[metrics.EPOCH, ()] = current_epoch(db)
    each = _of_tables(db, made)
    known = {group.name for group in made} | {use.group for use in uses}
    return {**_resting(sorted(known), types), **{key: float(value) for key, value in result.items()}, **oldest, **each}


#: The most tables of a group with series of their own: each costs Prometheus memory.
MOST_TABLES = 2000


def _of_tables(db: Connection, result: Iterable[ResourceGroup]) -> dict[Series, float]:
    """The series of each evaluated table, of groups that ask for them."""
    values: dict[Series, float] = {}
    for group in result:
        if parse_group(group.properties).has_table_metrics:
            for runtime in tables.list_of_group(db, group.name, MOST_TABLES):
                values |= _of_table(runtime)
    return values


def _of_table(runtime: TableRuntime) -> dict[Series, float]:
    summary, labels = runtime.summary, (str(runtime.identifier),)
    if summary.health_score < 0:
        return {}
    return {
        (metrics.TABLE_HEALTH, labels): float(summary.health_score),
        (metrics.TABLE_FILES, labels): float(summary.data_files),
        (metrics.TABLE_SMALL, labels): float(summary.fragment_files + summary.undersized_files),
        (metrics.TABLE_DELETES, labels): float(summary.equality_delete_files + summary.position_delete_files),
        (metrics.TABLE_BYTES, labels): float(summary.data_bytes),
    }


log = get_logger("amoro.conditions")

_HOUR, _MINUTE = timedelta(hours=1), timedelta(minutes=1)
#: How long an evaluation is reused.
FRESH = timedelta(seconds=1)


class ConditionService:
    """Evaluates the conditions. Its history is in memory: at a restart durations begin anew."""

    def __init__(self, read: Callable[[], Sequence[MetricSample]], clock: Callable[[], datetime]) -> None:
        """`read` returns the samples of all metrics."""
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._held: tuple[ActiveAlert, ...] = ()
        self._looked_at: datetime | None = None
        self._history: deque[tuple[datetime, dict[ConditionsSeries, float]]] = deque()  # counters, at most one a minute

    def look(self) -> tuple[tuple[ActiveAlert, ...], datetime]:
        """Every condition that holds, the worst first, and the time of its evaluation.

        Call it regularly, so that durations are measured.
        """
        with self._lock:
            now = self._clock()
            if self._looked_at is None or not timedelta() <= now - self._looked_at < FRESH:
                self._look(now)
                self._looked_at = now
            return self._held, self._looked_at

    def _look(self, now: datetime) -> None:
        samples = self._read()
        held = evaluate_rules(CONDITIONS, Counted(samples, self._hour_ago(now), now.timestamp()), self._held, now)
        before = self._looked_at or now
        known = {(one.condition.name, one.labels) for one in self._held if one.is_raised(before)}
        for one in held:
            if one.is_raised(now) and (one.condition.name, one.labels) not in known:
                log.warning("condition.raised", condition=one.condition.name, **one.named, what=one.text)
        self._held = held
        if not self._history or now - self._history[-1][0] >= _MINUTE:
            self._history.append((now, counters(samples)))

    def _hour_ago(self, now: datetime) -> dict[ConditionsSeries, float]:
        """The counters of an hour ago; empty if they began later."""
        while len(self._history) > 1 and self._history[1][0] <= now - _HOUR:
            self._history.popleft()
        if self._history and self._history[0][0] <= now - _HOUR:
            return self._history[0][1]
        return {}
