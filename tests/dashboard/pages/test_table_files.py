"""Files and snapshots of a table, and their charts."""

import asyncio

import pytest

from amoro_core.dashboard.charts.histogram import SizeCounts, histogram
from amoro_core.dashboard.charts.timeline import Moment, timeline
from amoro_core.dashboard.pages.looking import Looks
from amoro_core.dashboard.pages.table_snapshots import Compared, compare
from amoro_core.errors import InvalidArgument, WaitTimeout
from amoro_core.protocol import admin_pb2 as pb
from tests.dashboard import states
from tests.dashboard.pages.conftest import Site
from tests.dashboard.pages.test_table import OWN

BINS = (SizeCounts(1024, (3, 1)), SizeCounts(2048, (0, 0)), SizeCounts(4096, (1, 0)))


def test_a_histogram_has_a_bar_for_each_kind_and_the_same_numbers_as_a_table() -> None:
    made = histogram(BINS, ("data", "deletes"), 2048 + 1024, "Files by size")
    assert made.figures.rows == (("1.0 kB", "3", "1"), ("2.0 kB", "0", "0"), ("4.0 kB", "1", "0"))
    assert made.svg.count("<rect") == 3
    assert 'class="target"' in made.svg
    assert 'x1="50%"' in made.svg  # the target is in the middle of the second bin of three
    assert made.legend == (("s0", "data"), ("s1", "deletes"))


def test_the_highest_bar_is_as_high_as_the_plot() -> None:
    made = histogram(BINS, ("data", "deletes"), 1024, "Files by size")
    assert 'height="105"' in made.svg  # three of four files
    assert 'height="35"' in made.svg


def test_a_histogram_without_files_says_so() -> None:
    assert "There are no files." in histogram((), ("data",), 10, "Files by size").svg


def test_a_timeline_has_a_lane_for_each_branch_and_tag_and_marks_ours() -> None:
    moments = (Moment(2, 2000, "replace", True, ("main", "audit")), Moment(1, 1000, "append", False, ("<b>",)))
    made = timeline(moments, "Snapshots")
    assert made.svg.count("<circle") == 4
    assert made.svg.count('class="s1"') == 2
    assert "&lt;b&gt;" in made.svg
    assert "<b>" not in made.svg
    assert made.figures.rows[0] == ("2", "1970-01-01 00:00:02Z", "replace", "yes", "main, audit")


def test_a_timeline_of_one_moment_or_none_is_drawn() -> None:
    assert "<circle" in timeline((Moment(1, 5, "", False),), "Snapshots").svg
    assert "The table has no snapshot." in timeline((), "Snapshots").svg


def test_many_tags_have_a_bounded_number_of_lanes() -> None:
    moments = [Moment(number, number, "append", False, (f"tag-{number}",)) for number in range(100)]
    assert timeline(moments, "Snapshots").svg.count('class="strong"') == 20


def _snapshot(snapshot_id: int, **summary: str) -> pb.Snapshot:
    named = {f"total-{key.replace('_', '-')}": value for key, value in summary.items()}
    return pb.Snapshot(snapshot_id=snapshot_id, summary=named)


def test_two_snapshots_are_compared_by_their_totals() -> None:
    first = _snapshot(1, data_files="10", records="1000", files_size="2048")
    second = _snapshot(2, data_files="4", records="many", files_size="1024")
    assert compare((first, second), "1", "2") == (
        Compared("data files", "10", "4", "−6"),
        Compared("delete files", "-", "-", "-"),
        Compared("rows, deletes not subtracted", "1,000", "-", "-"),
        Compared("bytes", "2.0 kB", "1.0 kB", "−1.0 kB"),
    )
    assert compare((first, second), "1", "") == ()
    with pytest.raises(InvalidArgument, match="has no snapshot '3'"):
        compare((first, second), "1", "3")


def test_a_look_ends_in_its_time() -> None:
    async def run() -> None:
        async with Looks[str](at_once=0, deadline_s=0.01).looking("c", "wait"):
            raise AssertionError("there was room")

    with pytest.raises(WaitTimeout, match=r"c was not read within 0\.01 s"):
        asyncio.run(run())


def test_the_third_look_waits_for_the_end_of_one_before() -> None:
    async def run() -> list[str]:
        looks: Looks[str] = Looks(deadline_s=60)
        seen, release = [], asyncio.Event()

        async def look(name: str) -> None:
            async with looks.looking(name, "wait"):
                seen.append(name)
                await release.wait()

        async with asyncio.TaskGroup() as group:
            for name in ("a", "b", "c"):
                group.create_task(look(name))
            for _ in range(10):
                await asyncio.sleep(0)
            before = list(seen)
            release.set()
        assert seen == ["a", "b", "c"]
        return before

    assert asyncio.run(run()) == ["a", "b"]


def test_what_was_seen_is_remembered_up_to_a_number() -> None:
    looks: Looks[str] = Looks()
    for number in range(65):
        looks.remember((number,), str(number))
    assert looks.remembered((0,)) is None
    assert looks.remembered((1,)) == "1"


def test_pages_of_files_and_snapshots_ask_no_catalog(site: Site) -> None:
    client = site(lambda db: states.fill(db, 1))  # whose catalog is not there
    assert "No evaluation has read its files yet" in client.get("/tables/1/files").text
    assert "Read the snapshots" in client.get("/tables/1/snapshots").text


def test_what_reads_the_table_tells_that_its_catalog_is_not_there(site: Site) -> None:
    client = site(lambda db: states.fill(db, 1))
    for answer in (client.get("/tables/1/files/list"), client.post("/tables/1/snapshots", headers=OWN)):
        assert answer.status_code >= 400
        assert "AMORO-" in answer.text
