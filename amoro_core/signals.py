"""Signals that end a program."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType


@contextmanager
def on_signals(act: Callable[[bool], object]) -> Iterator[None]:
    """Call `act` on SIGTERM and SIGINT, in a thread of its own; its argument is True from the second signal on.

    The handler runs between two steps of the main thread, which may be about to wait for what `act` sets, and then
    holds its lock: it does no more than put the signal into a queue, which is allowed whatever is held.
    """
    signals: SimpleQueue[bool] = SimpleQueue()

    def listen() -> None:
        again = False
        while signals.get():
            act(again)
            again = True

    def handle(number: int, frame: FrameType | None) -> None:
        signals.put(True)

    listener = threading.Thread(target=listen, name="signals", daemon=True)
    listener.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.put(False)
        listener.join()
