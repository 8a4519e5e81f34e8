"""`kill -9` of coordinator and optimizer while a table is clustered, at failpoints and at any moment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.kills import rounds
from tests.kills.site import PROPERTIES
from tests.model.conftest import quick_directory

NAME = "clustering-kills"
WHAT = (
    "As `kills`, with a table of two partitions that is clustered along a Hilbert curve two times of three, else "
    "rewritten in full, group by group in every second batch. A mismatch is also a group that is committed twice."
)
TARGETS = {"kills": 200}
SECONDS = 120.0
REPLAYS = False

KILLS_PER_BATCH = 15
CLUSTERED = {**PROPERTIES, "self-optimizing.cluster.columns": "id,value"}


def run(seed: int, totals: Counter[str]) -> None:
    progress = {"self-optimizing.cluster.partial-progress": str(seed % 2 == 0).lower()}
    with quick_directory() as made:
        rounds.run(
            seed,
            KILLS_PER_BATCH,
            Path(made),
            totals,
            kinds=("cluster", "cluster", "full"),
            properties={**CLUSTERED, **progress},
        )
