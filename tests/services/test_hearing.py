"""Events of changed tables: at once, together, not too many, and never lost while a look is going on."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from amoro_core.errors import TooManyEvents
from amoro_core.model.tables import OptimizingStatus
from amoro_core.model.throttle import Throttle
from amoro_core.services.hearing import HearingService
from tests.store import builders


class Looks:
    """Notes which tables are looked at; those that are busy are not."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, str]] = []
        self.busy: set[int] = set()
        self.heard = threading.Event()

    def look(self, table_id: int, catalog: str) -> bool:
        self.heard.set()
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


def test_events_of_one_while_are_one_look_for_each_table() -> None:
    looks = Looks()
    hearing = HearingService(looks.look)
    first, second = (replace(builders.runtime(f"t{number}"), table_id=number) for number in (1, 2))
    for table in (first, second, first, first):
        hearing.changed(table, "appended", "the token op")
    looks.wait(2)
    assert sorted(looks.begun) == [(1, "cat"), (2, "cat")]
    hearing.changed(first, "", "the token op")
    looks.wait(3)
    assert looks.begun[2] == (1, "cat")
    hearing.stop()


def test_an_event_during_a_look_leads_to_another_one() -> None:
    looks = Looks()
    looks.busy = {1}
    hearing = HearingService(looks.look, coalesced_s=0.01)
    hearing.changed(replace(builders.runtime(), table_id=1), "", "the token op")
    looks.wait(1)
    assert looks.begun == [(1, "cat")]
    hearing.stop()


def test_nobody_tells_more_than_is_taken_of_one_within_a_minute() -> None:
    looks, now_s = Looks(), 0.0
    hearing = HearingService(looks.look, Throttle(2, timedelta(minutes=1), lambda: now_s))
    table = replace(builders.runtime(), table_id=1)
    for _ in range(2):
        hearing.changed(table, "", "the token op")
    with pytest.raises(TooManyEvents, match=r"the token op has told of .*cat\.db\.t is looked at in its own time"):
        hearing.changed(table, "", "the token op")
    hearing.changed(table, "", "the token other")
    now_s = 60.0
    hearing.changed(table, "", "the token op")
    hearing.stop()


def test_nothing_is_looked_at_after_the_end() -> None:
    looks = Looks()
    hearing = HearingService(looks.look, coalesced_s=0.05)
    table = replace(builders.runtime(status=OptimizingStatus.IDLE), table_id=1)
    hearing.changed(table, "", "the token op")
    hearing.stop()
    hearing.changed(table, "", "the token op")
    assert not looks.heard.wait(0.1)
