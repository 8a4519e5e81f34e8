"""The contract of an action. The engines call these methods, and depend on nothing else that an action does.

An action decides and prepares; it changes no state, sends nothing and deletes nothing. Every method may be called
again: after a conflict, and after a crash of the coordinator.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from amoro_core.errors import AmoroError, IllegalState
from amoro_core.formats.ports import AnyTable, Committable, OpenTable, Role, lacking, with_roles
from amoro_core.logger import get_logger
from amoro_core.model.clustering import AS_CONFIGURED, ClusteredGroup, ClusterOptions
from amoro_core.model.commits import PROCESS_ID, Evidence, SnapshotAdded, StagedCommit
from amoro_core.model.files import DataFile
from amoro_core.model.group_config import Capacity
from amoro_core.model.maintenance import (
    NO_OPTIONS,
    NOTHING_TAKEN,
    Condemned,
    DataCommit,
    DueBatch,
    Options,
    Removal,
    ReservedFiles,
    Surroundings,
    Waiting,
)
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import Evaluation, PartitionKey
from amoro_core.model.processes import Change, Dropped, Figure, OptimizingProcess, ProcessContext, Receipt
from amoro_core.model.properties import parse_into
from amoro_core.model.scan_stats import ColumnChoice, ScanUse
from amoro_core.model.tables import LastOptimized
from amoro_core.model.task_payload import Work

#: The roles of a table's format that optimizing needs.
OPTIMIZING_ROLES = frozenset({Role.READ, Role.REWRITE, Role.COMMIT})


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """The coordinator's knowledge of a table when a plan is made."""

    config: OptimizingConfig
    properties: Mapping[str, str]  # of the table, over the defaults of its catalog
    last: Mapping[PartitionKey, LastOptimized]
    capacity: Capacity  # of the table's group
    now: datetime
    around: Callable[[], Surroundings] = Surroundings  # read when called
    #: The locations of all other known tables, by full name; read when called, which takes long where there are many.
    neighbours: Callable[[], Mapping[str, str]] = dict
    task_limit: timedelta = timedelta(hours=2)  # how long tasks of an ended process may still write
    due_batches: Callable[[], Iterable[DueBatch]] = tuple  # condemned files that may be deleted, in their order
    delete_rate: int = 1000  # files of the catalog that are deleted in a second, at most
    last_commit: DataCommit | None = None  # that added data, as stored; the table's own history takes precedence
    taken: ReservedFiles = NOTHING_TAKEN  # files that are in other plans of the table
    known_groups: Mapping[str, ClusteredGroup] = field(default_factory=dict)  # of files whose rows are ordered, by id
    scans: tuple[ScanUse, ...] = ()  # how the table was read in the last days, from reports
    choice: ColumnChoice | None = None  # the columns that clustering has chosen by it
    commits: int = 0  # of other writers since the last plan, where a property asks for it


@dataclass(frozen=True, slots=True)
class Request:
    """A request; without a name the triggers decide."""

    name: str | None = None  # of the process
    force: bool = False  # what gains nothing, too
    where: str = ""  # a condition that chooses whole partitions
    options: Options = NO_OPTIONS
    cluster: ClusterOptions = AS_CONFIGURED
    undone: ProcessContext | None = None  # the process that is to be taken back
    is_preview: bool = False  # nothing begins
    restorable: Waiting | None = None  # of what that process has condemned; None: something of it is being deleted
    #: Files that other processes have condemned on the table, and whether their deletion has begun.
    condemned_by_others: Mapping[str, bool] = field(default_factory=dict)


class Verdict(Protocol):
    """The verdict of an action on a table."""

    @property
    def reason(self) -> str:
        """Why there is something to do, or nothing."""

    @property
    def due_at(self) -> datetime | None:
        """When there may be something to do without further writes to the table; None: not known."""


@dataclass(frozen=True, slots=True)
class TriggerVerdict:
    """Whether an action is due."""

    is_due: bool
    reason: str
    due_at: datetime | None = None  # when it is evaluated again at the latest; not before the next refresh


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """One task for an optimizer."""

    work: Work
    cost: int  # bytes to be read and opened
    partition: str  # its path, for people
    input_files: int
    input_bytes: int
    input_rows: int = 0  # of data files, deletes not subtracted; 0: not known
    stage: int = 0  # it waits until the process's tasks of lower stages have ended

    @classmethod
    def reading(cls, work: Work, files: Sequence[DataFile], cost: int, partition: str = "") -> "PlannedTask":
        """A task that reads these data files."""
        size, rows = sum(file.size_bytes for file in files), sum(file.record_count for file in files)
        return cls(work, cost, partition, len(files), size, rows)


@dataclass(frozen=True, slots=True)
class Plan:
    """A process to be stored: pinned to a snapshot, with its tasks."""

    name: str
    reason: str
    snapshot_id: int
    sequence_number: int  # of that snapshot
    tasks: tuple[PlannedTask, ...] = ()  # none: the work is done in the coordinator
    detail: str = ""  # what the action needs of the plan later, in its own format
    commits: bool = True  # else the process ends with its tasks
    held: str = ""  # why it needs confirmation: it is stored and waits, unless the request is confirmed
    measures: Mapping[str, int] = field(
        default_factory=dict
    )  # in which a confirmed plan must not exceed the one that was shown
    condemned: tuple[Condemned, ...] = ()  # files that are condemned when the work is done
    keep: timedelta = timedelta()  # how long condemned files stay before they are deleted
    document: Mapping[str, object] = field(default_factory=dict)  # the preview, as values of JSON
    blobs: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # that tasks fetch, by their SHA-256
    data_files: tuple[str, ...] = ()  # that its tasks replace: in no other plan of the table
    ttl: timedelta | None = None  # a plan that is not started is closed after this time
    waits: bool = False  # it is started by command only
    #: 0: one, of all that its tasks make; else groups are committed as they end, in at most this many.
    max_commits: int = 0
    work_s: float = 0.0  # thread seconds that its tasks take at the first rate; 0: not predicted


#: Makes the change of one process for the head of that moment, attempt after attempt; it may remember what files say,
#: which never changes. Of a process that commits group by group: what of its results is in no commit yet, or which
#: groups are dropped when none of these can be committed. Raises CommitConflict when nothing of the process can be
#: committed there (any more), CheckFailed when what was made does not add up, and what reading and staging raise.
Prepare = Callable[[AnyTable, ProcessContext, datetime], Change | Dropped]


class Action(Protocol):
    """A kind of process, or several kinds from which one evaluation of a table chooses."""

    name: str  # under which back-off, reason, last and next run are stored for each table
    lane: str  # of its processes: a table has one at a time in each lane (`LANES`)
    roles: frozenset[Role]  # that it needs; a table whose format lacks one is refused for this action, and for no other

    @property
    def names(self) -> tuple[str, ...]:
        """The types of its processes: stored, shown, a label of metrics. Unique among all actions."""

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[Verdict, Plan | None]:
        """The verdict on the table, and the plan; None: nothing to do. Raises TableRefused, InvalidArgument."""

    def preparing(self) -> Prepare:
        """A function that makes the changes of one process."""

    def optimized(self, case: ProcessContext, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        """The partitions whose times of last optimizing change when these tasks' results are committed."""

    def inputs(self, case: ProcessContext) -> tuple[str, ...]:
        """The files that its tasks read, which must not be removed while it is active."""

    def outputs(self, case: ProcessContext, groups: frozenset[int]) -> tuple[str, ...]:
        """The files that these tasks have written, and those of any task that no commit ever references."""

    def removals(self, case: ProcessContext) -> tuple[str, ...]:
        """The files that it removes at its end, each only if the table no longer references it at that time."""

    def receipt(self, case: ProcessContext) -> Receipt | None:
        """The receipt of a process that commits nothing."""


@runtime_checkable
class Triggered(Action, Protocol):
    """An action that is evaluated at each refresh of a table, and on schedule."""

    def evaluate(self, table: AnyTable, properties: Mapping[str, str], now: datetime) -> TriggerVerdict | None:
        """Whether it is due on the table, and why or why not; None if the table's properties switch it off.

        `properties` are the table's over the defaults of its catalog. Pure and cheap: it reads nothing beyond the
        loaded table. Raises TableRefused("configuration").
        """


@runtime_checkable
class Periodic(Action, Protocol):
    """A scheduled action: it runs at the interval `every` on each table where it is on."""

    every: timedelta  # the default interval between two runs; the setting `NAME.interval` overrides it
    needs_gc: bool  # it is forbidden by `gc.enabled=false`, and by a catalog with branches of its own

    @property
    def switch(self) -> str:
        """The table's property that switches it on and off; "": it has none."""

    def enabled(self, properties: Mapping[str, str]) -> bool:
        """Whether those properties switch it on; its default without its property. Raises TableRefused."""


@runtime_checkable
class Configured(Action, Protocol):
    """An action with properties of its own."""

    configuration: type  # the class whose fields declare them (`model.properties`); changing one ends a pause


@runtime_checkable
class Replacing(Action, Protocol):
    """An action whose tasks replace data files of the head."""

    def data_files(self, given: bytes) -> tuple[str, ...]:
        """The data files that a task with that input reads."""

    def gives_up(self, given: bytes, gone: Set[str]) -> bool:
        """Whether such a task is not worth going on once these of its data files, at least one, are gone."""


@runtime_checkable
class Clustering(Replacing, Protocol):
    """An action whose tasks order the rows of groups of files; its plans are stored before they are started."""

    def clustered_groups(self, case: ProcessContext, groups: tuple[int, ...]) -> tuple[ClusteredGroup, ...]:
        """The groups of files that these tasks have made."""


@runtime_checkable
class Condemning(Action, Protocol):
    """An action whose files to delete are known only once its commit has landed."""

    def condemned(self, table: AnyTable, case: ProcessContext) -> Iterable[Condemned]:
        """The files that the reloaded table no longer needs; called again after a crash or an error."""

    def keep(self, case: ProcessContext) -> timedelta:
        """How long they are kept before they are deleted, as planned."""


@runtime_checkable
class Based(Action, Protocol):
    """An action that needs an earlier state of the table after its commit, and as long as it can be undone."""

    def base(self, case: ProcessContext) -> str:
        """Where the metadata file of that state lies."""


@runtime_checkable
class Mending(Action, Protocol):
    """An action whose commit may remove more than planned, if the catalog can't prevent that."""

    def restore_lost_refs(self, table: AnyTable, case: ProcessContext) -> tuple[str, ...]:
        """Restore what the landed commit removed beyond its plan, before anything is condemned; a phrase for each."""


@runtime_checkable
class Gathering(Action, Protocol):
    """An action whose tasks determine what to do."""

    def gathered(self, table: AnyTable, situation: PlanningContext, case: ProcessContext, options: Options) -> Plan:
        """The plan, without tasks, that follows from the results of all tasks. Raises CheckFailed, TableRefused."""


@runtime_checkable
class Tidying(Action, Protocol):
    """An action that, last of all, removes what lies empty beside a table's files."""

    def tidy(self, table: AnyTable, case: ProcessContext) -> int:
        """Remove it, once the process has succeeded; how many. Raises TableRefused, and what the storage raises."""


@runtime_checkable
class Sweeping(Action, Protocol):
    """An action whose process deletes its table's condemned files that are due; by tasks, if it has any."""

    sweeps: bool  # True

    def batches_of(self, payload: bytes) -> Mapping[int, tuple[str, ...]]:
        """The files that a task deletes, by batch."""

    def narrowed(self, payload: bytes, left: Mapping[int, Sequence[Condemned]]) -> bytes:
        """The same work restricted to these batches, each with these files."""

    def removals_of(self, output: bytes) -> Mapping[str, Removal]:
        """The outcome of each file, as reported by the task."""


@runtime_checkable
class Service(Action, Protocol):
    """An action that the engine of one format does, for tables with the role `service`."""

    format: str  # of these tables; other tables don't have the action


@runtime_checkable
class Interruptible(Action, Protocol):
    """An action that reads for a long time in the coordinator before it has something to commit."""

    def interrupt(self) -> None:
        """End this and any later reading soon, with AttemptAbandoned: the coordinator stops, the next one continues."""

    def preparing_while(self, goes_on: Callable[[], bool]) -> Prepare:
        """Like `preparing`; reading ends soon, with AttemptAbandoned, once `goes_on` returns False."""


@runtime_checkable
class Undoing(Action, Protocol):
    """An action that undoes one process, `Request.undone`, whose commit has landed."""

    undoes: tuple[str, ...]  # types of processes; its `plan` raises CannotUndo when that is not possible


@runtime_checkable
class Restoring(Undoing, Protocol):
    """An action at whose end files condemned by another process are released."""

    def restores(self, case: ProcessContext) -> str:
        """The id of that process. No lane of the two may run beside `storage`, in which files are deleted."""

    def spares(self, case: ProcessContext) -> tuple[str, ...]:
        """Further files that come back although others have condemned them since."""


class Optimizing(Action, Protocol):
    """The action that a table's status reflects; its verdict covers each partition."""

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[Evaluation, Plan | None]: ...


class ActionDefaults:
    """Default methods of an action that plans no tasks."""

    name: str
    configuration: type  # the class that declares its properties, if it has any

    @property
    def names(self) -> tuple[str, ...]:
        """Its own name alone."""
        return (self.name,)

    def planned(self, table: OpenTable, reason: str, detail: object = None, **more: Any) -> tuple[TriggerVerdict, Plan]:
        """The verdict that there is something to do, and its plan, pinned to the table's head.

        `detail`: what is needed of the plan later, as values of JSON; `more`: further fields of the plan.
        """
        facts = table.facts
        stored = "" if detail is None else json.dumps(detail, separators=(",", ":"))
        head = facts.snapshot_id or 0, facts.sequence_number
        return TriggerVerdict(True, reason), Plan(self.name, reason, *head, detail=stored, **more)

    def preparing(self) -> Prepare:
        """A function that makes the change by what the present table says alone."""
        return self.change

    def change(self, table: AnyTable, case: ProcessContext, now: datetime) -> Change:
        """The change of a process for the head of that moment, staged. Raises like `Prepare`."""
        raise IllegalState(f"{self.name} commits nothing")

    def enabled(self, properties: Mapping[str, str]) -> bool:
        """Whether those properties switch it on. Raises TableRefused("configuration")."""
        is_on: bool = parse_into(self.configuration, properties).enabled
        return is_on

    def optimized(self, case: ProcessContext, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        """None: nothing was rewritten."""
        return frozenset()

    def inputs(self, case: ProcessContext) -> tuple[str, ...]:
        """None: no task reads files."""
        return ()

    def gives_up(self, given: bytes, gone: Set[str]) -> bool:
        """Always: nothing of the task can be committed."""
        return True

    def outputs(self, case: ProcessContext, groups: frozenset[int]) -> tuple[str, ...]:
        """None: no task writes files."""
        return ()

    def removals(self, case: ProcessContext) -> tuple[str, ...]:
        """None: removed files still belong to earlier snapshots."""
        return ()

    def receipt(self, case: ProcessContext) -> Receipt | None:
        """None: every process commits."""
        return None


def summary_of(process: OptimizingProcess, producer: str) -> dict[str, str]:
    """The entries of a snapshot's summary about the process that committed it; `producer` is Amoro's word for it."""
    return {"snapshot.producer": producer, PROCESS_ID: process.process_id}


def duration_ms(process: OptimizingProcess, now: datetime) -> int:
    """How long the process has taken so far, without its wait for an optimizer."""
    return round((now - (process.started_at or process.created_at)).total_seconds() * 1000)


def metadata_change(
    case: ProcessContext, payload: bytes, evidence: Evidence, words: str, figures: tuple[Figure, ...], now: datetime
) -> Change:
    """The change of a process that adds no snapshot, with what it did in words and figures."""
    receipt = Receipt.brief(words, case.process.snapshot_id, figures)
    return Change(payload, evidence, replace(receipt, duration_ms=duration_ms(case.process, now)))


def staged_change(
    case: ProcessContext, staged: StagedCommit, words: str, figures: tuple[Figure, ...], now: datetime
) -> Change:
    """The change of a process that adds a snapshot without new files, with what it did in words and figures."""
    evidence = SnapshotAdded(staged.snapshot_id, staged.parent_snapshot_id, staged.sequence_number)
    change = metadata_change(case, staged.payload, evidence, words, figures, now)
    receipt = replace(change.receipt, snapshot_id=staged.snapshot_id, base_snapshot_id=staged.parent_snapshot_id)
    return replace(change, receipt=receipt, metadata_files=staged.metadata_files)


log = get_logger("amoro.committing")


def remove_fallen(case: ProcessContext, table: Committable, kept: Callable[[], frozenset[str]]) -> None:
    """Delete metadata files that the commit removed from the table's log, except those in `kept`."""
    if lacking(table, (Role.EXPIRE,), case.process.type) is not None:
        return
    try:
        removed = with_roles(table, (Role.EXPIRE,), case.process.type).remove_fallen(kept)
    except AmoroError as error:
        log.warning("metadata.left_over", table=str(case.runtime.identifier), why=error.message)  # an orphan
        return
    if removed:
        log.info("metadata.removed", table=str(case.runtime.identifier), files=len(removed))
