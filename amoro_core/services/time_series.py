"""Samples the system and its groups once a minute, and reads the samples."""

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta

from amoro_core.errors import InvalidArgument, TableNotFound
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


@dataclass(frozen=True, slots=True)
class FoundSeries:
    """Series, and the step of their points."""

    series: tuple[Series, ...]
    step: Step


class SamplingService:
    """Values over time. Totals are added where they happen; levels are sampled here."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._sampled: datetime | None = None  # the minute that was sampled last; only the loop touches it

    def now(self) -> datetime:
        """The coordinator's time."""
        return self._clock()

    def sample(self) -> bool:
        """Sample everything once a minute; return whether this call did.

        Totals get a 0, so that a step in which nothing happened differs from one without a coordinator.
        """
        now = self._clock()
        minute = now.replace(second=0, microsecond=0)
        if minute == self._sampled:
            return False
        result = self._store.read(lambda db: sampled(db, now))
        self._store.write(lambda db: time_series.add(db, result, now))
        self._sampled = minute
        return True

    def read(self, names: Iterable[str], label: str | None, wanted: Range) -> FoundSeries:
        """Series of the system and its groups; all without names. Raises InvalidArgument."""
        asked = _known(names, SYSTEM_SERIES)
        step = self._step(SYSTEM_STEPS, wanted)
        result = self._store.read(
            lambda db: time_series.list_series(db, asked, label, step, _floor(wanted.since, step), wanted.until)
        )
        return _bounded(FoundSeries(tuple(result), step))

    def read_table(self, table: TableIdentifier, names: Iterable[str], wanted: Range) -> FoundSeries:
        """Series of a table; all without names. No catalog is asked. Raises TableNotFound, InvalidArgument."""
        asked = _known(names, TABLE_SERIES)
        step = self._step(TABLE_STEPS, wanted)
        oldest = max(_floor(wanted.since, step), self._clock() - step.keep)

        def read(db: Connection) -> FoundSeries:
            known = tables.find(db, table)
            if known is None:
                raise TableNotFound(f"table {table} is not known", table=table)
            rows = time_series.list_figures(db, known.table_id, step, oldest, wanted.until)
            result = []
            for place, name in enumerate(TABLE_SERIES):
                values = ((at, astuple(figures)[place]) for at, figures in rows)
                points = tuple(Point(at, 1, value, value, value) for at, value in values)
                if name in asked:
                    result.append(Series(name, "", points))
            return FoundSeries(tuple(result), step)

        return _bounded(self._store.read(read))

    def _step(self, steps: tuple[Step, ...], wanted: Range) -> Step:
        if wanted.until <= wanted.since:
            raise InvalidArgument("the end of the time is not after its beginning")
        if wanted.step_s is None:
            return fitting(steps, wanted.since, wanted.until, self._clock())
        for step in steps:
            if step.seconds == wanted.step_s:
                return step
        known = ", ".join(str(step.seconds) for step in steps)
        raise InvalidArgument(f"there is no step of {wanted.step_s} seconds", hint=f"One of: {known}.")


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


def _known(names: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """The names, or all without any. Raises InvalidArgument for an unknown one."""
    every, wanted = tuple(known), tuple(names)
    for name in wanted:
        if name not in every:
            raise InvalidArgument(f"there is no series {name!r}", hint=f"One of: {', '.join(every)}.")
    return tuple(name for name in every if not wanted or name in wanted)


def _bounded(result: FoundSeries) -> FoundSeries:
    points = sum(len(one.points) for one in result.series)
    if points > MOST_POINTS:
        raise InvalidArgument(
            f"{points} values are more than {MOST_POINTS}",
            hint="Ask for fewer series, a shorter time or a longer step.",
        )
    return result
