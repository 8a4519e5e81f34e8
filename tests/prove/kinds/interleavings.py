"""The matrix of interleavings, then pairs of operations at any two points."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from amoro_core.iceberg.catalogs import close_catalogs
from tests.model.conftest import quick_directory
from tests.model.interleaving import MATRIX, Case, carry_out, pair
from tests.model.stages import Stages

NAME = "interleavings"
WHAT = (
    f"The first {len(MATRIX)} are the whole matrix (operation × point × table), of which `make test` runs half, all "
    "after them two operations by chance at one point or two. A mismatch: as with schedules, and for the matrix "
    "any other end of the process than the one that the operation leaves."
)
TARGETS = {"interleavings": len(MATRIX)}
SECONDS = 60.0
REPLAYS = True

CASES_PER_BATCH = 64


def case(number: int) -> Case:
    return MATRIX[number] if number < len(MATRIX) else pair(random.Random(number))


def run(seed: int, totals: Counter[str]) -> None:
    with quick_directory() as made:
        stages = Stages(Path(made) / "stages")
        try:
            for number in range(seed * CASES_PER_BATCH, (seed + 1) * CASES_PER_BATCH):
                one = case(number)
                print(f"interleaving {number}: {one}")
                status = carry_out(one, Path(made) / str(number), stages)
                totals["interleavings"] += 1
                totals["of two operations"] += len(one.happenings) > 1
                totals[f"ended {status}"] += 1
        finally:
            close_catalogs()
            stages.close()
