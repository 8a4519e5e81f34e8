"""How many files there are of which sizes."""

from collections.abc import Sequence

from markupsafe import Markup

from amoro_core.dashboard.charts.svg import Chart, Figures, drawing, element, label, percent
from amoro_core.documents.quantities import format_bytes, format_count
from amoro_core.records import record

_TOP, _PLOT, _AXIS = 18, 140, 22  # pixels
_GAP = 0.12  # of a bin's width, beside its bar
_MOST_LABELS = 8


@record
class SizeCounts:
    """Files from a size up to the next bin's: how many of each kind."""

    from_bytes: int
    counts: tuple[int, ...]


def histogram(bins: Sequence[SizeCounts], kinds: Sequence[str], target_bytes: int, title: str) -> Chart:
    """A bar for each bin, of as many parts as there are kinds; the target size is marked.

    Bins are in order; each count is of the kind at its place. Without bins the drawing says so.
    """
    highest = max((sum(one.counts) for one in bins), default=0)
    width = 1 / len(bins) if bins else 1.0
    marks = [mark for number, one in enumerate(bins) for mark in _bar(one, number, width, highest)]
    every = -(-len(bins) // _MOST_LABELS) if bins else 1
    bottom = _TOP + _PLOT
    marks.append(element("line", x1=0, x2="100%", y1=bottom, y2=bottom, class_="grid"))
    marks += [
        label(format_bytes(one.from_bytes), number * width, bottom + 14, "axis")
        for number, one in enumerate(bins)
        if number % every == 0
    ]
    if bins and bins[0].from_bytes <= target_bytes:
        at = _place(bins, target_bytes) * width
        marks.append(element("line", x1=percent(at), x2=percent(at), y1=_TOP - 6, y2=bottom, class_="target"))
        marks.append(label(f"target {format_bytes(target_bytes)}", at, 10, "axis", "end" if at > 0.5 else "start"))
    if not bins:
        marks.append(label("There are no files.", 0.5, _TOP + _PLOT / 2, "nothing", "middle"))
    legend = tuple((f"s{number}", kind) for number, kind in enumerate(kinds))
    return Chart(drawing(marks, title, bottom + _AXIS), title, _figures(bins, kinds), legend)


def _bar(one: SizeCounts, number: int, width: float, highest: int) -> list[Markup]:
    x, left = (number + _GAP / 2) * width, float(_TOP + _PLOT)
    marks: list[Markup] = []
    for kind, count in enumerate(one.counts):
        if not count:
            continue
        height = max(1.0, _PLOT * count / highest)
        left -= height
        marks.append(
            element(
                "rect",
                element("title", f"{format_bytes(one.from_bytes)} and more: {format_count(count)}"),
                x=percent(x),
                y=left,
                width=percent(width * (1 - _GAP)),
                height=height,
                class_=f"s{kind}",
            )
        )
    return marks


def _place(bins: Sequence[SizeCounts], size: int) -> float:
    """Where the size stands among the bins, in widths of a bin; within one by its share of the bin's range."""
    for number, one in enumerate(bins):
        end = bins[number + 1].from_bytes if number + 1 < len(bins) else 2 * one.from_bytes
        if size < end:
            return number + (size - one.from_bytes) / (end - one.from_bytes)
    return float(len(bins))


def _figures(bins: Sequence[SizeCounts], kinds: Sequence[str]) -> Figures:
    rows = tuple((format_bytes(one.from_bytes), *map(format_count, one.counts)) for one in bins)
    return Figures(("From", *kinds), rows)
