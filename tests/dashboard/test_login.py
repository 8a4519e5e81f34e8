"""Logging in and out: cookies, links, limits, and what the audit has of it."""

from __future__ import annotations

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from starlette.testclient import TestClient

from amoro_core.model.principals import Throttle
from amoro_core.web.login import LoginService, TooManyTries
from tests.dashboard.conftest import Site

if TYPE_CHECKING:
    from amoro_core.services.accounts import UserService

PASSWORD = "correct horse battery"


class Browser:
    """A browser with its cookie, before an application that has the user ann."""

    def __init__(self, client: TestClient) -> None:
        self.admin, self._client = {"Authorization": client.headers["Authorization"]}, client
        made = client.post("/api/v1/users", json={"name": "ann", "role": "viewer", "password": PASSWORD})
        assert made.status_code == 201
        del client.headers["Authorization"]

    def send(self, path: str, cookie: str = "", site: str = "same-origin", **fields: str) -> httpx.Response:
        """A form, from a page of that site."""
        self._client.cookies.clear()
        headers = {"Sec-Fetch-Site": site, **({"Cookie": cookie} if cookie else {})}
        return self._client.post(path, data=fields, headers=headers)

    def log_in(self, password: str = PASSWORD, cookie: str = "", **fields: str) -> httpx.Response:
        return self.send("/login", cookie, **{"user": "ann", "password": password, **fields})

    def see(self, path: str, cookie: str = "") -> httpx.Response:
        self._client.cookies.clear()
        return self._client.get(path, headers={"Cookie": cookie} if cookie else {})

    def ask(self, path: str, method: str = "GET", body: Any = None) -> httpx.Response:
        """REST, as an administrator."""
        return self._client.request(method, path, json=body, headers=self.admin)

    def audited(self, operation: str = "LogIn") -> list[tuple[str, str, str]]:
        """Who tried by which way and how it ended, the oldest first."""
        items = self.ask(f"/api/v1/audit?operation={operation}").json()["items"]
        return [(one["actor"], one["way"], one["outcome"]) for one in reversed(items)]

    def failures(self) -> float:
        """How many callers showed a wrong password, link or token so far."""
        lines = self.ask("/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("amoro_login_failures_total"))


@pytest.fixture
def browser(site: Site) -> Browser:
    return Browser(site("empty"))


def cookie_of(answer: httpx.Response) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def test_a_user_logs_in_sees_pages_and_logs_out(browser: Browser) -> None:
    assert browser.see("/tables").headers["location"] == "/login?next=%2Ftables"
    assert 'name="next" value="/groups"' in browser.see("/login?next=/groups").text
    entered = browser.log_in(next="/groups")
    assert (entered.status_code, entered.headers["location"]) == (303, "/groups")
    (kept,) = SimpleCookie(entered.headers["set-cookie"]).values()
    assert re.fullmatch("amoro-.{8}", kept.key)
    assert (kept["httponly"], kept["samesite"], kept["path"], kept["secure"]) == (True, "lax", "/", "")
    cookie = cookie_of(entered)
    assert [browser.see(path, cookie).status_code for path in ("/groups", "/settings")] == [200, 403]
    assert browser.see("/api/v1/groups", cookie).status_code == 401, "REST takes tokens alone"
    for place in ("https://evil.example/", "//evil.example", "/\\evil.example"):
        assert browser.log_in(next=place).headers["location"] == "/"
    out = browser.send("/logout", cookie)
    assert (out.status_code, out.headers["location"]) == (303, "/login")
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert browser.see("/groups", cookie).status_code == 303
    browser.send("/logout", cookie)
    assert browser.audited("LogOut") == [("ann", "page", "done")], "a session ends once"


def test_who_is_wrong_is_told_the_same_whatever_is_wrong(browser: Browser) -> None:
    before = browser.failures()
    wrong = browser.log_in("a wrong password")
    unknown = browser.log_in("a wrong password", user="bob")
    assert (wrong.status_code, unknown.status_code) == (401, 401)
    assert wrong.text.replace('value="ann"', 'value="bob"') == unknown.text
    assert "set-cookie" not in wrong.headers
    assert browser.failures() == before + 2
    assert browser.audited() == [("ann", "page", "refused"), ("", "page", "refused")]


def test_a_form_above_its_limits_is_not_read(browser: Browser) -> None:
    for more in ({"note": "x" * 17_000}, {f"field-{number}": "" for number in range(99)}):  # 101 with the other two
        refused = browser.log_in(**more)
        assert (refused.status_code, "set-cookie" in refused.headers) == (401, False)


def test_a_login_from_another_site_is_refused_and_one_from_ours_ends_the_session_before_it(browser: Browser) -> None:
    for path in ("/login", "/login/link", "/logout"):
        assert browser.send(path, site="cross-site").status_code == 403
    first = cookie_of(browser.log_in())
    second = cookie_of(browser.log_in(cookie=first))
    assert first != second
    assert [browser.see("/groups", cookie).status_code for cookie in (first, second)] == [303, 200]


def test_a_password_is_tried_five_times_a_minute(browser: Browser) -> None:
    assert [browser.log_in("a wrong password").status_code for _ in range(5)] == [401] * 5
    late = browser.log_in()
    assert late.status_code == 429
    assert 0 < int(late.headers["retry-after"]) <= 60
    assert len(browser.audited()) == 5
    assert browser.log_in(user="bob").status_code == 401


def test_a_link_is_used_by_a_button_and_once(browser: Browser) -> None:
    made = browser.ask("/api/v1/login-links", "POST", {})
    code = made.json()["url"].partition("code=")[2]
    for _ in range(2):  # a preview of the link
        shown = browser.see(f"/login/link?code={code}")
        assert (shown.status_code, f'value="{code}"' in shown.text) == (200, True)
        assert "set-cookie" not in shown.headers
    entered = browser.send("/login/link", code=code)
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    assert browser.see("/settings", cookie_of(entered)).status_code == 200
    again = browser.send("/login/link", code=code)
    assert (again.status_code, "set-cookie" in again.headers) == (401, False)
    assert "was used already" in again.text
    assert browser.audited() == [("admin", "page", "done")]


def test_tries_are_counted_by_key_within_a_sliding_window() -> None:
    now = [0.0]
    throttle = Throttle(2, timedelta(minutes=1), lambda: now[0])
    assert (throttle.take("a"), throttle.take("a"), throttle.take("b")) == (0, 0, 0)
    now[0] = 59
    assert throttle.take("a") == 1
    now[0] = 60
    assert (throttle.take("a"), throttle.take("a"), throttle.take("a")) == (0, 0, 60)
    for number in range(10_001):
        throttle.take(f"other {number}")
    assert throttle.take("a") == 0, "no more than so many keys are kept"


def test_two_passwords_are_checked_at_once_and_eight_wait() -> None:
    go_on, at_once, busy = threading.Event(), list[int](), [0]

    class Slow:
        def check(self, name: str, password: str) -> None:
            busy[0] += 1
            at_once.append(busy[0])
            go_on.wait(60)
            busy[0] -= 1

    async def try_all() -> list[object]:
        with ThreadPoolExecutor(16) as pool:
            doors = LoginService(cast("UserService", Slow()), cast("Any", None), cast("Any", None), pool, "state")
            tries = [asyncio.ensure_future(doors.check(f"u{n}", PASSWORD, f"10.0.0.{n}")) for n in range(11)]
            done, _ = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            go_on.set()
            return list(await asyncio.gather(*tries, return_exceptions=True))

    ended = asyncio.run(try_all())
    assert [type(one) for one in ended].count(TooManyTries) == 1
    assert (len(at_once), max(at_once) <= 2) == (10, True)


def test_with_tls_the_cookie_is_of_this_host_and_never_travels_in_the_clear(browser: Browser) -> None:
    given = browser.send("https://localhost/login", user="ann", password=PASSWORD).headers["set-cookie"]
    taken = browser.send("https://localhost/logout", given.partition(";")[0]).headers["set-cookie"]
    assert given.startswith("__Host-amoro-")
    assert taken.partition("=")[0] == given.partition("=")[0]
    assert ("Secure" in given, "Secure" in taken, "Domain" in given) == (True, True, False)
