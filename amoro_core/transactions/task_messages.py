"""What is given to optimizers, and what they report."""

from dataclasses import dataclass, field
from enum import Enum

from amoro_core.model.processes import Attempt
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.task_payload import Work, WorkResult


@dataclass(frozen=True, slots=True)
class ScheduledTask:
    """A task as it is given to a thread."""

    attempt: Attempt
    thread_id: int
    table: TableIdentifier
    work: Work


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed, in the optimizer's words."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The optimizer does not know that kind of work: nothing has begun."""

    kind: str
    message: str


Outcome = WorkResult | Failure | Refusal


@dataclass(frozen=True, slots=True)
class Report:
    """What an optimizer says of an attempt that it has ended."""

    optimizer_id: str
    attempt: Attempt
    result: Outcome


class Admission(Enum):
    """Whether an attempt may begin."""

    FREE = "free"
    LATER = "later"  # it can't be told yet: ask again
    REFUSED = "refused"  # it is not the optimizer's any more


@dataclass(frozen=True, slots=True)
class Acks:
    """Attempts that an optimizer has and begins."""

    optimizer_id: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class PollRequest:
    """An optimizer that asks for at most one task for each of these free threads."""

    optimizer_id: str
    group: str
    thread_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportCall:
    """What an optimizer says in one call: results and acks, and that it asks for more in the same breath."""

    reports: tuple[Report, ...] = ()
    asked: PollRequest | None = None
    acks: Acks | None = None


#: The tables of attempts that were acknowledged, None for a stale one.
Named = dict[Attempt, TableIdentifier | None]


@dataclass(frozen=True, slots=True)
class ReportReply:
    """Whether each result of a call counts, what was scheduled afterwards, and which acks were accepted."""

    accepted: tuple[bool, ...] = ()
    tasks: tuple[ScheduledTask, ...] = ()
    named: Named = field(default_factory=dict)
