"""Load over time: threads and queues of groups as charts."""

import time
from collections.abc import Sequence

from amoro_core.dashboard.charts.lines import Line, lines
from amoro_core.dashboard.charts.scales import duration
from amoro_core.dashboard.charts.svg import Chart
from amoro_core.dashboard.pages.visits import Visit
from amoro_core.protocol import journal_pb2 as journal

_HOUR_MS = 3_600_000
#: The times that can be looked at, by their names in an address.
RANGES = {"1h": 1, "6h": 6, "1d": 24, "7d": 168, "30d": 720, "400d": 9600}
DEFAULT = "1d"
_MOST_LINES = 6
_NAMES = ("threads", "threads-busy", "queue-tasks", "queue-age")


async def load(visit: Visit, range_: str, group: str = "") -> list[Chart]:
    """Threads, queue length and queue age over the range: of one group, or busy threads and queues of each."""
    until = round(time.time() * 1000)
    since = until - RANGES[range_ or DEFAULT] * _HOUR_MS
    request = journal.GetSeriesRequest(names=_NAMES, label=group, since_ms=since, until_ms=until)
    found = await visit.ask("GetSeries", request, journal.GetSeriesResponse)

    def drawn(*names: str) -> list[Line]:
        chosen = [one for name in names for one in found.series if one.name == name][:_MOST_LINES]
        return [_line(one, found.step_s, bool(group)) for one in chosen]

    threads = ("threads", "threads-busy") if group else ("threads-busy",)
    return [
        lines(drawn(*threads), since, until, "Threads" if group else "Busy threads by group"),
        lines(drawn("queue-tasks"), since, until, "Tasks that wait for a thread"),
        lines(drawn("queue-age"), since, until, "Age of the oldest process that waits", write=_age),
    ]


def _line(series: journal.Series, step_s: int, is_one: bool) -> Line:
    points: Sequence[tuple[int, float]] = [(one.from_ms, one.sum / one.n) for one in series.points if one.n]
    return Line(series.name.replace("-", " ") if is_one else series.label, points, step_s * 1000)


def _age(seconds: float) -> str:
    return duration(round(seconds) * 1000)
