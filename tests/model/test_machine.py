"""Random schedules of two coordinators and all writers. AMORO_EXAMPLES, AMORO_STEPS and AMORO_SEED choose others."""

from __future__ import annotations

import os
import secrets

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Optimizing

EXAMPLES = int(os.environ.get("AMORO_EXAMPLES", "60"))
STEPS = int(os.environ.get("AMORO_STEPS", "20"))
SEED = int(os.environ.get("AMORO_SEED") or secrets.randbits(32))


@pytest.mark.timeout(0)  # the size is the caller's
def test_every_ref_keeps_its_rows_in_random_schedules() -> None:
    print(f"replay with AMORO_SEED={SEED} AMORO_EXAMPLES={EXAMPLES} AMORO_STEPS={STEPS}")
    try:
        run_state_machine_as_test(
            seed(SEED)(Optimizing),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                derandomize=False,
                print_blob=True,
                deadline=None,
                database=None,
                phases=(Phase.generate, Phase.shrink),
                verbosity=Verbosity.normal,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        print("  ".join(f"{name}: {number}" for name, number in sorted(Optimizing.counts.items())))
