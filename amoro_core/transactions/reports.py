"""What is given to optimizers, and what they report."""

from dataclasses import dataclass
from enum import Enum

from amoro_core.model.processes import Attempt
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.work import Work, WorkResult


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


class Admission(Enum):
    """Whether an attempt may begin."""

    FREE = "free"
    LATER = "later"  # it can't be told yet: ask again
    REFUSED = "refused"  # it is not the optimizer's any more
