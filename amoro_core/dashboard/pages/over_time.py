"""Values over time as charts, for a range that the visitor chooses by a link."""

from collections import Counter
from collections.abc import Callable, Sequence

from amoro_core.dashboard.charts.lines import Line, lines
from amoro_core.dashboard.charts.svg import Chart
from amoro_core.dashboard.pages.visits import Visit
from amoro_core.documents.quantities import format_bytes, format_duration
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.records import record

HOUR_MS = 3_600_000
#: Ranges by the word in the address of a page.
RANGES = {
    "1h": HOUR_MS,
    "24h": 24 * HOUR_MS,
    "7d": 7 * 24 * HOUR_MS,
    "30d": 30 * 24 * HOUR_MS,
    "90d": 90 * 24 * HOUR_MS,
    "400d": 400 * 24 * HOUR_MS,
}


@record
class Asked:
    """Series to draw: their names, up to when, for how long, and whose. `step_s` 0: one that fits."""

    names: Sequence[str]
    until_ms: int
    length_ms: int
    table: str = ""
    label: str = ""
    step_s: int = 0


async def found_series(visit: Visit, asked: Asked) -> journal.GetSeriesResponse:
    """The series in the order of the names that were asked for."""
    request = journal.GetSeriesRequest(
        names=asked.names,
        label=asked.label,
        table=asked.table,
        since_ms=asked.until_ms - asked.length_ms,
        until_ms=asked.until_ms,
        step_s=asked.step_s,
    )
    return await visit.ask("GetSeries", request, journal.GetSeriesResponse)


def drawn(found: journal.GetSeriesResponse, asked: Asked, name: str, title: str, *, added: bool = False) -> Chart:
    """The series of that name as lines, one for each label, or as their sum; a step without values is a gap."""
    own = [one for one in found.series if one.name == name]
    unit = own[0].unit if own else ""
    made = [_line(one, found.step_s * 1000, asked) for one in own]
    if added:
        made = _added(made, name)
    return lines(made, asked.until_ms - asked.length_ms, asked.until_ms, title, _written(unit))


def _line(one: journal.Series, step_ms: int, asked: Asked) -> Line:
    points = [(point.from_ms, _value(one, point)) for point in one.points]
    if one.kind != "state":
        return Line(one.label or one.name, points, step_ms)
    # It holds until it changes: no time without a value is a gap.
    if points:
        points.append((asked.until_ms, points[-1][1]))
    return Line(one.label or one.name, points, asked.length_ms)


def _added(made: Sequence[Line], label: str) -> list[Line]:
    """One line of the sums of them all, step by step."""
    if not made:
        return []
    points: Counter[int] = Counter()
    for one in made:
        points.update(dict(one.points))
    return [Line(label, sorted(points.items()), made[0].step_ms)]


def _value(one: journal.Series, point: journal.SeriesPoint) -> float:
    return float(point.sum) if one.kind == "total" else point.sum / max(point.n, 1)


def _written(unit: str) -> Callable[[float], str]:
    if unit == "bytes":
        return lambda value: format_bytes(round(value))
    if unit == "seconds":
        return lambda value: format_duration(round(value * 1000))
    return "{:,.3g}".format
