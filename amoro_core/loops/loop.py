"""A thread that runs a step periodically, or at once when woken."""

import threading
from collections.abc import Callable

from amoro_core.events import get_logger

log = get_logger("amoro.loops")


class Loop:
    """Calls a step repeatedly: after its interval, or when woken.

    An exception of a step is logged, and the loop continues.
    """

    def __init__(self, name: str, step: Callable[[], None], interval_s: float) -> None:
        self._name = name
        self._step = step
        self._interval = interval_s
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Run the next step at once."""
        self._wake.set()

    def stop(self) -> None:
        """End after the step that runs now, if any."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._step()
            except Exception:
                log.exception("loop.failed", loop=self._name)
            self._wake.wait(self._interval)
