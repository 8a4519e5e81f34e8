"""What people do, in Chromium: journeys by mouse and keyboard, forms that answer, pages that follow what happens."""

from __future__ import annotations

import csv
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.processes import STEADY, Installation, Process, free_port, install
from tests.acceptance.tables import messy_table, name_of, small_table
from tests.browser.chromium import Seat, expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NEVER = {"interval": "-1", "file-count": "1000"}


class Site:
    """A coordinator that serves pages on a port that stays the same, killed and started anew."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.port = free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        self.process = self._start()

    def _start(self) -> Process:
        port = {"AMORO_HTTP_PORT": str(self.port)}
        made = self.installation.start("up", "--port", "0", "--threads", "1", environment=port)
        made.wait_for("amoro listens on")
        return made

    def restart(self) -> None:
        self.process.kill()
        self.process = self._start()

    @property
    def token(self) -> str:
        return (self.installation.home / "admin.token").read_text().strip()

    def create_group(self, name: str) -> None:
        address = f"http://127.0.0.1:{self.port}/api/v1/groups"
        request = urllib.request.Request(address, json.dumps({"name": name}).encode())
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - loopback
            assert answer.status < 300

    def page(self, browser: Browser, path: str) -> Page:
        context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {self.token}"})
        page = context.new_page()
        page.goto(f"{self.origin}{path}")
        page.evaluate("window.wasNeverReloaded = true")
        return page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("site")
    installation = install(directory, f"{STEADY}terminal.enabled: true\n")
    try:
        yield Site(installation)
    finally:
        installation.close()


def press(seat: Seat, name: str) -> None:
    """Press the button, and wait for the page that comes."""
    with seat.page.expect_navigation(wait_until="load"):
        seat.page.get_by_role("button", name=name, exact=True).click()


def examined(seat: Seat) -> str:
    """The text of the page that is shown, on which nothing is wrong."""
    width, inner = seat.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner
    seat.examine()
    assert seat.wrong == []
    return re.sub(r"\s+", " ", seat.page.locator("main").inner_text())


def test_from_the_printed_link_a_table_is_enabled_optimized_and_in_the_audit(site: Site, browser: Browser) -> None:
    table = small_table(site.installation.catalog)
    with table.transaction() as transaction:  # nothing becomes due by itself between enabling and asking
        transaction.set_properties({f"self-optimizing.minor.trigger.{key}": value for key, value in NEVER.items()})
    name = name_of(table)
    site.restart()  # it looks for tables
    printed = re.search(r"http://\S+/login/link\?code=\S+", site.process.wait_for("/login/link?code="))
    assert printed is not None
    seat = Seat.of(browser, site.origin, "")
    page = seat.page
    page.goto(printed[0])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(re.compile(r":\d+/$"))
    page.get_by_role("link", name="Tables", exact=True).click()
    expect(page.locator("tbody")).to_contain_text(name)  # found meanwhile, without a reload
    page.get_by_role("link", name=name).click()

    page.wait_for_load_state("load")  # before, these are links to pages that ask
    page.get_by_role("link", name="Enable…").click()
    page.get_by_role("dialog").get_by_role("button", name="Enable").click()
    expect(page.get_by_role("link", name="Disable…")).to_be_visible()

    page.wait_for_load_state("load")
    page.get_by_role("link", name="Optimize now…").click()
    page.get_by_role("dialog").get_by_label("Type").select_option("full")
    page.get_by_role("dialog").get_by_role("button", name="Optimize now").click()
    page.wait_for_url(re.compile("/processes/"))
    page.evaluate("window.wasNeverReloaded = true")
    expect(page.locator(".steps li").last).to_have_class("done")
    assert page.evaluate("window.wasNeverReloaded"), "the page has followed the process to its end"

    receipt = page.locator(".receipt").inner_text()
    rows = re.search(r"([\d,]+) = ([\d,]+) ✓", receipt)
    assert rows is not None, receipt
    assert rows[1] == rows[2]
    assert page.locator("svg .bar.success").count() >= 1

    page.get_by_role("link", name="Audit").click()
    page.wait_for_url("**/audit")
    said = page.locator("tbody").inner_text()
    assert [one for one in ("OptimizeTable", "SetTableEnabled", name) if one not in said] == []
    page.get_by_role("link", name="Events").click()
    page.wait_for_url("**/events")
    assert "committed" in page.locator("tbody").inner_text()
    assert seat.wrong == []
    seat.close()


def test_a_statement_is_run_its_rows_downloaded_and_an_endless_one_cancelled(site: Site, browser: Browser) -> None:
    """On a phone, with many columns and long values; what was typed stays as it was typed."""
    name = name_of(messy_table(site.installation.catalog))
    more = ", ".join(f"repeat('a long value ', 9) AS column_{number}" for number in range(30))
    statement = f"SELECT id, NULL AS nothing,\n\t'<b>, \"x\"' AS mark, {more} FROM {name} LIMIT 3"
    for width in (1280, 390):
        seat = Seat.of(browser, site.origin, site.token, width=width, scheme="dark" if width == 390 else "light")
        seat.look("/sql")
        seat.page.get_by_label("Statement").fill(statement)
        seat.page.get_by_label("Statement").press("Control+Enter")
        expect(seat.page.get_by_role("heading", name="Result")).to_be_visible()
        # The page of what runs is loaded whole once its content is not found any more.
        seat.wrong[:] = [one for one in seat.wrong if "status of 404" not in one]
        assert re.search(r"3 rows in .* NULL .*<b>, \"x\" a long value", examined(seat))
        assert seat.page.get_by_label("Statement").input_value() == statement
    with seat.page.expect_download() as downloading:
        seat.page.get_by_role("link", name="Download as CSV").click()
    del seat.wrong[:]  # Chromium says of a page that is a download that it was aborted
    with open(downloading.value.path(), newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert (header[:3], len(header)) == (["id", "nothing", "mark"], 33)
    assert [row[1:3] for row in rows] == [["", '<b>, "x"']] * 3

    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
    seat.page.get_by_label("Statement").fill(endless)
    press(seat, "Run")
    assert "The statement runs." in examined(seat)
    press(seat, "Cancel")
    assert "the statement was cancelled" in examined(seat)
    assert seat.page.get_by_label("Statement").input_value() == endless
    seat.page.get_by_label("Statement").fill("DROP TABLE x")
    press(seat, "Run")
    assert "DROP is no SELECT" in seat.page.get_by_role("alert").inner_text()
    assert seat.page.get_by_label("Statement").input_value() == "DROP TABLE x"
    seat.close()


def test_a_hidden_tab_asks_for_nothing_and_catches_up(site: Site, browser: Browser) -> None:
    page = site.page(browser, "/groups")
    change = "Object.defineProperty(document, 'hidden', {value: VALUE, configurable: true});"
    change += "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(change.replace("VALUE", "true"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    site.create_group("hidden")
    page.wait_for_timeout(4000)
    assert asked == []
    page.evaluate(change.replace("VALUE", "false"))
    expect(page.locator("tbody")).to_contain_text("hidden")
    page.context.close()


def test_after_a_kill_the_page_tells_of_it_and_goes_on_without_a_reload(site: Site, browser: Browser) -> None:
    page = site.page(browser, "/groups")
    site.process.kill()
    expect(page.locator("#lost")).to_contain_text("No connection to the coordinator")
    site.restart()
    site.create_group("after-the-kill")
    expect(page.locator("tbody")).to_contain_text("after-the-kill")
    expect(page.locator("#lost")).to_have_count(0)
    assert page.evaluate("window.wasNeverReloaded")
    page.context.close()
