"""What is written down of each call that changes something."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from amoro_core.model.principals import Principal

#: How long it is kept.
KEEP_AUDIT = timedelta(days=400)


class AuditOutcome(StrEnum):
    """How a call ended."""

    BEGUN = "begun"  # it has not ended, or the coordinator was killed during it
    DONE = "done"
    REFUSED = "refused"  # the account may not do it
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Audited:
    """A call before its end."""

    principal: Principal
    operation: str
    object: str  # what it acts on, as the request names it
    parameters: Mapping[str, str] = field(default_factory=dict)  # without secrets
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """A call, when it began, and its outcome with the code of its error."""

    event_id: int
    at: datetime
    call: Audited
    outcome: AuditOutcome = AuditOutcome.BEGUN
    code: str = ""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which calls are asked for; empty: all."""

    actor: str = ""
    operation: str = ""
    object: str = ""
    outcome: AuditOutcome | None = None
    since: datetime | None = None
