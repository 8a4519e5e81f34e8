"""What is written down of each call that changes something."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from amoro_core.model.principals import Principal

#: How long it is kept.
KEEP_AUDIT = timedelta(days=400)


#: Rows for refused calls of strangers, which anybody can send: at most so many within a minute and an hour.
STRANGERS_A_MINUTE, STRANGERS_AN_HOUR = 10, 60
_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)


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


class UnknownCallerLog:
    """Which refused calls of strangers get a row; the others are counted, and the next row tells how many they were."""

    def __init__(self) -> None:
        self._rows: deque[datetime] = deque()  # when rows were given, within an hour
        self._passed: Audited | None = None  # the last call without a row
        self._count = 0  # calls without a row since the last one

    def row(self, call: Audited, now: datetime) -> Audited | None:
        """The call as it is to be written down; None if it is only counted."""
        while self._rows and self._rows[0] <= now - _HOUR:
            self._rows.popleft()
        within_minute = sum(at > now - _MINUTE for at in self._rows)
        if within_minute >= STRANGERS_A_MINUTE or len(self._rows) >= STRANGERS_AN_HOUR:
            self._passed, self._count = call, self._count + 1
            return None
        self._rows.append(now)
        told, self._passed, self._count = _with_count(call, self._count), None, 0
        return told

    def left(self) -> Audited | None:
        """The last call that was only counted, for a row of its own; None if the last row has told of all."""
        call, count = self._passed, self._count
        self._passed, self._count = None, 0
        return _with_count(call, count - 1) if call else None


def _with_count(call: Audited, count: int) -> Audited:
    return replace(call, parameters={"refused_before": str(count)}) if count else call
