"""Logins by a provider that does not answer, and logins that nobody ends."""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from amoro_core.dashboard.people import AT_ONCE, ATTEMPT_LASTS_S, Attempt, PeopleDoor
from amoro_core.errors import NotAllowed, WorkFailed
from tests.dashboard.provider import CANARY, NEAR, request_to, terms_of


class Hanging:
    """A provider that does not answer."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def address(self, attempt: Attempt) -> tuple[str, Mapping[str, Any]]:
        self.go_on.wait()
        return "https://there.example", {}

    def claims(self, attempt: Attempt, code: str) -> Mapping[str, object]:
        return {}


def test_a_provider_that_hangs_stops_nothing_else() -> None:
    hanging = Hanging()
    door = PeopleDoor(hanging, terms_of(), NEAR)

    async def leave_all() -> list[object]:
        tries = [asyncio.ensure_future(door.begin(request_to("localhost:1630"), "/")) for _ in range(AT_ONCE + 1)]
        done, _ = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)  # the loop goes on
        assert len(done) == 1
        hanging.go_on.set()
        return list(await asyncio.gather(*tries, return_exceptions=True))

    ended = asyncio.run(leave_all())
    door.close()
    assert [type(one) for one in ended].count(WorkFailed) == 1
    assert len(ended) == AT_ONCE + 1


def test_a_provider_that_never_answers_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amoro_core.dashboard.people.LONGEST_S", 0.01)
    hanging = Hanging()
    door = PeopleDoor(hanging, terms_of(), NEAR)
    try:
        with pytest.raises(WorkFailed, match=r"has not answered within 0\.01 s"):
            asyncio.run(door.begin(request_to("localhost:1630"), "/"))
    finally:
        hanging.go_on.set()
        door.close()


def test_an_attempt_ends_after_ten_minutes_and_they_are_not_without_end() -> None:
    now, quick = [0.0], Hanging()
    quick.go_on.set()
    door = PeopleDoor(quick, terms_of(), NEAR, lambda: now[0])
    begun = [asyncio.run(door.begin(request_to("localhost:1630"), "/"))[1] for _ in range(3)]
    now[0] = ATTEMPT_LASTS_S - 1
    assert door.take(begun[0].state, begun[0].browser).state == begun[0].state
    now[0] = ATTEMPT_LASTS_S
    with pytest.raises(NotAllowed, match="older than ten minutes"):
        door.take(begun[1].state, begun[1].browser)
    door._attempts = {str(number): replace(begun[0], ends_at=1e9) for number in range(1000)}
    last = asyncio.run(door.begin(request_to("localhost:1630"), "/"))[1]
    door.close()
    assert (len(door._attempts), "0" in door._attempts) == (1000, False)
    assert CANARY not in repr(last)
    assert last.verifier not in repr(last)
