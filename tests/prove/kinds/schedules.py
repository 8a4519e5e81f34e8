"""Random schedules of two coordinators and all writers over one table."""

from __future__ import annotations

from collections import Counter

from tests.model import schedules

NAME = "schedules"
WHAT = (
    "Random schedules of the model of rows (`tests/model/machine.py`): writers, changes of schema, spec and refs, and "
    "the steps of two coordinators in any order, with deaths and lost answers. A mismatch: a ref whose rows differ "
    "from the model's, a process that lands twice or does not end, a file that is missing or left behind. The table "
    "says how often an operation came while a process was at that stage."
)
TARGETS = {"schedules": 2000}
SECONDS = 60.0
REPLAYS = True

EXAMPLES = 25
STEPS = 20


def run(seed: int, totals: Counter[str]) -> None:
    schedules.run(seed, EXAMPLES, STEPS, totals)
