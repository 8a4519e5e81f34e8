"""The pictures of the how-to about pages, taken in Chromium: `python -m tests.browser.screenshots`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from amoro_core.store.database import Store
from tests.browser import chromium
from tests.browser.chromium import Seat
from tests.browser.pages import PROCESSES
from tests.dashboard.served import serving
from tests.dashboard.states import seed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIZE = (1200, 720)
#: Each picture: its file, and the page on it in the state "typical".
PICTURES: Mapping[str, str] = {
    "dashboard-overview.png": "/",
    "dashboard-tables.png": "/tables?sort=saving&order=desc",
    "dashboard-table.png": "/tables/lake.finance.customers",
    "dashboard-process.png": f"/processes/{PROCESSES['typical']}",
}


def take(browser: Browser, origin: str, token: str, target: Path) -> None:
    """Take every picture of a coordinator in the state "typical", into the directory."""
    width, height = SIZE
    seat = Seat.of(browser, origin, token, width=width, height=height)
    for name, path in PICTURES.items():
        seat.look(path)
        if seat.wrong:
            raise AssertionError(f"{path}: {seat.wrong}")
        seat.page.screenshot(path=target / name)
    seat.close()


def main() -> None:
    """Take the pictures of the how-to anew."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        home.mkdir()
        with Store.open(home / "amoro.db") as store:
            seed(store, "typical")
        IMAGES.mkdir(exist_ok=True)
        with serving(home) as served, chromium.started() as browser:
            take(browser, f"http://127.0.0.1:{served.port}", served.admin, IMAGES)


if __name__ == "__main__":
    main()
