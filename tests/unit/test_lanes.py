"""Which processes may be active on one table together: every pair of lanes, asserted whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amoro_core.model.lanes import LANES
from amoro_core.model.processes import OptimizingProcess, ProcessStatus
from amoro_core.state.lanes import EXCLUDING, in_the_way
from tests.unit.test_process_machine import RUNNING

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
    **{
        pair: True
        for other in ("files", "metadata", "storage")
        for pair in ((other, "statistics"), ("statistics", other))
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


def test_a_held_process_is_in_nobody_s_way() -> None:
    held = occupied("p", "files", ProcessStatus.HELD)
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


def test_a_further_lane_is_a_row_of_the_tables() -> None:
    """As issues to come add lanes: beside files, never beside storage."""
    excluding = EXCLUDING | {frozenset({"layout", "storage"})}
    together = {lane: in_the_way("layout", [occupied("p", lane)], excluding) is None for lane in (*LANES, "layout")}
    assert together == {"files": True, "metadata": True, "storage": False, "statistics": True, "layout": False}
