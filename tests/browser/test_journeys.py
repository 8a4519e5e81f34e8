"""What people do, in Chromium: a table optimized from its page, and three journeys by keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.processes import Installation, free_port, install
from tests.acceptance.tables import name_of, small_table
from tests.browser.chromium import Seat
from tests.browser.conftest import Stated
from tests.browser.pages import PROCESSES


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    made = install(tmp_path)
    try:
        yield made
    finally:
        made.close()


NEVER = {"interval": "-1", "file-count": "1000"}


def test_from_the_printed_link_a_table_is_enabled_optimized_and_found_in_the_audit(
    installation: Installation, browser: Browser
) -> None:
    table = small_table(installation.catalog)
    with table.transaction() as transaction:  # nothing becomes due by itself between enabling and asking
        transaction.set_properties({f"self-optimizing.minor.trigger.{key}": value for key, value in NEVER.items()})
    name = name_of(table)
    port = free_port()
    up = installation.start("up", "--port", "0", "--threads", "1", environment={"AMORO_HTTP_PORT": str(port)})
    printed = re.search(r"http://\S+/login/link\?code=\S+", up.wait_for("/login/link?code="))
    assert printed is not None
    seat = Seat.of(browser, f"http://127.0.0.1:{port}", "")
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
    assert "OptimizeTable" in said
    assert "SetTableEnabled" in said
    assert name in said
    page.get_by_role("link", name="Events").click()
    page.wait_for_url("**/events")
    assert "committed" in page.locator("tbody").inner_text()
    assert seat.wrong == []
    seat.close()


@pytest.fixture
def page(browser: Browser, stated: Stated) -> Iterator[Page]:
    served = stated("typical")
    seat = Seat.of(browser, f"http://127.0.0.1:{served.port}", served.admin)
    yield seat.page
    seat.close()


def reach(page: Page, role: str, name: str) -> None:
    """Press Tab until the focus is on the link, button or field of that name."""
    wanted = page.get_by_role(role, name=name, exact=True).first  # type: ignore[arg-type]  # a literal of Playwright's
    for _ in range(150):
        page.keyboard.press("Tab")
        if wanted.evaluate("node => node === document.activeElement"):
            return
    raise AssertionError(f"Tab does not reach the {role} {name}")


def test_by_keyboard_a_table_is_found_and_says_why_it_is_idle(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("invoices")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tables?text=invoices")
    reach(page, "link", "lake.sales.invoices")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tables/lake.sales.invoices")
    assert "Why" in page.locator("main").inner_text()


def test_by_keyboard_a_process_is_cancelled(page: Page) -> None:
    page.goto(f"/processes/{PROCESSES['typical']}")
    reach(page, "link", "Cancel")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    reach(page, "button", "Cancel the process")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("The process is closed.")


def test_by_keyboard_a_dry_run_is_asked_for(installation: Installation, browser: Browser) -> None:
    name = name_of(small_table(installation.catalog))
    port = free_port()
    up = installation.start("up", "--port", "0", "--without-optimizer", environment={"AMORO_HTTP_PORT": str(port)})
    up.wait_for("amoro listens on")
    token = (installation.home / "admin.token").read_text().strip()
    seat = Seat.of(browser, f"http://127.0.0.1:{port}", token)
    page = seat.page
    page.goto("/maintenance")
    reach(page, "searchbox", "Table")
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    page.wait_for_url("**/maintenance/look")
    reach(page, "button", "Dry run of expire-snapshots")
    page.keyboard.press("Enter")
    page.wait_for_url("**/maintenance/preview")
    assert "Nothing was changed." in page.get_by_role("status").inner_text()
    seat.close()
