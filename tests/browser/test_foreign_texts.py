"""Sixty payloads in every text that strangers choose, in Chromium and without the policy that would stop a script.

What runs is seen: a dialog, a script's own mark, a page that is left, a request to elsewhere. So is what would run at a
touch: a handler in an attribute, a link that is a script, an element that pages don't have.
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, Request

from amoro_core.store.database import Store
from tests.dashboard import strangers
from tests.dashboard.payloads import PAYLOADS
from tests.dashboard.served import Served, serving

#: Pages with all sixty in them, or with the next page of their list.
LISTS = (
    *("/", "/catalogs", "/tables", "/tables?sort=health", "/processes", "/groups", "/optimizers", "/queue", "/events"),
    *("/audit", "/users", "/trash", "/maintenance", "/tables/1/properties", "/tables/1/files"),
    *(f"/processes/{strangers.PROCESS}", f"/trash/{strangers.PROCESS}"),
)
#: Pages of one thing, whose addresses or contents are its payload.
OF_ONE = (
    *("/tables/{number}", "/tables/{number}/block", "/tables/{number}/plan", "/processes/{process}"),
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home.parent))
        patch.setenv("PYICEBERG_HOME", str(home.parent))
        with Store.open(home / "amoro.db") as store:
            store.write(lambda db: strangers.fill(db, PAYLOADS))
        with serving(home) as served:
            made = Watch(browser, served)
            yield made
            made.context.close()


@pytest.mark.parametrize("path", LISTS)
def test_on_a_list_foreign_texts_do_nothing(watch: Watch, path: str) -> None:
    del watch.wrong[:]
    following: str | None = path
    while following:
        following = watch.look(following)
    assert watch.wrong == []


@pytest.mark.parametrize("path", ["/tables", "/events", "/audit", "/users"])
def test_each_foreign_text_is_there_to_be_read(watch: Watch, path: str) -> None:
    following: str | None = path
    text = ""
    while following:
        following = watch.look(following)
        text += watch.page.locator("main").text_content() or ""
    assert [payload for payload in PAYLOADS if payload not in text] == []


@pytest.mark.parametrize("path", OF_ONE)
def test_on_pages_of_one_thing_foreign_texts_do_nothing(watch: Watch, path: str) -> None:
    watch.look("/users/add")
    del watch.wrong[:]
    wanted: dict[str, None] = {}
    for number, payload in enumerate(PAYLOADS):
        process, name = f"0199cccc-{number:04}-7000-8000-000000000000", quote(payload, safe="")
        if "{name}" not in path or "%2F" not in name:  # no address of a page has a name with a slash
            wanted[path.format(number=number + 1, process=process, name=name)] = None
    found = watch.page.evaluate(FRAMES, wanted)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert (len(found), watch.wrong) == (len(wanted), [])


def test_what_would_run_is_seen(watch: Watch) -> None:
    watch.look("/users/add")
    unescaped = ("<main>{}</main>", "<p title='{}'>", '<p title="{}">', '<a href="{}">a</a>')
    each = {
        f"{number} {place}": f"<!doctype html><title>A page</title>{shape.format(payload)}"
        for number, payload in enumerate(PAYLOADS)
        for place, shape in enumerate(unescaped)
    }
    found = watch.page.evaluate(FRAMES, each)
    seen = {int(name.split()[0]) for name, wrong in found.items() if wrong}
    assert [payload for number, payload in enumerate(PAYLOADS) if number not in seen] == [
        payload
        for payload in PAYLOADS
        if payload.startswith("{{")  # templates, which no browser runs
    ]


def test_what_runs_is_seen_by_what_it_does(watch: Watch) -> None:
    watch.look("/users/add")
    del watch.wrong[:]
    scripts = [payload for payload in PAYLOADS if payload.startswith("<script>")]
    found = watch.page.evaluate(FRAMES, {script: f"<!doctype html><title>A page</title>{script}" for script in scripts})
    assert "a script has run" in found["<script>window.pwned=1</script>"]
    for _ in range(600):
        kinds = {one.split(" to ")[0] for one in watch.wrong}
        if kinds >= {"a dialog", "a request"}:
            return
        watch.page.wait_for_timeout(100)
    raise AssertionError(watch.wrong)
