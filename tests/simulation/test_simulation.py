"""Seeds of the simulation, and thread time by quotas; a failure says how a seed is repeated."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from heapq import heappop, heappush
from pathlib import Path

import pytest

from amoro_core.model.processes import Attempt
from amoro_core.model.tables import OptimizingStatus, TableIdentifier
from amoro_core.model.task_payload import RewriteOutput
from amoro_core.store import processes, tables, tasks
from tests.model.conftest import quick_directory
from tests.simulation.coordinator import Coordinator
from tests.simulation.lake import Lake, LakeFormat
from tests.simulation.simulation import START, run
from tests.store import builders
from tests.tiers import count, sample, seeds

SEED = int(os.environ.get("AMORO_SEED", "0"))
STEPS = int(os.environ.get("AMORO_STEPS", "100"))
CHUNKS = count(2, 5)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_happens_all_that_must_hold_holds_and_everything_comes_to_rest(chunk: int) -> None:
    for seed in seeds(16, 44)[chunk::CHUNKS]:
        run(seed, STEPS)


def test_replay_of_one_seed() -> None:
    outcome = run(SEED, STEPS)
    assert outcome.steps >= STEPS


def test_equal_seeds_have_equal_traces_in_any_process() -> None:
    """Whatever the order of hashes is there."""
    tell = "from tests.simulation.simulation import run; outcome = run(7); print(outcome.trace, outcome.steps)"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    said = subprocess.check_output([sys.executable, "-c", tell], env=environment, text=True)
    here, other = run(7), run(8)
    assert said == f"{here.trace} {here.steps}\n"
    assert other.trace != here.trace


NOTHING = RewriteOutput((), (), 0, 0, 0, 0, 0, 0, 0)
TASKS = 400  # of each process: more than are ended, so that both wait all the time


class BusyGroup:
    """The group `default` with one optimizer; `run` polls with every free thread and ends tasks as their time is up."""

    def __init__(self, path: Path, threads: int) -> None:
        self.now, self.threads = START, threads
        lake = LakeFormat(Lake(random.Random(0)), lambda name: None)
        self.coordinator = Coordinator(path, lake, lambda: self.now, lambda: 0.0, lambda name: None)
        self.coordinator.start()
        self.token = self.coordinator.register("default", threads, (), "").token
        self.free = list(range(1, threads + 1))
        self.running: list[tuple[float, int, Attempt, TableIdentifier, float]] = []  # end, thread, …, start
        self.held: Counter[str] = Counter()  # seconds of threads, by table
        self.ended = 0

    def add(self, name: str, quota: float, at: int) -> None:
        """A table with a running process of many tasks."""

        def enter(db: tables.Connection) -> None:
            status = OptimizingStatus.MINOR_OPTIMIZING
            table = tables.add(db, builders.runtime(name, quota=quota, status=status))
            owner = processes.add(db, builders.process(table, f"0199aaaa-{at:04}", max_retries=5))
            tasks.add_many(db, [(builders.task(owner, number), b"") for number in range(1, TASKS + 1)])

        self.coordinator.mortal.write(enter)

    def run(self, count: int, seconds: dict[str, float]) -> None:
        """Until so many tasks more have ended; what still runs counts as far as it came."""
        began, most = self._elapsed(), self.ended + count
        self.held.clear()
        while self.ended < most:
            for handed in self.coordinator.poll(self.token, tuple(self.free)) if self.free else ():
                self.free.remove(handed.thread_id)
                assert self.coordinator.ack(self.token, handed.attempt)
                ends = self._elapsed() + seconds[handed.table.name]
                heappush(self.running, (ends, handed.thread_id, handed.attempt, handed.table, self._elapsed()))
            ends, thread, attempt, table, start = heappop(self.running)
            self.now = START + timedelta(seconds=ends)
            assert self.coordinator.complete(self.token, attempt, NOTHING)
            self.held[table.name] += ends - max(start, began)
            self.free.append(thread)
            self.ended += 1
        for _, _, _, table, start in self.running:
            self.held[table.name] += self._elapsed() - max(start, began)

    def shares(self) -> dict[str, float]:
        return {name: held / self.held.total() for name, held in sorted(self.held.items())}

    def _elapsed(self) -> float:
        return (self.now - START).total_seconds()


@pytest.mark.parametrize("threads", sample([4, 1, 10], every=3))
@pytest.mark.parametrize("seconds", [{"t": 60.0, "u": 60.0}, {"t": 90.0, "u": 30.0}], ids=["equal", "unequal"])
def test_quotas_are_shares_of_thread_time_over_200_tasks_and_all_of_it_while_the_other_is_idle(
    threads: int, seconds: dict[str, float]
) -> None:
    with quick_directory() as made:
        group = BusyGroup(Path(made) / "amoro.db", threads)
        try:
            group.add("t", 0.2, 1)
            group.run(50, seconds)
            assert group.shares() == {"t": 1.0}
            assert group.held.total() == pytest.approx(threads * group._elapsed())
            group.add("u", 0.8, 2)
            group.run(threads, seconds)  # what was lent is given back with each task that ends
            group.run(200, seconds)
            assert group.shares() == {"t": pytest.approx(0.2, rel=0.1), "u": pytest.approx(0.8, rel=0.1)}
        finally:
            group.coordinator.file.close()
