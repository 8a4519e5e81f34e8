"""Charts: what is drawn, where, and that the figures beside it are the same."""

import re
from typing import Any
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import fromstring

from amoro_core.web.charts import MOST_BARS, MOST_POINTS, Bar, Line, gantt, lines

SVG = "{http://www.w3.org/2000/svg}"
MINUTE = 60_000


def drawn(chart: Any) -> Element:
    """The drawing as XML: a mark that was not escaped would break it."""
    return fromstring(chart.svg)


def marked(chart: Any, class_: str) -> list[Element]:
    return [item for item in drawn(chart).iter() if class_ in item.get("class", "").split()]


# --- Gantt ---


def attempt(number: int, thread: int, start: int, took: int, state: str = "success", by: str = "one") -> Bar:
    return Bar(by, thread, start, start + took, state, f"task {number}")


def test_each_attempt_is_a_bar_in_the_lane_of_its_thread() -> None:
    running = attempt(2, 1, 500, 500, "running", "two")
    chart = gantt([attempt(1, 1, 0, 500), attempt(2, 2, 0, 1000, "failed"), running], "Work")
    bars = [" ".join(bar.get(key) for key in ("x", "y", "width", "class")) for bar in marked(chart, "bar")]
    assert bars == ["0 17 50% bar success", "0 26 100% bar failed", "50% 52 50% bar running"]
    assert [lane.text for lane in marked(chart, "lane")] == ["optimizer one", "optimizer two"]
    told = marked(chart, "bar")[2].find(f"{SVG}title")
    assert told is not None
    assert told.text == "task 2, thread 1: running, 500 ms from 500 ms"
    assert chart.legend == (("bar failed", "failed: 1"), ("bar running", "running: 1"), ("bar success", "success: 1"))
    assert chart.figures.rows == (
        ("one", "1", "1", "500 ms", "50%", "500 ms", "0"),
        ("one", "2", "1", "1 s", "100%", "1 s", "1"),
        ("two", "1", "1", "500 ms", "50%", "500 ms", "0"),
    )


def test_lanes_and_marks_are_bounded_and_above_two_thousand_bars_lanes_show_how_much_was_in_use() -> None:
    at_most = [attempt(number, 1, number * 10, 10) for number in range(MOST_BARS)]
    assert len(marked(gantt(at_most, "Work"), "bar")) == MOST_BARS
    more = [*at_most, attempt(MOST_BARS, 2, 0, 10_000)]
    chart = gantt(more, "Work")
    assert marked(chart, "bar") == []
    # The first thread was always at work, the second for the first half of the time.
    loads = [(mark.get("x"), mark.get("width"), mark.get("class")) for mark in marked(chart, "load")]
    assert loads == [("0", "100%", "load l5"), ("0", "50%", "load l5")]
    assert chart.figures.rows[1] == ("one", "2", "1", "10 s", "50%", "10 s", "0")
    bars = [attempt(1, 1, number % 7, 3 + number % 5, by=f"o{number}") for number in range(5000)]
    chart = gantt(bars, "Work")
    assert [lane.text for lane in marked(chart, "lane")][-1] == "and 4,800 more"
    assert len(marked(chart, "track")) == 200
    assert len(marked(chart, "load")) <= 4000


# --- lines ---


def paths(chart: Any) -> list[str]:
    return [item.get("d", "") for item in marked(chart, "line") if item.tag == f"{SVG}path"]


def test_time_without_values_is_a_gap_and_many_points_are_averaged_over_longer_steps() -> None:
    line = Line("busy", [(0, 1), (MINUTE, 1), (4 * MINUTE, 1), (8 * MINUTE, 1), (9 * MINUTE, 1)], MINUTE)
    assert paths(lines([line], 0, 10 * MINUTE, "Threads")) == ["M0 0L100 0M400 0h0M800 0L900 0"]
    first = [(minute * MINUTE, float(minute % 2)) for minute in range(600)]
    last = [(minute * MINUTE, 1.0) for minute in range(900, 1200)]
    chart = lines([Line("busy", [*first, *last], MINUTE)], 0, 1200 * MINUTE, "Threads")
    assert len(chart.figures.rows) == 150 + 75  # steps of four minutes
    assert {row[1] for row in chart.figures.rows} == {"0.5", "1"}
    assert len(re.findall("M", paths(chart)[0])) == 2
    assert len(chart.figures.rows) <= MOST_POINTS
