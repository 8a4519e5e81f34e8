"""Attempts of tasks over time: a lane for each optimizer thread, a bar for each attempt."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from amoro_core.dashboard.charts.scales import duration, elapsed
from amoro_core.dashboard.charts.svg import Chart, Figures, drawing, element, escaped, label, percent, ticks_at
from amoro_core.model.texts import printable
from amoro_core.records import record

MOST_BARS = 2000  # above, lanes show how much of them was in use
MOST_LANES = 200  # above, a lane is an optimizer; what is left of these is counted
_MARKS = 4000  # of densities, at most
_LANE, _HEAD, _AXIS = 9, 17, 18  # pixels
_LEVELS = 5

Lane = tuple[str, int]  # optimizer and thread


@record
class Bar:
    """An attempt. `end_ms` is now for one that runs. States: running, success, failed, lost, canceled."""

    optimizer: str
    thread: int
    start_ms: int
    end_ms: int
    state: str
    text: str  # what it is


def gantt(bars: Sequence[Bar], title: str) -> Chart:
    """The bars by lane, from the first start to the last end. Its figures have a row for each lane."""
    if not bars:
        return Chart(drawing([label("No attempts yet.", 0, 14, "nothing")], title, 20), title, _figures({}, 1))
    start = min(bar.start_ms for bar in bars)
    length = max(1, max(bar.end_ms for bar in bars) - start)
    lanes = _lanes(bars)
    shown = dict(list(lanes.items())[:MOST_LANES])
    dense = len(bars) > MOST_BARS or any(thread < 0 for _, thread in lanes)
    bins = min(200, max(20, _MARKS // len(shown)))
    marks: list[Markup] = []
    top, optimizer = 0, None
    for (name, thread), own in shown.items():
        if name != optimizer:
            marks.append(label(f"optimizer {_short(name)}", 0, top + 12, "lane"))
            top, optimizer = top + _HEAD, name
        marks.append(element("rect", x=0, y=top, width="100%", height=_LANE - 2, class_="track"))
        marks += _density(own, start, length, top, bins) if dense else _bars(own, start, length, top, thread)
        top += _LANE
    if left := len(lanes) - len(shown):
        marks.append(label(f"and {left:,} more", 0, top + 12, "lane"))
        top += _HEAD
    axis = ticks_at(elapsed(length), 0, top)
    states = Counter(bar.state for bar in bars)
    legend = tuple((f"bar {state}", f"{state}: {count:,}") for state, count in sorted(states.items()))
    if dense:
        legend = tuple((f"load l{level}", f"up to {level / _LEVELS:.0%} in use") for level in range(1, _LEVELS + 1))
    return Chart(drawing([*axis, *marks], title, top + _AXIS), title, _figures(lanes, length), legend)


def _lanes(bars: Sequence[Bar]) -> dict[Lane, list[Bar]]:
    """The bars of each thread, or of each optimizer with the thread -1 where threads are too many; by first use."""
    lanes: dict[Lane, list[Bar]] = defaultdict(list)
    by_thread = len({(bar.optimizer, bar.thread) for bar in bars}) <= MOST_LANES
    first: dict[str, int] = {}
    for bar in sorted(bars, key=lambda bar: bar.start_ms):
        first.setdefault(bar.optimizer, len(first))
        lanes[bar.optimizer, bar.thread if by_thread else -1].append(bar)
    return dict(sorted(lanes.items(), key=lambda lane: (first[lane[0][0]], lane[0][1])))


def _bars(bars: Sequence[Bar], start: int, length: int, top: int, thread: int) -> list[Markup]:
    marks = []
    for bar in bars:
        took = bar.end_ms - bar.start_ms
        told = f"{bar.text}, thread {thread}: {bar.state}, {duration(took)} from {duration(bar.start_ms - start)}"
        at, width = percent((bar.start_ms - start) / length), percent(max(took / length, 0.001))
        # Not by `element`: there are thousands.
        mark = (
            f'<rect x="{at}" y="{top}" width="{width}" height="{_LANE - 2}" class="bar {escaped(bar.state)}">'
            f"<title>{escaped(told)}</title></rect>"
        )
        marks.append(Markup(mark))  # noqa: S704 - what is foreign is escaped
    return marks


def _density(bars: Sequence[Bar], start: int, length: int, top: int, bins: int) -> list[Markup]:
    """Runs of bins with the same share in use, in fifths, rounded up; unused ones are left out."""
    busy = [0.0] * bins
    size, threads = length / bins, len({bar.thread for bar in bars})
    for bar in bars:
        begin, end = bar.start_ms - start, bar.end_ms - start
        for at in range(int(begin / size), min(bins - 1, int(end / size)) + 1):
            busy[at] += max(0.0, min(end, (at + 1) * size) - max(begin, at * size))
    levels = [min(_LEVELS, math.ceil(used / (size * threads) * _LEVELS - 1e-9)) for used in busy]
    marks, since = [], 0
    for at in range(1, bins + 1):
        if at < bins and levels[at] == levels[since]:
            continue
        if levels[since]:
            box: dict[str, str | int] = {
                "x": percent(since / bins),
                "y": top,
                "width": percent((at - since) / bins),
                "height": _LANE - 2,
            }
            marks.append(element("rect", class_=f"load l{levels[since]}", **box))
        since = at
    return marks


def _figures(lanes: Mapping[Lane, Sequence[Bar]], length: int) -> Figures:
    rows = []
    for (name, thread), bars in lanes.items():
        took = sum(bar.end_ms - bar.start_ms for bar in bars)
        threads = len({bar.thread for bar in bars})
        failed = sum(bar.state in ("failed", "lost") for bar in bars)
        place = str(thread) if thread >= 0 else f"{threads} threads"
        used = f"{took / (length * threads):.0%}"
        longest = duration(max(bar.end_ms - bar.start_ms for bar in bars))
        rows.append((printable(name), place, f"{len(bars):,}", duration(took), used, longest, str(failed)))
    headers = ("Optimizer", "Thread", "Attempts", "Busy", "In use", "Longest", "Failed or lost")
    return Figures(headers, tuple(rows))


def _short(name: str) -> str:
    """Enough of an id to tell it from others: UUIDv7s of one minute begin alike."""
    return name if len(name) <= 18 else f"{name[:8]}…{name[-8:]}"
