"""Work that may hang, apart from the pool that answers people."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from amoro_core.errors import Conflict

T = TypeVar("T")

#: How much of it runs at once; what hangs counts until it ends.
AT_ONCE = 4


class Apart:
    """Runs work in threads of its own, a few at once, for which the end of the process does not wait."""

    def __init__(self, most: int = AT_ONCE) -> None:
        self._most = most
        self._places = threading.BoundedSemaphore(most)

    def run(self, work: Callable[[], T]) -> "Future[T]":
        """What the work will have answered. Raises Conflict, and does not begin, where enough of it runs."""
        if not self._places.acquire(blocking=False):
            raise Conflict(f"{self._most} such requests wait for an answer already", hint="Try again in a moment.")
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # from now on nobody cancels it
        threading.Thread(target=self._run, args=(work, future), name="apart", daemon=True).start()
        return future

    def _run(self, work: Callable[[], T], future: "Future[T]") -> None:
        try:
            answer = work()
        except BaseException as error:
            self._places.release()
            future.set_exception(error)
        else:
            self._places.release()
            future.set_result(answer)
