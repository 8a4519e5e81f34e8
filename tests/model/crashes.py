"""Deaths of a coordinator in the middle of a step: what comes before has happened, nothing comes after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

import pytest

from amoro_core.formats.iceberg import IcebergTable
from amoro_core.store.database import Connection
from tests.services.world import World

#: What a coordinator does to the world beside the writes of its store.
TABLE_EFFECTS = ("stage", "send", "delete_unreferenced")


def _written(world: World) -> Callable[..., list[Future[Any]]]:
    """Writes that have come to their end when they return; every write goes this way."""
    submit_all = world.store.submit_all

    def write(runs: Sequence[Callable[[Connection], Any]]) -> list[Future[Any]]:
        futures = submit_all(runs)
        wait(futures)
        return futures

    return write


class Died(BaseException):
    """The process is no more: no handler may do anything that lasts."""


@contextmanager
def dying(world: World, when: Callable[[int, str], bool], *, after: bool) -> Iterator[list[str]]:
    """Let the coordinator die at the first effect of which `when` says so, before it happens or after.

    Effects are counted from 0 and named "write" (of the store) or as in TABLE_EFFECTS; the names of those that
    happened are returned. Once dead, every further effect raises too. The caller restarts the world.
    """
    happened: list[str] = []
    dead = False

    def mortal(name: str, effect: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **more: Any) -> Any:
            nonlocal dead
            if dead:
                raise Died(name)
            dies = when(len(happened), name)
            if dies and not after:
                dead = True
                raise Died(name)
            result = effect(*given, **more)
            happened.append(name)
            if dies:
                dead = True
                raise Died(name)
            return result

        return act

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.store, "submit_all", mortal("write", _written(world)))
        for name in TABLE_EFFECTS:
            patch.setattr(IcebergTable, name, mortal(name, getattr(IcebergTable, name)))
        yield happened


@contextmanager
def before_sending(meanwhile: Callable[[], object], *, must_come: bool = True) -> Iterator[None]:
    """Let something happen once, after a commit was staged and written down and before it is sent.

    Fails when nothing was sent, if it must come to that.
    """
    waiting, send = [meanwhile], IcebergTable.send

    def late(table: IcebergTable, payload: bytes) -> None:
        if waiting:
            waiting.pop()()
        send(table, payload)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IcebergTable, "send", late)
        yield
    assert not (waiting and must_come), "nothing was sent"


@contextmanager
def failing(world: World, at: int, error: BaseException, *, after: bool) -> Iterator[list[str]]:
    """Let one effect, counted from 0, raise an error before it happens or after; the coordinator lives on."""
    happened: list[str] = []

    def fragile(name: str, effect: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **more: Any) -> Any:
            number = len(happened)
            happened.append(name)
            if number == at and not after:
                raise error
            result = effect(*given, **more)
            if number == at:
                raise error
            return result

        return act

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.store, "submit_all", fragile("write", _written(world)))
        for name in TABLE_EFFECTS:
            patch.setattr(IcebergTable, name, fragile(name, getattr(IcebergTable, name)))
        yield happened
