"""Server time of pages with many tables: `python -m tests.bench.pages [--tables 10000] [--loads 40]` prints JSON."""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from amoro_core.store.database import Store
from tests.bench.machine import options, say
from tests.dashboard.served import Served, serving
from tests.dashboard.states import fill

PAGES = {
    "overview": "/",
    "tables": "/tables",
    "tables, sorted": "/tables?sort=files&order=desc",
    "tables, filtered": "/tables?text=orders&health_below=50",
}


def main() -> None:
    """Parse the command line and print the figures."""
    given = options(__doc__, tables=10_000, loads=40)
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="amoro-bench-") as home:
        os.environ.update(HOME=home, PYICEBERG_HOME=home)
        directory = Path(home) / "state"
        directory.mkdir()
        with Store.open(directory / "amoro.db") as store:
            store.write(lambda db: fill(db, given.tables))
        with serving(directory) as served:
            say({"tables": given.tables, **{name: _loaded(served, path, given.loads) for name, path in PAGES.items()}})


def _loaded(served: Served, path: str, loads: int) -> dict[str, float]:
    took, cpu = [], time.process_time()
    with closing(HTTPConnection("127.0.0.1", served.port, timeout=90)) as connection:
        for _ in range(loads + 1):
            began = time.perf_counter()
            connection.request("GET", path, headers={"Authorization": f"Bearer {served.admin}"})
            answer = connection.getresponse()
            answer.read()
            took.append((time.perf_counter() - began) * 1000)
            if answer.status != 200:
                raise SystemExit(f"{path} answers {answer.status}")
    took = sorted(took[1:])  # the first one makes the template
    return {
        "median ms": round(statistics.median(took), 1),
        "p95 ms": round(took[len(took) * 95 // 100], 1),
        "cpu ms": round((time.process_time() - cpu) / (loads + 1) * 1000, 1),
    }


if __name__ == "__main__":
    main()
