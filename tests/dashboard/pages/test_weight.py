"""No page is heavy: at most 60 kB gzipped, with everything that it loads."""

import gzip

import pytest

from amoro_core.dashboard.static import DIRECTORY
from tests.browser.pages import paths_in
from tests.dashboard.pages.conftest import Site
from tests.dashboard.pages.test_processes import RUNNING, many

MOST_KB = 60
MOST_SCRIPT_KB = 10


def gzipped(content: bytes) -> float:
    return len(gzip.compress(content)) / 1000


def assets() -> float:
    return sum(gzipped(path.read_bytes()) for path in DIRECTORY.iterdir() if path.suffix in (".css", ".js", ".svg"))


def test_no_page_of_ten_thousand_tables_is_heavy(site: Site) -> None:
    client = site("10,000 tables")
    heavy = {path: gzipped(client.get(path).content) + assets() for path in paths_in("10,000 tables")}
    assert {path: weight for path, weight in heavy.items() if weight > MOST_KB} == {}


@pytest.mark.parametrize("tasks", [2000, 2500])
def test_no_process_is_heavy(site: Site, tasks: int) -> None:
    page = site(lambda db: many(db, tasks)).get(f"/processes/{RUNNING}")
    assert page.status_code == 200
    assert gzipped(page.content) + assets() <= MOST_KB


def test_the_scripts_are_small() -> None:
    assert sum(path.stat().st_size for path in DIRECTORY.glob("*.js")) <= MOST_SCRIPT_KB * 1000
