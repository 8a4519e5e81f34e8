"""Axes: round numbers and times between two bounds."""

import math
from datetime import UTC, datetime

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
#: Distances between ticks of time, in milliseconds.
_STEPS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_SECOND * count for count in (1, 2, 5, 10, 20, 30)),
    *(_MINUTE * count for count in (1, 2, 5, 10, 20, 30)),
    *(_HOUR * count for count in (1, 2, 4, 6, 12)),
    *(_DAY * count for count in (1, 2, 5, 10, 20, 50, 100, 200)),
)
_MOST_TICKS = 6


def ceiling(value: float) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that is not below the value; 1 for what is not positive."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * part for part in (1, 2, 2.5, 5, 10) if power * part >= value * (1 - 1e-12))


def moments(start_ms: int, end_ms: int) -> list[tuple[float, str]]:
    """Round UTC times within the range: their share of it, and their text. Days where the range has many."""
    step = _step(end_ms - start_ms)
    form = "%b %d" if step >= _DAY else "%H:%M" if step >= _MINUTE else "%H:%M:%S"
    first = -(-start_ms // step) * step
    return [
        ((at - start_ms) / (end_ms - start_ms), datetime.fromtimestamp(at / 1000, UTC).strftime(form))
        for at in range(first, end_ms + 1, step)
    ]


def elapsed(length_ms: int) -> list[tuple[float, str]]:
    """Round durations since the start of a range of that length: their share of it, and their text."""
    step = _step(length_ms)
    return [(at / length_ms, duration(at)) for at in range(0, length_ms + 1, step)]


def duration(milliseconds: int) -> str:
    """The duration in its two largest units, as "350 ms", "14.2 s", "3 min 5 s", "2 h 10 min" or "3 d 4 h"."""
    if milliseconds < _SECOND:
        return f"{milliseconds} ms" if milliseconds else "0"
    if milliseconds < _MINUTE:
        return f"{milliseconds / _SECOND:.3g} s"
    for unit, name, part, small in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", 1000, "s")):
        if milliseconds >= unit:
            rest = milliseconds % unit // part
            return f"{milliseconds // unit} {name}" + (f" {rest} {small}" if rest else "")
    raise AssertionError(milliseconds)


def _step(length_ms: int) -> int:
    return next((step for step in _STEPS if length_ms / step <= _MOST_TICKS), 400 * _DAY)
