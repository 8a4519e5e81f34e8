"""Server time and weight of each page with 10,000 tables: `python -m tests.bench.pages`."""

import argparse
import gzip
import logging
import os
import statistics
import tempfile
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from amoro_core.dashboard.static import DIRECTORY
from amoro_core.store.database import Store
from tests.browser.pages import paths_in
from tests.dashboard.served import Served, serving
from tests.dashboard.states import fill, seed

MOST_MS, OVERVIEW_MS, MOST_KB = 100, 50, 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=40, help="of each page")
    parser.add_argument("--tables", type=int, default=10_000)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HOME=home, PYICEBERG_HOME=home)
        directory = Path(home) / "state"
        directory.mkdir()
        with Store.open(directory / "amoro.db") as store:
            if given.tables == 10_000:
                seed(store, "10,000 tables")
            else:
                store.write(lambda db: fill(db, given.tables))
        with serving(directory) as served:
            _show(served, given.loads)


def _show(served: Served, loads: int) -> None:
    own = {path.name: len(gzip.compress(path.read_bytes())) for path in DIRECTORY.glob("*.*") if path.suffix != ".py"}
    assets = sum(own.values()) / 1000
    print(f"assets: {assets:.1f} kB gzipped; page: median and p95 of {loads} loads in ms, kB gzipped with assets")
    for path in (*paths_in("10,000 tables"), "/tables?sort=files&order=desc", "/tables?text=orders&health_below=50"):
        took, page = [], b""
        with closing(HTTPConnection("127.0.0.1", served.port, timeout=90)) as connection:
            for _ in range(loads + 1):
                began = time.perf_counter()
                connection.request("GET", path, headers={"Authorization": f"Bearer {served.admin}"})
                answer = connection.getresponse()
                page = answer.read()
                took.append((time.perf_counter() - began) * 1000)
        took = sorted(took[1:])  # the first one makes the template
        p95 = took[max(0, round(len(took) * 0.95) - 1)]
        weight = len(gzip.compress(page)) / 1000 + assets
        late = p95 > (OVERVIEW_MS if path == "/" else MOST_MS) or weight > MOST_KB
        print(f"{'!' if late else ' '} {answer.status} {statistics.median(took):6.1f} {p95:6.1f} {weight:5.1f}  {path}")


if __name__ == "__main__":
    main()
