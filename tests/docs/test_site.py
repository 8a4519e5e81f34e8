"""The site: its reference is made from the code, it builds without a warning, and it needs nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.diagrams import MACHINES, Machine, draw, words
from tests.docs.reference import REFERENCE, pages

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as it is built."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (built.returncode, built.stdout) == (0, ""), built.stdout + built.stderr
    return place


def test_the_reference_is_what_the_code_says_now() -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in REFERENCE.iterdir()}
    assert kept == pages(), "run: make docs"


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_edge_of_a_machine_is_drawn(machine: Machine) -> None:
    picture = draw(machine)
    edges = {
        (machine.one.get(status.value, status.value), machine.one.get(after.value, after.value))
        for (status, _), after in machine.transitions.items()
        if status != after
    }
    assert picture.count('marker-end="url(#end)"') == len(edges)
    leading = {words(event) for (status, event), after in machine.transitions.items() if status != after}
    assert {word for word in leading if f">{word}</tspan>" not in picture} == set()


def test_the_site_builds_without_a_warning_and_holds_every_page(site: Path) -> None:
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {path.relative_to(site) for path in site.rglob("*.html")} - {Path("404.html")} == written


def test_every_file_that_a_page_takes_in_is_there(site: Path) -> None:
    tutorial = (site / "tutorial.html").read_text(encoding="utf-8")
    assert "Makes the table shop.db.orders" in tutorial
    assert re.search(r"rows +1,500 = 1,500 ✓", re.sub(r"<[^>]+>", "", tutorial))
    assert [page.name for page in site.rglob("*.html") if re.search("--8|outputs/.*txt", page.read_text())] == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]+src=\"?([^\" >]+)", text)
        loaded += re.findall(r"<link[^>]+rel=\"?(?:stylesheet|icon|preconnect|preload)[^>]*href=\"?([^\" >]+)", text)
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], page
    for sheet in site.rglob("*.css"):
        assert (
            re.findall(r"url\(\s*['\"]?https?:[^)]*|@import[^;]*https?:[^;]*", sheet.read_text(encoding="utf-8")) == []
        )
