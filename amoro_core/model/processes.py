"""Optimizing processes, their tasks, and commit attempts."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from amoro_core.model.tables import OptimizingType


class TaskStatus(StrEnum):
    PLANNED = "planned"
    SCHEDULED = "scheduled"
    ACKED = "acked"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"


class ProcessStatus(StrEnum):
    RUNNING = "running"
    COMMITTING = "committing"
    COMMIT_UNKNOWN = "commit_unknown"
    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"
    CLOSED = "closed"

    @property
    def is_active(self) -> bool:
        """Whether the table is still held by the process; an unknown commit counts as active."""
        return self in ACTIVE_PROCESS_STATUSES


ACTIVE_PROCESS_STATUSES = (ProcessStatus.RUNNING, ProcessStatus.COMMITTING, ProcessStatus.COMMIT_UNKNOWN)


@dataclass(frozen=True, slots=True)
class TaskId:
    process_id: str  # UUIDv7
    number: int  # 1..n within the process

    def __str__(self) -> str:
        return f"{self.process_id}-{self.number}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One hand-out of a task; the number fences everything an optimizer reports."""

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
    """The life of one task. `thread` is set exactly while the task is scheduled or acked."""

    task_id: TaskId
    table_id: int
    group: str
    status: TaskStatus
    attempt: int = 0  # grows with each hand-out
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


@dataclass(frozen=True, slots=True)
class OptimizingProcess:
    """One optimizing round of one table, pinned to the snapshot it was planned on."""

    process_id: str  # UUIDv7
    table_id: int
    type: OptimizingType
    status: ProcessStatus
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


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a commit did to the table; files, bytes and rows are those of the process."""

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


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """One sending of a commit, written down before it is sent and never changed but for its outcome."""

    process_id: str
    number: int
    snapshot_id: int
    parent_snapshot_id: int
    sequence_number: int  # of the new snapshot
    manifest_list: str
    payload: bytes  # what was sent, to be sent again byte for byte
    groups: tuple[int, ...]  # task numbers whose results it holds
    files: tuple[str, ...]  # data and delete files it adds
    metadata_files: tuple[str, ...]  # manifests and manifest list written for it
    outcome: "CommitOutcome"
    created_at: datetime
    receipt: Receipt


class CommitOutcome(StrEnum):
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

    def with_site_files(self) -> "CatalogConfig":
        """The catalog with the properties of its files beneath its own; of two files the later name wins."""
        if not self.site_files:
            return self
        merged: dict[str, str] = {}
        for file in self.site_files:
            merged |= dict(file.properties)
        return replace(self, properties=tuple(sorted({**merged, **dict(self.properties)}.items())))


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Optimizers and the tables that they work for; the group `default` always exists."""

    name: str
    scheduling_policy: str = "quota"
    properties: tuple[tuple[str, str], ...] = ()
    container: str = "external"  # who starts its optimizers
