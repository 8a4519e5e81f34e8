"""Taking what optimizers report, and giving those that ask for more their next tasks."""

from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import partial

from amoro_core.errors import UnknownToken
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.reporting import Reporting
from amoro_core.transactions.reports import Reported, ScheduledTask, Taken
from amoro_core.transactions.scheduled import Scheduling
from amoro_core.transactions.scheduling import Assigned
from amoro_core.transactions.settling import Effects

log = get_logger("amoro.optimizing")


class Taking:
    """Takes the results of all calls of one moment."""

    def __init__(
        self, store: Store, reporting: Reporting, scheduling: Scheduling, send: Callable[[Effects], None]
    ) -> None:
        """`send` carries effects out."""
        self._store, self._reporting, self._scheduling, self._send = store, reporting, scheduling, send

    def take(self, calls: Sequence[Reported]) -> list[Taken | BaseException]:
        """Take the results of these calls, then schedule for those that ask; for each its answer, or its error.

        Calls with plain results share one write with what is scheduled for them; the others come after them.
        """
        failpoint("complete.before_store")
        effects = Effects()
        try:
            plain, assigned = self._store.write(lambda db: self._take_plain(db, calls, effects))
        except Exception as error:  # it may be the fault of one of them
            log.warning("results.taken_alone", calls=len(calls), why=str(error))
            return [self._take_alone(call) for call in calls]
        failpoint("complete.after_store")
        self._send(effects)
        handed = iter(self._scheduling.hand_out(assigned))
        answers = {
            id(call): _answer([True for _ in call.reports], next(handed) if call.asked else []) for call in plain
        }
        return [answers[id(call)] if id(call) in answers else self._take_alone(call) for call in calls]

    def _take_plain(
        self, db: Connection, calls: Sequence[Reported], effects: Effects
    ) -> tuple[list[Reported], list[Assigned]]:
        """The calls whose results were taken, and what was scheduled for those of them that ask."""
        plain = self._reporting.complete_plain(db, calls, effects)
        return plain, self._scheduling.assign(db, [call.asked for call in plain if call.asked], effects)

    def _take_alone(self, call: Reported) -> Taken | BaseException:
        """Take the results of a call one by one: an error of one changes nothing for the others."""
        effects = [Effects() for _ in call.reports]
        writes = [
            partial(self._reporting.complete, report=one, effects=its)
            for one, its in zip(call.reports, effects, strict=True)
        ]
        stored = self._store.submit_all(writes)
        wait(stored)
        failpoint("complete.after_store")
        errors = []
        for future, its in zip(stored, effects, strict=True):
            if (error := future.exception()) is None:
                self._send(its)
            else:
                errors.append(error)
        if errors:
            return errors[0]
        accepted = [future.result() for future in stored]
        return _answer(accepted, self._scheduling.schedule([call.asked])[0] if call.asked else [])


def _answer(accepted: Sequence[bool], tasks: list[ScheduledTask] | UnknownToken) -> Taken | UnknownToken:
    return tasks if isinstance(tasks, UnknownToken) else Taken(tuple(accepted), tuple(tasks))
