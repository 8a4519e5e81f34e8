"""What pages remember between requests is bounded, and right when it is asked again."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.web.charts import Bar, histogram
from amoro_core.web.pages.framework import TtlStore
from amoro_core.web.pages.page_request import PageRequest
from amoro_core.web.pages.processes import Attempts, Tried, settled
from amoro_core.web.pages.table_files import ReadLimiter


def test_a_value_goes_with_its_time_and_the_oldest_where_there_are_too_many() -> None:
    now = 0.0
    kept: TtlStore[str] = TtlStore(2, timedelta(seconds=10), lambda: now)
    first, second, third = map(kept.add, ("first", "second", "third"))
    assert [kept.find(key) for key in (first, second, third)] == [None, "second", "third"]
    assert (kept.take(third), kept.take(third)) == ("third", None)
    now = 9.9
    assert kept.find(second) == "second"
    now = 10.0
    assert kept.find(second) is None


def test_what_was_read_of_the_longest_ago_is_forgotten() -> None:
    looks: ReadLimiter[str] = ReadLimiter()
    for number in range(65):
        looks.remember((number,), str(number))
    assert looks.remembered((0,)) is None
    assert looks.remembered((1,)) == "1"


def tried(task: int, attempt: int, state: str) -> Tried:
    return Tried(task, attempt, 1, Bar("o", 0, 1, 2, state, ""))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], 0),
        ([(1, 1, "running")], 0),
        ([(1, 1, "success"), (2, 1, "success")], 2),
        ([(1, 1, "lost"), (1, 2, "success"), (2, 1, "failed")], 2),
        ([(1, 1, "success"), (2, 1, "failed"), (3, 1, "success")], 1),
        ([(1, 1, "success"), (3, 1, "success")], 1),
        ([(2, 1, "success")], 0),
        ([(1, 101, "success"), (2, 1, "returned"), (2, 2, "success"), (3, 1, "canceled")], 3),
    ],
)
def test_attempts_before_the_first_task_that_has_not_succeeded_are_read_once(
    found: list[tuple[int, int, str]], expected: int
) -> None:
    assert settled([tried(*one) for one in found]) == expected


class OneSuccess:
    """A visit to a process of one task that has succeeded; it remembers after which attempt it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, method: str, request: journal.ListAttemptsRequest, answer: Any) -> journal.ListAttemptsResponse:
        self.asked.append(request.after)
        made = journal.AttemptInfo(task_id=1, attempt=1, outcome="success", scheduled_ms=5, finished_ms=9)
        return journal.ListAttemptsResponse(attempts=[] if request.after else [made], total=1)


def test_the_process_that_was_looked_at_the_longest_ago_is_read_again() -> None:
    visit, attempts = OneSuccess(), Attempts()
    for process_id in ("p-0", "p-0", *(f"p-{number}" for number in range(1, 17)), "p-0"):
        asyncio.run(attempts.of(cast("PageRequest", visit), pb.Process(process_id=process_id)))
    assert visit.asked == ["", "1-1", *[""] * 17]


def test_a_histogram_without_files_says_so() -> None:
    assert "There are no files." in histogram((), ("data",), 10, "Files by size").svg
