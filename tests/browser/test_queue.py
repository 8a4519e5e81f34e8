"""The queue's pages in a browser, by their links: without script, and as axe sees them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import Seat
from tests.dashboard.served import Served, serving
from tests.dashboard.states import long_queue
from tests.store.ready import open_store


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp("queue") / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home.parent))
        patch.setenv("PYICEBERG_HOME", str(home.parent))
        with open_store(home / "amoro.db") as store:
            store.write(long_queue)
        with serving(home) as made:
            yield made


def places(page: Page) -> list[tuple[str, str]]:
    """The first and the last place of each of the two lists."""
    lists = [
        page.get_by_role("region", name=name).locator("tbody tr td:first-child").all_inner_texts() for name in NAMES
    ]
    return [(found[0], found[-1]) for found in lists]


NAMES = ("Waiting for a plan", "Waiting for a thread")


def onward(page: Page, noun: str, link: str = "Next page") -> None:
    page.get_by_role("navigation", name=f"Pages of the list of {noun}").get_by_role("link", name=link).click()


@pytest.mark.parametrize("script", [False, True])
def test_each_list_is_paged_by_its_own_links(browser: Browser, served: Served, script: bool) -> None:
    seat = Seat.of(browser, f"http://127.0.0.1:{served.port}", served.admin, script=script, width=360)
    page = seat.page
    page.goto("/queue")
    assert places(page) == [("1", "100"), ("1", "100")]
    onward(page, "tables")
    page.wait_for_url("**/queue?pending=*")
    assert places(page) == [("101", "200"), ("1", "100")]
    onward(page, "processes")
    page.wait_for_url("**/queue?pending=*&waiting=*")
    assert places(page) == [("101", "200"), ("101", "130")]
    if script:
        seat.look(page.url)
        seat.examine()
        assert seat.wrong == []
    onward(page, "tables", "First page")
    page.wait_for_url("**/queue?waiting=*")
    assert places(page) == [("1", "100"), ("101", "130")]
    seat.close()
