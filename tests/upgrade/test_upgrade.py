"""State files of earlier versions, saved in the midst of their work: this one opens them, and everything ends right."""

from __future__ import annotations

import pytest

from amoro_core.model.processes import ProcessStatus, TaskStatus
from tests.tiers import count
from tests.upgrade.make import statuses
from tests.upgrade.resumed import STATES, resumed

NAMES = sorted(path.stem for path in STATES.glob("*.json"))


def test_the_saved_states_of_a_version_have_every_status_between_them() -> None:
    found: set[str] = set()
    for name in NAMES:
        with resumed(name) as (world, saved):
            world.watch.look()
            assert statuses(world) == set(saved["statuses"])
            found |= statuses(world)
    assert found == {
        *(
            f"process {one}"
            for one in (
                ProcessStatus.RUNNING,
                ProcessStatus.COMMITTING,
                ProcessStatus.COMMIT_UNKNOWN,
                ProcessStatus.SUCCESS,
                ProcessStatus.PARTIAL,
                ProcessStatus.FAILED,
                ProcessStatus.CLOSED,
            )
        ),
        *(f"task {one}" for one in TaskStatus),
    }


@pytest.mark.parametrize("seed", range(count(1, 3)))
@pytest.mark.parametrize("name", NAMES)
def test_everything_that_an_earlier_version_left_open_ends_as_it_would_have_ended_there(name: str, seed: int) -> None:
    with resumed(name, seed) as (world, saved):
        world._rest()
        world._finish()
        assert {key: world.watch.processes[key][1] for key in saved["ends"]} == saved["ends"]


@pytest.mark.parametrize("seed", range(count(1, 3)))
@pytest.mark.parametrize("name", NAMES)
def test_whatever_happens_after_an_upgrade_no_row_is_lost_and_everything_comes_to_rest(name: str, seed: int) -> None:
    with resumed(name, seed) as (world, _):
        for _ in range(60):
            world._do(*world._drawn())
        world._rest()
        world._finish()
