"""The state machine of processes, and what follows for a process from the states of its tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from amoro_core.errors import ConfirmationRequired, IllegalState
from amoro_core.model.processes import Delay, OptimizingProcess, ProcessStatus, Receipt
from amoro_core.state.backoff import pause


@dataclass(frozen=True, slots=True)
class _Event:
    """An event that says nothing more."""


@dataclass(frozen=True, slots=True)
class _Receipted:
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class _Failure:
    code: str
    message: str


class BeginCommit(_Event):
    """No task is open any more, and there is something to commit."""


class CommitSent(_Event):
    """A commit attempt is stored and about to be sent, for the first time or again."""


class Committed(_Receipted):
    """The table has the whole result."""


class CommittedPartly(_Receipted):
    """The table has the result without some groups (failed, cancelled or in conflict)."""


@dataclass(frozen=True, slots=True)
class BeginClearing:
    """The work is done, with its receipt; the files to remove are stored."""

    receipt: Receipt | None


@dataclass(frozen=True, slots=True)
class Cleared:
    """Nothing is left to remove; or there was nothing, and nothing to commit either."""

    receipt: Receipt | None = None  # None: its present one


class ClearedPartly(_Failure):
    """The work is done, but some files could not be removed and are given up."""


@dataclass(frozen=True, slots=True)
class CommitDelayed:
    """Nothing could be sent, traced or removed; it is retried. `refused`: access was denied, and may be again."""

    code: str
    reason: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class CommitUnclear:
    """An attempt was sent, and it is unknown whether it was or will be applied."""

    message: str


class CommitRefuted(_Event):
    """The table shows that no attempt was or ever can be applied; the commit is made again or fails."""


class TableMissing(_Failure):
    """The catalog says that the table does not exist: the outcome of a sent attempt will never be known.

    Nor can it do harm any more. No file of it is removed: it may be live under a name that is unknown here.
    """


class ProcessFailed(_Failure):
    """Nothing was committed and nothing will be."""


@dataclass(frozen=True, slots=True)
class ProcessClosed:
    """The process was cancelled before anything was sent; `code` is that of an error unless it was requested."""

    reason: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """A breaker or the guard has stopped the process: a person must check it."""

    reason: str


class Started(_Event):
    """A stored plan starts, by command or because its time has come."""


class CommittedSome(_Event):
    """The table has the results of some groups; the others follow, or are still being worked on."""


class GroupsDropped(_Event):
    """None of the groups that were to be committed together can be; the others go on."""


@dataclass(frozen=True, slots=True)
class EndedPartly:
    """Some groups were committed, and no more will be; why, with the receipt of all commits."""

    receipt: Receipt
    code: str = ""
    reason: str = ""


class Confirmed(_Event):
    """A person confirmed it; the process was planned again."""


ProcessEvent = (
    BeginClearing
    | Cleared
    | ClearedPartly
    | BeginCommit
    | CommitSent
    | Committed
    | CommittedPartly
    | CommitDelayed
    | CommitUnclear
    | CommitRefuted
    | TableMissing
    | ProcessFailed
    | ProcessClosed
    | Hold
    | Confirmed
    | Started
    | CommittedSome
    | GroupsDropped
    | EndedPartly
)

#: Permissions that were just granted take a moment to take effect everywhere.
MAX_REFUSALS = 3
#: Tries in a row, about a minute apart, from which on a commit counts as delayed.
_DELAYED = 10

#: An unknown commit ends by what the table shows, or when the table is gone: before, it can't fail or be closed.
#: A clearing process has done its work: it can't fail, and only be closed if nothing was committed (`state.leases`).
TRANSITIONS: Mapping[tuple[str, type], str] = MappingProxyType(
    {
        (ProcessStatus.REQUESTED, Started): ProcessStatus.RUNNING,
        (ProcessStatus.REQUESTED, ProcessClosed): ProcessStatus.CLOSED,
        (ProcessStatus.RUNNING, BeginCommit): ProcessStatus.COMMITTING,
        (ProcessStatus.RUNNING, ProcessFailed): ProcessStatus.FAILED,
        (ProcessStatus.RUNNING, ProcessClosed): ProcessStatus.CLOSED,
        (ProcessStatus.RUNNING, BeginClearing): ProcessStatus.CLEARING,
        (ProcessStatus.RUNNING, Cleared): ProcessStatus.SUCCESS,
        (ProcessStatus.RUNNING, CommitDelayed): ProcessStatus.RUNNING,
        (ProcessStatus.RUNNING, Committed): ProcessStatus.SUCCESS,
        (ProcessStatus.RUNNING, EndedPartly): ProcessStatus.PARTIAL,
        (ProcessStatus.COMMITTING, CommitSent): ProcessStatus.COMMITTING,
        (ProcessStatus.COMMITTING, Committed): ProcessStatus.SUCCESS,
        (ProcessStatus.COMMITTING, CommittedPartly): ProcessStatus.PARTIAL,
        (ProcessStatus.COMMITTING, CommitDelayed): ProcessStatus.COMMITTING,
        (ProcessStatus.COMMITTING, CommitUnclear): ProcessStatus.COMMIT_UNKNOWN,
        (ProcessStatus.COMMITTING, ProcessFailed): ProcessStatus.FAILED,
        (ProcessStatus.COMMITTING, ProcessClosed): ProcessStatus.CLOSED,
        (ProcessStatus.COMMITTING, TableMissing): ProcessStatus.FAILED,
        (ProcessStatus.COMMITTING, BeginClearing): ProcessStatus.CLEARING,
        (ProcessStatus.COMMITTING, CommittedSome): ProcessStatus.RUNNING,
        (ProcessStatus.COMMITTING, GroupsDropped): ProcessStatus.RUNNING,
        (ProcessStatus.COMMITTING, EndedPartly): ProcessStatus.PARTIAL,
        (ProcessStatus.COMMIT_UNKNOWN, CommitSent): ProcessStatus.COMMIT_UNKNOWN,
        (ProcessStatus.COMMIT_UNKNOWN, Committed): ProcessStatus.SUCCESS,
        (ProcessStatus.COMMIT_UNKNOWN, CommittedPartly): ProcessStatus.PARTIAL,
        (ProcessStatus.COMMIT_UNKNOWN, CommitDelayed): ProcessStatus.COMMIT_UNKNOWN,
        (ProcessStatus.COMMIT_UNKNOWN, CommitRefuted): ProcessStatus.COMMITTING,
        (ProcessStatus.COMMIT_UNKNOWN, TableMissing): ProcessStatus.FAILED,
        (ProcessStatus.COMMIT_UNKNOWN, BeginClearing): ProcessStatus.CLEARING,
        (ProcessStatus.COMMIT_UNKNOWN, CommittedSome): ProcessStatus.RUNNING,
        (ProcessStatus.CLEARING, CommitDelayed): ProcessStatus.CLEARING,
        (ProcessStatus.CLEARING, Cleared): ProcessStatus.SUCCESS,
        (ProcessStatus.CLEARING, ClearedPartly): ProcessStatus.PARTIAL,
        (ProcessStatus.CLEARING, ProcessClosed): ProcessStatus.CLOSED,
        (ProcessStatus.CLEARING, Hold): ProcessStatus.HELD,
        (ProcessStatus.RUNNING, Hold): ProcessStatus.HELD,
        (ProcessStatus.HELD, Confirmed): ProcessStatus.RUNNING,
        (ProcessStatus.HELD, ProcessClosed): ProcessStatus.CLOSED,
    }
)


def advance(  # noqa: C901, PLR0912 - one case an event
    process: OptimizingProcess, event: ProcessEvent, now: datetime
) -> OptimizingProcess:
    """The process after the event. Raises IllegalState for an edge that is not in the table."""
    status = TRANSITIONS.get((process.status, type(event)))
    if status is None:
        raise IllegalState(f"process {process.process_id} is {process.status}: {type(event).__name__} is not possible")
    moved = replace(process, status=status)
    match event:
        case BeginCommit() | CommitRefuted() | CommittedSome() | GroupsDropped():
            return replace(moved, failure_code="", failure="", delay=None)
        case CommitSent():
            return replace(moved, commit_tries=process.commit_tries + 1)
        case Committed(receipt) | CommittedPartly(receipt):
            return replace(moved, finished_at=now, receipt=receipt, delay=None, failure_code="", failure="")
        case EndedPartly(receipt, code, reason):
            return replace(moved, finished_at=now, receipt=receipt, delay=None, failure_code=code, failure=reason)
        case BeginClearing(receipt):
            return replace(moved, receipt=receipt, delay=None, failure_code="", failure="")
        case Cleared(receipt):
            return replace(moved, finished_at=now, receipt=receipt or process.receipt, delay=None)
        case ClearedPartly(code, message):
            return replace(moved, finished_at=now, delay=None, failure_code=code, failure=message)
        case CommitDelayed():
            return replace(moved, delay=_delayed(process.delay, event, now))
        case Hold(reason):
            return replace(moved, failure_code=ConfirmationRequired.code, failure=reason, delay=None, receipt=None)
        case Confirmed():
            return replace(moved, failure_code="", failure="")
        case CommitUnclear(message):
            return replace(moved, failure=message, delay=None)
        case ProcessFailed(code, message) | TableMissing(code, message) | ProcessClosed(message, code):
            return replace(moved, finished_at=now, delay=None, failure_code=code, failure=message, receipt=None)
    return moved


def _delayed(before: Delay | None, event: CommitDelayed, now: datetime) -> Delay:
    tries = before.tries + 1 if before else 1
    refusals = (before.refusals if before else 0) + 1 if event.refused else 0
    return Delay(event.code, event.reason, now + pause(tries), tries, refusals)


def is_delayed(process: OptimizingProcess) -> bool:
    """Whether its commit or clean-up was put off ten times in a row; an unknown commit is a trouble of its own."""
    is_unknown = process.status == ProcessStatus.COMMIT_UNKNOWN
    return process.delay is not None and process.delay.tries >= _DELAYED and not is_unknown


def is_refused_for_good(process: OptimizingProcess) -> bool:
    """Whether storage or catalog denied access so often in a row that retrying is pointless."""
    return process.delay is not None and process.delay.refusals >= MAX_REFUSALS
