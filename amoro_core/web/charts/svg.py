"""Elements of SVG as text, with everything foreign escaped."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from markupsafe import Markup

from amoro_core.model.text_sanitizing import printable


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers of a chart as a table: headers, and rows of as many cells."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing, what it shows in one sentence, its marks explained, and its numbers."""

    svg: Markup
    title: str
    figures: Figures
    legend: tuple[tuple[str, str], ...] = ()  # class of the mark, and its meaning


def element(name: str, *children: str | Markup, **attributes: str | int | float) -> Markup:
    """The element; children that are not markup, and values of attributes, are escaped.

    `class_` is the attribute class, and an underscore in a name stands for a hyphen.
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items() if value != ""
    )
    inside = "".join(child if isinstance(child, Markup) else escaped(child) for child in children)
    return Markup(f"<{name}{told}>{inside}</{name}>")  # noqa: S704 - all of it is escaped here


def drawing(marks: Iterable[Markup], title: str, height: int) -> Markup:
    """An SVG as wide as its place and that many pixels high, with its title for those who don't see it."""
    return element(
        "svg",
        element("title", title),
        *marks,
        xmlns="http://www.w3.org/2000/svg",
        class_="chart",
        role="img",
        aria_label=printable(title),
        width="100%",
        height=height,
    )


def escaped(text: str) -> str:
    """The text as an element or an attribute takes it; characters that can't be seen are escaped as well."""
    return escape(printable(text), quote=True)


def percent(share: float) -> str:
    """A position or length from its share of the width, 0 to 1."""
    return f"{share * 100:.6g}%" if share else "0"


def label(text: str, x: float, y: float, class_: str = "", anchor: str = "") -> Markup:
    """A text whose baseline is `y` pixels below the top; `x` is a share of the width."""
    return element("text", text, x=percent(x), y=y, class_=class_, text_anchor=anchor)


def ticks_at(places: Sequence[tuple[float, str]], top: float, bottom: float) -> list[Markup]:
    """Vertical lines of an axis with their labels under them; a place is a share of the width."""
    marks = []
    for x, text in places:
        anchor = "start" if x < 0.04 else "end" if x > 0.96 else "middle"
        marks.append(element("line", x1=percent(x), x2=percent(x), y1=top, y2=bottom, class_="tick"))
        marks.append(label(text, x, bottom + 12, "axis", anchor))
    return marks


def _value(value: str | int | float) -> str:
    return escaped(value) if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else str(value)


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
