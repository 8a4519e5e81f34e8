"""Charts as SVG with a table of the same numbers: pure functions of values.

They carry no colours, styles or scripts: classes say what a mark is, the style sheet says how it looks. Positions are
percentages of the width, so texts keep their size at every width.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from html import escape

from markupsafe import Markup

from amoro_core.documents.formatting import format_bytes, format_count, format_time, short_id
from amoro_core.model.processes import ProcessStatus
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
    text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items() if value != ""
    )
    inside = "".join(child if isinstance(child, Markup) else escaped(child) for child in children)
    return Markup(f"<{name}{text}>{inside}</{name}>")  # noqa: S704 - all of it is escaped here


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


_TOP, _PLOT, _AXIS = 6, 120, 18  # pixels
_WIDTH = 1000  # of the plot's own coordinates, which are stretched to the width of the page
_LATE = 1.5  # steps between two values that follow each other
MOST_POINTS = 300  # of a line; more are averaged over longer steps


@dataclass(frozen=True, slots=True)
class Line:
    """Values by their time, in order. `step_ms` is their distance where none is missing."""

    name: str
    points: Sequence[tuple[int, float]]  # UTC milliseconds, value
    step_ms: int


def lines(
    series: Sequence[Line], start_ms: int, end_ms: int, title: str, write: Callable[[float], str] = "{:g}".format
) -> Chart:
    """The lines over the range of time, or from their first value on; points outside the range are left out.

    `write` tells a value. A line alone needs no legend: the title says what it is.
    """
    lines = [_thinned(line, start_ms, end_ms) for line in series]
    begun = [(line.points[0][0], line.step_ms) for line in lines if line.points]
    start_ms = max(start_ms, min((min(at, end_ms - step) for at, step in begun), default=start_ms))
    length = end_ms - start_ms
    top = ceiling(max((value for line in lines for _, value in line.points), default=0))
    marks = ticks_at(moments(start_ms, end_ms), _TOP, _TOP + _PLOT)
    for share in (0.0, 0.5, 1.0):
        y = _TOP + _PLOT * (1 - share)
        marks.append(element("line", x1=0, x2="100%", y1=y, y2=y, class_="grid"))
    curves = [
        element("path", d=_path(line, start_ms, length, top), class_=f"line s{number % 6}", fill="none")
        for number, line in enumerate(lines)
        if line.points
    ]
    box = f"0 0 {_WIDTH} {_PLOT}"
    plot = element("svg", *curves, x=0, y=_TOP, width="100%", height=_PLOT, viewBox=box, preserveAspectRatio="none")
    marks.append(plot)
    marks += [label(write(top * share), 0, _TOP + _PLOT * (1 - share) + 11, "axis") for share in (0.5, 1.0)]
    if not curves:
        marks.append(label("No values in this time.", 0.5, _TOP + _PLOT / 2, "nothing", "middle"))
    legend = tuple((f"line s{number % 6}", line.name) for number, line in enumerate(lines) if len(lines) > 1)
    return Chart(drawing(marks, title, _TOP + _PLOT + _AXIS), title, _figures(lines, write), legend)


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


def _figures(lines: Sequence[Line], write: Callable[[float], str]) -> Figures:
    """A row for each time, the newest first; "-" where a line has no value."""
    values = [dict(line.points) for line in lines]
    times = sorted({at for line in values for at in line}, reverse=True)
    rows = tuple((_moment(at), *(write(line[at]) if at in line else "-" for line in values)) for at in times)
    return Figures(("Time (UTC)", *(line.name for line in lines)), rows)


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


_TIMELINE_TOP, _LANE, _TIMELINE_AXIS = 8, 24, 20  # pixels
_LEFT = 0.16  # share of the width for the lanes' names
MAX_TIMELINE_LANES = 20
_LONGEST_NAME = 22  # characters


@dataclass(frozen=True, slots=True)
class Moment:
    """A snapshot: when it was committed, by what, whether by us, and the references at it."""

    snapshot_id: int
    at_ms: int
    operation: str
    is_ours: bool
    refs: tuple[str, ...] = ()


def timeline(snapshots: Sequence[Moment], title: str, main: str = "main") -> Chart:
    """A dot for each snapshot on the lane of the table, and one on the lane of each branch or tag at it."""
    refs = [ref for moment in snapshots for ref in moment.refs if ref != main]
    lanes = [main, *list(dict.fromkeys(refs))[: MAX_TIMELINE_LANES - 1]]
    start = min((moment.at_ms for moment in snapshots), default=0)
    end = max((moment.at_ms for moment in snapshots), default=0)
    length, bottom = max(end - start, 1), _TIMELINE_TOP + _LANE * len(lanes)
    ticks = [(_x(share), text) for share, text in moments(start, start + length)] if snapshots else []
    marks = ticks_at(ticks, _TIMELINE_TOP, bottom)
    for number, name in enumerate(lanes):
        y = _TIMELINE_TOP + _LANE * number + _LANE / 2
        short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        marks.append(label(short, 0, y + 4, "strong"))
        marks.append(element("line", x1=percent(_LEFT), x2="100%", y1=y, y2=y, class_="grid"))
        marks += [
            _dot(item, _x((item.at_ms - start) / length), y) for item in snapshots if (number == 0 or name in item.refs)
        ]
    if not snapshots:
        marks.append(label("The table has no snapshot.", 0.5, _TIMELINE_TOP + _LANE / 2, "nothing", "middle"))
    legend = (("s0", "of other writers"), ("s1", "ours"))
    return Chart(drawing(marks, title, bottom + _TIMELINE_AXIS), title, _timeline_figures(snapshots), legend)


def _x(share: float) -> float:
    """A place after the names of the lanes; dots keep their radius from both ends."""
    return _LEFT + 0.01 + share * (1 - _LEFT - 0.02)


def _dot(item: Moment, x: float, y: float) -> Markup:
    values = f"{item.snapshot_id}: {item.operation or 'commit'} at {format_time(item.at_ms)}"
    return element("circle", element("title", values), cx=percent(x), cy=y, r=5, class_="s1" if item.is_ours else "s0")


def _timeline_figures(snapshots: Sequence[Moment]) -> Figures:
    rows = tuple(
        (
            str(moment.snapshot_id),
            format_time(moment.at_ms),
            moment.operation,
            "yes" if moment.is_ours else "no",
            ", ".join(moment.refs),
        )
        for moment in snapshots
    )
    return Figures(("Snapshot", "Committed", "Operation", "Ours", "Branches and tags"), rows)


MOST_BARS = 2000  # above, lanes show how much of them was in use
MOST_LANES = 200  # above, a lane is an optimizer; what is left of these is counted
_MARKS = 4000  # of densities, at most
_GANTT_LANE, _HEAD, _GANTT_AXIS = 9, 17, 18  # pixels
_LEVELS = 5

Lane = tuple[str, int]  # optimizer and thread


@dataclass(frozen=True, slots=True)
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
        return Chart(drawing([label("No attempts yet.", 0, 14, "nothing")], title, 20), title, _gantt_figures({}, 1))
    start = min(bar.start_ms for bar in bars)
    length = max(1, max(bar.end_ms for bar in bars) - start)
    lanes = _lanes(bars)
    rows = dict(list(lanes.items())[:MOST_LANES])
    dense = len(bars) > MOST_BARS or any(thread < 0 for _, thread in lanes)
    bins = min(200, max(20, _MARKS // len(rows)))
    marks: list[Markup] = []
    top, optimizer = 0, None
    for (name, thread), own in rows.items():
        if name != optimizer:
            marks.append(label(f"optimizer {short_id(name)}", 0, top + 12, "lane"))
            top, optimizer = top + _HEAD, name
        marks.append(element("rect", x=0, y=top, width="100%", height=_GANTT_LANE - 2, class_="track"))
        marks += _density(own, start, length, top, bins) if dense else _bars(own, start, length, top, thread)
        top += _GANTT_LANE
    if more := len(lanes) - len(rows):
        marks.append(label(f"and {more:,} more", 0, top + 12, "lane"))
        top += _HEAD
    axis = ticks_at([(at / length, duration(at)) for at in range(0, length + 1, _step(length))], 0, top)
    states = Counter(bar.state for bar in bars)
    legend = tuple((f"bar {state}", f"{state}: {count:,}") for state, count in sorted(states.items()))
    if dense:
        legend = tuple((f"load l{level}", f"up to {level / _LEVELS:.0%} in use") for level in range(1, _LEVELS + 1))
    return Chart(drawing([*axis, *marks], title, top + _GANTT_AXIS), title, _gantt_figures(lanes, length), legend)


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
        text = f"{bar.text}, thread {thread}: {bar.state}, {duration(took)} from {duration(bar.start_ms - start)}"
        at, width = percent((bar.start_ms - start) / length), percent(max(took / length, 0.001))
        # Not by `element`: there are thousands.
        mark = (
            f'<rect x="{at}" y="{top}" width="{width}" height="{_GANTT_LANE - 2}" class="bar {escaped(bar.state)}">'
            f"<title>{escaped(text)}</title></rect>"
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
                "height": _GANTT_LANE - 2,
            }
            marks.append(element("rect", class_=f"load l{levels[since]}", **box))
        since = at
    return marks


def _gantt_figures(lanes: Mapping[Lane, Sequence[Bar]], length: int) -> Figures:
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


_HISTOGRAM_TOP, _HISTOGRAM_PLOT, _HISTOGRAM_AXIS = 18, 140, 22  # pixels
_GAP = 0.12  # of a bin's width, beside its bar
_MOST_LABELS = 8


@dataclass(frozen=True, slots=True)
class SizeCounts:
    """Files from a size up to the next bin's: how many of each kind."""

    from_bytes: int
    counts: tuple[int, ...]


def histogram(bins: Sequence[SizeCounts], kinds: Sequence[str], target_bytes: int, title: str) -> Chart:
    """A bar for each bin, of as many parts as there are kinds; the target size is marked.

    Bins are in order; each count is of the kind at its place. Without bins the drawing says so.
    """
    highest = max((sum(size_counts.counts) for size_counts in bins), default=0)
    width = 1 / len(bins) if bins else 1.0
    marks = [mark for number, size_counts in enumerate(bins) for mark in _bar(size_counts, number, width, highest)]
    step = -(-len(bins) // _MOST_LABELS) if bins else 1
    bottom = _HISTOGRAM_TOP + _HISTOGRAM_PLOT
    marks.append(element("line", x1=0, x2="100%", y1=bottom, y2=bottom, class_="grid"))
    marks += [
        label(format_bytes(size_counts.from_bytes), number * width, bottom + 14, "axis")
        for number, size_counts in enumerate(bins)
        if number % step == 0
    ]
    if bins and bins[0].from_bytes <= target_bytes:
        at = _place(bins, target_bytes) * width
        marks.append(element("line", x1=percent(at), x2=percent(at), y1=_HISTOGRAM_TOP - 6, y2=bottom, class_="target"))
        marks.append(label(f"target {format_bytes(target_bytes)}", at, 10, "axis", "end" if at > 0.5 else "start"))
    if not bins:
        marks.append(label("There are no files.", 0.5, _HISTOGRAM_TOP + _HISTOGRAM_PLOT / 2, "nothing", "middle"))
    legend = tuple((f"s{number}", kind) for number, kind in enumerate(kinds))
    return Chart(drawing(marks, title, bottom + _HISTOGRAM_AXIS), title, _histogram_figures(bins, kinds), legend)


def _bar(counts: SizeCounts, number: int, width: float, highest: int) -> list[Markup]:
    x, y = (number + _GAP / 2) * width, float(_HISTOGRAM_TOP + _HISTOGRAM_PLOT)
    marks: list[Markup] = []
    for kind, count in enumerate(counts.counts):
        if not count:
            continue
        height = max(1.0, _HISTOGRAM_PLOT * count / highest)
        y -= height
        marks.append(
            element(
                "rect",
                element("title", f"{format_bytes(counts.from_bytes)} and more: {format_count(count)}"),
                x=percent(x),
                y=y,
                width=percent(width * (1 - _GAP)),
                height=height,
                class_=f"s{kind}",
            )
        )
    return marks


def _place(bins: Sequence[SizeCounts], size: int) -> float:
    """Where the size stands among the bins, in widths of a bin; within one by its share of the bin's range."""
    for number, size_counts in enumerate(bins):
        end = bins[number + 1].from_bytes if number + 1 < len(bins) else 2 * size_counts.from_bytes
        if size < end:
            return number + (size - size_counts.from_bytes) / (end - size_counts.from_bytes)
    return float(len(bins))


def _histogram_figures(bins: Sequence[SizeCounts], kinds: Sequence[str]) -> Figures:
    rows = tuple((format_bytes(slot.from_bytes), *map(format_count, slot.counts)) for slot in bins)
    return Figures(("From", *kinds), rows)


class StepState(StrEnum):
    """How far a step is."""

    DONE = "done"
    CURRENT = "current"
    WAITING = "waiting"  # stopped until a person or a time lets it go on
    FAILED = "failed"
    TO_COME = "to come"
    SKIPPED = "skipped"  # the process ended before


@dataclass(frozen=True, slots=True)
class Step:
    """A step; `at_ms` is when it began, 0: unknown or not yet."""

    name: str
    state: StepState
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of a process: its status, and UTC milliseconds of what happened (0: it did not)."""

    status: str
    created_ms: int
    finished_ms: int
    scheduled_ms: int = 0  # the first task
    acked_ms: int = 0  # the first task began
    worked_ms: int = 0  # the last task ended, and none is left
    has_tasks: bool = True
    waits: bool = False  # its commit waits


_ENDED = {"success": "done", "partial": "done in part"}
_WAITING = (ProcessStatus.REQUESTED, ProcessStatus.HELD, ProcessStatus.COMMIT_UNKNOWN)
_AFTER_WORK = (ProcessStatus.COMMITTING, ProcessStatus.COMMIT_UNKNOWN, ProcessStatus.CLEARING)


def steps(progress: Progress) -> Sequence[Step]:
    """The steps in their order, each with its state and the time at which it began. Without tasks two are left out."""
    finishing = "removing files" if progress.status == ProcessStatus.CLEARING else "checking and committing"
    times = [("planned", progress.created_ms)]
    if progress.has_tasks:
        times += [("scheduled", progress.scheduled_ms), ("running", progress.acked_ms)]
    times.append((finishing, progress.worked_ms))
    reached = _reached(progress, len(times) - 1)
    state = StepState.WAITING if progress.waits or progress.status in _WAITING else StepState.CURRENT
    after = StepState.SKIPPED if progress.finished_ms else StepState.TO_COME
    result = [
        Step(name, StepState.DONE if number < reached else after, at_ms) for number, (name, at_ms) in enumerate(times)
    ]
    if not progress.finished_ms:
        result[reached] = Step(times[reached][0], state, times[reached][1])
        return [*result, Step("done", StepState.TO_COME)]
    end = StepState.DONE if progress.status in _ENDED else StepState.FAILED
    return [*result, Step(_ENDED.get(progress.status, progress.status), end, progress.finished_ms)]


def _reached(progress: Progress, finishing: int) -> int:
    """The number of the step that is going on, is next, or was never begun; `finishing` is that of the last of them."""
    if progress.status in _ENDED:
        return finishing + 1
    if progress.status in _AFTER_WORK or progress.worked_ms:
        return finishing
    return min(finishing, 2 if progress.acked_ms else 1)
