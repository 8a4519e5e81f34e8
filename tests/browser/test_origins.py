"""What another origin can do to a browser with a session: nothing. And the way in by a provider, from its button."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from amoro_core.settings import Settings
from tests.dashboard.provider import CANARY, RULES, Mock, providing
from tests.dashboard.served import Served, serving

#: The provider is a mock that asks its library in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning")
#: The same site on another port, whose pages' requests carry the cookie, and another site.
ELSEWHERE = ("127.0.0.1", "localhost")
USER = {"name": "mallory", "role": "admin", "password": "a password of hers"}


@dataclass
class Evil:
    """Pages of somebody else."""

    port: int
    page: str = ""

    def at(self, host: str) -> str:
        return f"http://{host}:{self.port}/"


@contextmanager
def _evil() -> Iterator[Evil]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = evil.page.encode() if self.path == "/" else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    evil = Evil(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield evil
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def evil() -> Iterator[Evil]:
    with _evil() as made:
        yield made


@pytest.fixture(scope="module")
def mock() -> Iterator[Mock]:
    with providing() as made:
        made.has("ann", groups=["data-team"])
        made.has("bob", groups=["strangers"])
        yield made


@pytest.fixture(scope="module")
def served(mock: Mock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory: Path = tmp_path_factory.mktemp("origins")
    secret = directory / "client.secret"
    secret.write_text(CANARY)
    provider = {"oidc_issuer": mock.issuer, "oidc_client_id": "amoro", "oidc_client_secret": f"file:{secret}"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(directory))
        patch.setenv("PYICEBERG_HOME", str(directory))
        with serving(directory / "home", replace(Settings(), **provider, oidc_roles=RULES)) as made:
            yield made


@pytest.fixture
def own(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}"


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, served: Served, own: str) -> Page:
    """One of a browser in which the holder of the admin token has logged in by a link."""
    link = served.ask("/api/v1/login-links", "POST", body={}).document
    made = context.new_page()
    made.goto(link["url"])
    made.get_by_role("button", name="Log in").click()
    expect(made.get_by_role("link", name="Users")).to_be_visible()
    return made


def users(served: Served) -> list[str]:
    return [user["name"] for user in served.ask("/api/v1/users").document["items"]]


def groups(served: Served) -> list[str]:
    return [group["name"] for group in served.ask("/api/v1/groups").document["items"]]


@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_form_of_another_origin_changes_nothing(served: Served, own: str, page: Page, evil: Evil, host: str) -> None:
    fields = "".join(f'<input name="{name}" value="{value}">' for name, value in USER.items())
    evil.page = f'<form method="post" action="{own}/users/add">{fields}<button>Win</button></form>'
    page.goto(evil.at(host))
    with page.expect_response("**/users/add") as answered:
        page.get_by_role("button").click()
    assert answered.value.status == 403
    assert users(served) == []


@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_script_of_another_origin_changes_and_reads_nothing(
    served: Served, own: str, page: Page, evil: Evil, host: str
) -> None:
    evil.page = "<title>Evil</title>"
    page.goto(evil.at(host))
    said = page.evaluate(
        """async ([own, user]) => {
            const with_cookie = {method: "POST", mode: "no-cors", credentials: "include"}, said = [];
            const sent = [
                ["/users/add", new URLSearchParams(user)],
                ["/api/v1/groups", JSON.stringify({name: "evil"})],
                ["/logout", ""],
            ];
            for (const [path, body] of sent) said.push((await fetch(own + path, {...with_cookie, body})).type);
            for (const path of ["/users", "/api/v1/users", "/events/stream"]) {
                said.push(await fetch(own + path, {credentials: "include"}).then(a => a.text(), () => "unread"));
            }
            return said;
        }""",
        [own, USER],
    )
    assert said == [*["opaque"] * 3, *["unread"] * 3]
    assert (users(served), groups(served)) == ([], ["default"])
    assert page.goto(f"{own}/users").status == 200  # the session goes on


def test_our_own_form_does_what_theirs_does_not(served: Served, own: str, page: Page) -> None:
    page.goto(f"{own}/users/add")
    page.get_by_label("Name").fill("nora")
    page.get_by_label("Password").fill(USER["password"])
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("status")).to_contain_text("nora can log in as viewer.")
    assert users(served) == ["nora"]
    served.ask("/api/v1/users/nora", "DELETE")


@pytest.mark.parametrize("host", ELSEWHERE)
def test_no_page_is_shown_in_a_frame_of_another_origin(own: str, page: Page, evil: Evil, host: str) -> None:
    evil.page = f'<iframe src="{own}/users/add"></iframe><iframe src="/empty"></iframe>'
    with page.expect_console_message(lambda said: "frame-ancestors" in said.text):
        page.goto(evil.at(host), wait_until="load")
    framed, shown = page.frames[1:]
    assert shown.url == f"{evil.at(host)}empty"
    assert not framed.url.startswith(own)


def test_a_name_that_was_rebound_to_this_machine_is_refused(served: Served, context: BrowserContext) -> None:
    page, name = context.new_page(), f"http://evil.localhost:{served.port}"  # browsers take it for loopback
    answer = page.goto(f"{name}/")
    assert answer is not None
    assert (answer.status, "is no name of this coordinator" in answer.text()) == (421, True)
    paths = ["/api/v1/status", "/login", "/metrics", "/mcp", "/livez", "/events/stream"]
    asked = "paths => Promise.all(paths.map(path => fetch(path).then(answer => answer.status)))"
    assert page.evaluate(asked, paths) == [421] * len(paths)


def test_by_the_button_a_person_of_the_provider_logs_in(own: str, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{own}/groups")
    page.get_by_role("link", name="Log in with localhost").click()
    page.locator("input[name=sub]").fill("ann")
    page.get_by_role("button", name=re.compile("authorize", re.IGNORECASE)).first.click()
    page.wait_for_url(f"{own}/groups")
    expect(page.locator("body")).to_contain_text("oidc:ann, operator")
    assert [cookie["httpOnly"] for cookie in context.cookies(own) if cookie["name"].startswith("amoro-")] == [True]


def test_by_the_button_who_has_no_role_is_told(own: str, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{own}/login")
    page.get_by_role("link", name="Log in with localhost").click()
    page.locator("input[name=sub]").fill("bob")
    page.get_by_role("button", name=re.compile("authorize", re.IGNORECASE)).first.click()
    expect(page.locator("main")).to_contain_text("strangers")
    assert page.goto(f"{own}/groups").url.startswith(f"{own}/login")
