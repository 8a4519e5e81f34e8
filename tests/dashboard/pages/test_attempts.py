"""What the page of a process reads of attempts: what can't change once, everything else each time."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from amoro_core.dashboard.charts.gantt import Bar
from amoro_core.dashboard.pages import attempts as module
from amoro_core.dashboard.pages.attempts import Attempts, Tried, settled
from amoro_core.dashboard.pages.visits import Visit
from amoro_core.errors import NotAllowed
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal

PROCESS = pb.Process(process_id="p-1")


def tried(task: int, attempt: int, state: str) -> Tried:
    return Tried(task, attempt, 1, Bar("o", 0, 1, 2, state, ""))


@dataclass
class Asked:
    """A visit whose operation lists these attempts; it remembers after which it was asked."""

    made: list[journal.AttemptInfo] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    may: bool = True

    async def ask(self, method: str, request: journal.ListAttemptsRequest, answer: Any) -> journal.ListAttemptsResponse:
        assert method == "ListAttempts"
        if not self.may:
            raise NotAllowed("a stranger")
        self.asked.append(request.after)
        place = tuple(map(int, request.after.split("-"))) if request.after else (0, 0)
        found = [one for one in self.made if (one.task_id, one.attempt) > place]
        page = found[: request.limit]
        last = f"{page[-1].task_id}-{page[-1].attempt}" if len(found) > len(page) else ""
        return journal.ListAttemptsResponse(attempts=page, next=last, total=len(self.made))

    def look(self, attempts: Attempts) -> tuple[list[tuple[int, int, str]], int]:
        found, total = asyncio.run(attempts.of(cast("Visit", self), PROCESS))
        return [(one.task, one.attempt, one.bar.state) for one in found], total

    def known(self) -> list[tuple[int, int, str]]:
        return [(one.task_id, one.attempt, one.outcome) for one in self.made]

    def add(self, task: int, attempt: int, outcome: str) -> None:
        made = journal.AttemptInfo(task_id=task, attempt=attempt, outcome=outcome, scheduled_ms=5, finished_ms=9)
        self.made = sorted([*self.made, made], key=lambda one: (one.task_id, one.attempt))


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
def test_what_stands_before_the_first_task_that_has_not_succeeded_is_settled(
    found: list[tuple[int, int, str]], expected: int
) -> None:
    assert settled([tried(*one) for one in found]) == expected


@pytest.mark.parametrize("seed", range(5))
def test_what_is_remembered_gives_what_is_there(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 7)
    chosen, visit, attempts = random.Random(seed), Asked(), Attempts()
    running: dict[int, int] = {}
    done: set[int] = set()
    for _ in range(200):
        task = chosen.choice([one for one in range(1, 40) if one not in done])
        if task not in running:
            running[task] = 1 + max((one.attempt for one in visit.made if one.task_id == task), default=0)
            visit.add(task, running[task], "running")
        else:
            number = running.pop(task)
            visit.made = [one for one in visit.made if (one.task_id, one.attempt) != (task, number)]
            outcome = chosen.choice(("success", "success", "failed", "lost"))
            visit.add(task, number, outcome)
            done |= {task} if outcome == "success" else set()
        assert visit.look(attempts) == (visit.known(), len(visit.made))
        if len(done) == 39:
            break


def test_attempts_of_the_first_tasks_are_asked_for_once() -> None:
    visit, attempts = Asked(), Attempts()
    for task in range(1, 5):
        visit.add(task, 1, "success")
    visit.add(5, 1, "running")
    visit.look(attempts)
    visit.look(attempts)
    assert visit.asked == ["", "4-1"]


def test_more_attempts_than_a_chart_draws_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    visit, attempts = Asked(), Attempts()
    for task in range(1, 6):
        visit.add(task, 1, "success")
    for _ in range(2):
        assert visit.look(attempts) == (visit.known()[:3], 5)
    assert visit.asked == ["", "3-1"]


def test_who_may_not_see_them_gets_nothing_of_what_is_remembered() -> None:
    visit, attempts = Asked(), Attempts()
    visit.add(1, 1, "success")
    visit.look(attempts)
    visit.may = False
    with pytest.raises(NotAllowed):
        visit.look(attempts)


def test_processes_that_were_not_looked_at_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROCESSES", 1)
    visit, attempts = Asked(), Attempts()
    visit.add(1, 1, "success")
    visit.look(attempts)
    asyncio.run(attempts.of(cast("Visit", visit), pb.Process(process_id="p-2")))
    visit.look(attempts)
    assert visit.asked == ["", "", ""]
