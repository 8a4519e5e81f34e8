"""Alert rules: a predicate over the coordinator's own metrics, and the PromQL expression that says the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from operator import eq, ge, gt, lt

from amoro_core.model import metrics
from amoro_core.model.metrics import METRICS, Metric, MetricKind, MetricSample

#: Values by the labels that a rule keeps.
Vector = Mapping[tuple[str, ...], float]
CounterKey = tuple[str, tuple[str, ...]]  # a metric's name, and the values of its labels

_COUNTERS = frozenset(metric.name for metric in METRICS if metric.kind is MetricKind.COUNTER)


@dataclass(frozen=True, slots=True)
class Counted:
    """The samples of a moment, and the counters of an hour before (0 where they are missing).

    Methods aggregate the series of a metric by some labels; `where` admits series by the values of other labels.
    """

    samples: Sequence[MetricSample]
    hour_ago: Mapping[CounterKey, float] = field(default_factory=dict)
    now_s: float = 0.0  # since 1970

    def sum(self, metric: Metric, *by: str, **where: tuple[str, ...]) -> Vector:
        """The sums."""
        return self._aggregated(sum, metric, by, where)

    def max(self, metric: Metric, *by: str) -> Vector:
        """The greatest values."""
        return self._aggregated(max, metric, by, {})

    def min(self, metric: Metric, *by: str) -> Vector:
        """The smallest values."""
        return self._aggregated(min, metric, by, {})

    def increase(self, metric: Metric, *by: str, **where: tuple[str, ...]) -> Vector:
        """The growth of a counter since an hour ago, or since the start where that is later."""
        return self._aggregated(sum, metric, by, where, self.hour_ago)

    def until(self, metric: Metric) -> Vector:
        """The seconds until the earliest moment of the metric; below 0 once it has passed."""
        return {labels: value - self.now_s for labels, value in self.min(metric).items()}

    def _aggregated(
        self,
        combine: Callable[[Iterable[float]], float],
        metric: Metric,
        by: Sequence[str],
        where: Mapping[str, tuple[str, ...]],
        before: Mapping[CounterKey, float] | None = None,
    ) -> Vector:
        groups: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
        for sample in self.samples:
            if sample.name == metric.name:
                labels = dict(zip(metric.labels, sample.labels, strict=True))
                if all(labels[name] in admitted for name, admitted in where.items()):
                    earlier = before.get((sample.name, sample.labels), 0.0) if before else 0.0
                    groups[tuple(labels[name] for name in by)].append(sample.value - earlier)
        return {labels: float(combine(values)) for labels, values in groups.items()}


def counters(samples: Sequence[MetricSample]) -> dict[CounterKey, float]:
    """The counters among the samples, to compare a later moment with."""
    return {(sample.name, sample.labels): sample.value for sample in samples if sample.name in _COUNTERS}


def matching(values: Vector, compare: Callable[[float, float], bool], number: float) -> Vector:
    """The values that compare so with the number; a series that is missing is not 0."""
    return {labels: value for labels, value in values.items() if compare(value, number)}


@dataclass(frozen=True, slots=True)
class Rule:
    """When an alert holds: `promql` for Prometheus, `values` for the coordinator itself."""

    promql: str
    values: Callable[[Counted], Vector]
    by: tuple[str, ...] = ()  # the labels of the values


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
    when: Rule
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


def _only_outside(now: Counted) -> Vector:
    """Nothing: only Prometheus can see it."""
    return {}


def _waiting(now: Counted) -> Vector:
    return matching(now.sum(metrics.TASKS, "group", status=("planned",)), gt, 0)


def _tasks_without_optimizer(now: Counted) -> Vector:
    threads = now.sum(metrics.THREADS, "group")
    return {group: tasks for group, tasks in _waiting(now).items() if threads.get(group) == 0}


def _tasks_not_taken(now: Counted) -> Vector:
    running, threads = now.sum(metrics.TASKS, "group", status=("scheduled", "acked")), now.sum(metrics.THREADS, "group")
    return {
        group: tasks for group, tasks in _waiting(now).items() if running.get(group) == 0 and threads.get(group, 0) > 0
    }


def _share(now: Counted, metric: Metric, share: float, least: int, **where: tuple[str, ...]) -> Vector:
    """The part of an hour's events that are such, if it is above `share` and there were `least` of them."""
    some, every = now.increase(metric, **where).get((), 0.0), now.increase(metric).get((), 0.0)
    return {(): some / every} if some >= least and some / every > share else {}


def _failing(now: Counted) -> Vector:
    return _share(now, metrics.ENDED, 0.2, 3, result=("failed",))


def _conflicting(now: Counted) -> Vector:
    return _share(now, metrics.COMMIT_ATTEMPTS, 0.5, 10, outcome=("conflict",))


#: In the order in which they are shown: the worst first.
CONDITIONS = (
    Condition(
        "coordinator-absent",
        Severity.PAGE,
        Rule('up{job="amoro"} == 0 or absent(up{job="amoro"})', _only_outside),
        5 * _MINUTE,
        "The coordinator does not answer: nothing is optimized",
        "Nobody answers Prometheus. Only Prometheus can see it.",
        "Look whether it runs, and at its log: systemctl status amoro, amoro doctor.",
    ),
    Condition(
        "no-leader",
        Severity.PAGE,
        Rule("sum(amoro_leader) == 0", lambda now: matching(now.sum(metrics.LEADER), eq, 0)),
        _MINUTE,
        "A coordinator answers, and none owns the state directory: nothing is optimized",
        "A coordinator has lost its state directory: it was moved, restored, or another coordinator has opened it.",
        "Find out who uses the state directory, and start one coordinator on it: amoro up.",
    ),
    Condition(
        "store-failed",
        Severity.PAGE,
        Rule("min(amoro_store_up) == 0", lambda now: matching(now.min(metrics.STORE_UP), eq, 0)),
        timedelta(),
        "The state database can't be read or written: nothing is planned or committed",
        "The last read or write of the state database failed. No task or commit is lost by it; work waits.",
        "Look at the disk of the state directory: its room, its rights. amoro state check says whether it is sound.",
    ),
    Condition(
        "check-failed",
        Severity.PAGE,
        Rule(
            "round(sum by (type) (increase(amoro_failed_checks_total[1h]))) > 0",
            lambda now: matching(now.increase(metrics.FAILED_CHECKS, "type"), gt, 0),
            by=("type",),
        ),
        timedelta(),
        "{value} results of {type} did not add up and were not committed",
        "Before a commit, rows or files of a result were not what they had to be. The table is as it was.",
        "Report it with the process's id: amoro process list --status failed.",
    ),
    Condition(
        "guard-spoke",
        Severity.PAGE,
        Rule(
            "round(sum(increase(amoro_guard_hits_total[1h]))) > 0",
            lambda now: matching(now.increase(metrics.GUARD_HITS), gt, 0),
        ),
        timedelta(),
        "{value} files that were to be deleted are needed: they were kept, and the process is held",
        "The guard found condemned files that are needed, right before their deletion.",
        "Look at the held process before anybody confirms it: amoro process list --status held.",
    ),
    Condition(
        "lost-refs",
        Severity.PAGE,
        Rule(
            "round(sum(increase(amoro_lost_refs_total[1h]))) > 0",
            lambda now: matching(now.increase(metrics.LOST_REFS), gt, 0),
        ),
        timedelta(),
        "{value} branches or tags were removed by an expiry beside their making, and brought back",
        "A catalog applied an expiry to another state than the one that it was made for.",
        "Look at the table's branches and tags, and turn expire-snapshots off for tables whose tags are made often.",
    ),
    Condition(
        "late-deletes",
        Severity.PAGE,
        Rule(
            "round(sum(increase(amoro_late_deletes_total[1h]))) > 0",
            lambda now: matching(now.increase(metrics.LATE_DELETES), gt, 0),
        ),
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
        Rule(
            'sum(amoro_active_processes{status="commit_unknown"}) > 0',
            lambda now: matching(now.sum(metrics.ACTIVE, status=("commit_unknown",)), gt, 0),
        ),
        10 * _MINUTE,
        "{value} commits were sent, and the catalog does not say whether they were applied",
        "The answer to a commit was lost, and the catalog can't be asked since. Its table is held until it can.",
        "See to it that the catalog answers: amoro process list --status commit_unknown, amoro catalog show NAME.",
    ),
    Condition(
        "disk-low",
        Severity.PAGE,
        Rule("min(amoro_state_disk_free_ratio) < 0.1", lambda now: matching(now.min(metrics.DISK_FREE), lt, 0.1)),
        5 * _MINUTE,
        "{value} of the disk with the state directory is free",
        "The disk with the state database is nearly full. When it is full nothing is planned or committed.",
        "Free some space, or move the state directory to a larger disk while the coordinator is stopped.",
        Unit.SHARE,
    ),
    Condition(
        "no-optimizer",
        Severity.PAGE,
        Rule("sum(amoro_optimizer_threads) == 0", lambda now: matching(now.sum(metrics.THREADS), eq, 0)),
        10 * _MINUTE,
        "No optimizer is registered in any group: nothing is optimized",
        "The coordinator evaluates and plans, and nobody does the work.",
        "Start an optimizer: amoro optimizer run, or amoro group scale GROUP N.",
    ),
    Condition(
        "tasks-wait",
        Severity.PAGE,
        Rule(
            'sum by (group) (amoro_open_tasks{status="planned"}) > 0 and sum by (group) (amoro_optimizer_threads) == 0',
            _tasks_without_optimizer,
            by=("group",),
        ),
        5 * _MINUTE,
        "{value} tasks wait in group {group}, which has no optimizer",
        "Tasks are planned in a group that has no thread.",
        "Start an optimizer for the group: amoro optimizer run --group GROUP, or amoro group scale GROUP N.",
    ),
    Condition(
        "instances-cannot-start",
        Severity.PAGE,
        Rule(
            "max by (group) (amoro_failed_starts) >= 3",
            lambda now: matching(now.max(metrics.FAILED_STARTS, "group"), ge, 3),
            by=("group",),
        ),
        timedelta(),
        "Optimizers of group {group} could not be started {value} times in a row",
        "The group's container starts optimizers, and they end or never register.",
        "amoro group show GROUP has the reason, amoro optimizer logs the output of an instance.",
    ),
    Condition(
        "catalog-unreachable",
        Severity.PAGE,
        Rule(
            "max by (catalog) (amoro_catalog_up) == 0",
            lambda now: matching(now.max(metrics.CATALOG_UP, "catalog"), eq, 0),
            by=("catalog",),
        ),
        10 * _MINUTE,
        "Catalog {catalog} does not answer",
        "Each question to the catalog has failed for a while. Its tables are neither evaluated nor committed.",
        "amoro doctor asks each catalog and says what it hears; amoro catalog show NAME has its settings.",
    ),
    Condition(
        "tasks-not-taken",
        Severity.LOOK,
        Rule(
            'sum by (group) (amoro_open_tasks{status="planned"}) > 0 '
            'and sum by (group) (amoro_open_tasks{status=~"scheduled|acked"}) == 0 '
            "and sum by (group) (amoro_optimizer_threads) > 0",
            _tasks_not_taken,
            by=("group",),
        ),
        15 * _MINUTE,
        "Optimizers of group {group} are there, and take none of its {value} tasks",
        "Optimizers are registered and run nothing, although tasks wait.",
        "Look at their state and log: amoro optimizer list. They may be draining, or know no such kind of work.",
    ),
    Condition(
        "processes-fail",
        Severity.LOOK,
        Rule(
            'round(sum(increase(amoro_processes_total{result="failed"}[1h]))) / '
            "(round(sum(increase(amoro_processes_total[1h]))) > 0) > 0.2 "
            'and round(sum(increase(amoro_processes_total{result="failed"}[1h]))) >= 3',
            _failing,
        ),
        timedelta(),
        "{value} of the processes within an hour have failed",
        "More than a fifth of the processes that ended within an hour, and at least three, have failed.",
        "amoro process list --status failed has them, and why.",
        Unit.SHARE,
    ),
    Condition(
        "commits-conflict",
        Severity.LOOK,
        Rule(
            'round(sum(increase(amoro_commit_attempts_total{outcome="conflict"}[1h]))) / '
            "(round(sum(increase(amoro_commit_attempts_total[1h]))) > 0) > 0.5 "
            'and round(sum(increase(amoro_commit_attempts_total{outcome="conflict"}[1h]))) >= 10',
            _conflicting,
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
        Rule(
            "max by (group) (amoro_oldest_pending_table_seconds) > 3600",
            lambda now: matching(now.max(metrics.OLDEST_PENDING, "group"), gt, 3600),
            by=("group",),
        ),
        10 * _MINUTE,
        "A table of group {group} has waited {value} for its turn",
        "A table was found to need work an hour ago and is not planned yet.",
        "Add threads to the group: amoro group scale GROUP N. amoro table list --status pending has the tables.",
        Unit.SECONDS,
    ),
    Condition(
        "optimizers-lost",
        Severity.LOOK,
        Rule(
            "round(sum(increase(amoro_optimizers_lost_total[1h]))) > 0",
            lambda now: matching(now.increase(metrics.OPTIMIZERS_LOST), gt, 0),
        ),
        timedelta(),
        "{value} optimizers went without a word within an hour",
        "Optimizers were killed, hang, or lost their network. Their tasks were planned again.",
        "Look for the reason where they ran: memory first. amoro optimizer logs has the output of instances.",
    ),
    Condition(
        "maintenance-held",
        Severity.LOOK,
        Rule(
            "sum by (action) (amoro_maintenance_held) > 0",
            lambda now: matching(now.sum(metrics.HELD, "action"), gt, 0),
            by=("action",),
        ),
        60 * _MINUTE,
        "{value} processes of {action} wait until somebody confirms them",
        "A breaker found that a process of maintenance would delete unusually much.",
        "amoro process show PROCESS says what it would do; amoro table maintain TABLE ACTION --confirm lets it go on.",
    ),
    Condition(
        "maintenance-paused",
        Severity.LOOK,
        Rule(
            "sum by (action) (amoro_maintenance_paused) > 0",
            lambda now: matching(now.sum(metrics.PAUSED, "action"), gt, 0),
            by=("action",),
        ),
        timedelta(),
        "{action} is paused on {value} tables",
        "The action has failed, or changed nothing, too often on these tables.",
        "amoro table actions TABLE says why.",
    ),
    Condition(
        "tables-refused",
        Severity.LOOK,
        Rule(
            "sum by (reason) (amoro_refused_tables) > 0",
            lambda now: matching(now.sum(metrics.REFUSED, "reason"), gt, 0),
            by=("reason",),
        ),
        60 * _MINUTE,
        "{value} tables are refused by the word {reason}",
        "The tables have something that is not handled, and are left exactly as they are.",
        "amoro table list --status refused has them; the page of refusals says what to do for each word.",
    ),
    Condition(
        "certificate-ends",
        Severity.LOOK,
        Rule(
            "min(amoro_certificate_expiry_seconds) - time() < 1.2096e+06",
            lambda now: matching(now.until(metrics.CERTIFICATE_END), lt, 14 * _DAY_S),
        ),
        timedelta(),
        "The certificate for listening ends in {value}",
        "The certificate ends within 14 days, or has ended. Clients refuse one that has.",
        "Renew it: the coordinator takes the new files by itself.",
        Unit.SECONDS,
    ),
    Condition(
        "login-failures",
        Severity.LOOK,
        Rule(
            "round(sum(increase(amoro_login_failures_total[1h]))) >= 20",
            lambda now: matching(now.increase(metrics.LOGIN_FAILURES), ge, 20),
        ),
        timedelta(),
        "{value} callers showed a wrong password or token within an hour",
        "Somebody tries passwords or tokens, or a program goes on with one that was revoked.",
        "The coordinator's log names the addresses. Revoke what leaked: amoro token list, amoro token revoke NAME.",
    ),
    Condition(
        "restarts",
        Severity.LOOK,
        Rule("max(changes(amoro_start_time_seconds[1h])) > 2", _only_outside),
        timedelta(),
        "The coordinator was started {value} times within an hour",
        "The coordinator ends again and again. Only Prometheus can see it.",
        "Its log says why it ended: a full disk, memory, or a lost state directory.",
    ),
)
