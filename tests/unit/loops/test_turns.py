"""Whose turn it is, with real threads that wait for each other and never for time."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future

import pytest

from amoro_core.errors import CatalogUnavailable
from amoro_core.loops.pool import TurnPool

WAIT_S = 90.0


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


def test_keys_are_worked_on_in_the_order_of_the_last_offer(pool: Callable[[Work, int], TurnPool[str]]) -> None:
    work = Work("slow")
    turns = pool(work, 1)
    turns.offer([("slow", "cat"), ("a", "cat"), ("b", "cat")])
    work.until("slow")
    turns.offer([("slow", "cat"), ("b", "cat"), ("c", "cat"), ("a", "cat")])
    work.gates["slow"].set()
    work.until("slow", "b", "c", "a")


def test_what_an_offer_leaves_out_waits_no_more(pool: Callable[[Work, int], TurnPool[str]]) -> None:
    work = Work("slow", "last")
    turns = pool(work, 1)
    turns.offer([("slow", "cat"), ("gone", "cat")])
    work.until("slow")
    turns.offer([("last", "cat")])
    work.gates["slow"].set()
    work.until("slow", "last")


def test_one_slow_table_holds_up_no_other(pool: Callable[[Work, int], TurnPool[str]]) -> None:
    work = Work("slow")
    turns = pool(work, 2)
    turns.offer([("slow", "cat"), ("a", "cat"), ("b", "cat"), ("c", "cat")])
    with work.changed:
        assert work.changed.wait_for(lambda: sorted(work.begun) == ["a", "b", "c", "slow"], WAIT_S)


def test_a_slow_catalog_holds_up_no_other_catalog(pool: Callable[[Work, int], TurnPool[str]]) -> None:
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


class Later(Executor):
    """Runs what was submitted when it is told to."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future[None]:
        self.jobs.append(lambda: (fn(*args, **kwargs), None)[1])
        return Future()


def test_what_fails_holds_nobody_up_and_may_come_again() -> None:
    begun: list[str] = []
    later = Later()

    def work(key: str) -> None:
        begun.append(key)
        raise CatalogUnavailable("no luck") if key == "ours" else RuntimeError("no luck")

    turns: TurnPool[str] = TurnPool("plan", 1, work, lambda name, threads: later)
    for _ in range(2):
        turns.offer([("ours", "cat"), ("other", "cat")])
        while later.jobs:
            later.jobs.pop(0)()
    assert begun == ["ours", "other", "ours", "other"]
