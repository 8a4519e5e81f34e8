"""Taking what optimizers report, and giving those that ask for more their next tasks."""

from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import partial

from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.reporting import Reporting, may_be_plain
from amoro_core.transactions.reports import Acks, Named, Report, Reported, ScheduledTask, Taken
from amoro_core.transactions.scheduled import Scheduling
from amoro_core.transactions.scheduling import Assigned
from amoro_core.transactions.settling import Effects

log = get_logger("amoro.optimizing")


class Taking:
    """Takes what all calls of one moment say, acks before results: an error of one changes nothing for the others."""

    def __init__(
        self, store: Store, reporting: Reporting, scheduling: Scheduling, send: Callable[[Effects], None]
    ) -> None:
        """`send` carries effects out."""
        self._store, self._reporting, self._scheduling, self._send = store, reporting, scheduling, send

    def take(self, calls: Sequence[Reported]) -> list[Taken | BaseException]:
        """Accept the acks and results of these calls, then schedule for those that ask; for each its answer, or error.

        Acks and plain results share one write with what is scheduled for them; other calls come after them.
        """
        if any(call.reports for call in calls):
            failpoint("complete.before_store")
        together = self._take_together([call for call in calls if may_be_plain(call)])
        return [together[id(call)] if id(call) in together else self._take_alone(call) for call in calls]

    def _take_together(self, calls: Sequence[Reported]) -> dict[int, Taken | BaseException]:
        """The answers to those of these calls whose results are plain; none where something fails for all."""
        if not calls:
            return {}
        effects = Effects()
        try:
            named, plain, assigned = self._store.write(lambda db: self._store_together(db, calls, effects))
        except Exception as error:  # it may be the fault of one of them
            log.warning("reports.taken_alone", calls=len(calls), why=str(error))
            return {}
        _reach_stored(plain)
        self._send(effects)
        given = iter(self._scheduling.with_work(assigned))
        return {
            id(call): _answer([True for _ in call.reports], next(given) if call.asked else [], named.get(id(call), {}))
            for call in plain
        }

    def _store_together(
        self, db: Connection, calls: Sequence[Reported], effects: Effects
    ) -> tuple[dict[int, Named], list[Reported], list[Assigned]]:
        """What their acks name, those whose results were taken, and what was scheduled for those of them that ask."""
        acking = [(id(call), call.acks) for call in calls if call.acks]
        named = self._reporting.ack(db, [acks for _, acks in acking]) if acking else []
        plain = self._reporting.complete_plain(db, calls, effects)
        assigned = self._scheduling.assign(db, [call.asked for call in plain if call.asked], effects)
        return dict(zip((number for number, _ in acking), named, strict=True)), plain, assigned

    def _take_alone(self, call: Reported) -> Taken | BaseException:
        try:
            named = self._ack_alone(call.acks) if call.acks else {}
            accepted = self._complete_each(call.reports) if call.reports else []
            return _answer(accepted, self._scheduling.schedule([call.asked])[0] if call.asked else [], named)
        except Exception as error:
            return error

    def _ack_alone(self, acks: Acks) -> Named:
        named = self._store.write(lambda db: self._reporting.ack_alone(db, acks))
        failpoint("ack.after_store")
        return named

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


def _reach_stored(calls: Sequence[Reported]) -> None:
    if any(call.acks for call in calls):
        failpoint("ack.after_store")
    if any(call.reports for call in calls):
        failpoint("complete.after_store")


def _answer(
    accepted: Sequence[bool], tasks: list[ScheduledTask] | BaseException, named: Named
) -> Taken | BaseException:
    return tasks if isinstance(tasks, BaseException) else Taken(tuple(accepted), tuple(tasks), named)
