"""Debian's own Chromium, driven by Playwright; nothing is downloaded for it. Both are imported when they are needed.

Its headless shell takes three fifths of the CPU seconds that the whole browser takes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")
#: What axe finds and a page must not have.
SERIOUS = ("serious", "critical")
#: What a busy machine may take for a page or an answer.
PATIENCE_MS = 300_000


def chromium() -> str:
    """Where Chromium is, its headless shell first; skips the test without it, and fails it in CI."""
    known = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if known:
        return known
    reason = "the tests of pages need Chromium: run make test"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def started() -> Iterator[Browser]:
    """A browser during the block."""
    from playwright.sync_api import expect, sync_playwright

    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS), timeout=PATIENCE_MS)
        browser.on("context", lambda context: context.set_default_timeout(PATIENCE_MS))
        expect.set_options(timeout=PATIENCE_MS)
        try:
            yield browser
        finally:
            browser.close()


def expect(seen: Any) -> Any:
    """Playwright's assertions about a page or a part of it, which wait."""
    from playwright.sync_api import expect as expected

    return expected(seen)


@dataclass
class Seat:
    """Somebody before a browser: a page, and everything that went wrong on it."""

    context: BrowserContext
    origin: str
    page: Page
    wrong: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, browser: Browser, origin: str, token: str, width: int = 1280, scheme: str = "light", **options: Any
    ) -> Seat:
        """A new context with a page, which sends the token with each request; "": none."""
        context = browser.new_context(
            base_url=origin,
            viewport={"width": width, "height": options.pop("height", 900)},
            color_scheme=scheme,
            extra_http_headers={"Authorization": f"Bearer {token}"} if token else {},
            timezone_id="Europe/Berlin",
            locale="en-GB",
            **options,
        )
        return cls(context, origin, context.new_page())

    def __post_init__(self) -> None:
        self.page.on("console", lambda said: said.type == "error" and self.wrong.append(f"console: {said.text}"))
        self.page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", self._asked)

    def _failed(self, request: Request) -> None:
        # A page that is left ends what it was fetching.
        is_left = request.resource_type == "fetch" and request.failure == "net::ERR_ABORTED"
        if not is_left:
            self.wrong.append(f"failed: {request.url} {request.failure}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:")):
            self.wrong.append(f"foreign: {request.url}")

    def look(self, path: str, status: int = 200) -> None:
        """Go to the page and note what is wrong with it."""
        del self.wrong[:]
        answer = self.page.goto(path, wait_until="load")
        if answer is None or answer.status != status:
            self.wrong.append(f"status: {answer and answer.status}")
        width, inner = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        if width > inner:
            self.wrong.append(f"it scrolls sideways: {width} > {inner}")

    def examine(self) -> None:
        """Note what axe finds on the page that is shown."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page, options={"resultTypes": ["violations"]})
        for one in found.response["violations"]:
            if one["impact"] in SERIOUS:
                places = [node["html"][:200] for node in one["nodes"][:3]]
                self.wrong.append(f"axe {one['id']}: {one['help']}: {places}")

    def close(self) -> None:
        """Leave."""
        self.context.close()
