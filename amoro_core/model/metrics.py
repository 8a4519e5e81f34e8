"""Prometheus metrics of the coordinator, facts of its state, and values over time."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

#: Upper bounds of the buckets of all histograms, in seconds: from a write of the store to an hour of a task.
BUCKETS_S = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


class MetricKind(StrEnum):
    """The Prometheus type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"  # since the coordinator's start
    HISTOGRAM = "histogram"  # of durations, since the coordinator's start


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric's name, and the meaning of its values. Each is a constant of its own."""

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value of a metric, with the values of its labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"amoro_{name}", MetricKind.GAUGE, meaning, labels)


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"amoro_{name}_total", MetricKind.COUNTER, meaning, labels)


def _histogram(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"amoro_{name}_seconds", MetricKind.HISTOGRAM, meaning, labels)


_ONLY = " Only in groups with `table-metrics`."

BUILD = _gauge("build_info", "1, labelled with the running version.", "version")
STARTED = _gauge("start_time_seconds", "Start time of the coordinator, since 1970.")
TABLES = _gauge("tables", "Registered tables, by group and status.", "group", "status")
REFUSED = _gauge("refused_tables", "Refused tables, by reason.", "reason")
OLDEST_PENDING = _gauge("oldest_pending_table_seconds", "Longest time that a table has waited for a plan.", "group")
ACTIVE = _gauge("active_processes", "Active processes; a process in commit_unknown needs attention.", "type", "status")
DELAYED = _gauge("delayed_processes", "Processes whose commit or clean-up was put off ten times in a row.", "type")
TASKS = _gauge("open_tasks", "Open tasks: planned ones wait for a thread, others have one.", "group", "status")
OPTIMIZERS = _gauge("optimizers", "Registered optimizers.", "group", "state")
THREADS = _gauge("optimizer_threads", "Threads of registered optimizers.", "group")
ENDED = _counter("processes", "Ended processes, by result.", "type", "result")
FILES_REMOVED = _counter("data_files_removed", "Data files that commits removed from tables.")
FILES_ADDED = _counter("data_files_added", "Data files that commits added to tables.")
DELETES_REMOVED = _counter("delete_files_removed", "Delete files that commits removed from tables.")
BYTES_READ = _counter("rewritten_bytes", "Bytes of rewritten files.")
ROWS = _counter("verified_rows", "Rows of results whose row counts were verified before the commit.")
REBASED_GROUPS = _counter(
    "groups_rebased", "Task results that were committed although other writers had changed their input files."
)
REBASED_BYTES = _counter("rebased_bytes", "Bytes of the files of these task results.")
DROPPED_GROUPS = _counter(
    "groups_dropped",
    "Task results that were not committed because other writers had changed their input files.",
    "type",
)
LATE_DELETES = _counter(
    "late_deletes", "Snapshots of other writers that delete rows of files after their replacement: these rows remain."
)
MAINTAINED = _counter("maintenance_processes", "Ended maintenance processes, by result.", "action", "result")
CONDEMNED = _counter("files_condemned", "Files that maintenance marked for deletion, by kind.", "kind")
DELETED = _counter("files_deleted", "Files deleted from the trash, by kind.", "kind")
DELETED_BYTES = _counter("deleted_bytes", "Bytes of files deleted from the trash, as far as their sizes are known.")
DELETE_FAILURES = _counter("delete_failures", "Failed attempts to delete files of the trash.")
TRASH = _gauge("trash_bytes", "Bytes of files that wait to be deleted, as far as their sizes are known.")
HELD = _gauge("maintenance_held", "Processes held by a breaker or the guard until they are confirmed.", "action")
PAUSED = _gauge(
    "maintenance_paused", "Tables with an action paused after repeated failures or runs without effect.", "action"
)
_FAILING = "of an action on a table, from the third one on, or of one that lacks a file; at most 100 series"
FAILURES = _gauge("failing_table_failures", f"Failures in a row {_FAILING}.", "table", "action", "code")
FAILING_SINCE = _gauge(
    "failing_table_since_seconds", f"Time of the first failure {_FAILING}, since 1970.", "table", "action", "code"
)
LISTENER_LAG = _gauge("listener_lag_seconds", "Age of the oldest event that a listener is still to get.", "listener")
EVENTS = _counter("events", "Received events about commits to tables.", "result")
CHANGES_SEEN = _counter("changes_seen", "Commits of other writers that looks found, after an event or not.", "by")
POLICY_TABLES = _gauge("policy_tables", "Tables to which a policy applies.", "policy")
LEASES = _gauge("leases", "Active snapshot leases.")
GUARD_HITS = _counter("guard_hits", "Files of the trash that the guard found to be needed right before their deletion.")
LOST_REFS = _counter("lost_refs", "Branches and tags removed by a concurrent expiry and restored.")
LEADER = _gauge("leader", "1 while this coordinator owns the state directory, else 0.")
EPOCH = _gauge("coordinator_epoch", "Number of coordinators that have opened the state database so far.")
STORE_UP = _gauge("store_up", "1 if the last read and the last write of the state database succeeded, else 0.")
DISK_FREE = _gauge("state_disk_free_ratio", "Free share of the disk with the state directory, 0 to 1.")
CERTIFICATE_END = _gauge("certificate_expiry_seconds", "Expiry time of the server certificate, since 1970.")
CATALOG_UP = _gauge("catalog_up", "1 if the catalog answered the last request, else 0.", "catalog")
CATALOG_ERRORS = _counter("catalog_errors", "Failed requests to a catalog.", "catalog")
FAILED_STARTS = _gauge("failed_starts", "Consecutive failed starts of optimizers of a group.", "group")
ON_DEMAND = _gauge("max_instances", "Optimizers that a group starts on demand, at most.", "group")
PREDICTION_ERROR = _gauge(
    "prediction_error_ratio",
    "Median of |measured ÷ predicted − 1| of the thread time of the latest 1,000 optimizing processes; 0 before any.",
)
OPTIMIZERS_LOST = _counter("optimizers_lost", "Optimizers that stopped sending heartbeats.")
TASK_ATTEMPTS = _counter("task_attempts", "Ended task attempts, by outcome.", "outcome")
COMMIT_ATTEMPTS = _counter("commit_attempts", "Sent commits, by outcome.", "outcome")
FAILED_CHECKS = _counter("failed_checks", "Results that failed the check before the commit, by type.", "type")
LOGIN_FAILURES = _counter("login_failures", "Login attempts and calls with a wrong password or token.")
TASK_TIME = _histogram("task", "Duration of task attempts from ack to result.", "kind")
COMMIT_TIME = _histogram("commit", "Duration of commits from validation to the catalog's answer.", "type")
TRANSACTION_TIME = _histogram("transaction", "Duration of write transactions of the state database.")
RPC_TIME = _histogram("rpc", "Duration of gRPC calls; polls wait for work.", "method")
HTTP_TIME = _histogram("http", "Duration of HTTP requests.", "route")
TABLE_HEALTH = _gauge("table_health", f"Health of a table, 0 to 100.{_ONLY}", "table")
TABLE_FILES = _gauge("table_data_files", f"Data files of a table.{_ONLY}", "table")
TABLE_SMALL = _gauge("table_small_files", f"Data files of a table below the target size.{_ONLY}", "table")
TABLE_DELETES = _gauge("table_delete_files", f"Delete files of a table.{_ONLY}", "table")
TABLE_BYTES = _gauge("table_data_bytes", f"Bytes of a table's data files.{_ONLY}", "table")

#: What becomes of a received event.
EVENT_RESULTS = ("accepted", "ignored", "unknown", "refused", "limited")
#: Outcomes of attempts of tasks: a lost one went with its optimizer, or ran out of time.
ATTEMPT_OUTCOMES = ("success", "failed", "lost", "given_back")

#: In the order of exposition, which is that of their definition.
METRICS = tuple(metric for metric in list(globals().values()) if isinstance(metric, Metric))


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """A step of the schema that the file has."""

    number: int
    name: str
    applied_at: datetime


@dataclass(frozen=True, slots=True)
class StateFacts:
    """The file, its room, and its schema; sizes in bytes, 0 where there is no file yet."""

    path: str
    size_bytes: int
    log_bytes: int  # of the write-ahead log beside it
    free_bytes: int  # on its disk
    epoch: int  # how often a coordinator has opened it
    migrations: tuple[AppliedMigration, ...]
    engine: str  # the version of SQLite


@dataclass(frozen=True, slots=True)
class BackupRecord:
    """A backup that was made; whether the copy is still there is not known."""

    at: datetime
    path: str


class SeriesKind(StrEnum):
    """How the values of a step are read; the words are sent."""

    LEVEL = "level"  # sampled: the mean of a step is its sum by its count
    TOTAL = "total"  # what was added in a step is its sum; without anything it is 0
    STATE = "state"  # noted when it changed: it holds until the next value


@dataclass(frozen=True, slots=True)
class SeriesFacts:
    """The description of a series."""

    kind: SeriesKind
    unit: str  # "" for a plain count
    label: str  # what its label names; "": it has none
    meaning: str


_LEVEL, _TOTAL, _STATE = SeriesKind.LEVEL, SeriesKind.TOTAL, SeriesKind.STATE

#: Series of the system and of groups, by name.
SYSTEM_SERIES: Mapping[str, SeriesFacts] = MappingProxyType(
    {
        "tables": SeriesFacts(_LEVEL, "", "", "Tables that are known."),
        "tables-pending": SeriesFacts(_LEVEL, "", "", "Tables that wait for a plan."),
        "tables-refused": SeriesFacts(_LEVEL, "", "", "Tables that are refused."),
        "backlog-age": SeriesFacts(_LEVEL, "seconds", "", "For how long the oldest pending table has waited."),
        "processes-active": SeriesFacts(_LEVEL, "", "", "Processes that have not ended."),
        "threads": SeriesFacts(_LEVEL, "", "group", "Threads of a group's optimizers."),
        "threads-busy": SeriesFacts(_LEVEL, "", "group", "Those of them that have a task."),
        "queue-tasks": SeriesFacts(_LEVEL, "", "group", "Tasks that wait for a thread of the group."),
        "queue-age": SeriesFacts(_LEVEL, "seconds", "group", "For how long the oldest process among them has waited."),
        "processes-ended": SeriesFacts(_TOTAL, "", "status", "Processes that ended, by their last status."),
        "bytes-rewritten": SeriesFacts(_TOTAL, "bytes", "", "Bytes of the files that processes replaced."),
        "files-removed": SeriesFacts(_TOTAL, "files", "", "Data and delete files fewer by what processes committed."),
        "rows-rewritten": SeriesFacts(_TOTAL, "rows", "", "Rows of the files that processes wrote."),
    }
)

#: Series of one table, by name, in the order of `TableFigures`.
TABLE_SERIES: Mapping[str, SeriesFacts] = MappingProxyType(
    {
        "health": SeriesFacts(_STATE, "", "", "The health score, 0 to 100; -1: not known."),
        "data-files": SeriesFacts(_STATE, "files", "", "Data files."),
        "small-files": SeriesFacts(_STATE, "files", "", "Fragments and undersized files."),
        "delete-files": SeriesFacts(_STATE, "files", "", "Position and equality deletes."),
        "data-bytes": SeriesFacts(_STATE, "bytes", "", "Bytes of the data files."),
        "records": SeriesFacts(_STATE, "rows", "", "Rows of the data files, deletes not subtracted."),
    }
)


@dataclass(frozen=True, slots=True)
class Step:
    """How long a step lasts, and how long its values are kept."""

    length: timedelta
    keep: timedelta

    @property
    def seconds(self) -> int:
        """The length in whole seconds."""
        return int(self.length.total_seconds())


#: Steps of the system's series, the finest first.
SYSTEM_STEPS = (
    Step(timedelta(minutes=1), timedelta(hours=48)),
    Step(timedelta(minutes=10), timedelta(days=30)),
    Step(timedelta(hours=2), timedelta(days=400)),
)
#: Steps of tables' series, the finest first.
TABLE_STEPS = (Step(timedelta(hours=1), timedelta(days=7)), Step(timedelta(days=1), timedelta(days=90)))
#: Groups that are sampled; more would make the series as large as the rest of the state.
MOST_GROUPS = 32
#: Points of one series, above which a coarser step is taken unless the request names one.
COMFORTABLE = 1500


@dataclass(frozen=True, slots=True)
class Sample:
    """A value to be added to its series."""

    name: str
    value: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """The values of one step. A step without any has no point: that is a gap."""

    at: datetime  # the beginning of the step
    n: int
    sum: int
    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one series, by time."""

    name: str
    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class TableFigures:
    """The numbers of a table at a moment, in the order of `TABLE_SERIES`."""

    health: int
    data_files: int
    small_files: int
    delete_files: int
    data_bytes: int
    records: int


def fitting(steps: tuple[Step, ...], since: datetime, until: datetime, now: datetime) -> Step:
    """The finest step that is kept for so long and has no more than a comfortable number of points."""
    for step in steps:
        if now - since <= step.keep and (until - since) / step.length <= COMFORTABLE:
            return step
    return steps[-1]
