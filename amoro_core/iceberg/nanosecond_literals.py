"""Constants of conditions on columns of nanoseconds, which pyiceberg does not compare with anything."""

import re
from datetime import datetime, timedelta

from pyiceberg.expressions.literals import Literal, LongLiteral, StringLiteral
from pyiceberg.types import IcebergType, TimestampNanoType, TimestamptzNanoType

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")


def compare_nanoseconds() -> None:
    """Let pyiceberg compare such columns with ISO 8601 texts of up to nine digits, and with whole numbers."""
    # pyiceberg's own conversions are registered in the same way; outside of its classes, by their attribute.
    for kind in (TimestampNanoType, TimestamptzNanoType):
        vars(StringLiteral)["to"].register(kind, _of_text)
        vars(LongLiteral)["to"].register(kind, lambda literal, kind: literal)


def _of_text(literal: StringLiteral, kind: IcebergType) -> Literal[int]:
    found = _MOMENT.fullmatch(literal.value)
    if found is None:
        raise ValueError(f"{literal.value!r} is no moment such as 2026-01-31T00:00:00.000000001")
    if (found[3] is None) is isinstance(kind, TimestamptzNanoType):
        raise ValueError(f"{literal.value!r} has {'no' if found[3] is None else 'a'} zone, unlike a column of {kind}")
    since = datetime.fromisoformat(f"{found[1]}{found[3] or '+00:00'}") - datetime.fromisoformat("1970-01-01T00:00Z")
    return LongLiteral(since // timedelta(seconds=1) * 1_000_000_000 + int((found[2] or "").ljust(9, "0")))
