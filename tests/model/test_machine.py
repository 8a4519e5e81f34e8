"""Random schedules of two coordinators and all writers. AMORO_EXAMPLES, AMORO_STEPS and AMORO_SEED choose others."""

from __future__ import annotations

import os
import secrets
from collections import Counter

import pytest

from tests.model import schedules
from tests.services.remembering import DECODED

EXAMPLES = int(os.environ.get("AMORO_EXAMPLES", "60"))
STEPS = int(os.environ.get("AMORO_STEPS", "20"))
SEED = int(os.environ.get("AMORO_SEED") or secrets.randbits(32))


@pytest.mark.timeout(0)  # the size is the caller's
def test_every_ref_keeps_its_rows_in_random_schedules() -> None:
    print(f"replay with AMORO_SEED={SEED} AMORO_EXAMPLES={EXAMPLES} AMORO_STEPS={STEPS}")
    totals: Counter[str] = Counter()
    try:
        schedules.run(SEED, EXAMPLES, STEPS, totals, shrinks=True)
    finally:
        print("  ".join(f"{name}: {number}" for name, number in sorted(totals.items())))
    assert totals["files copied"]
    assert totals[DECODED]


def test_the_same_seed_goes_the_same_way() -> None:
    first, second, other = Counter[str](), Counter[str](), Counter[str]()
    schedules.run(1, 5, 8, first)
    schedules.run(1, 5, 8, second)
    schedules.run(2, 5, 8, other)
    assert first["schedules"] == 5
    assert first == second
    assert first != other
