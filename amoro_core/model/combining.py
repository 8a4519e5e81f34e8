"""Expressions that compare and combine others."""

import operator
from collections.abc import Callable, Mapping

from amoro_core.model.expressions import Counted, Expression, Least, Vector
from amoro_core.records import record


@record
class Ratio:
    """One expression divided by another with the same labels."""

    part: Expression
    whole: Expression

    @property
    def by(self) -> tuple[str, ...]:
        """Those of both."""
        return self.part.by

    def values(self, counted: Counted) -> Vector:
        """The quotients; a part of nothing is left out."""
        wholes = self.whole.values(counted)
        return {
            labels: value / wholes[labels] for labels, value in self.part.values(counted).items() if wholes.get(labels)
        }

    def promql(self) -> str:
        """a / b, without those whose b is 0."""
        return f"{self.part.promql()} / ({self.whole.promql()} > 0)"


@record
class Left:
    """How many seconds are left until the earliest moment that a metric names."""

    until: Least

    @property
    def by(self) -> tuple[str, ...]:
        """Those of the moments."""
        return self.until.by

    def values(self, counted: Counted) -> Vector:
        """Below 0: the moment has passed."""
        return {labels: value - counted.now_s for labels, value in self.until.values(counted).items()}

    def promql(self) -> str:
        """min by (…) (metric) - time()."""
        return f"{self.until.promql()} - time()"


_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "==": operator.eq,
}


@record
class Where:
    """The values of an expression that compare so with a number."""

    of: Expression
    comparison: str  # of _COMPARISONS
    number: float

    @property
    def by(self) -> tuple[str, ...]:
        """Those of the expression."""
        return self.of.by

    def values(self, counted: Counted) -> Vector:
        """The values that hold."""
        holds = _COMPARISONS[self.comparison]
        return {labels: value for labels, value in self.of.values(counted).items() if holds(value, self.number)}

    def promql(self) -> str:
        """a > number."""
        return f"{self.of.promql()} {self.comparison} {self.number:g}"


@record
class Both:
    """The values of the first where the others have values, too, under the same labels."""

    first: Expression
    others: tuple[Expression, ...]

    @property
    def by(self) -> tuple[str, ...]:
        """Those of all of them."""
        return self.first.by

    def values(self, counted: Counted) -> Vector:
        """The values of the first that are left."""
        others = [other.values(counted) for other in self.others]
        return {
            labels: value
            for labels, value in self.first.values(counted).items()
            if all(labels in other for other in others)
        }

    def promql(self) -> str:
        """a and b."""
        return " and ".join(one.promql() for one in (self.first, *self.others))


@record
class Outside:
    """What only somebody outside can see, such as that nobody answers: never true inside."""

    text: str
    by: tuple[str, ...] = ()

    def values(self, counted: Counted) -> Vector:
        """Nothing."""
        return {}

    def promql(self) -> str:
        """The text."""
        return self.text
