"""Conditions: what somebody has to look after, since when, and what is to be done.

A condition holds where its expression has a value, and is raised once it has held for its duration.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from amoro_core.model.expressions import Counted, Expression
from amoro_core.records import record


class Severity(StrEnum):
    """Who is to hear of it, and when."""

    PAGE = "page"  # somebody is to be woken
    LOOK = "look"  # somebody is to look in the morning


class Unit(StrEnum):
    """What the value of a condition counts."""

    NUMBER = "number"
    SHARE = "share"  # 0 to 1
    SECONDS = "seconds"


@record
class Condition:
    """Something that somebody has to look after."""

    name: str
    severity: Severity
    when: Expression
    lasts: timedelta  # for how long it has to hold
    text: str  # {value} and {label} are replaced
    meaning: str
    remedy: str
    unit: Unit = Unit.NUMBER

    @property
    def alert(self) -> str:
        """Its name as an alert of Prometheus: AmoroCommitUnknown."""
        return "Amoro" + "".join(part.capitalize() for part in self.name.split("-"))


@record
class Held:
    """A condition that holds now, for the labels that its expression keeps."""

    condition: Condition
    labels: tuple[str, ...]
    value: float
    since: datetime

    def is_raised(self, now: datetime) -> bool:
        """Whether it has held for its duration."""
        return now - self.since >= self.condition.lasts

    @property
    def named(self) -> dict[str, str]:
        """Its labels by their names."""
        return dict(zip(self.condition.when.by, self.labels, strict=True))

    @property
    def text(self) -> str:
        """What it says, with value and labels."""
        return self.condition.text.format(value=_written(self.value, self.condition.unit), **self.named)


def look(conditions: Iterable[Condition], counted: Counted, before: Iterable[Held], now: datetime) -> tuple[Held, ...]:
    """The conditions that hold now, in their order; those that held before keep since when."""
    since = {(held.condition.name, held.labels): held.since for held in before}
    return tuple(
        Held(condition, labels, value, min(now, since.get((condition.name, labels), now)))
        for condition in conditions
        for labels, value in sorted(condition.when.values(counted).items())
    )


def _written(value: float, unit: Unit) -> str:
    match unit:
        case Unit.SHARE:
            return f"{100 * value:.0f}%"
        case Unit.SECONDS:
            return _duration(value)
    return f"{value:g}"


def _duration(seconds: float) -> str:
    whole = max(0, int(seconds))
    for size, letter in ((86_400, "d"), (3600, "h"), (60, "m")):
        if whole >= size:
            return f"{whole / size:.3g}{letter}"
    return f"{whole}s"
