"""Commands and clicks of the on-call page answer its questions; the README shows what is printed."""

from __future__ import annotations

import html
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest

from amoro_core.bootstrap.coordinator_app import embedded_optimizer
from tests.acceptance.processes import Installation, install
from tests.acceptance.tables import messy_table
from tests.dashboard.conftest import OWN
from tests.dashboard.served import Served, serving
from tests.docs.session import DOCS, ROOT, normalised
from tests.engine import oracle
from tests.engine.parquet_rows import local_path

PAGE = DOCS / "howto/on-call.md"
_ROW = re.compile(r"^\| \[([^]]+)\]\(#[^)]*\) \| `([^`]+)` \| ([^|]+) \|$", re.MULTILINE)
#: Question, command, clicks.
ROWS = _ROW.findall(PAGE.read_text(encoding="utf-8"))
ORDERS, BROKEN, IDLE = "cat.db.orders", "cat.db.broken", "cat.db.idle"
#: What the command, and the page after the last click, say of these tables.
ANSWERS = {
    "Why is this table not optimized?": ("no: amoro table disable", "amoro table disable"),
    "What did last night do?": ("minor", "What was done"),
    "Which tables are worst?": (IDLE, IDLE),
    "How do I scale out?": ("nightly", "nightly is scaled to 1 instance."),
    "How do I stop one process?": ("closed", "The process is closed."),
    "How do I restore a file?": ("Restored 1 file of cat.db.orders", "Restored 1 file of cat.db.orders"),
    "What fails?": (BROKEN, BROKEN),
}


@dataclass
class Browser:
    """Follows links and presses buttons by their texts, as a person does; counts the clicks."""

    served: Served
    clicks: int = 0
    path: str = "/"
    page: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self._open("/")

    def click(self, text: str) -> None:
        """The first link or button with that text, ignoring case and a final ellipsis."""
        self.clicks += 1
        for form in re.findall(r"<form[^>]*method=\"post\".*?</form>", self._main(), re.DOTALL):
            if any(_same(label, text) for label in re.findall(r"<button[^>]*>(.*?)</button>", form, re.DOTALL)):
                return self._send(form)
        for href, label in re.findall(r'<a\b[^>]*\bhref="([^"]*)"[^>]*>(.*?)</a>', self._main() + self.page, re.DOTALL):
            if _same(label, text):
                return self._open(html.unescape(href))
        raise AssertionError(f"{self.path} has no {text!r}")

    def _main(self) -> str:
        """The page without its menu, which has the same words."""
        return self.page.partition("<main")[2]

    def _send(self, form: str) -> None:
        (action,) = re.findall(r'<form[^>]*\baction="([^"]*)"', form)
        named = re.findall(r'<input\b[^>]*\bname="([^"]*)"[^>]*\bvalue="([^"]*)"', form)
        values = {name: html.unescape(value) for name, value in named}
        values |= {"instances": "1"} if "instances" in values else {}
        sent = {"Content-Type": "application/x-www-form-urlencoded", **OWN}
        answer = self.served.ask(html.unescape(action), "POST", body=urlencode(values).encode(), headers=sent)
        assert answer.status == 303, answer.body
        self._open(answer.headers["location"])

    def _open(self, path: str) -> None:
        answer = self.served.ask(path)
        assert answer.status == 200, f"{path}: {answer.status}"
        self.path, self.page = path, answer.body


def _same(label: str, text: str) -> bool:
    plain = " ".join(html.unescape(re.sub(r"<[^>]*>", "", label)).split())
    return plain.removesuffix("…").casefold() == text.casefold()


Place = tuple[Installation, Served]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A night's work: a table that is optimized and cleaned, one that fails, one that is disabled."""
    installation = install(tmp_path, settings="")
    names = (ORDERS, BROKEN, IDLE)
    tables = {name: messy_table(installation.catalog, name=name.removeprefix("cat.")) for name in names}
    data = next(file for file in oracle.live_files(tables[BROKEN]) if file.content == 0)
    Path(local_path(data.path)).unlink()
    stray = Path(local_path(tables[ORDERS].location())) / "data" / "stray.parquet"
    stray.write_bytes(b"stray")
    os.utime(stray, (0, 0))
    try:
        with serving(installation.home) as served:
            yield installation, served
    finally:
        installation.close()


def test_each_question_is_answered_by_its_command_and_by_three_clicks_at_most(place: Place) -> None:
    installation, served = place

    def run(command: str, *, status: int = 0) -> str:
        ended = installation.run(*shlex.split(command)[1:])
        assert ended.status == status, f"{command}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    run(f"amoro table enable {ORDERS} {BROKEN}")
    run(f"amoro table disable {IDLE}")
    with embedded_optimizer(served.coordinator, 1, 512 * 1024 * 1024):
        run(f"amoro optimize {ORDERS} --wait")
        run(f"amoro optimize {BROKEN} --type full --wait", status=1)
    run("amoro group create nightly --container local")
    assert [question for question, _, _ in ROWS] == list(ANSWERS)
    for question, command, clicks in ROWS:
        for by_click in (False, True):
            names = {"TABLE": IDLE, "GROUP": "nightly", "N": "0", "*table*": IDLE}
            if "PROCESS" in command:
                process = run(f"amoro optimize {ORDERS} --type full --force -o name").strip()
                names |= {"PROCESS": process, "*process*": process[-8:]}
            if "CLEANING" in command:
                clean = f"amoro table maintain {ORDERS} --action clean-orphan-files --wait -o name"
                names["CLEANING"] = run(clean).strip()
            said = ANSWERS[question][by_click]
            if by_click:
                browser = Browser(served)
                for text in clicks.strip().split(" → "):
                    browser.click(names.get(text, text))
                assert browser.clicks <= 3
                assert said in html.unescape(browser.page), question
            else:
                words = [names.get(word, word) for word in command.split()]
                assert said in run(" ".join(words)), question


def test_the_readme_shows_the_receipt_that_is_printed(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (receipt,) = re.findall(r"^    [0-9a-f-]{36}  committed snapshot .*\n(?:      .*\n)+", text, re.MULTILINE)
    installation = install(tmp_path, settings="")
    try:
        messy_table(installation.catalog, name=ORDERS.removeprefix("cat."))
        printed = installation.run("optimize", ORDERS)
    finally:
        installation.close()
    assert (printed.status, normalised(printed.stdout)) == (0, normalised(receipt))
