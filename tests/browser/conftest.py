"""Coordinators in scripted states, and a browser before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amoro_core.bootstrap.settings import Settings
from tests.browser import chromium
from tests.dashboard.served import Served, serving
from tests.dashboard.states import seed
from tests.store.builders import open_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Stated = Callable[[str], Served]


# Not of the session: while Playwright is started, no other test of the process could run an event loop of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.started() as made:
        yield made


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stated]:
    """The coordinator in the state of that name; it is started when it is first asked for."""
    directory: Path = tmp_path_factory.mktemp("states")
    running: dict[str, Served] = {}
    with ExitStack() as ending:

        def find(state: str) -> Served:
            if state not in running:
                home = directory / state
                home.mkdir()
                with open_store(home / "amoro.db") as store:
                    seed(store, state)
                running[state] = ending.enter_context(serving(home, Settings(terminal_enabled=True)))
            return running[state]

        yield find
