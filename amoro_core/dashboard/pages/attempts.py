"""Attempts of a process's tasks as a chart needs them."""

import time
from collections import OrderedDict
from collections.abc import Sequence

from amoro_core.dashboard.charts.gantt import Bar
from amoro_core.dashboard.pages.visits import Visit
from amoro_core.model.journal import AttemptOutcome
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.records import record

MOST = 5000  # of a process: of its first tasks, where there are more
_PAGE = 1000
_PROCESSES = 16


@record
class Tried:
    """An attempt: of which task, when its optimizer began, and its bar."""

    task: int
    attempt: int
    started_ms: int
    bar: Bar


class Attempts:
    """Reads the attempts of processes, those of the first tasks once: of a task that has succeeded none is added.

    Whoever asks may see them, else the operation refuses; who may sees the same as all others.
    """

    def __init__(self) -> None:
        self._settled: OrderedDict[str, tuple[Tried, ...]] = OrderedDict()

    async def of(self, visit: Visit, process: pb.Process) -> tuple[Sequence[Tried], int]:
        """The attempts of the process by task and number, at most `MOST`; and how many there are."""
        found = list(self._settled.get(process.process_id, ()))
        while True:
            limit = max(1, min(_PAGE, MOST - len(found)))
            after = f"{found[-1].task}-{found[-1].attempt}" if found else ""
            request = journal.ListAttemptsRequest(process_id=process.process_id, limit=limit, after=after)
            page = await visit.ask("ListAttempts", request, journal.ListAttemptsResponse)
            found = [*found, *_tried(page.attempts)][:MOST]
            if not page.next or len(found) == MOST:
                break
        self._keep(process.process_id, found)
        return found, page.total

    def _keep(self, process_id: str, found: Sequence[Tried]) -> None:
        self._settled[process_id] = tuple(found[: settled(found)])
        self._settled.move_to_end(process_id)
        if len(self._settled) > _PROCESSES:
            self._settled.popitem(last=False)


def settled(found: Sequence[Tried]) -> int:
    """How many of the attempts stand before the first task that has not succeeded, and so stay as they are."""
    count, task = 0, 0
    for place, one in enumerate(found, 1):
        if one.task > task + 1:  # a task without an attempt
            break
        if one.bar.state == AttemptOutcome.SUCCESS:
            count, task = place, one.task
    return count


def _tried(attempts: Sequence[journal.AttemptInfo]) -> list[Tried]:
    now = round(time.time() * 1000)
    return [
        Tried(
            one.task_id,
            one.attempt,
            one.started_ms,
            Bar(
                one.optimizer_id,
                one.thread_id,
                one.scheduled_ms,
                max(one.scheduled_ms, one.finished_ms or now),
                one.outcome,
                f"task {one.task_id}, attempt {one.attempt}",
            ),
        )
        for one in attempts
    ]
