"""What reads for hours before it commits has threads of its own."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from amoro_core.loops.coordinator import CoordinatorLoops, Limits
from amoro_core.model.lanes import FILES, METADATA, STATISTICS


class Noted(Executor):
    """Threads that never run, by their name."""

    def __init__(self, name: str, threads: int, submitted: list[tuple[str, str, int]]) -> None:
        self._name, self._threads, self._submitted = name, threads, submitted

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._submitted.append((self._name, args[0], self._threads))
        return Future()


@pytest.mark.parametrize(
    ("lane", "expected"),
    [(FILES, ("commit-cat", "p", 4)), (METADATA, ("commit-cat", "p", 4)), (STATISTICS, ("read-cat", "p", 1))],
)
def test_a_commit_is_made_where_it_holds_up_no_other(lane: str, expected: tuple[str, str, int]) -> None:
    submitted: list[tuple[str, str, int]] = []
    process = SimpleNamespace(process=SimpleNamespace(lane=lane))
    services: Any = SimpleNamespace(
        clearing=SimpleNamespace(clean_up=None),
        containers=SimpleNamespace(keep=None),
        optimizing=SimpleNamespace(find_process=lambda process_id: process),
    )
    second = timedelta(seconds=1)
    limits = Limits(second, second, second, explore_threads=1, explore_queue=1)
    loops = CoordinatorLoops(
        services, limits, watch=False, workers=lambda name, threads: Noted(name, threads, submitted)
    )
    loops.commit_due("p", "cat")
    assert submitted == [expected]
