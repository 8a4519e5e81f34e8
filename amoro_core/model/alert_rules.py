"""Expressions over metrics, which are evaluated here and written for Prometheus from one description."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from amoro_core.model import metrics
from amoro_core.model.metrics import METRICS, Metric, MetricKind, Sample

#: Values by the labels that an expression keeps.
Vector = Mapping[tuple[str, ...], float]
CounterKey = tuple[str, tuple[str, ...]]  # a metric's name, and the values of its labels

_COUNTERS = frozenset(metric.name for metric in METRICS if metric.kind is MetricKind.COUNTER)


@dataclass(frozen=True, slots=True)
class Counted:
    """The samples of a moment, and the counters as they stood an hour before (0 where they were not told)."""

    samples: Sequence[Sample]
    hour_ago: Mapping[CounterKey, float] = field(default_factory=dict)
    now_s: float = 0.0  # since 1970


def counters(samples: Sequence[Sample]) -> dict[CounterKey, float]:
    """The counters among the samples, as a later moment may compare with them."""
    return {(sample.name, sample.labels): sample.value for sample in samples if sample.name in _COUNTERS}


class Expression(Protocol):
    """Something that has values at a moment, by its labels."""

    @property
    def by(self) -> tuple[str, ...]:
        """The labels that it keeps."""

    def values(self, counted: Counted) -> Vector:
        """Its values; a series that is left out is not there, which is not 0."""

    def promql(self) -> str:
        """The same for Prometheus, with rates over an hour."""


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of a metric's series by some labels; `where` admits series by the values of other labels."""

    metric: Metric
    by: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, counted: Counted) -> Vector:
        """The sums."""
        return _summed((labels, sample.value) for labels, sample in _chosen(self, counted))

    def promql(self) -> str:
        """sum by (…) (metric{…})."""
        return f"sum{_by(self.by)}({_selector(self)})"


@dataclass(frozen=True, slots=True)
class Max:
    """The greatest value of a metric's series by some labels."""

    metric: Metric
    by: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, counted: Counted) -> Vector:
        """The greatest values."""
        found: dict[tuple[str, ...], float] = {}
        for labels, sample in _chosen(self, counted):
            found[labels] = max(sample.value, found.get(labels, -math.inf))
        return found

    def promql(self) -> str:
        """max by (…) (metric{…})."""
        return f"max{_by(self.by)}({_selector(self)})"


@dataclass(frozen=True, slots=True)
class Least:
    """The smallest value of a metric's series by some labels."""

    metric: Metric
    by: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, counted: Counted) -> Vector:
        """The smallest values."""
        found: dict[tuple[str, ...], float] = {}
        for labels, sample in _chosen(self, counted):
            found[labels] = min(sample.value, found.get(labels, math.inf))
        return found

    def promql(self) -> str:
        """min by (…) (metric{…})."""
        return f"min{_by(self.by)}({_selector(self)})"


@dataclass(frozen=True, slots=True)
class HourlyIncrease:
    """By how much a counter has grown within the last hour."""

    metric: Metric
    by: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, counted: Counted) -> Vector:
        """The growth since an hour ago, or since the start where that is later."""
        return _summed(
            (labels, sample.value - counted.hour_ago.get((sample.name, sample.labels), 0.0))
            for labels, sample in _chosen(self, counted)
        )

    def promql(self) -> str:
        """Rounded, since Prometheus extrapolates between scrapes."""
        return f"round(sum{_by(self.by)}(increase({_selector(self)}[1h])))"


_Chosen = Sum | Max | Least | HourlyIncrease


def _chosen(wanted: _Chosen, counted: Counted) -> Iterator[tuple[tuple[str, ...], Sample]]:
    """The samples that are meant, each with the values of the labels that are kept."""
    names = wanted.metric.labels
    for sample in counted.samples:
        if sample.name == wanted.metric.name:
            known = dict(zip(names, sample.labels, strict=True))
            if all(known[name] in admitted for name, admitted in wanted.where.items()):
                yield tuple(known[name] for name in wanted.by), sample


def _summed(items: Iterable[tuple[tuple[str, ...], float]]) -> Vector:
    sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for labels, value in items:
        sums[labels] += value
    return dict(sums)


def _by(labels: Sequence[str]) -> str:
    return f" by ({', '.join(labels)}) " if labels else ""


def _selector(wanted: _Chosen) -> str:
    matchers = [
        f'{name}="{values[0]}"' if len(values) == 1 else f'{name}=~"{"|".join(values)}"'
        for name, values in wanted.where.items()
    ]
    return wanted.metric.name + (f"{{{','.join(matchers)}}}" if matchers else "")


@dataclass(frozen=True, slots=True)
class Ratio:
    """One expression divided by another with the same labels."""

    part: Expression
    whole: Expression

    @property
    def by(self) -> tuple[str, ...]:
        """Those of both."""
        return self.part.by

    def values(self, counted: Counted) -> Vector:
        """The quotients; a part of nothing is left out."""
        wholes = self.whole.values(counted)
        return {
            labels: value / wholes[labels] for labels, value in self.part.values(counted).items() if wholes.get(labels)
        }

    def promql(self) -> str:
        """a / b, without those whose b is 0."""
        return f"{self.part.promql()} / ({self.whole.promql()} > 0)"


@dataclass(frozen=True, slots=True)
class TimeUntil:
    """How many seconds are left until the earliest moment that a metric names."""

    until: Least

    @property
    def by(self) -> tuple[str, ...]:
        """Those of the moments."""
        return self.until.by

    def values(self, counted: Counted) -> Vector:
        """Below 0: the moment has passed."""
        return {labels: value - counted.now_s for labels, value in self.until.values(counted).items()}

    def promql(self) -> str:
        """min by (…) (metric) - time()."""
        return f"{self.until.promql()} - time()"


_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Where:
    """The values of an expression that compare so with a number."""

    of: Expression
    comparison: str  # of _COMPARISONS
    number: float

    @property
    def by(self) -> tuple[str, ...]:
        """Those of the expression."""
        return self.of.by

    def values(self, counted: Counted) -> Vector:
        """The values that hold."""
        holds = _COMPARISONS[self.comparison]
        return {labels: value for labels, value in self.of.values(counted).items() if holds(value, self.number)}

    def promql(self) -> str:
        """a > number."""
        return f"{self.of.promql()} {self.comparison} {self.number:g}"


@dataclass(frozen=True, slots=True)
class Both:
    """The values of the first where the others have values, too, under the same labels."""

    first: Expression
    others: tuple[Expression, ...]

    @property
    def by(self) -> tuple[str, ...]:
        """Those of all of them."""
        return self.first.by

    def values(self, counted: Counted) -> Vector:
        """The values of the first that are left."""
        others = [other.values(counted) for other in self.others]
        return {
            labels: value
            for labels, value in self.first.values(counted).items()
            if all(labels in other for other in others)
        }

    def promql(self) -> str:
        """a and b."""
        return " and ".join(one.promql() for one in (self.first, *self.others))


@dataclass(frozen=True, slots=True)
class ExternalCheck:
    """What only somebody outside can see, such as that nobody answers: never true inside."""

    text: str
    by: tuple[str, ...] = ()

    def values(self, counted: Counted) -> Vector:
        """Nothing."""
        return {}

    def promql(self) -> str:
        """The text."""
        return self.text


class Severity(StrEnum):
    """Who is to hear of it, and when."""

    PAGE = "page"  # somebody is to be woken
    LOOK = "look"  # somebody is to look in the morning


class Unit(StrEnum):
    """What the value of a condition counts."""

    NUMBER = "number"
    SHARE = "share"  # 0 to 1
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that somebody has to look after."""

    name: str
    severity: Severity
    when: Expression
    lasts: timedelta  # for how long it has to hold
    text: str  # {value} and {label} are replaced
    meaning: str
    remedy: str
    unit: Unit = Unit.NUMBER

    @property
    def alert(self) -> str:
        """Its name as an alert of Prometheus: AmoroCommitUnknown."""
        return "Amoro" + "".join(part.capitalize() for part in self.name.split("-"))


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """A condition that holds now, for the labels that its expression keeps."""

    condition: Condition
    labels: tuple[str, ...]
    value: float
    since: datetime

    def is_raised(self, now: datetime) -> bool:
        """Whether it has held for its duration."""
        return now - self.since >= self.condition.lasts

    @property
    def named(self) -> dict[str, str]:
        """Its labels by their names."""
        return dict(zip(self.condition.when.by, self.labels, strict=True))

    @property
    def text(self) -> str:
        """What it says, with value and labels."""
        return self.condition.text.format(value=_written(self.value, self.condition.unit), **self.named)


def evaluate_rules(
    conditions: Iterable[Condition], counted: Counted, before: Iterable[ActiveAlert], now: datetime
) -> tuple[ActiveAlert, ...]:
    """The conditions that hold now, in their order; those that held before keep since when."""
    since = {(held.condition.name, held.labels): held.since for held in before}
    return tuple(
        ActiveAlert(condition, labels, value, min(now, since.get((condition.name, labels), now)))
        for condition in conditions
        for labels, value in sorted(condition.when.values(counted).items())
    )


def _written(value: float, unit: Unit) -> str:
    match unit:
        case Unit.SHARE:
            return f"{100 * value:.0f}%"
        case Unit.SECONDS:
            return _duration(value)
    return f"{value:g}"


def _duration(seconds: float) -> str:
    whole = max(0, int(seconds))
    for size, letter in ((86_400, "d"), (3600, "h"), (60, "m")):
        if whole >= size:
            return f"{whole / size:.3g}{letter}"
    return f"{whole}s"


_MINUTE, _DAY_S = timedelta(minutes=1), 86_400.0
_GROUP, _ACTION = ("group",), ("action",)
_WAITING = Where(Sum(metrics.TASKS, _GROUP, {"status": ("planned",)}), ">", 0)
_NOBODY = Where(Sum(metrics.THREADS, _GROUP), "==", 0)
_FAILED, _ENDED = HourlyIncrease(metrics.ENDED, where={"result": ("failed",)}), HourlyIncrease(metrics.ENDED)
_CONFLICTS = HourlyIncrease(metrics.COMMIT_ATTEMPTS, where={"outcome": ("conflict",)})

#: In the order in which they are shown: the worst first.
CONDITIONS = (
    Condition(
        "coordinator-absent",
        Severity.PAGE,
        ExternalCheck('up{job="amoro"} == 0 or absent(up{job="amoro"})'),
        5 * _MINUTE,
        "The coordinator does not answer: nothing is optimized",
        "Nobody answers Prometheus. Only Prometheus can see it.",
        "Look whether it runs, and at its log: systemctl status amoro, amoro doctor.",
    ),
    Condition(
        "no-leader",
        Severity.PAGE,
        Where(Sum(metrics.LEADER), "==", 0),
        _MINUTE,
        "A coordinator answers, and none owns the state directory: nothing is optimized",
        "A coordinator has lost its state directory: it was moved, restored, or another coordinator has opened it.",
        "Find out who uses the state directory, and start one coordinator on it: amoro up.",
    ),
    Condition(
        "store-failed",
        Severity.PAGE,
        Where(Least(metrics.STORE_UP), "==", 0),
        timedelta(),
        "The state database can't be read or written: nothing is planned or committed",
        "The last read or write of the state database failed. No task or commit is lost by it; work waits.",
        "Look at the disk of the state directory: its room, its rights. amoro state check says whether it is sound.",
    ),
    Condition(
        "check-failed",
        Severity.PAGE,
        Where(HourlyIncrease(metrics.FAILED_CHECKS, ("type",)), ">", 0),
        timedelta(),
        "{value} results of {type} did not add up and were not committed",
        "Before a commit, rows or files of a result were not what they had to be. The table is as it was.",
        "Report it with the process's id: amoro process list --status failed.",
    ),
    Condition(
        "guard-spoke",
        Severity.PAGE,
        Where(HourlyIncrease(metrics.GUARD_HITS), ">", 0),
        timedelta(),
        "{value} files that were to be deleted are needed: they were kept, and the process is held",
        "The guard found condemned files that are needed, right before their deletion.",
        "Look at the held process before anybody confirms it: amoro process list --status held.",
    ),
    Condition(
        "lost-refs",
        Severity.PAGE,
        Where(HourlyIncrease(metrics.LOST_REFS), ">", 0),
        timedelta(),
        "{value} branches or tags were removed by an expiry beside their making, and brought back",
        "A catalog applied an expiry to another state than the one that it was made for.",
        "Look at the table's branches and tags, and turn expire-snapshots off for tables whose tags are made often.",
    ),
    Condition(
        "late-deletes",
        Severity.PAGE,
        Where(HourlyIncrease(metrics.LATE_DELETES), ">", 0),
        timedelta(),
        "{value} snapshots of other applications delete rows that were rewritten before: these rows are still there",
        "Another application planned deletes, did not look whether their files are still there, and committed them"
        " after these were rewritten.",
        "amoro event list --kind late-deletes has table, snapshot and application: repeat the delete, and let the"
        " application validate that the files it deletes from exist.",
    ),
    Condition(
        "commit-unknown",
        Severity.PAGE,
        Where(Sum(metrics.ACTIVE, where={"status": ("commit_unknown",)}), ">", 0),
        10 * _MINUTE,
        "{value} commits were sent, and the catalog does not say whether they were applied",
        "The answer to a commit was lost, and the catalog can't be asked since. Its table is held until it can.",
        "See to it that the catalog answers: amoro process list --status commit_unknown, amoro catalog show NAME.",
    ),
    Condition(
        "disk-low",
        Severity.PAGE,
        Where(Least(metrics.DISK_FREE), "<", 0.1),
        5 * _MINUTE,
        "{value} of the disk with the state directory is free",
        "The disk with the state database is nearly full. When it is full nothing is planned or committed.",
        "Free some space, or move the state directory to a larger disk while the coordinator is stopped.",
        Unit.SHARE,
    ),
    Condition(
        "no-optimizer",
        Severity.PAGE,
        Where(Sum(metrics.THREADS), "==", 0),
        10 * _MINUTE,
        "No optimizer is registered in any group: nothing is optimized",
        "The coordinator evaluates and plans, and nobody does the work.",
        "Start an optimizer: amoro optimizer run, or amoro group scale GROUP N.",
    ),
    Condition(
        "tasks-wait",
        Severity.PAGE,
        Both(_WAITING, (_NOBODY,)),
        5 * _MINUTE,
        "{value} tasks wait in group {group}, which has no optimizer",
        "Tasks are planned in a group that has no thread.",
        "Start an optimizer for the group: amoro optimizer run --group GROUP, or amoro group scale GROUP N.",
    ),
    Condition(
        "instances-cannot-start",
        Severity.PAGE,
        Where(Max(metrics.FAILED_STARTS, _GROUP), ">=", 3),
        timedelta(),
        "Optimizers of group {group} could not be started {value} times in a row",
        "The group's container starts optimizers, and they end or never register.",
        "amoro group show GROUP has the reason, amoro optimizer logs the output of an instance.",
    ),
    Condition(
        "catalog-unreachable",
        Severity.PAGE,
        Where(Max(metrics.CATALOG_UP, ("catalog",)), "==", 0),
        10 * _MINUTE,
        "Catalog {catalog} does not answer",
        "Each question to the catalog has failed for a while. Its tables are neither evaluated nor committed.",
        "amoro doctor asks each catalog and says what it hears; amoro catalog show NAME has its settings.",
    ),
    Condition(
        "tasks-not-taken",
        Severity.LOOK,
        Both(
            _WAITING,
            (
                Where(Sum(metrics.TASKS, _GROUP, {"status": ("scheduled", "acked")}), "==", 0),
                Where(Sum(metrics.THREADS, _GROUP), ">", 0),
            ),
        ),
        15 * _MINUTE,
        "Optimizers of group {group} are there, and take none of its {value} tasks",
        "Optimizers are registered and run nothing, although tasks wait.",
        "Look at their state and log: amoro optimizer list. They may be draining, or know no such kind of work.",
    ),
    Condition(
        "processes-fail",
        Severity.LOOK,
        Both(Where(Ratio(_FAILED, _ENDED), ">", 0.2), (Where(_FAILED, ">=", 3),)),
        timedelta(),
        "{value} of the processes within an hour have failed",
        "More than a fifth of the processes that ended within an hour, and at least three, have failed.",
        "amoro process list --status failed has them, and why.",
        Unit.SHARE,
    ),
    Condition(
        "commits-conflict",
        Severity.LOOK,
        Both(
            Where(Ratio(_CONFLICTS, HourlyIncrease(metrics.COMMIT_ATTEMPTS)), ">", 0.5), (Where(_CONFLICTS, ">=", 10),)
        ),
        timedelta(),
        "{value} of the commits within an hour lost to another writer",
        "More than half of the commits within an hour, and at least ten, were made in vain: others write faster.",
        "Give such tables a longer interval between commits of their writers, or a longer min-plan-interval.",
        Unit.SHARE,
    ),
    Condition(
        "backlog",
        Severity.LOOK,
        Where(Max(metrics.OLDEST_PENDING, _GROUP), ">", 3600),
        10 * _MINUTE,
        "A table of group {group} has waited {value} for its turn",
        "A table was found to need work an hour ago and is not planned yet.",
        "Add threads to the group: amoro group scale GROUP N. amoro table list --status pending has the tables.",
        Unit.SECONDS,
    ),
    Condition(
        "optimizers-lost",
        Severity.LOOK,
        Where(HourlyIncrease(metrics.OPTIMIZERS_LOST), ">", 0),
        timedelta(),
        "{value} optimizers went without a word within an hour",
        "Optimizers were killed, hang, or lost their network. Their tasks were planned again.",
        "Look for the reason where they ran: memory first. amoro optimizer logs has the output of instances.",
    ),
    Condition(
        "maintenance-held",
        Severity.LOOK,
        Where(Sum(metrics.HELD, _ACTION), ">", 0),
        60 * _MINUTE,
        "{value} processes of {action} wait until somebody confirms them",
        "A breaker found that a process of maintenance would delete unusually much.",
        "amoro process show PROCESS says what it would do; amoro table maintain TABLE ACTION --confirm lets it go on.",
    ),
    Condition(
        "maintenance-paused",
        Severity.LOOK,
        Where(Sum(metrics.PAUSED, _ACTION), ">", 0),
        timedelta(),
        "{action} is paused on {value} tables",
        "The action has failed, or changed nothing, too often on these tables.",
        "amoro table actions TABLE says why.",
    ),
    Condition(
        "tables-refused",
        Severity.LOOK,
        Where(Sum(metrics.REFUSED, ("reason",)), ">", 0),
        60 * _MINUTE,
        "{value} tables are refused by the word {reason}",
        "The tables have something that is not handled, and are left exactly as they are.",
        "amoro table list --status refused has them; the page of refusals says what to do for each word.",
    ),
    Condition(
        "certificate-ends",
        Severity.LOOK,
        Where(TimeUntil(Least(metrics.CERTIFICATE_END)), "<", 14 * _DAY_S),
        timedelta(),
        "The certificate for listening ends in {value}",
        "The certificate ends within 14 days, or has ended. Clients refuse one that has.",
        "Renew it: the coordinator takes the new files by itself.",
        Unit.SECONDS,
    ),
    Condition(
        "login-failures",
        Severity.LOOK,
        Where(HourlyIncrease(metrics.LOGIN_FAILURES), ">=", 20),
        timedelta(),
        "{value} callers showed a wrong password or token within an hour",
        "Somebody tries passwords or tokens, or a program goes on with one that was revoked.",
        "The coordinator's log names the addresses. Revoke what leaked: amoro token list, amoro token revoke NAME.",
    ),
    Condition(
        "restarts",
        Severity.LOOK,
        ExternalCheck(f"max(changes({metrics.STARTED.name}[1h])) > 2"),
        timedelta(),
        "The coordinator was started {value} times within an hour",
        "The coordinator ends again and again. Only Prometheus can see it.",
        "Its log says why it ended: a full disk, memory, or a lost state directory.",
    ),
)
