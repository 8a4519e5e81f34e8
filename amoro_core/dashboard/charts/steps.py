"""The way of a process from its plan to its end, as steps with times."""

from collections.abc import Sequence
from enum import StrEnum

from amoro_core.model.processes import ProcessStatus
from amoro_core.records import record


class StepState(StrEnum):
    """How far a step is."""

    DONE = "done"
    CURRENT = "current"
    WAITING = "waiting"  # stopped until a person or a time lets it go on
    FAILED = "failed"
    TO_COME = "to come"
    SKIPPED = "skipped"  # the process ended before


@record
class Step:
    """A step; `at_ms` is when it began, 0: unknown or not yet."""

    name: str
    state: StepState
    at_ms: int = 0


@record
class Progress:
    """What is known of a process: its status, and UTC milliseconds of what happened (0: it did not)."""

    status: str
    created_ms: int
    finished_ms: int
    scheduled_ms: int = 0  # the first task
    acked_ms: int = 0  # the first task began
    worked_ms: int = 0  # the last task ended, and none is left
    has_tasks: bool = True
    waits: bool = False  # its commit waits


_ENDED = {"success": "done", "partial": "done in part"}
_WAITING = (ProcessStatus.REQUESTED, ProcessStatus.HELD, ProcessStatus.COMMIT_UNKNOWN)
_AFTER_WORK = (ProcessStatus.COMMITTING, ProcessStatus.COMMIT_UNKNOWN, ProcessStatus.CLEARING)


def steps(known: Progress) -> Sequence[Step]:
    """The steps in their order, each with its state and the time at which it began. Without tasks two are left out."""
    finishing = "removing files" if known.status == ProcessStatus.CLEARING else "checking and committing"
    times = [("planned", known.created_ms)]
    if known.has_tasks:
        times += [("scheduled", known.scheduled_ms), ("running", known.acked_ms)]
    times.append((finishing, known.worked_ms))
    reached = _reached(known, len(times) - 1)
    state = StepState.WAITING if known.waits or known.status in _WAITING else StepState.CURRENT
    after = StepState.SKIPPED if known.finished_ms else StepState.TO_COME
    made = [
        Step(name, StepState.DONE if number < reached else after, at_ms) for number, (name, at_ms) in enumerate(times)
    ]
    if not known.finished_ms:
        made[reached] = Step(times[reached][0], state, times[reached][1])
        return [*made, Step("done", StepState.TO_COME)]
    end = StepState.DONE if known.status in _ENDED else StepState.FAILED
    return [*made, Step(_ENDED.get(known.status, known.status), end, known.finished_ms)]


def _reached(known: Progress, finishing: int) -> int:
    """The number of the step that is going on, is next, or was never begun; `finishing` is that of the last of them."""
    if known.status in _ENDED:
        return finishing + 1
    if known.status in _AFTER_WORK or known.worked_ms:
        return finishing
    return min(finishing, 2 if known.acked_ms else 1)
