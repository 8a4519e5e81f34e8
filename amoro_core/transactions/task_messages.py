"""What is given to optimizers, and what they report."""

from dataclasses import field
from enum import Enum

from amoro_core.model.processes import Attempt
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.task_payload import Work, WorkResult
from amoro_core.records import record


@record
class ScheduledTask:
    """A task as it is given to a thread."""

    attempt: Attempt
    thread_id: int
    table: TableIdentifier
    work: Work


@record
class Failure:
    """Why an attempt failed, in the optimizer's words."""

    code: str
    message: str


@record
class Refusal:
    """The optimizer does not know that kind of work: nothing has begun."""

    kind: str
    message: str


Outcome = WorkResult | Failure | Refusal


@record
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


@record
class Acks:
    """Attempts that an optimizer has and begins."""

    optimizer_id: str
    attempts: tuple[Attempt, ...]


@record
class PollRequest:
    """An optimizer that asks for at most one task for each of these free threads."""

    optimizer_id: str
    group: str
    thread_ids: tuple[int, ...]


@record
class ReportCall:
    """What an optimizer says in one call: results and acks, and that it asks for more in the same breath."""

    reports: tuple[Report, ...] = ()
    asked: PollRequest | None = None
    acks: Acks | None = None


#: The tables of attempts that were acknowledged, None for a stale one.
Named = dict[Attempt, TableIdentifier | None]


@record
class ReportReply:
    """Whether each result of a call counts, what was scheduled afterwards, and which acks were accepted."""

    accepted: tuple[bool, ...] = ()
    tasks: tuple[ScheduledTask, ...] = ()
    named: Named = field(default_factory=dict)
