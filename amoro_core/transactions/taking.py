"""Taking what optimizers report, and giving those that ask for more their next tasks."""

from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import partial

from amoro_core.errors import UnknownToken
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.reporting import Named, Reporting, may_be_plain
from amoro_core.transactions.reports import Acks, Report, Reported, ScheduledTask, Taken
from amoro_core.transactions.scheduled import Scheduling
from amoro_core.transactions.scheduling import Assigned
from amoro_core.transactions.settling import Effects

log = get_logger("amoro.optimizing")


class Taking:
    """Takes the acks, or the results, of all calls of one moment: an error of one changes nothing for the others."""

    def __init__(
        self, store: Store, reporting: Reporting, scheduling: Scheduling, send: Callable[[Effects], None]
    ) -> None:
        """`send` carries effects out."""
        self._store, self._reporting, self._scheduling, self._send = store, reporting, scheduling, send

    def ack(self, calls: Sequence[Acks]) -> list[Named | BaseException]:
        """Accept the attempts of these calls in one write; for each call its answer, or its error."""
        named: list[Named | BaseException]
        try:
            named = [*self._store.write(lambda db: self._reporting.ack(db, calls))]
        except Exception as error:  # it may be the fault of one of them
            log.warning("acks.taken_alone", calls=len(calls), why=str(error))
            named = [self._ack_alone(call) for call in calls]
        failpoint("ack.after_store")
        return named

    def _ack_alone(self, call: Acks) -> Named | BaseException:
        try:
            return self._store.write(lambda db: self._reporting.ack_alone(db, call))
        except Exception as error:
            return error

    def complete(self, calls: Sequence[Reported]) -> list[Taken | BaseException]:
        """Take the results of these calls, then schedule for those that ask; for each its answer, or its error.

        Calls with plain results share one write with what is scheduled for them; the others come after them.
        """
        failpoint("complete.before_store")
        together = self._complete_plain([call for call in calls if may_be_plain(call)])
        return [together[id(call)] if id(call) in together else self._complete_alone(call) for call in calls]

    def _complete_plain(self, calls: Sequence[Reported]) -> dict[int, Taken | BaseException]:
        """The answers to those of these calls whose results are plain; none where something fails for all."""
        if not calls:
            return {}
        effects = Effects()
        try:
            plain, assigned = self._store.write(lambda db: self._store_plain(db, calls, effects))
        except Exception as error:  # it may be the fault of one of them
            log.warning("results.taken_alone", calls=len(calls), why=str(error))
            return {}
        if plain:
            failpoint("complete.after_store")
        self._send(effects)
        given = iter(self._scheduling.with_work(assigned))
        return {id(call): _answer([True for _ in call.reports], next(given) if call.asked else []) for call in plain}

    def _store_plain(
        self, db: Connection, calls: Sequence[Reported], effects: Effects
    ) -> tuple[list[Reported], list[Assigned]]:
        """The calls whose results were taken, and what was scheduled for those of them that ask."""
        plain = self._reporting.complete_plain(db, calls, effects)
        return plain, self._scheduling.assign(db, [call.asked for call in plain if call.asked], effects)

    def _complete_alone(self, call: Reported) -> Taken | BaseException:
        try:
            accepted = self._complete_each(call.reports)
            return _answer(accepted, self._scheduling.schedule([call.asked])[0] if call.asked else [])
        except Exception as error:
            return error

    def _complete_each(self, reports: Sequence[Report]) -> list[bool]:
        """Whether each of these results counts. Raises the error of the first that has one, once all are taken."""
        effects = [Effects() for _ in reports]
        writes = [
            partial(self._reporting.complete, report=one, effects=its)
            for one, its in zip(reports, effects, strict=True)
        ]
        stored = self._store.submit_all(writes)
        wait(stored)
        failpoint("complete.after_store")
        for future, its in zip(stored, effects, strict=True):
            if future.exception() is None:
                self._send(its)
        return [future.result() for future in stored]


def _answer(accepted: Sequence[bool], tasks: list[ScheduledTask] | UnknownToken) -> Taken | UnknownToken:
    return tasks if isinstance(tasks, UnknownToken) else Taken(tuple(accepted), tuple(tasks))
