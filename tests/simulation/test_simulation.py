"""Seeds of the simulation; a failure says how a seed is repeated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.simulation import run
from tests.tiers import count, seeds

SEED = int(os.environ.get("AMORO_SEED", "0"))
STEPS = int(os.environ.get("AMORO_STEPS", "100"))
CHUNKS = count(2, 5)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_happens_all_that_must_hold_holds_and_everything_comes_to_rest(chunk: int) -> None:
    for seed in seeds(16, 44)[chunk::CHUNKS]:
        run(seed, STEPS)


def test_replay_of_one_seed() -> None:
    outcome = run(SEED, STEPS)
    assert outcome.steps >= STEPS


def test_equal_seeds_have_equal_traces_in_any_process() -> None:
    """Whatever the order of hashes is there."""
    tell = "from tests.simulation.simulation import run; outcome = run(7); print(outcome.trace, outcome.steps)"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    said = subprocess.check_output([sys.executable, "-c", tell], env=environment, text=True)
    here, other = run(7), run(8)
    assert said == f"{here.trace} {here.steps}\n"
    assert other.trace != here.trace
