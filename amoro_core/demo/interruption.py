"""Ctrl-C and SIGTERM as a flag to check, so that a run ends between two steps and cleans up."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Whether the user asked to stop."""

    def __init__(self) -> None:
        self._signal: signal.Signals | None = None
        # A handler may put into it whatever the main thread is about to do.
        self._noted: SimpleQueue[None] = SimpleQueue()

    def want(self, number: int) -> None:
        """Note the signal; a pause ends at once."""
        self._signal = signal.Signals(number)
        self._noted.put(None)

    def check(self) -> None:
        """Raise SystemExit, with the conventional status of the signal, if one was noted."""
        if self._signal is not None:
            raise SystemExit(128 + self._signal)

    def pause(self, seconds: float) -> None:
        """Wait, unless a signal was or is noted: then raises like `check`."""
        self.check()
        with suppress(Empty):
            self._noted.get(timeout=seconds)
        self.check()


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Note signals during the block; a second one ends the process as usual.

    Outside of the main thread, where Python handles no signals, nothing is noted.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        interruption.want(number)
        for one in _SIGNALS:
            signal.signal(one, before[one])

    for number in _SIGNALS:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        for number in _SIGNALS:
            signal.signal(number, before[number])
