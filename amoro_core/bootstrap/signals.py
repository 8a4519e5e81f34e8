"""Signals that end a program."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGINT)
#: No signal has this number.
_OVER = b"\0"


@contextmanager
def on_signals(act: Callable[[bool], object]) -> Iterator[None]:
    """Call `act` on SIGTERM and SIGINT, in a thread of its own; its argument is True from the second signal on.

    The thread reads signals from a pipe into which the interpreter writes them as they come. A Python handler would run
    between two steps of the main thread: not at all while that thread waits for a lock, if another one got the signal,
    or if it came just before the wait. For the main thread alone, as handlers are.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def listen() -> None:
        again = False
        while (number := os.read(reading, 1)) != _OVER:
            if number[0] in _ENDING:
                act(again)
                again = True

    listener = threading.Thread(target=listen, name="signals", daemon=True)
    listener.start()
    outer = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    before = {number: signal.signal(number, _heard) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(outer)
        os.write(writing, _OVER)
        listener.join()
        os.close(reading)
        os.close(writing)


def _heard(number: int, frame: FrameType | None) -> None:
    """The pipe has it."""
