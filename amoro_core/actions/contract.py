"""What an action is. The engines ask it these questions, and nothing else of them depends on what it does.

An action decides and prepares; it changes no state, sends nothing and deletes nothing. Whatever it is asked, it may be
asked again: after a conflict, and after a death of the coordinator.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from amoro_core.formats.port import AnyTable, Role
from amoro_core.model.actions import Case, Change
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.groups import Capacity
from amoro_core.model.maintenance import NO_OPTIONS, Condemned, Options, Surroundings, Waiting
from amoro_core.model.plans import Evaluation, PartitionKey
from amoro_core.model.processes import Receipt
from amoro_core.model.tables import LastOptimized
from amoro_core.model.times import DataCommit
from amoro_core.model.work import Work

#: What optimizing needs of a table's format.
OPTIMIZING_ROLES = frozenset({Role.READ, Role.REWRITE, Role.COMMIT})


@dataclass(frozen=True, slots=True)
class Situation:
    """What the coordinator knows of a table for which a plan is made."""

    config: OptimizingConfig
    properties: Mapping[str, str]  # of the table, over the defaults of its catalog
    last: Mapping[PartitionKey, LastOptimized]
    capacity: Capacity  # of the table's group
    now: datetime
    around: Callable[[], Surroundings] = Surroundings  # read when it is asked for
    task_limit: timedelta = timedelta(hours=2)  # after which no task of an ended process writes any more
    last_commit: DataCommit | None = None  # that brought data, as it was kept; what the table itself says goes before


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asked for; without a name the triggers decide."""

    name: str | None = None  # of the process
    force: bool = False  # what gains nothing, too
    where: str = ""  # a condition that chooses whole partitions
    options: Options = NO_OPTIONS
    undone: Case | None = None  # the process that is to be taken back
    restorable: Waiting | None = None  # of what that process has condemned; None: something of it is being deleted


class Verdict(Protocol):
    """What an action says of a table."""

    @property
    def reason(self) -> str:
        """Why there is something to do, or nothing."""

    @property
    def due_at(self) -> datetime | None:
        """When there may be something to do though nobody writes to the table; None: no such time is known."""


@dataclass(frozen=True, slots=True)
class TriggerVerdict:
    """Whether an action is due."""

    is_due: bool
    reason: str
    due_at: datetime | None = None  # when it is evaluated again in any case; not before the next refresh


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """One task, to be done by an optimizer."""

    work: Work
    cost: int  # bytes to be read and opened
    partition: str  # its path, for people
    input_files: int
    input_bytes: int
    input_rows: int = 0  # of data files, deletes not subtracted; 0: not known


@dataclass(frozen=True, slots=True)
class Plan:
    """A process as it is to be stored: pinned to a snapshot, with its tasks."""

    name: str
    reason: str
    snapshot_id: int
    sequence_number: int  # of that snapshot
    tasks: tuple[PlannedTask, ...]  # none: what is to be done is done in the coordinator
    detail: str = ""  # what the action has to know of the plan again, in words of its own
    commits: bool = True  # else the process ends with its tasks
    held: str = ""  # why a person has to see it first: it is stored and waits, unless the request is confirmed
    measures: Mapping[str, int] = field(
        default_factory=dict
    )  # by which a confirmed plan may not exceed the one that was seen
    condemned: tuple[Condemned, ...] = ()  # files that are condemned when the work is done
    keep: timedelta = timedelta()  # how long condemned files stay before they are deleted
    document: Mapping[str, object] = field(default_factory=dict)  # the preview, as values of JSON


#: Makes the change of one process for the head of that moment, attempt after attempt; it may remember what files say,
#: which never changes. Raises CommitConflict when nothing of it can be committed there, CheckFailed when what was
#: made does not add up, and what reading and staging raise.
Prepare = Callable[[AnyTable, Case, datetime], Change]


class Action(Protocol):
    """A kind of process, or several that one look at a table chooses from."""

    @property
    def name(self) -> str:
        """What it is called where back-off, reason, last and next time are kept, for each table."""

    @property
    def names(self) -> tuple[str, ...]:
        """What its processes are called: stored, shown, a label of metrics. No other action has one of them."""

    @property
    def lane(self) -> str:
        """Where its processes run: of each lane a table has one at a time (`state.lanes`)."""

    @property
    def roles(self) -> frozenset[Role]:
        """What it needs of a table's format; a table that lacks any is refused for this action, and for no other."""

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[Verdict, Plan | None]:
        """The verdict on the table with its reason, and what is to be done; None: nothing.

        Raises TableRefused, InvalidArgument for a request that can't be, and what reading the table raises.
        """

    def preparing(self) -> Prepare:
        """What makes the changes of one process."""

    def optimized(self, case: Case, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        """The partitions whose last times move when these tasks' results are committed."""

    def inputs(self, case: Case) -> tuple[str, ...]:
        """The files that its tasks read: nobody may remove them while it is active."""

    def outputs(self, case: Case, groups: frozenset[int]) -> tuple[str, ...]:
        """The files that these tasks have written: left over unless a commit names them."""

    def removals(self, case: Case) -> tuple[str, ...]:
        """The files that the process removes once its work is done and, where it commits, the commit has landed.

        Each is removed only when the table, as it is then, names it no more.
        """

    def receipt(self, case: Case) -> Receipt | None:
        """What a process has done that commits nothing."""


@runtime_checkable
class Triggered(Action, Protocol):
    """An action that is due by itself: evaluated at each refresh of a table, and by the clock."""

    def evaluate(self, table: AnyTable, properties: Mapping[str, str], now: datetime) -> TriggerVerdict | None:
        """Whether it is due on the table, and why or why not; None where the table's properties switch it off.

        `properties` are the table's over the defaults of its catalog. Pure, and cheap: it reads nothing but what
        loading the table has read. Raises TableRefused("configuration").
        """


@runtime_checkable
class Periodic(Action, Protocol):
    """An action that the clock begins: `every` so often on each table where it is on."""

    @property
    def every(self) -> timedelta:
        """The pause between two runs, unless the setting `NAME.interval` says otherwise."""

    @property
    def switch(self) -> str:
        """The table's property that switches it on and off; "": it has none."""

    @property
    def needs_gc(self) -> bool:
        """Whether `gc.enabled=false` forbids it, and a catalog with branches of its own."""

    def enabled(self, properties: Mapping[str, str]) -> bool:
        """Whether those properties switch it on; without its property its default. Raises TableRefused."""


@runtime_checkable
class Condemning(Action, Protocol):
    """An action whose files to be deleted are known only once its commit has landed."""

    def condemned(self, table: AnyTable, case: Case) -> Iterable[Condemned]:
        """The files that nothing of the table, loaded anew, needs any more. Asked again after a death.

        Raises what reading the table raises; nothing is condemned then, and it is tried again.
        """

    def keep(self, case: Case) -> timedelta:
        """How long they stay before they are deleted, as the plan said."""


@runtime_checkable
class Mending(Action, Protocol):
    """An action whose commit may take more along than it was to, where a catalog offers nothing against it."""

    def mend(self, table: AnyTable, case: Case) -> tuple[str, ...]:
        """Put back what the commit that landed has taken beyond; each in words, also what was back already.

        Asked before anything is condemned, and again after a death. Raises what reading the table and sending raise.
        """


@runtime_checkable
class Sweeping(Action, Protocol):
    """An action whose process deletes what was condemned on its table and is due."""

    @property
    def sweeps(self) -> bool:
        """True."""


@runtime_checkable
class Interruptible(Action, Protocol):
    """An action that reads for long, in the coordinator, before it has something to commit."""

    def interrupt(self) -> None:
        """End it soon, with AttemptAbandoned, as all that is begun later: the coordinator stops, the next goes on."""


@runtime_checkable
class Undoing(Action, Protocol):
    """An action that takes back what one process did: `Request.undone`, of which a commit has landed."""

    @property
    def undoes(self) -> tuple[str, ...]:
        """The names of the processes that it takes back. Its `plan` raises CannotUndo where that can't be right."""


@runtime_checkable
class Restoring(Undoing, Protocol):
    """An action after whose end the files are condemned no more that another process has condemned."""

    def restores(self, case: Case) -> str:
        """The id of that process. No lane of the two may run beside `storage`, in which files are deleted."""


class Optimizing(Action, Protocol):
    """The action that the status of a table is about."""

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[Evaluation, Plan | None]:
        """As of any action; the verdict tells of each partition."""
