"""Open pages in Chromium: a change is seen without a reload, and so is a coordinator that was killed and is back."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from amoro_core.errors import StoreFailed
from amoro_core.store.database import Store
from tests.acceptance.processes import Installation, Process, free_port, install
from tests.browser.conftest import Stated

SEEN_MS = 30_000  # a machine that is busy; that a change is told within two seconds is tested without a browser


class Site:
    """A coordinator that serves pages on a port that stays the same, killed and started anew."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.port = free_port()
        self.process = self._start()

    def _start(self) -> Process:
        made = self.installation.start(
            "up", "--port", "0", "--without-optimizer", environment={"AMORO_HTTP_PORT": str(self.port)}
        )
        made.wait_for("amoro listens on")
        return made

    def restart(self) -> None:
        self.process = self._start()

    @property
    def token(self) -> str:
        return (self.installation.home / "admin.token").read_text().strip()

    def post(self, path: str, body: object) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode())
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - loopback
            assert answer.status < 300

    def page(self, browser: Browser, path: str) -> Page:
        context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {self.token}"})
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{self.port}{path}")
        page.evaluate("window.wasNeverReloaded = true")
        return page


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    installation = install(tmp_path)
    try:
        yield Site(installation)
    finally:
        installation.close()


def test_a_change_is_seen_without_a_reload(site: Site, browser: Browser) -> None:
    page = site.page(browser, "/groups")
    expect(page.locator("tbody tr")).to_have_count(1)
    site.post("/api/v1/groups", {"name": "nightly"})
    expect(page.locator("tbody")).to_contain_text("nightly", timeout=SEEN_MS)
    assert page.evaluate("window.wasNeverReloaded")


def test_a_hidden_tab_gives_its_connection_back_and_catches_up(site: Site, browser: Browser) -> None:
    page = site.page(browser, "/groups")
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert page.evaluate("stream === null")
    site.post("/api/v1/groups", {"name": "nightly"})
    page.evaluate("Object.defineProperty(document, 'hidden', {value: false, configurable: true})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("tbody")).to_contain_text("nightly", timeout=SEEN_MS)


def test_after_a_kill_the_page_tells_of_it_and_goes_on_without_a_reload(site: Site, browser: Browser) -> None:
    page = site.page(browser, "/groups")
    expect(page.locator("tbody tr")).to_have_count(1)
    site.process.kill()
    expect(page.locator("#lost")).to_contain_text("No connection to the coordinator", timeout=SEEN_MS)
    site.restart()
    site.post("/api/v1/groups", {"name": "nightly"})
    expect(page.locator("tbody")).to_contain_text("nightly", timeout=SEEN_MS)
    expect(page.locator("#lost")).to_have_count(0, timeout=SEEN_MS)
    assert page.evaluate("window.wasNeverReloaded")


def test_while_the_state_database_fails_the_page_says_so_and_recovers_without_a_hint(
    browser: Browser, stated: Stated
) -> None:
    served = stated("empty")
    context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {served.admin}"})
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{served.port}/groups")
    page.evaluate("window.wasNeverReloaded = true")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "read", failing)
        page.evaluate("plan()")
        expect(page.locator("#lost")).to_be_visible(timeout=SEEN_MS)
        assert "the disk is gone" in page.request.get(f"http://127.0.0.1:{served.port}/groups").text()
    expect(page.locator("#lost")).to_have_count(0, timeout=SEEN_MS)
    assert page.evaluate("window.wasNeverReloaded")
    context.close()


def failing(*_: object) -> None:
    raise StoreFailed("the disk is gone")


def test_what_was_chosen_in_a_filter_stays_when_the_page_is_shown_anew(site: Site, browser: Browser) -> None:
    page = site.page(browser, "/groups")
    page.goto(f"http://127.0.0.1:{site.port}/optimizers")
    page.locator("#f-group").select_option("default")
    with page.expect_response(lambda answer: "amoro-fragment" in answer.request.headers):
        site.post("/api/v1/groups", {"name": "nightly"})
        page.evaluate("plan()")
    assert page.locator("#f-group").input_value() == "default"
