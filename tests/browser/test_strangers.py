"""What strangers can do to a browser: neither foreign texts nor another origin do anything. And a provider's button.

Sixty payloads stand in every text that strangers choose, without the policy that would stop a script. What runs is
seen: a dialog, a script's own mark, a page that is left, a request to elsewhere. So is what would run at a touch: a
handler in an attribute, a link that is a script, an element that pages don't have.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from amoro_core.bootstrap.settings import Settings
from amoro_core.store.database import Store
from tests.browser.chromium import expect
from tests.dashboard import strangers
from tests.dashboard.provider import CANARY, Mock, login_settings, providing
from tests.dashboard.served import Served, serving
from tests.dashboard.strangers import PAYLOADS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

#: Pages with all sixty in them, or with the next page of their list.
LISTS = (
    *("/", "/catalogs", "/tables", "/tables?sort=health", "/processes", "/groups", "/optimizers", "/queue", "/events"),
    *("/audit", "/users", "/trash", "/sql", "/maintenance", "/tables/1/properties", "/tables/1/files"),
    *(f"/processes/{strangers.PROCESS}", f"/trash/{strangers.PROCESS}"),
)
#: Pages of one thing, whose addresses or contents are its payload.
OF_ONE = (
    *("/tables/{number}", "/tables/{number}/block", "/tables/{number}/plan", "/tables/{number}/optimize"),
    *("/tables/{number}/processes", "/processes/{process}"),
    *("/groups/{name}", "/optimizers/{name}/drain", "/instances/{name}/kill", "/users/{name}/remove"),
    "/tokens/{name}/revoke",
)
LOOK = """document => {
    const wrong = [], ours = node => node.getAttribute("src")?.startsWith("/static/");
    for (const node of document.querySelectorAll("*")) {
        const name = node.localName;
        if (name === "script" && !ours(node)) wrong.push("a script that is not ours");
        if (["img", "iframe", "object", "embed", "base"].includes(name)) wrong.push(`an element ${name}`);
        for (const {name: key, value} of node.attributes) {
            if (key.startsWith("on")) wrong.push(`${name} has ${key}`);
            if (["href", "src", "action", "formaction", "xlink:href"].includes(key)) {
                const to = new URL(value, document.baseURI);
                if (to.origin !== location.origin) wrong.push(`${name} leads to ${value}`);
            }
        }
    }
    if (document.defaultView.pwned) wrong.push("a script has run");
    return wrong;
}"""
#: Shows documents in frames, eight at once: a tenth of the time that as many pages take. Our own scripts are left out.
FRAMES = """async each => {
    const found = {}, waiting = Object.entries(each), look = LOOK;
    const show = async () => {
        for (let next = waiting.pop(); next; next = waiting.pop()) {
            const [name, given] = next;
            const text = given ?? await fetch(name).then(answer => answer.ok ? answer.text() : "<img>");
            const frame = document.createElement("iframe");
            const shown = new Promise(done => { frame.onload = done; });
            frame.srcdoc = text.replace(/<script src="\\/static\\/[^>]*><\\/script>/g, "");
            document.body.append(frame);
            await shown;
            try { found[name] = look(frame.contentDocument); } catch { found[name] = ["it was left"]; }
            frame.remove();
        }
    };
    await Promise.all(Array.from({length: 8}, show));
    return found;
}""".replace("LOOK", LOOK)


class Watch:
    """A page whose policy is switched off, and what has run on it."""

    def __init__(self, browser: Browser, served: Served) -> None:
        self.origin = f"http://127.0.0.1:{served.port}"
        headers = {"Authorization": f"Bearer {served.admin}"}
        self.context = browser.new_context(base_url=self.origin, bypass_csp=True, extra_http_headers=headers)
        self.page: Page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("dialog", lambda dialog: (self.wrong.append("a dialog"), dialog.dismiss()))
        self.page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        self.page.on("request", self._asked)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:")):
            self.wrong.append(f"a request to {request.url}")

    def look(self, path: str) -> str | None:
        """Open the page and note what has run or would; the address of the list's next page."""
        answer = self.page.goto(path, wait_until="load")
        if answer is None or answer.status != 200:
            self.wrong.append(f"{path}: status {answer and answer.status}")
        self.wrong += [f"{path}: {one}" for one in self.page.evaluate(f"({LOOK})(document)")]
        if not self.page.url.startswith(f"{self.origin}{path}"):
            self.wrong.append(f"{path} was left for {self.page.url}")
        following = self.page.locator("a[rel=next]")
        return following.first.get_attribute("href") if following.count() else None


@pytest.fixture(scope="module")
def watch(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    home: Path = tmp_path_factory.mktemp("strangers") / "home"
    home.mkdir()
    with Store.open(home / "amoro.db") as store:
        store.write(lambda db: strangers.fill(db, PAYLOADS))
    with serving(home, Settings(terminal_enabled=True)) as served:
        made = Watch(browser, served)
        yield made
        made.context.close()


@pytest.mark.parametrize("path", LISTS)
def test_on_a_list_foreign_texts_do_nothing_but_are_there_to_be_read(watch: Watch, path: str) -> None:
    del watch.wrong[:]
    following, text = path, ""
    while following:
        following = watch.look(following)
        text += watch.page.locator("main").text_content() or ""
    assert watch.wrong == []
    if path in ("/tables", "/events", "/audit", "/users"):
        assert [payload for payload in PAYLOADS if payload not in text] == []


@pytest.mark.parametrize("path", OF_ONE)
def test_on_pages_of_one_thing_foreign_texts_do_nothing(watch: Watch, path: str) -> None:
    watch.look("/users/add")
    del watch.wrong[:]
    wanted: dict[str, None] = {}
    for number, payload in [*enumerate(PAYLOADS)][OF_ONE.index(path) % 2 :: 2]:  # each on every other page
        process, name = f"0199cccc-{number:04}-7000-8000-000000000000", quote(payload, safe="")
        if "{name}" not in path or "%2F" not in name:  # no address of a page has a name with a slash
            wanted[path.format(number=number + 1, process=process, name=name)] = None
    found = watch.page.evaluate(FRAMES, wanted)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert (len(found), watch.wrong) == (len(wanted), [])


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


@pytest.fixture(scope="module")
def evil() -> Iterator[Evil]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = made.page.encode() if self.path == "/" else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Evil(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


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
    settings = login_settings(oidc_issuer=mock.issuer, oidc_client_secret=f"file:{secret}")
    with serving(directory / "home", settings) as made:
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


def names(served: Served, kind: str = "users") -> list[str]:
    return [one["name"] for one in served.ask(f"/api/v1/{kind}").document["items"]]


@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_form_of_another_origin_changes_nothing(served: Served, own: str, page: Page, evil: Evil, host: str) -> None:
    fields = "".join(f'<input name="{name}" value="{value}">' for name, value in USER.items())
    evil.page = f'<form method="post" action="{own}/users/add">{fields}<button>Win</button></form>'
    page.goto(evil.at(host))
    with page.expect_response("**/users/add") as answered:
        page.get_by_role("button").click()
    assert answered.value.status == 403
    assert names(served) == []


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
            for (const path of ["/users", "/api/v1/users"]) {
                said.push(await fetch(own + path, {credentials: "include"}).then(a => a.text(), () => "unread"));
            }
            return said;
        }""",
        [own, USER],
    )
    assert said == [*["opaque"] * 3, *["unread"] * 2]
    assert (names(served), names(served, "groups")) == ([], ["default"])
    assert page.goto(f"{own}/users").status == 200  # the session goes on


def test_our_own_form_does_what_theirs_does_not(served: Served, own: str, page: Page) -> None:
    page.goto(f"{own}/users/add")
    page.get_by_label("Name").fill("nora")
    page.get_by_label("Password").fill(USER["password"])
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("status")).to_contain_text("nora can log in as viewer.")
    assert names(served) == ["nora"]
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
    assert (answer.status, "is not allowed" in answer.text()) == (421, True)
    paths = ["/api/v1/status", "/login", "/metrics", "/mcp", "/livez"]
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
