"""Random schedules of the state machine, of which the seed decides everything."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Optimizing


def run(seed: int, examples: int, steps: int, totals: Counter[str], *, shrinks: bool = False) -> None:
    """Run that many schedules; what happened is counted in `totals`, also when one fails.

    Raises what the first failing schedule raises; with `shrinks` a shorter one is looked for first.
    """

    class Counting(Optimizing):
        counts = totals

    run_state_machine_as_test(
        seeded(seed)(Counting),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=False,
            print_blob=True,
            deadline=None,
            database=None,  # nothing is remembered, so that the seed is all that counts
            phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
            verbosity=Verbosity.normal,
            suppress_health_check=list(HealthCheck),
        ),
    )
