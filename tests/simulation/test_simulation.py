"""Seeds of the simulation: AMORO_SEEDS chooses how many, AMORO_SEED and AMORO_STEPS one to be seen again.

`make prove` runs these and many more.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.simulation import run

SEEDS = int(os.environ.get("AMORO_SEEDS", "250"))
CHUNKS = 10
STEPS = int(os.environ.get("AMORO_STEPS", "100"))


@pytest.mark.timeout(0)  # the size is the caller's
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_happens_all_that_must_hold_holds_and_everything_comes_to_rest(chunk: int) -> None:
    for seed in range(SEEDS * chunk // CHUNKS, SEEDS * (chunk + 1) // CHUNKS):
        run(seed, STEPS)


def test_replay_of_one_seed() -> None:
    outcome = run(int(os.environ.get("AMORO_SEED", "0")), STEPS)
    assert outcome.steps >= STEPS


@pytest.mark.parametrize("seed", [7, 8])
def test_equal_seeds_have_equal_traces_in_any_process(seed: int) -> None:
    """Whatever the order of hashes is there."""
    tell = f"from tests.simulation.simulation import run; outcome = run({seed}); print(outcome.trace, outcome.steps)"
    said = {
        subprocess.run(
            [sys.executable, "-c", tell],
            env={**os.environ, "PYTHONHASHSEED": order},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout
        for order in ("1", "2")
    }
    assert len(said) == 1
    assert said == {f"{run(seed).trace} {run(seed).steps}\n"}


def test_another_seed_has_another_trace() -> None:
    assert run(7).trace != run(8).trace


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulation.lake.Lake.require_whole", lambda lake: 1 / 0)
    with pytest.raises(AssertionError, match="AMORO_SEED=7 AMORO_STEPS=100 pytest tests/simulation -k replay"):
        run(7)
