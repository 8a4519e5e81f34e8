"""Elements of SVG as text, with everything foreign escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from markupsafe import Markup

from amoro_core.model.texts import printable
from amoro_core.records import record


@record
class Figures:
    """The numbers of a chart as a table: headers, and rows of as many cells."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@record
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
