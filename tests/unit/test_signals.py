"""Signals are heard at whatever step of the main thread they come, also while it holds a lock that acting takes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from amoro_core.demo.interruption import interruptible
from amoro_core.signals import on_signals


@contextmanager
def killed_at(step: int, number: int) -> Iterator[Callable[[], int]]:
    """Send this process the signal at that step of what follows, in Python's library too; tells how many there were."""
    steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        if event == "line" and frame.f_code.co_filename != __file__:
            if steps == step:
                os.kill(os.getpid(), number)
            steps += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: steps
    finally:
        sys.settrace(before)


def steps_of(run: Callable[[int], int]) -> int:
    """Run with a signal at every step until there is no further one; how many steps there were."""
    step = 0
    while run(step) > step:
        step += 1
        assert step < 1000
    return step


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_wait_ends_at_whatever_step_the_signal_comes(number: int) -> None:
    def wait(step: int) -> int:
        stop, told = threading.Event(), list[bool]()

        def act(again: bool) -> None:
            told.append(again)
            stop.set()

        with on_signals(act):
            # None comes once the steps are at their end: somebody else ends the wait.
            threading.Timer(0.2, stop.set).start()
            with killed_at(step, number) as steps:
                assert stop.wait(60)
            counted = steps()
        assert told == ([False] if counted > step else [])
        return counted

    assert steps_of(wait) > 5


def test_acting_may_take_a_lock_that_the_main_thread_holds_and_the_second_signal_is_told_as_such() -> None:
    lock, told, done = threading.Lock(), list[bool](), threading.Event()

    def act(again: bool) -> None:
        with lock:
            told.append(again)
        if again:
            done.set()

    with on_signals(act):
        with lock:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        assert done.wait(50)
    assert told == [False, True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "signals" not in [thread.name for thread in threading.enumerate()]


def test_other_signals_that_python_handles_do_not_count_and_the_pipe_of_before_is_back() -> None:
    told, heard = list[bool](), threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.set())
    try:
        with on_signals(told.append):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert heard.wait(30)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert told == []
    assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_that_another_thread_gets_ends_the_wait_of_the_main_thread() -> None:
    stop = threading.Event()
    with on_signals(lambda again: stop.set()):
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()
        assert stop.wait(30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_pause_of_the_demo_ends_at_whatever_step_the_signal_comes(number: int) -> None:
    def pause(step: int) -> int:
        with interruptible() as interruption:
            ended = None
            try:
                with killed_at(step, number) as steps:
                    interruption.pause(0.2 if step else 60)
                interruption.check()
            except SystemExit as error:
                ended = error.code
            counted = steps()
        assert ended == (128 + number if counted > step else None)
        return counted

    assert steps_of(pause) > 3
