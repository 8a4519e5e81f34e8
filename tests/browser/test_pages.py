"""Every page in every state: no error, no foreign request, no scrolling sideways, nothing serious that axe finds."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amoro_core.web import pages
from tests.browser.chromium import Seat, expect
from tests.browser.conftest import Sit, Stated
from tests.browser.pages import ELSEWHERE, ONCE, STATES, TABLE, looks, paths_in
from tests.browser.screenshots import IMAGES, PICTURES, SIZE, take
from tests.tiers import count

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Seats = dict[tuple[str, int, str], Seat]


@pytest.fixture(scope="module")
def seats() -> Iterator[Seats]:
    made: Seats = {}
    yield made
    for seat in made.values():
        seat.close()


@pytest.mark.parametrize(("state", "path", "width", "scheme"), looks()[: count(ONCE, len(looks()))])
def test_a_page_reads_in_every_state(
    browser: Browser, stated: Stated, seats: Seats, state: str, path: str, width: int, scheme: str
) -> None:
    served, view = stated(state), (state, width, scheme)
    if view not in seats:
        origin = f"http://127.0.0.1:{served.port}"
        seats[view] = Seat.of(browser, origin, served.admin, width=width, scheme=scheme)
    seat = seats[view]
    seat.look(path)
    seat.examine()
    assert seat.wrong == []
    assert seat.page.locator("h1").inner_text()


def test_an_id_is_told_by_its_end_and_a_click_copies_it(sit: Sit) -> None:
    seat = sit("failing")
    seat.context.grant_permissions(["clipboard-read", "clipboard-write"])
    seat.look("/processes")
    shown = seat.page.locator("tbody [data-copy]")
    whole = [one.get_attribute("data-copy") or "" for one in shown.all()]
    assert shown.all_inner_texts() == [one[-8:] for one in whole]
    seat.page.get_by_role("button", name=f"Copy {whole[7]}").click()
    assert seat.page.evaluate("navigator.clipboard.readText()") == whole[7]
    assert seat.wrong == []


@pytest.mark.parametrize("width", [1280, 390])
def test_a_long_text_opens_by_keyboard_and_is_announced(sit: Sit, width: int) -> None:
    seat = sit("failing", width=width)
    seat.look("/processes")
    text, page = seat.page.locator("td.why summary").first, seat.page
    session = seat.context.new_cdp_session(page)

    def expanded() -> bool:
        """What a screen reader says of the text."""
        node = session.send("Runtime.evaluate", {"expression": "document.querySelector('td.why summary')"})["result"]
        asked = {"objectId": node["objectId"], "fetchRelatives": False}
        (seen,) = session.send("Accessibility.getPartialAXTree", asked)["nodes"]
        return next(bool(one["value"]["value"]) for one in seen["properties"] if one["name"] == "expanded")

    def is_whole() -> bool:
        return bool(text.evaluate("node => node.scrollHeight <= node.clientHeight"))

    assert (expanded(), is_whole()) == (False, False)
    page.locator("tbody tr").first.locator("td.short a").first.focus()
    for _ in range(4):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.localName") == "summary":
            break
    page.keyboard.press("Enter")
    assert (expanded(), is_whole()) == (True, True)
    with page.expect_response(lambda answer: "amoro-fragment" in answer.request.headers):
        page.evaluate("plan(0)")
    assert expanded(), "what was opened stays open when the page is shown anew"
    text.click()
    assert (expanded(), is_whole()) == (False, False)
    assert seat.wrong == []


def test_the_search_suggests_tables_and_shows_the_one_that_is_chosen(sit: Sit) -> None:
    seat = sit("typical")
    seat.look("/")
    search = seat.page.get_by_role("combobox", name="Find a table")
    with seat.page.expect_response("**/find?text=orders"):
        search.press_sequentially("orders", delay=0)
    choices = seat.page.locator("#found option")
    expect(choices).to_have_count(4)
    assert choices.first.get_attribute("value") == "lake.finance.orders"
    search.fill("lake.finance.orders")
    seat.page.wait_for_url("**/tables/lake.finance.orders")
    assert seat.wrong == []


def test_each_route_that_is_read_is_looked_at() -> None:
    looked = {path.partition("?")[0] for state in STATES for path in paths_in(state)}
    for route in pages.routes():
        if "GET" in route.methods and route.path not in ELSEWHERE:
            wanted = re.compile(re.sub(r"\{\w+\}", "[^/]+", route.path))
            assert any(map(wanted.fullmatch, looked)), route.path


@pytest.mark.parametrize("path", ["/tables/lake.sales.nothing", "/tables?sort=none", "/processes/0199ffff-ffff"])
def test_a_page_of_an_error_reads(sit: Sit, path: str) -> None:
    seat = sit("typical", width=360, scheme="dark")
    seat.look(path, 400 if "?" in path else 404)
    seat.examine()
    assert [one for one in seat.wrong if not one.startswith("console: Failed to load resource")] == []


def test_without_script_every_page_reads(sit: Sit) -> None:
    seat = sit("typical", java_script_enabled=False)
    for path in paths_in("typical"):
        answer = seat.page.goto(path)
        assert answer is not None
        assert answer.status == 200, path
        assert len(seat.page.locator("main").inner_text()) > 20, path


def test_a_confirmation_opens_over_the_page_and_closes_again(sit: Sit) -> None:
    seat = sit("typical")
    seat.look(TABLE)
    page = seat.page
    page.get_by_role("link", name="Block…").click()
    dialog = page.get_by_role("dialog", name="Block lake.sales.orders?")
    dialog.wait_for()
    seat.examine()
    assert page.url.endswith(TABLE)
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert page.evaluate("document.activeElement.textContent") == "Block…"
    assert seat.wrong == []


def test_the_pictures_of_the_how_to_are_taken_of_the_pages(browser: Browser, stated: Stated, tmp_path: Path) -> None:
    served = stated("typical")
    take(browser, f"http://127.0.0.1:{served.port}", served.admin, tmp_path)
    for directory in (tmp_path, IMAGES):
        sizes = {path.name: struct.unpack(">II", path.read_bytes()[16:24]) for path in directory.glob("*.png")}
        assert sizes == dict.fromkeys(PICTURES, SIZE)
