"""Logging in and out over HTTP: cookies, links, limits, and what the audit has of it."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.cookies import SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlencode

import pytest
from starlette.requests import Request
from starlette.responses import Response

from amoro_core.dashboard.doors import Doors, TooManyTries
from amoro_core.model.audit import AuditFilter, AuditOutcome
from amoro_core.model.paging import Window
from amoro_core.model.principals import Way
from amoro_core.model.throttle import Throttle
from amoro_core.model.tokens import Role
from tests.dashboard.served import Answer, Served, serving

if TYPE_CHECKING:
    from amoro_core.services.users import UserService

OWN = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
PASSWORD = "correct horse battery"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with serving(tmp_path / "home") as made:
        yield made


def send(served: Served, path: str, cookie: str = "", **fields: str) -> Answer:
    """A form sent by a browser."""
    headers = {**OWN, **({"Cookie": cookie} if cookie else {})}
    return served.ask(path, "POST", token="", body=urlencode(fields).encode(), headers=headers)


def see(served: Served, path: str, cookie: str) -> Answer:
    return served.ask(path, token="", headers={"Cookie": cookie})


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def audited(served: Served, operation: str = "LogIn") -> list[tuple[str, str, str, str]]:
    page, _ = served.coordinator.services.auditing.list_events(AuditFilter(operation=operation), Window(99))
    return [
        (item.call.principal.name, item.call.principal.way, item.call.principal.address, item.outcome)
        for item in reversed(page.items)
    ]


def test_a_user_logs_in_sees_pages_and_logs_out(served: Served) -> None:
    served.coordinator.services.users.add("ann", Role.VIEWER, "", PASSWORD)
    assert served.ask("/tables", token="").headers["location"] == "/login?next=%2Ftables"
    assert 'name="next" value="/groups"' in served.ask("/login?next=/groups", token="").body
    entered = send(served, "/login", user="ann", password=PASSWORD, next="/groups")
    assert (entered.status, entered.headers["location"]) == (303, "/groups")
    (kept,) = SimpleCookie(entered.headers["set-cookie"]).values()
    assert kept.key.startswith("amoro-")
    assert len(kept.key) == len("amoro-12345678")
    assert (kept["httponly"], kept["samesite"], kept["path"], kept["secure"]) == (True, "lax", "/", "")
    cookie = cookie_of(entered)
    assert see(served, "/groups", cookie).status == 200
    assert see(served, "/settings", cookie).status == 403
    assert see(served, "/api/v1/groups", cookie).status == 401, "REST takes tokens alone"
    out = send(served, "/logout", cookie)
    assert (out.status, out.headers["location"]) == (303, "/login")
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert see(served, "/groups", cookie).status == 303
    send(served, "/logout", cookie)
    assert audited(served, "LogOut") == [("ann", Way.PAGE, "127.0.0.1", AuditOutcome.DONE)], "a session ends once"


def failures(served: Served) -> float:
    """How many callers showed a wrong password, link or token so far."""
    samples = served.coordinator.services.metering.read()
    return next(sample.value for sample in samples if sample.name == "amoro_login_failures_total")


def test_who_is_wrong_is_told_the_same_whatever_is_wrong(served: Served) -> None:
    served.coordinator.services.users.add("ann", Role.OPERATOR, "", PASSWORD)
    before = failures(served)
    wrong = send(served, "/login", user="ann", password="a wrong password")
    unknown = send(served, "/login", user="bob", password="a wrong password")
    assert (wrong.status, unknown.status) == (401, 401)
    assert wrong.body.replace('value="ann"', 'value="bob"') == unknown.body
    assert "set-cookie" not in wrong.headers
    assert failures(served) == before + 2
    assert audited(served) == [("ann", "page", "127.0.0.1", "refused"), ("", "page", "127.0.0.1", "refused")]


def test_a_login_leads_to_no_other_site(served: Served) -> None:
    served.coordinator.services.users.add("ann", Role.VIEWER, "", PASSWORD)
    for place in ("https://evil.example/", "//evil.example", "/\\evil.example"):
        assert send(served, "/login", user="ann", password=PASSWORD, next=place).headers["location"] == "/"


def test_a_login_from_another_site_is_refused(served: Served) -> None:
    headers = {**OWN, "Sec-Fetch-Site": "cross-site"}
    for path in ("/login", "/login/link", "/logout"):
        assert served.ask(path, "POST", token="", body=b"", headers=headers).status == 403


def test_a_login_ends_the_session_before_it(served: Served) -> None:
    served.coordinator.services.users.add("ann", Role.VIEWER, "", PASSWORD)
    first = cookie_of(send(served, "/login", user="ann", password=PASSWORD))
    second = cookie_of(send(served, "/login", first, user="ann", password=PASSWORD))
    assert first != second
    assert (see(served, "/groups", first).status, see(served, "/groups", second).status) == (303, 200)


def test_a_password_is_tried_five_times_a_minute(served: Served) -> None:
    served.coordinator.services.users.add("ann", Role.VIEWER, "", PASSWORD)
    for _ in range(5):
        assert send(served, "/login", user="ann", password="a wrong password").status == 401
    late = send(served, "/login", user="ann", password=PASSWORD)
    assert late.status == 429
    assert 0 < int(late.headers["retry-after"]) <= 60
    assert len(audited(served)) == 5
    assert send(served, "/login", user="bob", password=PASSWORD).status == 401


def test_a_link_is_used_by_a_button_and_once(served: Served) -> None:
    code, _ = served.coordinator.services.sessions.make_link("admin")
    for _ in range(2):  # a preview of the link
        shown = served.ask(f"/login/link?code={code}", token="")
        assert (shown.status, f'value="{code}"' in shown.body) == (200, True)
        assert "set-cookie" not in shown.headers
    entered = send(served, "/login/link", code=code)
    assert (entered.status, entered.headers["location"]) == (303, "/")
    assert see(served, "/settings", cookie_of(entered)).status == 200
    again = send(served, "/login/link", code=code)
    assert (again.status, "set-cookie" in again.headers) == (401, False)
    assert "was used already" in again.body
    assert audited(served) == [("admin", "page", "127.0.0.1", "done")]


def test_a_form_without_end_is_not_read(served: Served) -> None:
    served.coordinator.services.users.add("ann", Role.VIEWER, "", PASSWORD)
    assert send(served, "/login", user="ann", password=PASSWORD, more="x" * 20_000).status == 401


def test_tries_are_counted_by_key_within_a_sliding_window() -> None:
    now = [0.0]
    throttle = Throttle(2, timedelta(minutes=1), lambda: now[0])
    assert (throttle.take("a"), throttle.take("a"), throttle.take("b")) == (0, 0, 0)
    now[0] = 59
    assert throttle.take("a") == 1
    now[0] = 60
    assert throttle.take("a") == 0
    for number in range(10_001):
        throttle.take(f"other {number}")
    assert len(throttle._tries) == 10_000


def test_two_passwords_are_checked_at_once_and_eight_wait(served: Served) -> None:
    services, go_on = served.coordinator.services, threading.Event()
    at_once: list[int] = []
    busy = [0]

    class Slow:
        def check(self, name: str, password: str) -> None:
            busy[0] += 1
            at_once.append(busy[0])
            go_on.wait()
            busy[0] -= 1

    async def try_all() -> list[object]:
        with ThreadPoolExecutor(16) as pool:
            doors = Doors(cast("UserService", Slow()), services.sessions, services.auditing, pool, "state")
            tries = [asyncio.ensure_future(doors.check(f"u{n}", PASSWORD, f"10.0.0.{n}")) for n in range(11)]
            done, _ = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            go_on.set()
            return list(await asyncio.gather(*tries, return_exceptions=True))

    ended = asyncio.run(try_all())
    assert [type(one) for one in ended].count(TooManyTries) == 1
    assert len(at_once) == 10
    assert max(at_once) <= 2


def request_by(scheme: str) -> Request:
    server = ("amoro.example", 443)
    return Request(
        {"type": "http", "scheme": scheme, "path": "/", "query_string": b"", "server": server, "headers": []}
    )


@pytest.mark.parametrize(("scheme", "prefix"), [("http", ""), ("https", "__Host-")])
def test_with_tls_the_cookie_is_of_this_host_and_never_travels_in_the_clear(
    served: Served, scheme: str, prefix: str
) -> None:
    services = served.coordinator.services
    request = request_by(scheme)
    with ThreadPoolExecutor(1) as pool:
        doors = Doors(services.users, services.sessions, services.auditing, pool, "state")
        given = doors.let_in(request, Response(), "an-id").headers["set-cookie"]
        taken = doors.let_out(request, Response()).headers["set-cookie"]
    assert given.startswith(f"{prefix}amoro-")
    assert taken.partition("=")[0] == given.partition("=")[0]
    assert ("Secure" in given, "Secure" in taken) == (bool(prefix), bool(prefix))
    assert "Domain" not in given


def test_two_state_directories_on_a_host_have_cookies_of_two_names(served: Served) -> None:
    services = served.coordinator.services
    request, names = request_by("http"), set()
    with ThreadPoolExecutor(1) as pool:
        for state in ("one", "another"):
            doors = Doors(services.users, services.sessions, services.auditing, pool, state)
            names.add(doors.let_in(request, Response(), "x").headers["set-cookie"].partition("=")[0])
    assert len(names) == 2
