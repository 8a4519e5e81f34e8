"""Values over time as lines. Time without values is a gap, never a line."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from amoro_core.dashboard.charts.scales import ceiling, moments
from amoro_core.dashboard.charts.svg import Chart, Figures, drawing, element, label, ticks_at
from amoro_core.records import record

_TOP, _PLOT, _AXIS = 6, 120, 18  # pixels
_WIDTH = 1000  # of the plot's own coordinates, which are stretched to the width of the page
_LATE = 1.5  # steps between two values that follow each other
MOST_POINTS = 300  # of a line; more are averaged over longer steps


@record
class Line:
    """Values by their time, in order. `step_ms` is their distance where none is missing."""

    name: str
    points: Sequence[tuple[int, float]]  # UTC milliseconds, value
    step_ms: int


def lines(
    series: Sequence[Line], start_ms: int, end_ms: int, title: str, write: Callable[[float], str] = "{:g}".format
) -> Chart:
    """The lines over the range of time; `write` tells a value. Points outside the range are left out."""
    length = end_ms - start_ms
    kept = [_thinned(line, start_ms, end_ms) for line in series]
    top = ceiling(max((value for line in kept for _, value in line.points), default=0))
    marks = ticks_at(moments(start_ms, end_ms), _TOP, _TOP + _PLOT)
    for share in (0.0, 0.5, 1.0):
        y = _TOP + _PLOT * (1 - share)
        marks.append(element("line", x1=0, x2="100%", y1=y, y2=y, class_="grid"))
    curves = [
        element("path", d=_path(line, start_ms, length, top), class_=f"line s{number % 6}", fill="none")
        for number, line in enumerate(kept)
        if line.points
    ]
    box = f"0 0 {_WIDTH} {_PLOT}"
    plot = element("svg", *curves, x=0, y=_TOP, width="100%", height=_PLOT, viewBox=box, preserveAspectRatio="none")
    marks.append(plot)
    marks += [label(write(top * share), 0, _TOP + _PLOT * (1 - share) + 11, "axis") for share in (0.5, 1.0)]
    if not curves:
        marks.append(label("No values in this time.", 0.5, _TOP + _PLOT / 2, "nothing", "middle"))
    legend = tuple((f"line s{number % 6}", line.name) for number, line in enumerate(kept))
    return Chart(drawing(marks, title, _TOP + _PLOT + _AXIS), title, _figures(kept, write), legend)


def _thinned(line: Line, start_ms: int, end_ms: int) -> Line:
    """The points within the range, as averages over steps that are long enough for `MOST_POINTS`."""
    points = [point for point in line.points if start_ms <= point[0] <= end_ms]
    longer = -(-(end_ms - start_ms) // (line.step_ms * MOST_POINTS))
    if longer <= 1:
        return Line(line.name, points, line.step_ms)
    step, parts = line.step_ms * longer, defaultdict(list)
    for at, value in points:
        parts[at - at % step].append(value)
    return Line(line.name, [(at, sum(values) / len(values)) for at, values in sorted(parts.items())], step)


def _path(line: Line, start_ms: int, length: int, top: float) -> str:
    """Moves and lines; a value without a neighbour is a line of no length, which a round cap makes a dot."""
    parts, last = [], None
    points = list(line.points)
    for number, (at, value) in enumerate(points):
        x = f"{(at - start_ms) / length * _WIDTH:.5g}"
        y = f"{_PLOT * (1 - value / top):.5g}"
        follows = last is not None and at - last <= line.step_ms * _LATE
        led = number + 1 < len(points) and points[number + 1][0] - at <= line.step_ms * _LATE
        parts.append(f"{'L' if follows else 'M'}{x} {y}" + ("" if follows or led else "h0"))
        last = at
    return "".join(parts)


def _figures(kept: Sequence[Line], write: Callable[[float], str]) -> Figures:
    """A row for each time, the newest first; "-" where a line has no value."""
    values = [dict(line.points) for line in kept]
    times = sorted({at for line in values for at in line}, reverse=True)
    rows = tuple((_moment(at), *(write(line[at]) if at in line else "-" for line in values)) for at in times)
    return Figures(("Time (UTC)", *(line.name for line in kept)), rows)


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
