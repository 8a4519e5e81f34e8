"""Pools of threads by key, by lane and by turn; the threads wait for each other and never for time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from amoro_core.errors import CatalogUnavailable
from amoro_core.loops.coordinator import CoordinatorLoops, KeyedPool, LanedPool, Limits, TurnPool
from amoro_core.model.processes import FILES, METADATA, STATISTICS, ProcessStatus

WAIT_S = 90


def test_a_key_is_worked_on_once_at_a_time_and_no_more_than_so_many_are_queued() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work(key: int) -> None:
        begun.set()
        assert may_end.wait(WAIT_S)

    pool: KeyedPool[int] = KeyedPool("keys", 1, work, most=3)
    try:
        assert [pool.submit(key) for key in (0, 0, 1, 2, 3, 4)] == [True, False, True, True, False, False]
        assert begun.wait(WAIT_S)
        assert not pool.submit(0)
    finally:
        may_end.set()
        pool.stop()


def test_a_lane_that_stands_still_holds_up_no_other() -> None:
    stuck, may_end = threading.Semaphore(0), threading.Event()
    done = threading.Semaphore(0)

    def work(key: int) -> None:
        if key < 100:
            stuck.release()
            assert may_end.wait(WAIT_S)
        else:
            done.release()

    pool: LanedPool[int, str] = LanedPool("tables", 2, work)
    try:
        for key in range(10):
            assert pool.submit(key, "slow")
        assert all(stuck.acquire(timeout=WAIT_S) for _ in range(2))
        for key in range(100, 110):
            assert pool.submit(key, "quick")
        assert all(done.acquire(timeout=WAIT_S) for _ in range(10))
    finally:
        may_end.set()
        pool.stop()


def test_a_key_that_is_submitted_as_first_goes_before_all_that_wait() -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()
    done: list[str] = []

    def work(key: str) -> None:
        begun.release()
        assert may_end.wait(WAIT_S)
        done.append(key)

    pool: LanedPool[str, str] = LanedPool("hinted", 1, work)
    try:
        assert [pool.submit(key, "lane") for key in "abc"] == [True] * 3
        assert begun.acquire(timeout=WAIT_S)
        assert pool.submit("new", "lane", first=True)
        assert pool.submit("c", "lane", first=True)  # it waits already
        assert not pool.submit("b", "lane")
        assert not pool.submit("a", "lane", first=True)  # its work has begun, perhaps too early
        may_end.set()
        assert all(begun.acquire(timeout=WAIT_S) for _ in range(3))
    finally:
        may_end.set()
        pool.stop()
    assert done == ["a", "c", "new", "b"]


def test_stopping_ends_the_threads_of_every_lane() -> None:
    ended = threading.Semaphore(0)
    pool: LanedPool[int, int] = LanedPool("stopping", 1, lambda key: ended.release())
    for lane in range(2):
        pool.submit(lane, lane)
        assert ended.acquire(timeout=WAIT_S)
    pool.stop()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("stopping-")] == []


class Work:
    """Notes what was begun; a key that is held goes on only when it is let go."""

    def __init__(self, *held: str) -> None:
        self.begun: list[str] = []
        self.changed = threading.Condition()
        self.gates = {key: threading.Event() for key in held}

    def __call__(self, key: str) -> None:
        with self.changed:
            self.begun.append(key)
            self.changed.notify_all()
        if key in self.gates:
            assert self.gates[key].wait(WAIT_S)

    def until(self, *begun: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.begun == list(begun), WAIT_S), self.begun


@pytest.fixture
def pool() -> Iterator[Callable[[Work, int], TurnPool[str]]]:
    made: list[tuple[TurnPool[str], Work]] = []

    def make(work: Work, threads: int) -> TurnPool[str]:
        made.append((TurnPool("plan", threads, work), work))
        return made[-1][0]

    yield make
    for turns, work in made:
        for gate in work.gates.values():
            gate.set()
        turns.stop()


def test_keys_are_worked_on_in_the_order_of_the_last_offer_alone(pool: Callable[[Work, int], TurnPool[str]]) -> None:
    work = Work("slow")
    turns = pool(work, 1)
    turns.offer([("slow", "cat"), ("a", "cat"), ("b", "cat")])
    work.until("slow")
    turns.offer([("slow", "cat"), ("b", "cat"), ("c", "cat"), ("a", "cat")])
    work.gates["slow"].set()
    work.until("slow", "b", "c", "a")
    work = Work("slow", "last")
    turns = pool(work, 1)
    turns.offer([("slow", "cat"), ("gone", "cat")])
    work.until("slow")
    turns.offer([("last", "cat")])
    work.gates["slow"].set()
    work.until("slow", "last")


def test_a_slow_table_or_catalog_holds_up_no_other(pool: Callable[[Work, int], TurnPool[str]]) -> None:
    work = Work("slow")
    turns = pool(work, 2)
    turns.offer([("slow", "cat"), ("a", "cat"), ("b", "cat"), ("c", "cat")])
    with work.changed:
        assert work.changed.wait_for(lambda: sorted(work.begun) == ["a", "b", "c", "slow"], WAIT_S)
    work = Work("x1", "x2")
    turns = pool(work, 1)
    turns.offer([("x1", "slow"), ("x2", "slow"), ("a", "quick"), ("b", "quick")])
    with work.changed:
        assert work.changed.wait_for(lambda: sorted(work.begun) == ["a", "b", "x1"], WAIT_S)


def test_a_key_that_is_worked_on_is_not_worked_on_twice(pool: Callable[[Work, int], TurnPool[str]]) -> None:
    work = Work("slow")
    turns = pool(work, 2)
    turns.offer([("slow", "cat")])
    work.until("slow")
    turns.offer([("slow", "cat"), ("a", "cat")])
    work.until("slow", "a")


def test_what_fails_holds_nobody_up_and_may_come_again() -> None:
    begun: list[str] = []
    jobs: list[Callable[[], object]] = []
    later: Any = SimpleNamespace(submit=lambda *job: jobs.append(partial(*job)) or Future())

    def work(key: str) -> None:
        begun.append(key)
        raise CatalogUnavailable("no luck") if key == "ours" else RuntimeError("no luck")

    turns: TurnPool[str] = TurnPool("plan", 1, work, lambda name, threads: later)
    for _ in range(2):
        turns.offer([("ours", "cat"), ("other", "cat")])
        while jobs:
            jobs.pop(0)()
    assert begun == ["ours", "other", "ours", "other"]


# What reads for hours has threads of its own


@pytest.mark.parametrize(
    ("lane", "expected"), [(FILES, ("commit-cat", 4)), (METADATA, ("commit-cat", 4)), (STATISTICS, ("read-cat", 1))]
)
def test_a_commit_is_made_where_it_holds_up_no_other(lane: str, expected: tuple[str, int]) -> None:
    submitted: list[tuple[str, int]] = []

    def workers(name: str, threads: int) -> Any:
        """Threads whose work is done at once."""
        return SimpleNamespace(submit=lambda *job: (submitted.append((name, threads)), partial(*job)(), Future())[2])

    committed: list[str] = []
    process = SimpleNamespace(process=SimpleNamespace(lane=lane))
    services: Any = SimpleNamespace(
        clearing=SimpleNamespace(clean_up=None),
        committing=SimpleNamespace(commit=lambda process_id: committed.append(process_id) or ProcessStatus.RUNNING),
        conditions=SimpleNamespace(look=None),
        containers=SimpleNamespace(keep=None),
        maintaining=SimpleNamespace(begin_due=None),
        sampling=SimpleNamespace(sample=None),
        optimizing=SimpleNamespace(find_process=lambda process_id: process),
    )
    second = timedelta(seconds=1)
    limits = Limits(second, second, second, explore_threads=1, explore_queue=1)
    loops = CoordinatorLoops(services, limits, watch=False, workers=workers)
    loops.commit_due("p", "cat")
    assert (submitted, committed) == ([expected], ["p"])
