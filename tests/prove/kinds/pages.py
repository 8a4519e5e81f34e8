"""Every page in every state, width and scheme, in Chromium."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from amoro_core.store.database import Store
from tests.browser.chromium import Seat, started
from tests.browser.pages import STATES, VIEWS, looks, paths_in
from tests.dashboard import states
from tests.dashboard.served import serving
from tests.model.conftest import quick_directory

NAME = "pages"
WHAT = (
    "Every page of a coordinator in one of six states, each at every width and in both schemes, in Chromium; states "
    "take turns (`tests/browser/pages.py`). A mismatch: an error on the console, a request that fails or leaves the "
    "origin, a page that scrolls sideways, or a serious finding of axe."
)
TARGETS = {"looks": len(looks(every=True))}
SECONDS = 150.0
REPLAYS = True


def run(seed: int, totals: Counter[str]) -> None:
    state, wrong = STATES[seed % len(STATES)], []
    with quick_directory() as made, pytest.MonkeyPatch.context() as patch, started() as browser:
        patch.setenv("HOME", str(made))
        patch.setenv("PYICEBERG_HOME", str(made))
        home = Path(made) / "home"
        home.mkdir()
        with Store.open(home / "amoro.db") as store:
            states.seed(store, state)
        with serving(home) as served:
            for width, scheme in VIEWS:
                seat = Seat.of(browser, f"http://127.0.0.1:{served.port}", served.admin, width=width, scheme=scheme)
                for path in paths_in(state):
                    seat.look(path)
                    seat.examine()
                    wrong += [f"{state}, {path}, {width}, {scheme}: {one}" for one in seat.wrong]
                    totals["looks"] += 1
                    totals[f"looks, {state}"] += 1
                seat.close()
    assert not wrong, wrong
