"""What the coordinator tells Prometheus: names, labels and meanings. Base units; labels with few values only."""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """How a metric's values follow each other."""

    GAUGE = "gauge"
    COUNTER = "counter"  # since the coordinator's start


@dataclass(frozen=True, slots=True)
class Metric:
    """One name, and what its values mean."""

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric, with the values of its labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"amoro_{name}", MetricKind.GAUGE, meaning, labels)


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"amoro_{name}_total", MetricKind.COUNTER, meaning, labels)


BUILD = _gauge("build_info", "1, with the version that runs.", "version")
STARTED = _gauge("start_time_seconds", "When the coordinator was started, since 1970.")
TABLES = _gauge("tables", "Tables that are known, by group and status.", "group", "status")
REFUSED = _gauge("refused_tables", "Tables that are refused, by the word that says why.", "reason")
OLDEST_PENDING = _gauge(
    "oldest_pending_table_seconds", "How long the table that waits longest for a plan has waited.", "group"
)
ACTIVE = _gauge(
    "active_processes", "Processes that hold a table; one in commit_unknown needs attention.", "type", "status"
)
TASKS = _gauge("open_tasks", "Tasks that wait for a thread (planned) or have one.", "group", "status")
OPTIMIZERS = _gauge("optimizers", "Registered optimizers.", "group", "state")
THREADS = _gauge("optimizer_threads", "Threads of registered optimizers.", "group")
ENDED = _counter("processes", "Processes that ended, by result.", "type", "result")
FILES_REMOVED = _counter("data_files_removed", "Data files that commits took out of tables.")
FILES_ADDED = _counter("data_files_added", "Data files that commits put in their place.")
DELETES_REMOVED = _counter("delete_files_removed", "Delete files that commits took out of tables.")
BYTES_READ = _counter("rewritten_bytes", "Bytes of the files that were rewritten.")
ROWS = _counter("verified_rows", "Rows whose number was found equal before and after, before they were committed.")
MAINTAINED = _counter("maintenance_processes", "Processes of maintenance that ended, by result.", "action", "result")
CONDEMNED = _counter("files_condemned", "Files that maintenance condemned, by kind.", "kind")
DELETED = _counter("files_deleted", "Condemned files that were deleted, by kind.", "kind")
DELETED_BYTES = _counter("deleted_bytes", "Bytes of condemned files that were deleted, where they are known.")
DELETE_FAILURES = _counter("delete_failures", "Deletes of condemned files that failed, each try counted.")
TRASH = _gauge("trash_bytes", "Bytes of files that are condemned and not deleted yet, where they are known.")
HELD = _gauge("maintenance_held", "Processes that a breaker or the guard holds until a person confirms them.", "action")
LEASES = _gauge("leases", "Leases of snapshots that hold now.")
GUARD_HITS = _counter("guard_hits", "Condemned files that were needed after all, found right before their deletion.")
LOST_REFS = _counter("lost_refs", "Branches and tags that an expiry beside their making removed, brought back since.")

#: In the order in which they are told.
METRICS = (
    BUILD,
    STARTED,
    TABLES,
    REFUSED,
    OLDEST_PENDING,
    ACTIVE,
    TASKS,
    OPTIMIZERS,
    THREADS,
    ENDED,
    FILES_REMOVED,
    FILES_ADDED,
    DELETES_REMOVED,
    BYTES_READ,
    ROWS,
    MAINTAINED,
    CONDEMNED,
    DELETED,
    DELETED_BYTES,
    DELETE_FAILURES,
    TRASH,
    HELD,
    LEASES,
    GUARD_HITS,
    LOST_REFS,
)
