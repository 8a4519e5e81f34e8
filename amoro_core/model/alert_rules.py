"""Alert rules: a predicate over the coordinator's own metrics, and the PromQL expression that says the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
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
    since: Metric | None = None  # whose values tell when it began, in seconds since 1970; None: when it was first seen


class Severity(StrEnum):
    """Urgency of an alert."""

    PAGE = "page"  # page the on-call engineer
    LOOK = "look"  # can wait until morning


class Unit(StrEnum):
    """Unit of a condition's value."""

    NUMBER = "number"
    SHARE = "share"  # 0 to 1
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Condition:
    """A problem that needs attention."""

    severity: Severity
    name: str
    when: Rule
    text: str  # {value} and {label} are replaced
    meaning: str
    remedy: str
    lasts: timedelta = timedelta()  # how long it must hold before it is raised
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
        """Its text with value and labels."""
        return self.condition.text.format(value=_written(self.value, self.condition.unit), **self.named)


def evaluate_rules(
    conditions: Sequence[Condition], counted: Counted, before: Iterable[ActiveAlert], now: datetime
) -> tuple[ActiveAlert, ...]:
    """The conditions that hold now, in their order; those that held before keep since when."""
    since = {(alert.condition.name, alert.labels): alert.since for alert in before}
    for condition in conditions:
        if condition.when.since is not None:
            for labels, began_s in counted.min(condition.when.since, *condition.when.by).items():
                since[condition.name, labels] = datetime.fromtimestamp(began_s, UTC)
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


def _idle_optimizers(now: Counted) -> Vector:
    running, threads = now.sum(metrics.TASKS, "group", status=("scheduled", "acked")), now.sum(metrics.THREADS, "group")
    return {
        group: tasks for group, tasks in _waiting(now).items() if running.get(group) == 0 and threads.get(group, 0) > 0
    }


_COMPARED = {">": gt, ">=": ge, "==": eq, "<": lt}


def _rule(aggregate: Callable[..., Vector], metric: Metric, compare: str, number: float, *by: str) -> Rule:
    """The comparison of one of `Counted`'s aggregates of a metric with a number, in both forms."""
    labels = f" by ({', '.join(by)}) " if by else ""
    if aggregate is Counted.increase:
        promql = f"round(sum{labels}(increase({metric.name}[1h])))"
    else:
        promql = f"{aggregate.__name__}{labels}({metric.name})"
    return Rule(
        f"{promql} {compare} {number:g}",
        lambda now: matching(aggregate(now, metric, *by), _COMPARED[compare], number),
        by,
    )


def _share(metric: Metric, label: str, value: str, share: float, least: int) -> Rule:
    """When a part of an hour's events has a label's value: more than `share` of them, and at least `least`."""

    def values(now: Counted) -> Vector:
        some, total = now.increase(metric, **{label: (value,)}).get((), 0.0), now.increase(metric).get((), 0.0)
        return {(): some / total} if some >= least and some / total > share else {}

    some = f'round(sum(increase({metric.name}{{{label}="{value}"}}[1h])))'
    return Rule(f"{some} / (round(sum(increase({metric.name}[1h]))) > 0) > {share} and {some} >= {least}", values)


_page, _look = partial(Condition, Severity.PAGE), partial(Condition, Severity.LOOK)

#: In the order in which they are shown: the worst first.
CONDITIONS = (
    _page(
        "coordinator-absent",
        Rule('up{job="amoro"} == 0 or absent(up{job="amoro"})', _only_outside),
        "The coordinator does not answer: nothing is optimized",
        "Prometheus cannot reach the coordinator. Only Prometheus can detect this.",
        "Check that it is running and read its log: systemctl status amoro, amoro doctor.",
        lasts=5 * _MINUTE,
    ),
    _page(
        "no-leader",
        _rule(Counted.sum, metrics.LEADER, "==", 0),
        "The coordinator does not own the state directory: nothing is optimized",
        "The coordinator lost its state directory: it was moved, restored, or opened by another coordinator.",
        "Check which process uses the state directory, and start one coordinator on it: amoro up.",
        lasts=_MINUTE,
    ),
    _page(
        "store-failed",
        _rule(Counted.min, metrics.STORE_UP, "==", 0),
        "The state database can't be read or written: nothing is planned or committed",
        "The last read or write of the state database failed. No task or commit is lost; work waits.",
        "Check the disk of the state directory: space and rights. amoro state check verifies the database.",
    ),
    _page(
        "check-failed",
        _rule(Counted.increase, metrics.FAILED_CHECKS, ">", 0, "type"),
        "Results of {type} that failed the check before the commit: {value}",
        "Rows or files of a result were wrong before a commit. Nothing was committed.",
        "Report it with the process's id: amoro process list --status failed.",
    ),
    _page(
        "guard-spoke",
        _rule(Counted.increase, metrics.GUARD_HITS, ">", 0),
        "Files in the trash that the table still needs: {value}. They were kept, and the process is held",
        "Right before deleting files from the trash the guard found that the table needs them.",
        "Check the held process before you confirm it: amoro process list --status held.",
    ),
    _page(
        "lost-refs",
        _rule(Counted.increase, metrics.LOST_REFS, ">", 0),
        "Branches and tags that a concurrent expiry removed, restored: {value}",
        "A catalog applied an expiry to a table state other than the planned one.",
        "Check the table's branches and tags, and turn expire-snapshots off for tables that are tagged often.",
    ),
    _page(
        "late-deletes",
        _rule(Counted.increase, metrics.LATE_DELETES, ">", 0),
        "Snapshots of other applications that delete rows of replaced files: {value}. These rows still exist",
        "Another application committed deletes after their files were rewritten, without validating that the files"
        " still exist.",
        "amoro event list --kind late-deletes shows table, snapshot and application: repeat the delete, and make the"
        " application validate that the files it deletes from exist.",
    ),
    _page(
        "commit-unknown",
        Rule(
            'sum(amoro_active_processes{status="commit_unknown"}) > 0',
            lambda now: matching(now.sum(metrics.ACTIVE, status=("commit_unknown",)), gt, 0),
        ),
        "Commits that were sent and whose outcome is unknown: {value}",
        "The answer to a commit was lost, and the catalog has not answered since. The table waits for it.",
        "Make the catalog available: amoro process list --status commit_unknown, amoro catalog show NAME.",
        lasts=10 * _MINUTE,
    ),
    _page(
        "disk-low",
        _rule(Counted.min, metrics.DISK_FREE, "<", 0.1),
        "{value} of the disk with the state directory is free",
        "The disk with the state database is nearly full. On a full disk nothing is planned or committed.",
        "Free some space, or move the state directory to a larger disk while the coordinator is stopped.",
        lasts=5 * _MINUTE,
        unit=Unit.SHARE,
    ),
    _page(
        "no-optimizer",
        Rule(
            "sum(amoro_optimizer_threads) == 0 and sum(amoro_max_instances) == 0",
            lambda now: {} if now.sum(metrics.ON_DEMAND).get(()) else matching(now.sum(metrics.THREADS), eq, 0),
        ),
        "No optimizer is registered in any group: nothing is optimized",
        "The coordinator evaluates and plans, but no optimizer runs the tasks.",
        "Start an optimizer: amoro optimizer run, or amoro group scale GROUP N.",
        lasts=10 * _MINUTE,
    ),
    _page(
        "tasks-wait",
        Rule(
            'sum by (group) (amoro_open_tasks{status="planned"}) > 0 and sum by (group) (amoro_optimizer_threads) == 0',
            _tasks_without_optimizer,
            by=("group",),
        ),
        "Group {group} has no optimizer; tasks that wait: {value}",
        "Tasks are planned in a group without threads.",
        "Start an optimizer for the group: amoro optimizer run --group GROUP, or amoro group scale GROUP N.",
        lasts=5 * _MINUTE,
    ),
    _page(
        "table-failing",
        replace(_rule(Counted.max, metrics.FAILURES, ">", 0, "table", "action", "code"), since=metrics.FAILING_SINCE),
        "{action} of {table} fails with {code}, failures in a row: {value}",
        "Optimizing a table, loading it, or another action on it failed three times in a row, or once because a file is"
        " missing (AMORO-1002). Outages of catalogs are not counted here.",
        "amoro table show TABLE shows the error and the next try. For AMORO-1002 restore the file, or remove it from"
        " the table; amoro table enable TABLE tries again at once, disable ends the tries.",
    ),
    _page(
        "instances-cannot-start",
        _rule(Counted.max, metrics.FAILED_STARTS, ">=", 3, "group"),
        "Optimizers of group {group} could not be started; failures in a row: {value}",
        "The group's container starts optimizers, but they end or never register.",
        "amoro group show GROUP shows the reason, amoro optimizer logs the output of an instance.",
    ),
    _page(
        "commit-delayed",
        _rule(Counted.sum, metrics.DELAYED, ">", 0, "type"),
        "Processes of {type} whose commit or clean-up is put off again and again: {value}",
        "A process has done its work, and its commit, or the removal of files after it, can't proceed: the catalog does"
        " not answer, or storage fails. The table waits for it, and nothing is lost.",
        "amoro process list --status committing (or clearing) shows the reason and the next try. Make catalog and"
        " storage available; amoro process cancel PROCESS ends one that has sent nothing.",
        lasts=20 * _MINUTE,
    ),
    _page(
        "catalog-unreachable",
        _rule(Counted.max, metrics.CATALOG_UP, "==", 0, "catalog"),
        "Catalog {catalog} does not answer",
        "All requests to the catalog have failed for a while. Its tables are neither evaluated nor committed.",
        "amoro doctor checks each catalog; amoro catalog show NAME shows its settings.",
        lasts=10 * _MINUTE,
    ),
    _look(
        "tasks-not-taken",
        Rule(
            'sum by (group) (amoro_open_tasks{status="planned"}) > 0 '
            'and sum by (group) (amoro_open_tasks{status=~"scheduled|acked"}) == 0 '
            "and sum by (group) (amoro_optimizer_threads) > 0",
            _idle_optimizers,
            by=("group",),
        ),
        "Optimizers of group {group} run nothing; tasks that wait: {value}",
        "Optimizers are registered and run nothing, although tasks wait.",
        "Check their state and log: amoro optimizer list. They may be draining, or not support this kind of work.",
        lasts=15 * _MINUTE,
    ),
    _look(
        "processes-fail",
        _share(metrics.ENDED, "result", "failed", 0.2, 3),
        "{value} of the processes within an hour have failed",
        "More than a fifth of the processes that ended within an hour, and at least three, have failed.",
        "amoro process list --status failed lists them with reasons.",
        unit=Unit.SHARE,
    ),
    _look(
        "commits-conflict",
        _share(metrics.COMMIT_ATTEMPTS, "outcome", "conflict", 0.5, 10),
        "{value} of the commits within an hour lost to another writer",
        "More than half of the commits within an hour, and at least ten, lost to concurrent writers.",
        "Let the writers of these tables commit less often, or set a longer min-plan-interval.",
        unit=Unit.SHARE,
    ),
    _look(
        "backlog",
        _rule(Counted.max, metrics.OLDEST_PENDING, ">", 3600, "group"),
        "A table of group {group} has waited {value} for its turn",
        "A table has been pending for an hour and is not planned yet.",
        "Add threads to the group: amoro group scale GROUP N. amoro table list --status pending lists the tables.",
        lasts=10 * _MINUTE,
        unit=Unit.SECONDS,
    ),
    _look(
        "optimizers-lost",
        _rule(Counted.increase, metrics.OPTIMIZERS_LOST, ">", 0),
        "Optimizers that stopped sending heartbeats within an hour: {value}",
        "Optimizers were killed, hang, or lost their network. Their tasks were rescheduled.",
        "Check their machines, memory first. amoro optimizer logs shows the output of instances.",
    ),
    _look(
        "maintenance-held",
        _rule(Counted.sum, metrics.HELD, ">", 0, "action"),
        "Processes of {action} that wait for confirmation: {value}",
        "A maintenance process would delete an unusual amount, and a breaker stopped it.",
        "amoro process show PROCESS shows its plan; amoro table maintain TABLE ACTION --confirm continues it.",
        lasts=60 * _MINUTE,
    ),
    _look(
        "maintenance-paused",
        _rule(Counted.sum, metrics.PAUSED, ">", 0, "action"),
        "{action} is paused; tables: {value}",
        "The action failed, or had no effect, repeatedly on these tables.",
        "amoro table actions TABLE shows the reason.",
    ),
    _look(
        "tables-refused",
        _rule(Counted.sum, metrics.REFUSED, ">", 0, "reason"),
        "Refused tables, by reason {reason}: {value}",
        "The tables have an unsupported feature, and are not changed.",
        "amoro table list --status refused lists them; the page of refusals has a remedy for each word.",
        lasts=60 * _MINUTE,
    ),
    _look(
        "listener-behind",
        _rule(Counted.max, metrics.LISTENER_LAG, ">=", _DAY_S, "listener"),
        "Listener {listener} is {value} behind",
        "A listener that fails for a day is paused. After 30 days, or beyond a million, events are deleted that it has"
        " not got.",
        "amoro listener list shows its failure and how many events it lost. Then: amoro listener resume NAME.",
        unit=Unit.SECONDS,
    ),
    _look(
        "certificate-ends",
        Rule(
            "min(amoro_certificate_expiry_seconds) - time() < 1.2096e+06",
            lambda now: matching(now.until(metrics.CERTIFICATE_END), lt, 14 * _DAY_S),
        ),
        "The server certificate expires in {value}",
        "The certificate expires within 14 days, or has expired. Clients reject an expired one.",
        "Renew it: the coordinator picks up the new files without a restart.",
        unit=Unit.SECONDS,
    ),
    _look(
        "login-failures",
        _rule(Counted.increase, metrics.LOGIN_FAILURES, ">=", 20),
        "Calls with a wrong password or token within an hour: {value}",
        "Somebody tries passwords or tokens, or a program uses a revoked one.",
        "The coordinator's log lists the addresses. Revoke leaked tokens: amoro token list, amoro token revoke NAME.",
    ),
    _look(
        "restarts",
        Rule("max(changes(amoro_start_time_seconds[1h])) > 2", _only_outside),
        "Starts of the coordinator within an hour: {value}",
        "The coordinator ends repeatedly. Only Prometheus can detect this.",
        "Its log has the reason: a full disk, memory, or a lost state directory.",
    ),
)
