"""Calls that several threads make together."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

#: How long a call waits at least for others that are likely to come: little beside any work, much beside the time
#: between them.
GATHER_S = 0.002
#: Of the time of the call before: a coordinator whose answers take long is busy, and fewer calls spare it.
GATHER_SHARE = 0.5
#: At most: a call that hung says nothing of the next one.
GATHER_MOST_S = 0.05

A = TypeVar("A")
R = TypeVar("R")


class _Asked(Generic[A, R]):
    """What one thread asks for; it sleeps until it has an answer or is to make the next call."""

    def __init__(self, one: A, size: int) -> None:
        self.one, self.size = one, size
        self.woken = threading.Event()
        self.answer: R | None = None
        self.error: BaseException | None = None
        self.is_done = False


class Batches(Generic[A, R]):
    """While one call is under way what others ask waits, and goes together in the next one.

    Where the call before carried several, the next one waits a moment for more: who was answered together is likely to
    ask again together. Who asks alone never waits.
    """

    def __init__(
        self,
        call: Callable[[Sequence[A]], Sequence[R]],
        most_bytes: int,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`call` gives an answer for each; a batch beyond its first has at most so many bytes."""
        self._call, self._most_bytes, self._sleep, self._clock = call, most_bytes, sleep, clock
        self._size, self._took_s = 0, 0.0  # of the call before
        self._lock = threading.Lock()
        self._waiting: list[_Asked[A, R]] = []
        self._is_calling = False

    def ask(self, one: A, size: int = 0) -> R:
        """The answer, once the call that carries it has returned. Raises what that call raised."""
        asked = _Asked[A, R](one, size)
        with self._lock:
            self._waiting.append(asked)
            leads, self._is_calling = not self._is_calling, True
        if not leads:
            asked.woken.wait()
        if not asked.is_done:
            self._lead()
        if asked.error is not None:
            raise asked.error
        return asked.answer  # type: ignore[return-value]  # of the type R, which may be None

    def _lead(self) -> None:
        """Call for those that wait, the leading thread among them as the first; then the next one leads."""
        if self._size > 1:
            self._sleep(min(max(GATHER_S, GATHER_SHARE * self._took_s), GATHER_MOST_S))
        with self._lock:
            batch = [self._waiting.pop(0)]
            size = batch[0].size
            while self._waiting and size + self._waiting[0].size <= self._most_bytes:
                batch.append(self._waiting.pop(0))
                size += batch[-1].size
            self._size = len(batch)
        begun = self._clock()
        try:
            answers = self._call([asked.one for asked in batch])
            for asked, answer in zip(batch, answers, strict=True):
                asked.answer = answer
        except BaseException as error:
            for asked in batch:
                asked.error = error
        self._took_s = self._clock() - begun
        with self._lock:
            for asked in batch:
                asked.is_done = True
            following = self._waiting[0] if self._waiting else None
            self._is_calling = following is not None
        for asked in batch:
            asked.woken.set()
        if following is not None:
            following.woken.set()
