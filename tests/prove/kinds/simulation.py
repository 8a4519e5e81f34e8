"""The coordinator's core in a simulated world, seed after seed."""

from __future__ import annotations

from collections import Counter

from tests.simulation import simulation

NAME = "simulation"
WHAT = (
    f"A hundred seeds of the simulation (`tests/simulation`): {simulation.STEPS} events each over tables, processes, "
    "tasks and optimizers by a virtual clock, with messages lost, late and twice, commits whose outcome nobody knows, "
    "clocks that are set, and deaths of coordinator and optimizers at any effect; then all must come to rest. A "
    "mismatch: a step that no state machine has, a result that counts twice, two processes on a table, a process that "
    "lands twice or otherwise than it says, a row lost or doubled, a file missing, a task forgotten, a thread idle "
    "while tasks wait, or no rest within bounded virtual time."
)
TARGETS = {"simulated seeds": 5000}
SECONDS = 60.0
REPLAYS = True

SEEDS_PER_BATCH = 100


def run(seed: int, totals: Counter[str]) -> None:
    for number in range(seed * SEEDS_PER_BATCH, (seed + 1) * SEEDS_PER_BATCH):
        outcome = simulation.run(number)
        totals["simulated seeds"] += 1
        totals["simulated events"] += outcome.steps
        totals.update({f"simulated: {name}": count for name, count in outcome.counts.items()})
