"""Which processes may be active on one table together: every pair of lanes, asserted whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amoro_core.model.lanes import LANES
from amoro_core.model.processes import OptimizingProcess, ProcessStatus
from amoro_core.state.lanes import EXCLUDING, in_the_way
from tests.unit.test_machines import RUNNING

FORMER = ("files", "metadata", "storage")
TOGETHER = {
    ("files", "files"): False,
    ("files", "metadata"): True,
    ("files", "storage"): True,
    ("metadata", "files"): True,
    ("metadata", "metadata"): False,
    ("metadata", "storage"): False,
    ("storage", "files"): True,
    ("storage", "metadata"): False,
    ("storage", "storage"): False,
    ("statistics", "statistics"): False,
    ("layout", "layout"): False,
    **{
        pair: True
        for one, others in (("statistics", FORMER), ("layout", (*FORMER, "statistics")))
        for other in others
        for pair in ((other, one), (one, other))
    },
}


def occupied(process_id: str, lane: str, status: str = ProcessStatus.RUNNING) -> OptimizingProcess:
    return replace(RUNNING, process_id=process_id, lane=lane, status=status)


@pytest.mark.parametrize("status", [ProcessStatus.RUNNING, ProcessStatus.COMMITTING, ProcessStatus.CLEARING])
def test_every_pair_of_lanes_is_allowed_or_not_as_the_table_says(status: ProcessStatus) -> None:
    found = {
        (active, lane): in_the_way(lane, [occupied("p", active, status)]) is None for active in LANES for lane in LANES
    }
    assert found == TOGETHER


@pytest.mark.parametrize("status", [ProcessStatus.HELD, ProcessStatus.REQUESTED])
def test_a_process_that_waits_for_a_word_is_in_nobody_s_way(status: ProcessStatus) -> None:
    held = occupied("p", "files", status)
    assert [in_the_way(lane, [held]) for lane in LANES] == [None] * len(LANES)


@pytest.mark.parametrize("active", LANES)
@pytest.mark.parametrize("lane", LANES)
def test_nothing_begins_beside_an_unknown_commit_whatever_the_lanes(active: str, lane: str) -> None:
    unknown = occupied("p", active, ProcessStatus.COMMIT_UNKNOWN)
    assert in_the_way(lane, [unknown]) == (unknown, "it is not known whether its commit was applied")


def test_an_empty_table_is_free_in_every_lane() -> None:
    assert [in_the_way(lane, []) for lane in LANES] == [None] * len(LANES)


def test_the_reason_names_the_lane_or_the_pair() -> None:
    expiry, rewrite = occupied("a", "metadata"), occupied("b", "files")
    assert in_the_way("storage", [rewrite, expiry]) == (expiry, "the lanes metadata and storage exclude each other")
    assert in_the_way("files", [rewrite, expiry]) == (rewrite, "it holds the lane files")


def test_data_expiry_and_the_lane_layout_exclude_each_other_though_its_lane_does_not() -> None:
    expiry = replace(occupied("p", "files"), action="expire-data")
    words = "expire-data and the lane layout exclude each other"
    assert in_the_way("layout", [expiry], action="cluster") == (expiry, words)
    ordering = replace(occupied("q", "layout"), action="cluster")
    assert in_the_way("files", [ordering], action="expire-data") == (ordering, words)
    assert in_the_way("files", [ordering], action="optimizing") is None
    assert in_the_way("layout", [replace(expiry, status=ProcessStatus.HELD)], action="cluster") is None


def test_a_further_lane_is_a_row_of_the_tables() -> None:
    """As issues to come add lanes: beside files, never beside storage."""
    excluding = EXCLUDING | {frozenset({"vectors", "storage"})}
    together = {lane: in_the_way("vectors", [occupied("p", lane)], excluding) is None for lane in (*LANES, "vectors")}
    assert together == {
        "files": True, "metadata": True, "storage": False, "statistics": True, "layout": True, "vectors": False,
    }  # fmt: skip
