"""What others do beside a process that clusters: each operation at each moment, then pairs of them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from amoro_core.iceberg.catalogs import close_catalogs
from tests.model.clustered import WHOLE, ClusterCase, carry_out, pair
from tests.model.conftest import quick_directory
from tests.model.stages import Stages

NAME = "clustering-beside"
WHAT = (
    f"The first {len(WHOLE)} are all of operation × moment × format × partitions × update strategy beside a process "
    "that clusters (`tests/model/clustered.py`), of which `make test` runs a part; all after them two operations by "
    "chance at one moment or two. A mismatch: a row lost, doubled or brought back in any ref, a group committed "
    "twice, a file missing or left behind, or another end of the process than the one operation leaves."
)
TARGETS = {"interleavings": len(WHOLE)}
SECONDS = 180.0
REPLAYS = True

CASES_PER_BATCH = 64


def case(number: int) -> ClusterCase:
    return WHOLE[number] if number < len(WHOLE) else pair(random.Random(number))


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
