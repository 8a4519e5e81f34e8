"""What Prometheus is told, read from the store when it asks."""

import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from amoro_core.model import metrics
from amoro_core.model.metrics import Metric, Sample
from amoro_core.model.processes import OptimizingProcess
from amoro_core.model.tables import OptimizingStatus
from amoro_core.store import optimizers, processes, tables, tasks
from amoro_core.store.database import Database, Store

#: A process may be stored a little after the moment that it says it ended at.
_OVERLAP = timedelta(minutes=5)


class MeteringService:
    """Values of all metrics. Counters grow from the start on, whoever asks and however often."""

    def __init__(self, store: Store, clock: Callable[[], datetime], version: str) -> None:
        self._store = store
        self._clock = clock
        self._version = version
        self._started = clock()
        self._lock = threading.Lock()
        self._looked_at = self._started
        self._counted: dict[str, datetime] = {}  # processes that ended lately, and when
        self._totals: Counter[tuple[Metric, tuple[str, ...]]] = Counter()

    def read(self) -> list[Sample]:
        """Every value as it stands, in the order of the metrics."""
        now = self._clock()
        with self._lock:
            since = max(self._started, self._looked_at - _OVERLAP)
            found, ended = self._store.read(lambda db: (_gauges(db, now), processes.list_ended_since(db, since)))
            self._looked_at = now
            for process in ended:
                if process.process_id not in self._counted:
                    self._count(process)
            self._counted = {key: at for key, at in self._counted.items() if at >= now - 2 * _OVERLAP}
            totals = dict(self._totals)
        own = {(metrics.BUILD, (self._version,)): 1.0, (metrics.STARTED, ()): self._started.timestamp()}
        told = {**own, **found, **_UNLABELLED, **totals}
        order = {metric: number for number, metric in enumerate(metrics.METRICS)}
        return [
            Sample(metric.name, value, labels)
            for (metric, labels), value in sorted(told.items(), key=lambda item: (order[item[0][0]], item[0][1]))
        ]

    def _count(self, process: OptimizingProcess) -> None:
        self._counted[process.process_id] = process.finished_at or self._looked_at
        self._totals[metrics.ENDED, (process.type.value, process.status.value)] += 1
        if done := process.receipt:
            self._totals[metrics.FILES_REMOVED, ()] += done.data_files_before
            self._totals[metrics.FILES_ADDED, ()] += done.data_files_after
            self._totals[metrics.DELETES_REMOVED, ()] += max(0, done.delete_files_before - done.delete_files_after)
            self._totals[metrics.BYTES_READ, ()] += done.bytes_before
            self._totals[metrics.ROWS, ()] += done.rows_after


#: Counters that stand at zero as long as nothing was counted.
_UNLABELLED: dict[tuple[Metric, tuple[str, ...]], float] = {
    (metric, ()): 0.0 for metric in metrics.METRICS if metric.kind is metrics.MetricKind.COUNTER and not metric.labels
}


def _gauges(db: Database, now: datetime) -> dict[tuple[Metric, tuple[str, ...]], float]:
    found: Counter[tuple[Metric, tuple[str, ...]]] = Counter()
    oldest: dict[tuple[Metric, tuple[str, ...]], float] = {}
    for use in tables.count_by_status(db):
        found[metrics.TABLES, (use.group, use.status.value)] += use.tables
        if use.refusal:
            found[metrics.REFUSED, (use.refusal,)] += use.tables
        if use.status is OptimizingStatus.PENDING:
            oldest[metrics.OLDEST_PENDING, (use.group,)] = max(0.0, (now - use.oldest_since).total_seconds())
    for process in processes.list_active(db):
        found[metrics.ACTIVE, (process.type.value, process.status.value)] += 1
    for (group, status), number in tasks.count_open(db).items():
        found[metrics.TASKS, (group, status.value)] += number
    for optimizer in optimizers.list_optimizers(db):
        found[metrics.OPTIMIZERS, (optimizer.group, "draining" if optimizer.draining else "active")] += 1
        found[metrics.THREADS, (optimizer.group,)] += optimizer.threads
    return {**{key: float(value) for key, value in found.items()}, **oldest}
