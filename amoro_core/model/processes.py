"""Optimizing processes, their tasks, and commit attempts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from amoro_core.model.commits import Evidence, RefAt, SnapshotAdded, SnapshotsGone, StatisticsGone, StatisticsNamed
from amoro_core.model.lanes import FILES
from amoro_core.model.work import REWRITE


class TaskStatus(StrEnum):
    """Where a task stands; the values are stored and sent."""

    PLANNED = "planned"
    SCHEDULED = "scheduled"
    ACKED = "acked"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"


class ProcessStatus(StrEnum):
    """Where a process stands; stored and shown. The store has a row for each, and may have rows for more."""

    RUNNING = "running"
    COMMITTING = "committing"
    COMMIT_UNKNOWN = "commit_unknown"
    CLEARING = "clearing"  # what it is to remove after its work is being removed
    HELD = "held"  # a guard has stopped it until a person says go; meanwhile it holds no lane
    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"
    CLOSED = "closed"


#: In one of these a process has not ended. It holds its lane of the table, an unknown commit too, unless it is held.
ACTIVE_PROCESS_STATUSES = (
    ProcessStatus.RUNNING,
    ProcessStatus.COMMITTING,
    ProcessStatus.COMMIT_UNKNOWN,
    ProcessStatus.CLEARING,
    ProcessStatus.HELD,
)

#: The action of minor, major and full: what the status of a table is about.
OPTIMIZING_ACTION = "optimizing"


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task of a process."""

    process_id: str  # UUIDv7
    number: int  # 1..n within the process

    def __str__(self) -> str:
        return f"{self.process_id}-{self.number}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One scheduling of a task; the number fences everything an optimizer reports."""

    task_id: TaskId
    number: int  # from 1

    def __str__(self) -> str:
        return f"{self.task_id}-{self.number}"


@dataclass(frozen=True, slots=True)
class OptimizerThread:
    """A thread of a registered optimizer."""

    optimizer_id: str
    thread_id: int


@dataclass(frozen=True, slots=True)
class OptimizingTask:
    """The life of one task. `thread` is set exactly while it is scheduled or acked, `ended_on` only afterwards."""

    task_id: TaskId
    table_id: int
    group: str
    status: TaskStatus
    attempt: int = 0  # grows each time the task is scheduled
    thread: OptimizerThread | None = None
    failed_runs: int = 0
    lost_attempts: int = 0  # resets: the optimizer vanished or kept silent
    lost_optimizers: tuple[str, ...] = ()  # the registrations that lost it
    scheduled_at: datetime | None = None
    acked_at: datetime | None = None
    finished_at: datetime | None = None
    failure_code: str = ""
    failure: str = ""
    cost: int = 0  # bytes to be read and opened, as planned
    partition: str = ""  # the partition's path, for people
    input_files: int = 0
    input_bytes: int = 0
    kind: str = REWRITE  # of its work
    input_rows: int = 0  # of its data files, deletes not subtracted; 0: planned before that was kept
    ended_on: OptimizerThread | None = None  # who had it when it succeeded, failed or was cancelled


@dataclass(frozen=True, slots=True)
class Delay:
    """Why a commit could not go on, and when it is tried again."""

    code: str
    reason: str
    retry_at: datetime
    tries: int = 1  # in a row, since the last step forward
    refusals: int = 0  # the last of them, in a row, that were refused for good


@dataclass(frozen=True, slots=True)
class OptimizingProcess:
    """One round of an action on one table, pinned to the snapshot it was planned on."""

    process_id: str  # UUIDv7
    table_id: int
    type: str  # its name: minor, major, full, or that of another action's process
    status: str  # a ProcessStatus, unless the store has a row for another one
    trigger: str  # "evaluation" or "request"
    reason: str
    table_uuid: str
    format_version: int
    snapshot_id: int
    sequence_number: int  # S, of that snapshot
    schema_id: int
    last_column_id: int  # of the table when planned
    created_at: datetime
    finished_at: datetime | None = None
    failure_code: str = ""
    failure: str = ""
    max_retries: int = 5
    allow_partial_commit: bool = False
    commit_tries: int = 0
    receipt: "Receipt | None" = None
    where: str = ""  # the condition that somebody limited it to partitions by
    delay: Delay | None = None  # only while it is committing, unknown or clearing
    action: str = OPTIMIZING_ACTION
    lane: str = FILES
    detail: str = ""  # what the action keeps of its plan, in words of its own
    commits: bool = True  # else it ends when its tasks have
    left_over: bool = False  # it has ended, and what it wrote without a commit is still to be removed

    @property
    def is_active(self) -> bool:
        """Whether the process has not ended; it then holds its lane of the table, unless it is held."""
        return self.finished_at is None

    @property
    def is_optimizing(self) -> bool:
        """Whether the status of the table is about it."""
        return self.action == OPTIMIZING_ACTION

    @property
    def waiting(self) -> str:
        """What the commit waits for, in a phrase; "" when it waits for nothing."""
        if self.delay is None:
            return ""
        aim = _AIMS.get(self.status, "commit")
        return f"waiting to {aim}: {self.delay.reason}, next try at {self.delay.retry_at:%Y-%m-%d %H:%M:%S} UTC"


_AIMS: Mapping[str, str] = {
    ProcessStatus.COMMIT_UNKNOWN: "know whether it was committed",
    ProcessStatus.CLEARING: "remove files",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a receipt."""

    name: str  # in snake case, as a key of JSON
    value: int
    unit: str  # "files", "rows", "bytes", ...; "" for what is merely counted


@dataclass(frozen=True, slots=True)
class Equation:
    """Two figures of a receipt, by name, that have to be equal."""

    left: str
    right: str


#: Figures of a receipt that every process may have, in the order in which they are told, each with its unit.
_UNITS: Mapping[str, str] = {
    "data_files_before": "files",
    "data_files_after": "files",
    "delete_files_before": "files",
    "delete_files_after": "files",
    "equality_delete_files_after": "files",
    "bytes_before": "bytes",
    "bytes_after": "bytes",
    "rows_before": "rows",
    "rows_after": "rows",
}


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a process did to the table; files, bytes and rows are those of the process."""

    data_files_before: int
    data_files_after: int
    delete_files_before: int
    delete_files_after: int
    equality_delete_files_after: int  # of the whole table
    bytes_before: int
    bytes_after: int
    rows_before: int  # live rows of the rewritten files
    rows_after: int
    snapshot_id: int
    base_snapshot_id: int
    duration_ms: int
    disputed_deletes: int = 0  # equality deletes on its inputs that Iceberg's Java readers pass over
    words: str = ""  # what was done, where it was not files that were replaced by a snapshot
    more: tuple[Figure, ...] = ()  # figures of the action's own
    equal: tuple[Equation, ...] = ()  # of the action's own

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure: those of files and rows where these were replaced, and the action's own."""
        if self.words:
            return self.more
        return (*(Figure(name, getattr(self, name), unit) for name, unit in _UNITS.items()), *self.more)

    @property
    def equations(self) -> tuple[Equation, ...]:
        """What has to be equal: rows, where files were replaced, and the action's own."""
        return self.equal if self.words else (Equation("rows_before", "rows_after"), *self.equal)

    @property
    def unequal(self) -> tuple[Equation, ...]:
        """The equations that do not hold."""
        values = {figure.name: figure.value for figure in self.figures}
        return tuple(one for one in self.equations if values[one.left] != values[one.right])

    @classmethod
    def told(
        cls, words: str, snapshot_id: int = 0, more: tuple[Figure, ...] = (), equal: tuple[Equation, ...] = ()
    ) -> "Receipt":
        """That of a process which replaces no files: what was done, about which snapshot, in figures of its own."""
        return cls(0, 0, 0, 0, 0, 0, 0, 0, 0, snapshot_id, snapshot_id, 0, words=words, more=more, equal=equal)


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """One sending of a commit, written down before it is sent and never changed but for its outcome."""

    process_id: str
    number: int
    evidence: Evidence  # by which the table shows that it landed
    payload: bytes  # requirements and updates as they were sent, to be sent again byte for byte
    groups: tuple[int, ...]  # task numbers whose results it holds
    files: tuple[str, ...]  # data and delete files it adds
    metadata_files: tuple[str, ...]  # manifests and manifest list written for it
    outcome: "CommitOutcome"
    created_at: datetime
    receipt: Receipt

    @property
    def is_open(self) -> bool:
        """Whether nobody knows what became of it; one that was only written down counts, too."""
        return self.outcome in (CommitOutcome.SENT, CommitOutcome.UNKNOWN)

    @property
    def may_come_back(self) -> bool:
        """Whether it was refuted and would land after all, should it be under way and main go back to its parent.

        Only without sequence numbers, so in format 1: elsewhere catalogs refuse a snapshot that is not the newest.
        """
        found = self.evidence
        return self.outcome is CommitOutcome.REFUTED and isinstance(found, SnapshotAdded) and found.sequence_number == 0

    @property
    def words(self) -> str:
        """What it commits, in words that follow "committed"."""
        match self.evidence:
            case SnapshotAdded(snapshot_id):
                return f"snapshot {snapshot_id}"
            case SnapshotsGone(snapshot_ids):
                return f"the removal of {len(snapshot_ids)} snapshots"
            case RefAt(name, snapshot_id):
                return f"{name} on snapshot {snapshot_id}"
            case StatisticsNamed(snapshot_id):
                return f"statistics of snapshot {snapshot_id}"
            case StatisticsGone(snapshot_id):
                return f"the removal of statistics of snapshot {snapshot_id}"

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that it adds; None for a change that adds none."""
        return self.evidence.snapshot_id if isinstance(self.evidence, SnapshotAdded) else None


class CommitOutcome(StrEnum):
    """What came of one attempt to commit."""

    SENT = "sent"  # nothing heard yet; counts as unknown after a restart
    DONE = "done"
    CONFLICT = "conflict"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    REFUTED = "refuted"  # unknown once; others have overtaken it since


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A registered optimizer; its token is kept only as a hash."""

    optimizer_id: str
    token_hash: str
    group: str
    threads: int
    memory_bytes: int
    labels: tuple[tuple[str, str], ...]
    registered_at: datetime
    draining: bool = False  # it is to take nothing more, finish what it runs, and leave
    kinds: tuple[str, ...] = (REWRITE,)  # of work that it can execute


@dataclass(frozen=True, slots=True)
class SiteFile:
    """A configuration file that somebody uploaded for a catalog, and the properties that it stands for."""

    name: str
    content: str
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """A catalog that somebody added, or that pyiceberg's own configuration names."""

    name: str
    properties: tuple[tuple[str, str], ...] = field(repr=False)  # secrets among them
    allowed_locations: tuple[str, ...] = ()
    origin: str = "amoro"  # or "pyiceberg"
    site_files: tuple[SiteFile, ...] = ()  # in order of their names
    strict_locations: bool = False  # as settings say; the property of the name says it, too

    def with_rules(self, rules: "CatalogRules") -> "CatalogConfig":
        """The catalog with what settings say about it, beside what it says itself."""
        allowed = tuple(dict.fromkeys((*self.allowed_locations, *rules.allow_locations)))
        return replace(
            self, allowed_locations=allowed, strict_locations=self.strict_locations or rules.strict_locations
        )

    def with_site_files(self) -> "CatalogConfig":
        """The catalog with the properties of its files beneath its own; of two files the later name wins."""
        if not self.site_files:
            return self
        merged: dict[str, str] = {}
        for file in self.site_files:
            merged |= dict(file.properties)
        return replace(self, properties=tuple(sorted({**merged, **dict(self.properties)}.items())))


@dataclass(frozen=True, slots=True)
class CatalogRules:
    """What `amoro.yaml` says about the locations of a catalog's tables, whoever configures the catalog."""

    name: str
    allow_locations: tuple[str, ...] = ()  # prefixes below which files may lie, beside the warehouse
    strict_locations: bool = False  # tables' own locations in object stores count for nothing


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Optimizers and the tables that they work for; the group `default` always exists."""

    name: str
    scheduling_policy: str = "quota"
    properties: tuple[tuple[str, str], ...] = ()
    container: str = "external"  # who starts its optimizers
