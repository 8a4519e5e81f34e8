"""Stories of writes, maintenance and undo, beside a list of the rows that each snapshot should have."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.model import whole_stories
from tests.model.conftest import quick_directory

NAME = "undoing"
WHAT = (
    "Ten random stories of a table of thirty steps each (`tests/model/whole_stories.py`): writers, optimizing, every "
    "action of maintenance, the sweep, tags and rollbacks, and undo of what was done, with hours and days between. A "
    "mismatch: rows of the head or of any snapshot that differ from those that they should be, also after an expired "
    "snapshot or expired data came back; an undo that was planned and does not land; a process that is held or fails. "
    "The table says what was done and what was taken back; what could not be is `refused`."
)
TARGETS = {"stories": 300}
SECONDS = 60.0
REPLAYS = True

STORIES, STEPS = 10, 30


def run(seed: int, totals: Counter[str]) -> None:
    with quick_directory() as made:
        whole_stories.run(range(seed * STORIES, (seed + 1) * STORIES), STEPS, Path(made), totals)
