"""The snapshots of a table over time: a lane for the main branch, one for each other branch or tag."""

from collections.abc import Sequence

from markupsafe import Markup

from amoro_core.dashboard.charts.scales import moments
from amoro_core.dashboard.charts.svg import Chart, Figures, drawing, element, label, percent, ticks_at
from amoro_core.documents.quantities import format_time
from amoro_core.records import record

_TOP, _LANE, _AXIS = 8, 24, 20  # pixels
_LEFT = 0.16  # share of the width for the lanes' names
MOST_LANES = 20
_LONGEST_NAME = 22  # characters


@record
class Moment:
    """A snapshot: when it was committed, by what, whether by us, and the references at it."""

    snapshot_id: int
    at_ms: int
    operation: str
    is_ours: bool
    refs: tuple[str, ...] = ()


def timeline(snapshots: Sequence[Moment], title: str, main: str = "main") -> Chart:
    """A dot for each snapshot on the lane of the table, and one on the lane of each branch or tag at it."""
    refs = [ref for one in snapshots for ref in one.refs if ref != main]
    lanes = [main, *list(dict.fromkeys(refs))[: MOST_LANES - 1]]
    start = min((one.at_ms for one in snapshots), default=0)
    end = max((one.at_ms for one in snapshots), default=0)
    length, bottom = max(end - start, 1), _TOP + _LANE * len(lanes)
    ticks = [(_x(share), text) for share, text in moments(start, start + length)] if snapshots else []
    marks = ticks_at(ticks, _TOP, bottom)
    for number, name in enumerate(lanes):
        y = _TOP + _LANE * number + _LANE / 2
        short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        marks.append(label(short, 0, y + 4, "strong"))
        marks.append(element("line", x1=percent(_LEFT), x2="100%", y1=y, y2=y, class_="grid"))
        marks += [
            _dot(one, _x((one.at_ms - start) / length), y) for one in snapshots if (number == 0 or name in one.refs)
        ]
    if not snapshots:
        marks.append(label("The table has no snapshot.", 0.5, _TOP + _LANE / 2, "nothing", "middle"))
    legend = (("s0", "of other writers"), ("s1", "ours"))
    return Chart(drawing(marks, title, bottom + _AXIS), title, _figures(snapshots), legend)


def _x(share: float) -> float:
    """A place after the names of the lanes; dots keep their radius from both ends."""
    return _LEFT + 0.01 + share * (1 - _LEFT - 0.02)


def _dot(one: Moment, x: float, y: float) -> Markup:
    told = f"{one.snapshot_id}: {one.operation or 'commit'} at {format_time(one.at_ms)}"
    return element("circle", element("title", told), cx=percent(x), cy=y, r=5, class_="s1" if one.is_ours else "s0")


def _figures(snapshots: Sequence[Moment]) -> Figures:
    rows = tuple(
        (
            str(one.snapshot_id),
            format_time(one.at_ms),
            one.operation,
            "yes" if one.is_ours else "no",
            ", ".join(one.refs),
        )
        for one in snapshots
    )
    return Figures(("Snapshot", "Committed", "Operation", "Ours", "Branches and tags"), rows)
