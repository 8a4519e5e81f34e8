"""Events of changed tables: at once, together, not too many, and never lost while a look is going on."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from amoro_core.errors import TableNotFound, TooManyEvents
from amoro_core.model.tables import TableIdentifier, TableRuntime
from amoro_core.model.throttle import Throttle
from amoro_core.services.hearing import COALESCED_S, HearingService
from tests.store import builders


class Looks:
    """Notes which tables are looked at; those that are busy are not."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, str]] = []
        self.busy: set[int] = set()

    def look(self, table_id: int, catalog: str) -> bool:
        if table_id in self.busy:
            self.busy.discard(table_id)
            return False
        self.begun.append((table_id, catalog))
        return True

    def wait(self, count: int) -> None:
        for _ in range(1000):
            if len(self.begun) >= count:
                return
            threading.Event().wait(0.01)
        raise AssertionError(f"looked at {self.begun} only")


class Stopped(threading.Timer):
    """Never begins by itself."""

    def start(self) -> None: ...


def stopped_timers(monkeypatch: pytest.MonkeyPatch) -> list[threading.Timer]:
    """The timers that are made from now on, to be let run out by the test."""
    made: list[threading.Timer] = []

    def make(interval_s: float, function: Callable[[], None]) -> threading.Timer:
        made.append(Stopped(interval_s, function))
        return made[-1]

    monkeypatch.setattr("amoro_core.services.hearing.threading.Timer", make)
    return made


TABLES = {
    made.identifier: made for made in (replace(builders.runtime(f"t{number}"), table_id=number) for number in (1, 2))
}
FIRST, SECOND = TABLES


def found(identifier: TableIdentifier) -> TableRuntime:
    if identifier not in TABLES:
        raise TableNotFound(f"table {identifier} does not exist")
    return TABLES[identifier]


def test_events_of_one_while_are_one_look_for_each_table(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, timers = Looks(), stopped_timers(monkeypatch)
    hearing = HearingService(found, looks.look)
    for table in (FIRST, SECOND, FIRST, FIRST):
        assert hearing.changed(table, "appended", "the token op") == TABLES[table]
    (timer,) = timers
    assert (timer.interval, looks.begun) == (COALESCED_S, [])
    timer.function()
    assert sorted(looks.begun) == [(1, "cat"), (2, "cat")]
    hearing.changed(FIRST, "", "the token op")
    timers[1].function()
    assert looks.begun[2:] == [(1, "cat")]


def test_an_event_during_a_look_leads_to_another_one() -> None:
    looks = Looks()
    looks.busy = {1}
    hearing = HearingService(found, looks.look, coalesced_s=0.01)
    hearing.changed(FIRST, "", "the token op")
    looks.wait(1)
    assert looks.begun == [(1, "cat")]
    hearing.stop()


def test_nobody_tells_more_than_is_taken_of_one_within_a_minute() -> None:
    looks, now_s = Looks(), 0.0
    hearing = HearingService(found, looks.look, Throttle(2, timedelta(minutes=1), lambda: now_s))
    hearing.changed(FIRST, "", "the token op")
    with pytest.raises(TableNotFound):  # its catalog was asked, so it counts
        hearing.changed(replace(FIRST, name="none"), "", "the token op")
    with pytest.raises(TooManyEvents, match=r"the token op has told of .*cat\.db\.t1 is looked at in its own time"):
        hearing.changed(FIRST, "", "the token op")
    hearing.changed(FIRST, "", "the token other")
    now_s = 60.0
    hearing.changed(FIRST, "", "the token op")
    hearing.stop()


def test_nothing_is_looked_at_after_the_end() -> None:
    looks = Looks()
    hearing = HearingService(found, looks.look, coalesced_s=5.0)
    hearing.changed(FIRST, "", "the token op")
    timer = hearing._timer
    assert timer is not None
    hearing.stop()
    assert not timer.is_alive()
    hearing.changed(FIRST, "", "the token op")
    assert hearing._timer is timer
    assert looks.begun == []
    never_told = HearingService(found, looks.look)
    never_told.stop()
    never_told.changed(FIRST, "", "the token op")
    assert never_told._timer is None
