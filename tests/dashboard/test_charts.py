"""Charts: what is drawn, where, and that the figures beside it are the same."""

import re
from xml.etree.ElementTree import Element

import pytest
from defusedxml.ElementTree import fromstring

from amoro_core.dashboard.charts.gantt import MOST_BARS, Bar, gantt
from amoro_core.dashboard.charts.lines import MOST_POINTS, Line, lines
from amoro_core.dashboard.charts.scales import ceiling, duration, elapsed, moments
from amoro_core.dashboard.charts.steps import Progress, StepState, steps
from amoro_core.dashboard.charts.svg import Chart, element

SVG = "{http://www.w3.org/2000/svg}"
MINUTE = 60_000
NOON = 1_772_366_400_000  # 2026-03-01 12:00 UTC


def drawn(chart: Chart) -> Element:
    """The drawing as XML: a mark that was not escaped would break it."""
    return fromstring(chart.svg)


def marked(chart: Chart, class_: str) -> list[Element]:
    return [item for item in drawn(chart).iter() if class_ in item.get("class", "").split()]


# --- elements ---


def test_what_strangers_wrote_is_escaped_in_texts_and_attributes() -> None:
    made = element("text", '<script>alert("1")</script>\u202e\x07', class_='a"b', text_anchor="end")
    assert made == (
        '<text class="a&quot;b" text-anchor="end">&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;\\u202e\\x07</text>'
    )


def test_markup_inside_is_kept_and_empty_attributes_are_left_out() -> None:
    assert element("g", element("rect", x=1, y=0.5), class_="") == '<g><rect x="1" y="0.5"></rect></g>'


# --- axes ---


@pytest.mark.parametrize(
    ("value", "top"), [(-1, 1), (0, 1), (0.3, 0.5), (1, 1), (1.01, 2), (2.5, 2.5), (2.6, 5), (99, 100), (7000, 10000)]
)
def test_a_ceiling_is_a_round_number_not_below_the_value(value: float, top: float) -> None:
    assert ceiling(value) == pytest.approx(top)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0"),
        (999, "999 ms"),
        (14_200, "14.2 s"),
        (60_000, "1 min"),
        (185_000, "3 min 5 s"),
        (7_800_000, "2 h 10 min"),
        (273_600_000, "3 d 4 h"),
    ],
)
def test_durations_have_two_units(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


def test_times_of_an_axis_are_round() -> None:
    assert moments(NOON, NOON + 60 * MINUTE) == [
        (0.0, "12:00"),
        (10 / 60, "12:10"),
        (20 / 60, "12:20"),
        (0.5, "12:30"),
        (40 / 60, "12:40"),
        (50 / 60, "12:50"),
        (1.0, "13:00"),
    ]
    assert [text for _, text in moments(NOON, NOON + 4 * 24 * 60 * MINUTE)] == ["Mar 02", "Mar 03", "Mar 04", "Mar 05"]
    assert elapsed(25_000) == [(0.0, "0"), (0.2, "5 s"), (0.4, "10 s"), (0.6, "15 s"), (0.8, "20 s"), (1.0, "25 s")]


# --- Gantt ---


def attempt(number: int, thread: int, start: int, took: int, state: str = "success", by: str = "one") -> Bar:
    return Bar(by, thread, start, start + took, state, f"task {number}")


def test_each_attempt_is_a_bar_in_the_lane_of_its_thread() -> None:
    chart = gantt(
        [attempt(1, 1, 0, 500), attempt(2, 2, 0, 1000, "failed"), attempt(2, 1, 500, 500, "running", "two")], "Work"
    )
    bars = [(bar.get("x"), bar.get("y"), bar.get("width"), bar.get("class")) for bar in marked(chart, "bar")]
    assert bars == [
        ("0", "17", "50%", "bar success"),
        ("0", "26", "100%", "bar failed"),
        ("50%", "52", "50%", "bar running"),
    ]
    assert [lane.text for lane in marked(chart, "lane")] == ["optimizer one", "optimizer two"]
    told = marked(chart, "bar")[2].find(f"{SVG}title")
    assert told is not None
    assert told.text == "task 2, thread 1: running, 500 ms from 500 ms"
    assert chart.legend == (
        ("bar failed", "failed: 1"),
        ("bar running", "running: 1"),
        ("bar success", "success: 1"),
    )
    assert chart.figures.rows == (
        ("one", "1", "1", "500 ms", "50%", "500 ms", "0"),
        ("one", "2", "1", "1 s", "100%", "1 s", "1"),
        ("two", "1", "1", "500 ms", "50%", "500 ms", "0"),
    )


def test_lanes_are_in_the_order_in_which_optimizers_began() -> None:
    chart = gantt([attempt(1, 1, 700, 10, by="a"), attempt(2, 1, 0, 10, by="b")], "Work")
    assert [lane.text for lane in marked(chart, "lane")] == ["optimizer b", "optimizer a"]


def test_above_two_thousand_bars_lanes_show_how_much_was_in_use() -> None:
    at_most = [attempt(number, 1, number * 10, 10) for number in range(MOST_BARS)]
    assert len(marked(gantt(at_most, "Work"), "bar")) == MOST_BARS
    more = [*at_most, attempt(MOST_BARS, 2, 0, 10_000)]
    chart = gantt(more, "Work")
    assert marked(chart, "bar") == []
    # The first thread was always at work, the second for the first half of the time.
    assert [(mark.get("x"), mark.get("width"), mark.get("class")) for mark in marked(chart, "load")] == [
        ("0", "100%", "load l5"),
        ("0", "50%", "load l5"),
    ]
    assert chart.figures.rows[1] == ("one", "2", "1", "10 s", "50%", "10 s", "0")


def test_a_density_is_the_share_of_time_in_use() -> None:
    bars = [attempt(number, 1, number * 10, 3) for number in range(MOST_BARS + 1)]
    assert {mark.get("class") for mark in marked(gantt(bars, "Work"), "load")} == {"load l2"}


def test_very_many_threads_share_the_lane_of_their_optimizer() -> None:
    bars = [attempt(1, thread, 0, 100, by=f"o{number}") for number in range(3) for thread in range(100)]
    chart = gantt(bars, "Work")
    assert [row[:3] for row in chart.figures.rows] == [(f"o{number}", "100 threads", "100") for number in range(3)]
    assert [mark.get("class") for mark in marked(chart, "load")] == ["load l5"] * 3


def test_lanes_and_marks_are_bounded() -> None:
    bars = [attempt(1, 1, number % 7, 3 + number % 5, by=f"o{number}") for number in range(5000)]
    chart = gantt(bars, "Work")
    assert [lane.text for lane in marked(chart, "lane")][-1] == "and 4,800 more"
    assert len(marked(chart, "track")) == 200
    assert len(marked(chart, "load")) <= 4000


def test_a_process_without_attempts_says_so() -> None:
    chart = gantt([], "Work")
    assert [item.text for item in marked(chart, "nothing")] == ["No attempts yet."]
    assert chart.figures.rows == ()


def test_attempts_that_took_no_time_are_seen() -> None:
    assert [bar.get("width") for bar in marked(gantt([attempt(1, 1, 5, 0)], "Work"), "bar")] == ["0.1%"]


# --- lines ---


def paths(chart: Chart) -> list[str]:
    return [item.get("d", "") for item in marked(chart, "line") if item.tag == f"{SVG}path"]


def test_values_in_their_steps_are_joined() -> None:
    line = Line("busy", [(0, 0), (MINUTE, 5), (2 * MINUTE, 10)], MINUTE)
    chart = lines([line], 0, 2 * MINUTE, "Threads")
    assert paths(chart) == ["M0 120L500 60L1000 0"]
    assert chart.figures.headers == ("Time (UTC)", "busy")
    assert chart.figures.rows == (
        ("1970-01-01 00:02", "10"),
        ("1970-01-01 00:01", "5"),
        ("1970-01-01 00:00", "0"),
    )
    assert chart.legend == (("line s0", "busy"),)


def test_time_without_values_is_a_gap_and_a_lone_value_a_dot() -> None:
    line = Line("busy", [(0, 1), (MINUTE, 1), (4 * MINUTE, 1), (8 * MINUTE, 1), (9 * MINUTE, 1)], MINUTE)
    assert paths(lines([line], 0, 10 * MINUTE, "Threads")) == ["M0 0L100 0M400 0h0M800 0L900 0"]


def test_lines_share_the_axis_and_the_table() -> None:
    more, less = Line("more", [(0, 80)], MINUTE), Line("less", [(0, 20), (MINUTE, 40)], MINUTE)
    chart = lines([more, less], 0, MINUTE, "Threads", write="{:.1f}".format)
    assert paths(chart) == ["M0 24h0", "M0 96L1000 72"]
    assert [item.text for item in marked(chart, "axis")][-2:] == ["50.0", "100.0"]
    assert chart.figures.rows == (("1970-01-01 00:01", "-", "40.0"), ("1970-01-01 00:00", "80.0", "20.0"))


def test_values_outside_of_the_range_are_left_out() -> None:
    line = Line("busy", [(0, 900), (MINUTE, 1), (3 * MINUTE, 900)], MINUTE)
    assert [row[1] for row in lines([line], MINUTE, 2 * MINUTE, "Threads").figures.rows] == ["1"]


def test_many_points_are_averaged_over_longer_steps_and_gaps_stay() -> None:
    first = [(minute * MINUTE, float(minute % 2)) for minute in range(600)]
    last = [(minute * MINUTE, 1.0) for minute in range(900, 1200)]
    chart = lines([Line("busy", [*first, *last], MINUTE)], 0, 1200 * MINUTE, "Threads")
    assert len(chart.figures.rows) == 150 + 75  # steps of four minutes
    assert {row[1] for row in chart.figures.rows} == {"0.5", "1"}
    assert len(re.findall("M", paths(chart)[0])) == 2
    assert len(chart.figures.rows) <= MOST_POINTS


def test_no_values_are_told_and_not_drawn() -> None:
    chart = lines([Line("busy", [], MINUTE)], 0, MINUTE, "Threads")
    assert paths(chart) == []
    assert [item.text for item in marked(chart, "nothing")] == ["No values in this time."]


# --- steps ---


def told(known: Progress) -> list[tuple[str, str]]:
    return [(step.name, step.state.value) for step in steps(known)]


def test_a_running_process_is_at_its_tasks() -> None:
    assert told(Progress("running", 1, 0)) == [
        ("planned", "done"),
        ("scheduled", "current"),
        ("running", "to come"),
        ("checking and committing", "to come"),
        ("done", "to come"),
    ]
    assert [state for _, state in told(Progress("running", 1, 0, scheduled_ms=2, acked_ms=3))] == [
        *("done", "done", "current", "to come", "to come"),
    ]


def test_a_process_that_succeeded_has_done_all_steps_at_their_times() -> None:
    made = steps(Progress("success", 1, 9, scheduled_ms=2, acked_ms=3, worked_ms=7))
    assert [(step.state, step.at_ms) for step in made] == [(StepState.DONE, at) for at in (1, 2, 3, 7, 9)]
    assert told(Progress("partial", 1, 9, 2, 3, 7))[-1] == ("done in part", "done")


@pytest.mark.parametrize("status", ["failed", "closed", "of_a_plugin"])
def test_a_process_that_failed_says_where(status: str) -> None:
    assert told(Progress(status, 1, 9, scheduled_ms=2, acked_ms=3)) == [
        ("planned", "done"),
        ("scheduled", "done"),
        ("running", "skipped"),
        ("checking and committing", "skipped"),
        (status, "failed"),
    ]


@pytest.mark.parametrize(
    ("known", "name", "state"),
    [
        (Progress("held", 1, 0), "scheduled", "waiting"),
        (Progress("requested", 1, 0), "scheduled", "waiting"),
        (Progress("committing", 1, 0, 2, 3, 7), "checking and committing", "current"),
        (Progress("committing", 1, 0, 2, 3, 7, waits=True), "checking and committing", "waiting"),
        (Progress("commit_unknown", 1, 0, 2, 3, 7), "checking and committing", "waiting"),
        (Progress("clearing", 1, 0, 2, 3, 7), "removing files", "current"),
        (Progress("running", 1, 0, has_tasks=False), "checking and committing", "current"),
    ],
)
def test_the_step_that_is_going_on(known: Progress, name: str, state: str) -> None:
    (at,) = [step for step in told(known) if step[1] not in ("done", "to come")]
    assert at == (name, state)
