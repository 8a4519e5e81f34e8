"""The working threads of an optimizer: each sleeps until it is given a task."""

import queue
import threading
from collections.abc import Callable, Sequence

from amoro_core.events import get_logger
from amoro_optimizer.client import PolledTask

log = get_logger("amoro.optimizer")


class Threads:
    """Threads with numbers from 1, of which the first `count` take tasks; the others pause."""

    def __init__(self, count: int, run: Callable[[PolledTask], PolledTask | None]) -> None:
        """`run` does a task and returns the one that the thread does next, if it is known already."""
        self._run = run
        self.count = count
        self._workers: list[threading.Thread] = []
        self._inboxes: list[queue.SimpleQueue[PolledTask | None]] = []  # None: the thread ends
        self._free: set[int] = set()
        self._changed = threading.Condition()
        self._is_over = False

    def resize(self, count: int) -> None:
        """Let so many take tasks: missing ones are started, surplus ones finish their attempt and pause."""
        with self._changed:
            if self._is_over:
                return
            if count != self.count:
                log.info("optimizer.resized", threads=count, before=self.count)
            self.count = count
            # Started under the lock, so that joining the workers never meets one that has not started.
            while len(self._workers) < count:
                number = len(self._workers) + 1
                self._inboxes.append(queue.SimpleQueue())
                self._workers.append(threading.Thread(target=self._work, args=(number,), name=f"optimizer-{number}"))
                self._workers[-1].start()
            self._changed.notify_all()

    def wait_for_free(self, timeout_s: float) -> list[int]:
        """Numbers of the threads that wait for a task; none within that time, or once no more are taken."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._takers(), timeout=timeout_s)
            return [] if self._is_over else self._takers()

    def give(self, tasks: Sequence[PolledTask]) -> None:
        """Let threads that wait begin these tasks."""
        with self._changed:
            self._free -= {task.thread_id for task in tasks}
            for task in tasks:
                self._inboxes[task.thread_id - 1].put(task)

    def take_no_more(self) -> None:
        """From now on nobody waits for free threads, and none is started."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def end(self) -> tuple[threading.Thread, ...]:
        """Let each thread end once it has done what it was given; the threads, to be joined."""
        with self._changed:
            for inbox in self._inboxes:
                inbox.put(None)
            return tuple(self._workers)

    def _takers(self) -> list[int]:
        return sorted(number for number in self._free if number <= self.count)

    def _work(self, number: int) -> None:
        while True:
            with self._changed:
                self._free.add(number)
                self._changed.notify_all()
            task = self._inboxes[number - 1].get()
            if task is None:
                return
            while task is not None:
                task = self._run(task)
