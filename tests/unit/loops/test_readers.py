"""What reads for hours before it commits has threads of its own."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from amoro_core.loops.coordinator import CoordinatorLoops, Limits
from amoro_core.model.lanes import FILES, METADATA, STATISTICS
from amoro_core.model.processes import ProcessStatus


class Noted(Executor):
    """Threads whose work is done at once, by their name."""

    def __init__(self, name: str, threads: int, submitted: list[tuple[str, int]]) -> None:
        self._name, self._threads, self._submitted = name, threads, submitted

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._submitted.append((self._name, self._threads))
        fn(*args, **kwargs)
        return Future()


@pytest.mark.parametrize(
    ("lane", "expected"),
    [(FILES, ("commit-cat", 4)), (METADATA, ("commit-cat", 4)), (STATISTICS, ("read-cat", 1))],
)
def test_a_commit_is_made_where_it_holds_up_no_other(lane: str, expected: tuple[str, int]) -> None:
    submitted: list[tuple[str, int]] = []
    committed: list[str] = []
    process = SimpleNamespace(process=SimpleNamespace(lane=lane))
    services: Any = SimpleNamespace(
        clearing=SimpleNamespace(clean_up=None),
        committing=SimpleNamespace(commit=lambda process_id: committed.append(process_id) or ProcessStatus.RUNNING),
        containers=SimpleNamespace(keep=None),
        optimizing=SimpleNamespace(find_process=lambda process_id: process),
    )
    second = timedelta(seconds=1)
    limits = Limits(second, second, second, explore_threads=1, explore_queue=1)
    loops = CoordinatorLoops(
        services, limits, watch=False, workers=lambda name, threads: Noted(name, threads, submitted)
    )
    loops.commit_due("p", "cat")
    assert (submitted, committed) == ([expected], ["p"])
