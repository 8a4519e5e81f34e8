"""Coordinators in scripted states, and a browser before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amoro_core.bootstrap.settings import Settings
from tests.browser import chromium
from tests.browser.chromium import Seat
from tests.dashboard.served import Served, serving
from tests.dashboard.states import seed
from tests.store.builders import open_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Stated = Callable[[str], Served]
Sit = Callable[..., Seat]


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


@pytest.fixture
def sit(browser: Browser, stated: Stated) -> Iterator[Sit]:
    """Seats an administrator before the coordinator in the state of that name, with these options, until the end."""
    with ExitStack() as ending:

        def before(state: str, **options: Any) -> Seat:
            served = stated(state)
            seat = Seat.of(browser, f"http://127.0.0.1:{served.port}", served.admin, **options)
            ending.callback(seat.close)
            return seat

        yield before
