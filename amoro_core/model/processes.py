"""Processes, their lanes, tasks and attempts, and the context of a process."""

import json
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from amoro_core.errors import InvalidArgument
from amoro_core.model.clustering import CLUSTER, EncodedFiles
from amoro_core.model.commits import (
    ROLLBACK_MARKS,
    Evidence,
    RefAt,
    SnapshotAdded,
    SnapshotsRemoved,
    SortOrderAdded,
    StatisticsNamed,
    StatisticsRemoved,
)
from amoro_core.model.optimizing_config import Policies, values_for, with_policies
from amoro_core.model.tables import OptimizingType, TableIdentifier, TableRuntime
from amoro_core.model.task_payload import REWRITE, Work

#: Lanes, by what their processes change; the store has a row for each.
FILES = "files"  # data and delete files, by commits that replace some
METADATA = "metadata"  # snapshots and references, by commits that add no file
STORAGE = "storage"  # files that no snapshot names
STATISTICS = "statistics"  # statistics of snapshots; reading for them takes hours
LAYOUT = "layout"  # data files, by commits that order their rows anew; beside `files`, on other files
LANES = (FILES, METADATA, STORAGE, STATISTICS, LAYOUT)


class TaskStatus(StrEnum):
    """The status of a task; the values are stored and sent."""

    PLANNED = "planned"
    SCHEDULED = "scheduled"
    ACKED = "acked"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"


class ProcessStatus(StrEnum):
    """The status of a process; stored and shown. The store has a row for each, and may have rows for others."""

    REQUESTED = "requested"  # planned and stored, not started; it pins its files and holds no lane
    RUNNING = "running"
    COMMITTING = "committing"
    COMMIT_UNKNOWN = "commit_unknown"
    CLEARING = "clearing"  # files that it must remove after its work are being removed
    HELD = "held"  # a guard has stopped it until a person says go; meanwhile it holds no lane
    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"
    CLOSED = "closed"


#: The statuses of a process that has not ended. Unless it waits (`IN_NO_LANE`), it occupies its lane, also with an
#: unknown commit.
ACTIVE_PROCESS_STATUSES = (
    ProcessStatus.REQUESTED,
    ProcessStatus.RUNNING,
    ProcessStatus.COMMITTING,
    ProcessStatus.COMMIT_UNKNOWN,
    ProcessStatus.CLEARING,
    ProcessStatus.HELD,
)

#: In these a process waits for a request or for its time, and occupies no lane.
IN_NO_LANE = (ProcessStatus.HELD, ProcessStatus.REQUESTED)

#: The action behind minor, major and full: the one that a table's status reflects.
OPTIMIZING_ACTION = "optimizing"


class TaskId(NamedTuple):
    """A task of a process."""

    process_id: str  # UUIDv7
    number: int  # 1..n within the process

    def __str__(self) -> str:
        return f"{self.process_id}-{self.number}"


class Attempt(NamedTuple):
    """One scheduling of a task; the number fences everything an optimizer reports."""

    task_id: TaskId
    number: int  # from 1

    def __str__(self) -> str:
        return f"{self.task_id}-{self.number}"


class OptimizerThread(NamedTuple):
    """A thread of a registered optimizer."""

    optimizer_id: str
    thread_id: int


class OptimizingTask(NamedTuple):
    """The life of one task. `thread` is set exactly while it is scheduled or acked, `ended_on` only afterwards."""

    task_id: TaskId
    table_id: int
    group: str
    status: TaskStatus
    attempt: int = 0  # grows each time the task is scheduled
    thread: OptimizerThread | None = None
    failed_runs: int = 0
    lost_attempts: int = 0  # resets because the optimizer vanished or went silent
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
    stage: int = 0  # it waits until the process's tasks of lower stages have ended


@dataclass(frozen=True, slots=True)
class Delay:
    """Why a commit could not proceed, and when it is retried."""

    code: str
    reason: str
    retry_at: datetime
    tries: int = 1  # in a row, since the last progress
    refusals: int = 0  # how many of the latest tries, in a row, were refused permanently


@dataclass(frozen=True, slots=True)
class OptimizingProcess:
    """One round of an action on one table, pinned to the snapshot it was planned on."""

    process_id: str  # UUIDv7
    table_id: int
    type: str  # its name: minor, major, full, or that of another action's process
    status: str  # a ProcessStatus, or another one that the store has a row for
    trigger: str  # "evaluation" or "request"
    reason: str
    table_uuid: str
    format_version: int
    snapshot_id: int
    sequence_number: int  # S, of that snapshot
    schema_id: int
    last_column_id: int  # of the table when planned
    created_at: datetime
    started_at: datetime | None = None  # when an optimizer began its first task
    finished_at: datetime | None = None
    failure_code: str = ""
    failure: str = ""
    max_retries: int = 5
    allow_partial_commit: bool = False
    commit_tries: int = 0
    receipt: "Receipt | None" = None
    where: str = ""  # the condition that limits it to some partitions
    delay: Delay | None = None  # only while it is committing, unknown or clearing
    action: str = OPTIMIZING_ACTION
    lane: str = FILES
    detail: str = ""  # what the action keeps of its plan, in its own format
    commits: bool = True  # else it ends when its tasks have ended
    left_over: bool = False  # it has ended, and the files it wrote without a commit must still be removed
    due_at: datetime | None = None  # since when its table waited for it; None: it was requested
    value: float = 0.0  # files saved × scans a day ÷ predicted thread seconds; 0: not known
    predicted_ms: int = 0  # thread time of all its tasks; 0: not predicted
    measured_ms: int = 0  # the same of attempts that succeeded; 0: not every task has succeeded

    #: 0: one commit, of all that its tasks made; else groups are committed as they end, in at most this many commits.
    max_commits: int = 0

    @property
    def is_active(self) -> bool:
        """Whether the process has not ended; unless it waits, it then occupies its lane of the table."""
        return self.finished_at is None

    @property
    def is_optimizing(self) -> bool:
        """Whether the table's status reflects it."""
        return self.action == OPTIMIZING_ACTION

    @property
    def waiting(self) -> str:
        """What the commit waits for, as a phrase; "" when it does not wait."""
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
    unit: str  # "files", "rows", "bytes", ...; "" for a plain count


@dataclass(frozen=True, slots=True)
class Equation:
    """Two figures of a receipt, by name, that must be equal."""

    left: str
    right: str


#: Figures of a receipt that every process may have, in display order, each with its unit.
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
    """The effects of a process on the table; files, bytes and rows are those of the process."""

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
    words: str = ""  # what was done, when no files were replaced by a snapshot
    encoded: tuple[EncodedFiles, ...] = ()  # why files were encoded where row groups may be copied
    carried: tuple[str, ...] = ()  # deletes of others that hide rows of the outputs: how many, in which file, whose
    more: tuple[Figure, ...] = ()  # figures of the action's own
    equal: tuple[Equation, ...] = ()  # of the action's own

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure: those of files and rows if files were replaced, and the action's own."""
        if self.words:
            return self.more
        return (*(Figure(name, getattr(self, name), unit) for name, unit in _UNITS.items()), *self.more)

    @property
    def equations(self) -> tuple[Equation, ...]:
        """The required equations: of rows if files were replaced, and the action's own."""
        return self.equal if self.words else (Equation("rows_before", "rows_after"), *self.equal)

    @property
    def unequal(self) -> tuple[Equation, ...]:
        """The equations that do not hold."""
        values = {figure.name: figure.value for figure in self.figures}
        return tuple(equation for equation in self.equations if values[equation.left] != values[equation.right])

    @classmethod
    def brief(
        cls, words: str, snapshot_id: int = 0, more: tuple[Figure, ...] = (), equal: tuple[Equation, ...] = ()
    ) -> "Receipt":
        """The receipt of a process that replaces no files: what was done, the snapshot, and its own figures."""
        return cls(0, 0, 0, 0, 0, 0, 0, 0, 0, snapshot_id, snapshot_id, 0, words=words, more=more, equal=equal)


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """One attempt to send a commit, stored before it is sent; only its outcome ever changes."""

    process_id: str
    number: int
    evidence: Evidence  # how the table shows that it landed
    payload: bytes  # requirements and updates as sent, to be resent byte for byte
    groups: tuple[int, ...]  # task numbers whose results it holds
    files: tuple[str, ...]  # data and delete files it adds
    metadata_files: tuple[str, ...]  # manifests and manifest list written for it
    outcome: "CommitOutcome"
    created_at: datetime
    receipt: Receipt
    part: int = 1  # which of the commits of its process it is for; each is done once at most

    @property
    def is_open(self) -> bool:
        """Whether its outcome is unknown; one that is stored but not sent counts too."""
        return self.outcome in (CommitOutcome.SENT, CommitOutcome.UNKNOWN)

    @property
    def may_come_back(self) -> bool:
        """Whether it was refuted but could still land, if it is still in transit and main returns to its parent.

        Only without sequence numbers, in format 1, and where Polaris may set these back with snapshots that it rolls
        back: otherwise catalogs refuse a snapshot that is not the newest.
        """
        if self.outcome is not CommitOutcome.REFUTED or not isinstance(self.evidence, SnapshotAdded):
            return False
        return not self.evidence.sequence_number or any(key.encode() in self.payload for key in ROLLBACK_MARKS)

    @property
    def words(self) -> str:
        """What it commits, as a phrase that follows "committed"."""
        match self.evidence:
            case SnapshotAdded(snapshot_id):
                return f"snapshot {snapshot_id}"
            case SnapshotsRemoved(snapshot_ids):
                return f"the removal of {len(snapshot_ids)} snapshots"
            case RefAt(name, snapshot_id):
                return f"{name} on snapshot {snapshot_id}"
            case StatisticsNamed(snapshot_id):
                return f"statistics of snapshot {snapshot_id}"
            case SortOrderAdded():
                return "a sort order"
            case StatisticsRemoved(snapshot_id):
                return f"the removal of statistics of snapshot {snapshot_id}"

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that it adds; None for a change that adds none."""
        return self.evidence.snapshot_id if isinstance(self.evidence, SnapshotAdded) else None


class CommitOutcome(StrEnum):
    """The outcome of one commit attempt."""

    SENT = "sent"  # no answer yet; counts as unknown after a restart
    DONE = "done"
    CONFLICT = "conflict"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    REFUTED = "refuted"  # was unknown; can no longer land


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
    draining: bool = False  # it must take no more tasks, finish its own, and leave
    kinds: tuple[str, ...] = (REWRITE,)  # of work that it can execute
    max_cluster_bytes: int = 0  # the largest group of files that it puts in order; 0: none


@dataclass(frozen=True, slots=True)
class SiteFile:
    """A configuration file uploaded for a catalog, and the properties derived from it."""

    name: str
    content: str
    properties: tuple[tuple[str, str], ...]


#: The type of catalogs that the coordinator itself serves.
INTERNAL = "internal"
#: The file of all such catalogs, in the state directory.
INTERNAL_FILE = "catalogs.db"


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """A catalog that was added, or that pyiceberg's own configuration names."""

    name: str
    properties: tuple[tuple[str, str], ...] = field(repr=False)  # secrets among them
    allowed_locations: tuple[str, ...] = ()
    origin: str = "amoro"  # or "pyiceberg"
    site_files: tuple[SiteFile, ...] = ()  # in order of their names
    strict_locations: bool = False  # from settings; the property of that name sets it too
    policies: Policies = ()  # that hold, of all catalogs

    def defaults_for(self, table: TableIdentifier) -> dict[str, str]:
        """Its properties, with what policies say as defaults for the table (`table.KEY`) over its own."""
        return with_policies(dict(self.properties), values_for(self.policies, table))

    @property
    def is_internal(self) -> bool:
        """Whether it is one of our own, whose tables are served over Iceberg REST."""
        return dict(self.properties).get("type", "").lower() == INTERNAL

    def with_rules(self, rules: "CatalogRules") -> "CatalogConfig":
        """The catalog with the rules that settings have for it added to its own."""
        allowed = tuple(dict.fromkeys((*self.allowed_locations, *rules.allow_locations)))
        return replace(
            self, allowed_locations=allowed, strict_locations=self.strict_locations or rules.strict_locations
        )

    def with_site_files(self) -> "CatalogConfig":
        """The catalog with its files' properties as defaults of its own; of two files the later name wins."""
        if not self.site_files:
            return self
        merged: dict[str, str] = {}
        for file in self.site_files:
            merged |= dict(file.properties)
        return replace(self, properties=tuple(sorted({**merged, **dict(self.properties)}.items())))


@dataclass(frozen=True, slots=True)
class CatalogRules:
    """The rules of `amoro.yaml` for the locations of a catalog's tables, wherever the catalog is configured."""

    name: str
    allow_locations: tuple[str, ...] = ()  # prefixes below which files may lie, beside the warehouse
    strict_locations: bool = False  # tables' own locations in object stores are not granted


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """A group of optimizers and the tables they work for; the group `default` always exists."""

    name: str
    scheduling_policy: str = "quota"
    properties: tuple[tuple[str, str], ...] = ()
    container: str = "external"  # what starts its optimizers


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A task that has succeeded: its number, the kind of its work, and the kind's own messages."""

    number: int
    kind: str
    input: bytes = field(repr=False)
    output: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """A process with everything stored about it."""

    process: OptimizingProcess
    runtime: TableRuntime
    results: tuple[TaskResult, ...]  # of the tasks that have succeeded, by number
    attempts: tuple[CommitAttempt, ...]  # in the order in which they were sent
    tasks: int  # all that were planned
    open_work: tuple[Work, ...] = ()  # of the tasks that have not succeeded (yet)
    undone_by: str = ""  # the process that took it back
    dropped: frozenset[int] = frozenset()  # tasks that were given up: what they have made is committed no more

    @property
    def detail(self) -> dict[str, Any]:
        """The detail of its plan, of an action that stores values of JSON."""
        return dict(json.loads(self.process.detail))


@dataclass(frozen=True, slots=True)
class Dropped:
    """Groups that can't be committed any more, with the reasons; nothing else of the process is ready."""

    groups: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Change:
    """A staged change for one head: its files are written, but it is not visible to readers yet."""

    payload: bytes = field(repr=False)  # requirements and updates, to be sent any number of times byte for byte
    evidence: Evidence  # what the table shows once it landed
    receipt: Receipt  # valid if it lands
    groups: tuple[int, ...] = ()  # the tasks whose results it holds, by number
    files: tuple[str, ...] = ()  # data and delete files that it adds
    metadata_files: tuple[str, ...] = ()  # every file that was written for it
    dropped: Mapping[int, str] = field(default_factory=dict)  # tasks whose results it lacks, with the reason


#: For each undo action, the types of the processes that it undoes.
UNDOES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "undo-optimizing": (*(kind.value for kind in OptimizingType), CLUSTER),
        "undo-expire-data": ("expire-data",),
        "undo-expire-snapshots": ("expire-snapshots",),
        "undo-clean-orphan-files": ("clean-orphan-files",),
        "undo-auto-create-tags": ("auto-create-tags", "undo-expire-snapshots"),  # both made tags
        "undo-compute-statistics": ("compute-statistics",),
    }
)
#: All types of processes that can be undone; any other changes no row, or is an undo of files.
UNDOABLE = frozenset(name for names in UNDOES.values() for name in names)


SHORTEST_ID = 6  # characters of the beginning or the end of an id
Named = TypeVar("Named")


def pick(text: str, items: Iterable[Named], noun: str, ids_of: Callable[[Named], Sequence[str]]) -> Named | None:
    """The one item with an id that is the text, or begins or ends with it; None without any.

    Raises InvalidArgument for a text that is too short, or is that of several, which it names.
    """
    if len(text) < SHORTEST_ID:
        raise InvalidArgument(f"{text!r} is too short for {noun}", hint=f"Give {SHORTEST_ID} characters or more.")
    matches = [item for item in items if any(id_.startswith(text) or id_.endswith(text) for id_ in ids_of(item))]
    matches = [item for item in matches if text in ids_of(item)] or matches
    if len(matches) > 1:
        ids = ", ".join(sorted(ids_of(item)[0] for item in matches)[:10])
        raise InvalidArgument(
            f"more than one {noun.split()[-1]} has an id that begins or ends with {text!r}: {ids}",
            hint="Give more characters, or the last eight.",
        )
    return matches[0] if matches else None


def uuid7(now: datetime) -> str:
    """A UUID version 7 (RFC 9562, section 5.7) for that time."""
    milliseconds = int(now.timestamp() * 1000) & ((1 << 48) - 1)
    value = (milliseconds << 80) | secrets.randbits(80)
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return str(uuid.UUID(int=value))


def uuid7_ms(text: str) -> int | None:
    """UTC milliseconds of the time for which the id was made; None for what is no UUID version 7 in full."""
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        return None
    return parsed.int >> 80 if parsed.version == 7 and str(parsed) == text else None
