"""Samples the system and its groups once a minute, and reads the samples."""

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from datetime import datetime, timedelta

from amoro_core.errors import InvalidArgument
from amoro_core.model.metrics import (
    MOST_GROUPS,
    SYSTEM_SERIES,
    SYSTEM_STEPS,
    TABLE_SERIES,
    TABLE_STEPS,
    Point,
    Sample,
    Series,
    Step,
    TableFigures,
    fitting,
)
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingStatus, TableIdentifier
from amoro_core.store import groups, processes, queue_stats, tables, time_series
from amoro_core.store.database import Connection, Store

#: Points of one answer.
MOST_POINTS = 50_000
_ENDS = tuple(status for status in ProcessStatus if status not in ACTIVE_PROCESS_STATUSES)


@dataclass(frozen=True, slots=True)
class Range:
    """A time range, and the step of the values: None for a fitting one."""

    since: datetime
    until: datetime
    step_s: int | None = None


@dataclass
class SamplingService:
    """Values over time. Totals are added where they happen; levels are sampled here."""

    store: Store
    clock: Callable[[], datetime]
    #: The minute that was sampled last; only the loop touches it.
    _sampled: datetime | None = field(init=False, default=None)

    def now(self) -> datetime:
        """The coordinator's time."""
        return self.clock()

    def sample(self) -> bool:
        """Sample everything once a minute; return whether this call did.

        Totals get a 0, so that a step in which nothing happened differs from one without a coordinator.
        """
        now = self.clock()
        minute = now.replace(second=0, microsecond=0)
        if minute == self._sampled:
            return False
        result = self.store.read(lambda db: sampled(db, now))
        self.store.write(lambda db: time_series.add(db, result, now))
        self._sampled = minute
        return True

    def read(self, names: Iterable[str], label: str | None, wanted: Range) -> tuple[list[Series], Step]:
        """Series of the system and its groups, all without names, and their step. Raises InvalidArgument."""
        chosen = _choose(names, SYSTEM_SERIES)
        step = self._step(SYSTEM_STEPS, wanted)
        since = _floor(wanted.since, step)
        series = self.store.read(lambda db: time_series.list_series(db, chosen, label, step, since, wanted.until))
        return _bounded(series), step

    def read_table(self, table: TableIdentifier, names: Iterable[str], wanted: Range) -> tuple[list[Series], Step]:
        """As `read`, of a table. No catalog is asked. Raises TableNotFound, InvalidArgument."""
        chosen = _choose(names, TABLE_SERIES)
        step = self._step(TABLE_STEPS, wanted)
        oldest = max(_floor(wanted.since, step), self.clock() - step.keep)

        def read(db: Connection) -> list[tuple[datetime, TableFigures]]:
            table_id = tables.get_by_name(db, table).table_id
            return time_series.list_figures(db, table_id, step, oldest, wanted.until)

        rows, result = self.store.read(read), []
        for place, name in enumerate(TABLE_SERIES):
            values = ((at, astuple(figures)[place]) for at, figures in rows)
            if name in chosen:
                result.append(Series(name, "", tuple(Point(at, 1, value, value, value) for at, value in values)))
        return _bounded(result), step

    def _step(self, steps: tuple[Step, ...], wanted: Range) -> Step:
        if wanted.until <= wanted.since:
            raise InvalidArgument("the end of the time is not after its beginning")
        if wanted.step_s is None:
            return fitting(steps, wanted.since, wanted.until, self.clock())
        for step in steps:
            if step.seconds == wanted.step_s:
                return step
        texts = ", ".join(str(step.seconds) for step in steps)
        raise InvalidArgument(f"there is no step of {wanted.step_s} seconds", hint=f"One of: {texts}.")


def sampled(db: Connection, now: datetime) -> list[Sample]:
    """The present levels, and a 0 for each total."""
    by_status = dict.fromkeys(OptimizingStatus, 0)
    oldest = now
    for use in tables.count_by_status(db):
        by_status[use.status] += use.tables
        if use.status is OptimizingStatus.PENDING:
            oldest = min(oldest, use.oldest_since)
    return [
        Sample("tables", sum(by_status.values())),
        Sample("tables-pending", by_status[OptimizingStatus.PENDING]),
        Sample("tables-refused", by_status[OptimizingStatus.REFUSED]),
        Sample("backlog-age", _seconds(now - oldest)),
        Sample("processes-active", processes.count_active(db)),
        *_of_groups(db, now),
        *(Sample("processes-ended", 0, status.value) for status in _ENDS),
        *(Sample(name, 0) for name in ("bytes-rewritten", "files-removed", "rows-rewritten")),
    ]


def _of_groups(db: Connection, now: datetime) -> list[Sample]:
    threads = {group.name: 0 for group in groups.list_groups(db)}
    for optimizer in groups.list_optimizers(db):
        threads[optimizer.group] = threads.get(optimizer.group, 0) + optimizer.threads
    counts = queue_stats.count_open(db)
    waiting = queue_stats.oldest_waiting(db)
    queued = {group: counts.get((group, TaskStatus.PLANNED), 0) for group in threads}
    # Busy groups come first if there are too many.
    order = sorted(threads, key=lambda name: (not (threads[name] or queued[name]), name))
    result = []
    for name in order[:MOST_GROUPS]:
        busy = sum(counts.get((name, status), 0) for status in (TaskStatus.SCHEDULED, TaskStatus.ACKED))
        result += [
            Sample("threads", threads[name], name),
            Sample("threads-busy", busy, name),
            Sample("queue-tasks", queued[name], name),
            Sample("queue-age", _seconds(now - waiting.get(name, now)), name),
        ]
    return result


def _seconds(age: timedelta) -> int:
    """Whole seconds; 0 for a time in the future, since clocks may be set back."""
    return max(0, int(age.total_seconds()))


def _floor(moment: datetime, step: Step) -> datetime:
    """The beginning of the step in which the moment lies."""
    seconds = int(moment.timestamp()) // step.seconds * step.seconds
    return datetime.fromtimestamp(seconds, moment.tzinfo)


def _choose(names: Iterable[str], available: Iterable[str]) -> tuple[str, ...]:
    """The names, or all without any. Raises InvalidArgument for an unknown one."""
    present, wanted = tuple(available), tuple(names)
    for name in wanted:
        if name not in present:
            raise InvalidArgument(f"there is no series {name!r}", hint=f"One of: {', '.join(present)}.")
    return tuple(name for name in present if not wanted or name in wanted)


def _bounded(result: list[Series]) -> list[Series]:
    points = sum(len(series.points) for series in result)
    if points > MOST_POINTS:
        raise InvalidArgument(
            f"{points} values are more than {MOST_POINTS}",
            hint="Ask for fewer series, a shorter time or a longer step.",
        )
    return result
