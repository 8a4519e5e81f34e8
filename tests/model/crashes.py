"""What comes between the effects of a coordinator: deaths, errors, lost answers, and other writers.

Before a death all has happened, and nothing comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from amoro_core.files.storage.io import FileAccess
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.model.processes import CatalogConfig
from amoro_core.store.database import Connection
from tests.services.world import World

#: What a coordinator does to the world beside the writes of its store.
TABLE_EFFECTS = ("stage", "send", "delete_unreferenced")
EFFECTS = ("write", *TABLE_EFFECTS)
#: What it asks of a table, beside.
LOOKS = ("load", "context", "head", "stage_tag", "trace")
#: And of the access to the table's files.
FILE_LOOKS = ("pages", "stat_many")

#: Carries out one step: its name, how it is done, and what is given to it.
Act = Callable[..., Any]


class SteppedWorld(World):
    """Services of which every effect, and every look at a table, is a step that a test may carry out otherwise."""

    def __init__(
        self,
        home: Path,
        catalog: Catalog,
        *,
        config: CatalogConfig | None = None,
        iceberg: Callable[[Path], IcebergFormat] = lambda home: IcebergFormat(),
    ) -> None:
        self._act: Act = _as_it_is
        super().__init__(home, catalog, config=config, iceberg=lambda home: self._stepped(iceberg(home)))

    @contextmanager
    def steps(self, act: Act) -> Iterator[None]:
        """Carry out each step by `act(name, step, *given)`, which calls `step(*given)` or does not."""
        before = self._act
        self._act = lambda name, step, *given, **more: act(name, partial(before, name, step), *given, **more)
        try:
            yield
        finally:
            self._act = before

    def _open(self) -> None:
        super()._open()
        submit_all = self.store.submit_all

        def write(runs: Sequence[Callable[[Connection], Any]]) -> list[Future[Any]]:
            """Every write goes this way; it has come to its end when this returns."""
            futures = submit_all(runs)
            wait(futures)
            return futures

        self.store.submit_all = partial(self._step, "write", write)

    def _stepped(self, tables: IcebergFormat) -> IcebergFormat:
        load = tables.load

        def loaded(*given: Any) -> Any:
            table = load(*given)
            for name in (*TABLE_EFFECTS, *LOOKS[1:]):
                setattr(table, name, partial(self._step, name, getattr(table, name)))
            table.access = partial(self._stepped_access, table.access)
            return table

        tables.load = partial(self._step, "load", loaded)
        return tables

    def _stepped_access(self, access: Callable[..., FileAccess], *given: Any) -> FileAccess:
        files = access(*given)
        for name in FILE_LOOKS:
            setattr(files, name, partial(self._step, name, getattr(files, name)))
        return files

    def _step(self, name: str, step: Callable[..., Any], *given: Any, **more: Any) -> Any:
        return self._act(name, step, *given, **more)


def _as_it_is(name: str, step: Callable[..., Any], *given: Any, **more: Any) -> Any:
    return step(*given, **more)


class Died(BaseException):
    """The process is no more: no handler may do anything that lasts."""


@contextmanager
def dying(world: SteppedWorld, when: Callable[[int, str], bool], *, after: bool) -> Iterator[list[str]]:
    """Let the coordinator die at the first effect of which `when` says so, before it happens or after.

    Effects are counted from 0 and named as in EFFECTS; the names of those that happened are returned. Once dead, every
    further effect raises too. The caller restarts the world.
    """
    happened: list[str] = []
    dead = False

    def act(name: str, step: Callable[..., Any], *given: Any, **more: Any) -> Any:
        nonlocal dead
        if name not in EFFECTS:
            return step(*given, **more)
        if dead:
            raise Died(name)
        dead = when(len(happened), name)
        if dead and not after:
            raise Died(name)
        result = step(*given, **more)
        happened.append(name)
        if dead:
            raise Died(name)
        return result

    with world.steps(act):
        yield happened


@contextmanager
def failing(world: SteppedWorld, at: int, error: BaseException, *, after: bool) -> Iterator[list[str]]:
    """Let one effect, counted from 0, raise an error before it happens or after; the coordinator lives on."""
    happened: list[str] = []

    def act(name: str, step: Callable[..., Any], *given: Any, **more: Any) -> Any:
        if name not in EFFECTS:
            return step(*given, **more)
        number = len(happened)
        happened.append(name)
        if number == at and not after:
            raise error
        result = step(*given, **more)
        if number == at:
            raise error
        return result

    with world.steps(act):
        yield happened


@contextmanager
def before(
    world: SteppedWorld,
    step: str,
    *meanwhile: Callable[[], object],
    given: Callable[[Any], bool] = lambda given: True,
    must_come: bool = True,
) -> Iterator[None]:
    """Let these happen, one before each of the next steps of that name whose first argument fits.

    Fails when it did not come to all of them, if it must.
    """
    waiting = list(meanwhile)

    def act(name: str, real: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        if name == step and waiting and given(arguments[0]):
            waiting.pop(0)()
        return real(*arguments, **more)

    with world.steps(act):
        yield
    assert not (waiting and must_come), f"there was no {step}"


@contextmanager
def instead_of_sending(world: SteppedWorld, send: Callable[[Callable[[], object]], object]) -> Iterator[None]:
    """Let each commit be sent by `send`, which gets the real way to do it."""

    def act(name: str, real: Callable[..., Any], *given: Any, **more: Any) -> Any:
        return send(partial(real, *given)) if name == "send" else real(*given, **more)

    with world.steps(act):
        yield
