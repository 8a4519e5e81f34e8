"""What the stages of the work take, and how far they are."""

import time
from collections.abc import Callable

from amoro_core.model.clustering import StageFacts

#: The stages, in their order.
SAMPLE, SPLIT, WRITE = "sample", "split", "write"

_MS = 1_000_000


class Stages:
    """The stages of one thread's work; one begins where the other ends."""

    def __init__(
        self, rows: int, on_progress: Callable[[int, int], None], on_stage: Callable[[str, int], None]
    ) -> None:
        """Each stage is about so many rows. `on_stage` is told the stage and all core time so far, in ms."""
        self._rows = rows
        self._on_progress = on_progress
        self._on_stage = on_stage
        self._taken: dict[str, list[int]] = {}  # ns and rows of each
        self._began = self._now = time.thread_time_ns()
        self._name = ""

    def begin(self, name: str) -> None:
        """From here on it is this stage, which may have been before."""
        self._settle()
        self._name = name
        self._taken.setdefault(name, [0, 0])

    def advance(self, rows: int) -> None:
        """So many more rows of the stage are done."""
        self._settle()
        done = self._taken[self._name]
        done[1] += rows
        self._on_progress(min(done[1], self._rows), self._rows)
        self._on_stage(self._name, (self._now - self._began) // _MS)

    def facts(self) -> tuple[StageFacts, ...]:
        """What each stage has taken."""
        self._settle()
        return tuple(StageFacts(name, taken // _MS, rows) for name, (taken, rows) in self._taken.items())

    def _settle(self) -> None:
        now = time.thread_time_ns()
        if self._name:
            self._taken[self._name][0] += now - self._now
        self._now = now
