"""Pools of threads by key and by lane."""

import threading

from amoro_core.loops.pool import KeyedPool, LanedPool

WAIT_S = 90


def test_a_key_is_worked_on_once_at_a_time() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work(key: str) -> None:
        begun.set()
        assert may_end.wait(WAIT_S)

    pool: KeyedPool[str] = KeyedPool("keys", 2, work)
    try:
        assert pool.submit("a")
        assert begun.wait(WAIT_S)
        assert not pool.submit("a")
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


def test_no_more_than_so_many_keys_are_queued() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work(key: int) -> None:
        begun.set()
        assert may_end.wait(WAIT_S)

    pool: KeyedPool[int] = KeyedPool("queue", 1, work, most=3)
    try:
        assert [pool.submit(key) for key in range(5)] == [True, True, True, False, False]
        assert begun.wait(WAIT_S)
    finally:
        may_end.set()
        pool.stop()
