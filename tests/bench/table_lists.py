"""Lists of many tables: `python -m tests.bench.table_lists [--tables 10000 100000]`.

Prints, for each number of tables: milliseconds of a page of 50 in every order and with every filter, of the counts of
the overview and of the queue, in the store, by the clock and of a core; seconds of `amoro table list -o name`; and what
a coordinator has resident without tables, and after it listed them all. The tables are rows only.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from amoro_core.model.paging import Page, Window
from amoro_core.model.table_lists import Order, TableKey, TableOrder, WantedTables
from amoro_core.model.tables import FileSummary, OptimizingStatus, OptimizingType, TableIdentifier, TableRuntime
from amoro_core.services.overview import OverviewService
from amoro_core.services.queue import QueueService
from amoro_core.store import tables
from amoro_core.store.connection import Connection
from amoro_core.store.database import Store
from tests.store.builders import NOW, minutes, runtime

MB = 1_000_000
AT_ONCE = 5000
FILTERS = {
    "none": WantedTables(),
    "text in 1 of 12": WantedTables(text="77"),
    "text in few": WantedTables(text="99999"),
    "text in none": WantedTables(text="zzzz"),
    "catalog": WantedTables(catalog="cat1"),
    "namespace": WantedTables(namespace=("db7",)),
    "status of 4 in 5": WantedTables(status=OptimizingStatus.IDLE),
    "status of 1 in 100": WantedTables(status=OptimizingStatus.PLANNING),
    "group": WantedTables(group="a"),
    "enabled": WantedTables(enabled=True),
    "refused word": WantedTables(refusal="features"),
    "health below 3": WantedTables(health_below=3),
    "health below 90": WantedTables(health_below=90),
    "five at once": WantedTables(text="9", status=OptimizingStatus.IDLE, enabled=True, group="a", health_below=20),
}
#: Seconds by the clock, and of a core.
Cost = tuple[float, float]
#: A coordinator that says when it listens and ends with its standard input.
SERVE = """
import sys
from dataclasses import replace
from pathlib import Path
from amoro_core.app import Coordinator
from amoro_core.settings import Settings
made = Coordinator(Path(sys.argv[1]), replace(Settings(), port=0, http_port=0), watch=False)
made.start()
print(made.address, flush=True)
sys.stdin.read()
made.stop()
"""


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--pages", type=int, default=4, help="of each order and filter")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    for known in given.tables:
        with tempfile.TemporaryDirectory(prefix="amoro-lists-") as home:
            print(f"{known:,} tables, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
            empty = _served(Path(home) / "empty", 0)
            path = Path(home) / "full"
            path.mkdir(mode=0o700)
            with Store.open(path / "amoro.db") as store:
                _fill(store, known)
                _measure(store, given.pages)
            full = _served(path, known)
            print(f"coordinator: {empty / MB:.0f} MB resident with none, {full / MB:.0f} MB after it listed all")


def _fill(store: Store, known: int) -> None:
    chance = random.Random(1)
    began = time.monotonic()
    for start in range(0, known, AT_ONCE):
        batch = [_table(chance, number) for number in range(start, min(known, start + AT_ONCE))]

        def add(db: Connection, batch: list[TableRuntime] = batch) -> None:
            for one in batch:
                tables.add(db, one)

        store.write(add)
    print(f"filled in {time.monotonic() - began:.1f} s", flush=True)


def _table(chance: random.Random, number: int) -> TableRuntime:
    status = chance.choices(list(OptimizingStatus), [80, 5, 1, 2, 2, 1, 1, 8])[0]
    is_refused = status is OptimizingStatus.REFUSED
    name = f"table_{chance.randrange(10**6)}_{number}"
    return runtime(
        identifier=TableIdentifier(f"cat{number % 3}", (f"db{number % 50}",), name),
        uuid=f"uuid-{number}",
        status=status,
        refusal=chance.choice(["format", "features", "catalog"]) if is_refused else "",
        pending_type=OptimizingType.MINOR if status is OptimizingStatus.PENDING else None,
        group=chance.choice(["default", "a", "b"]),
        enabled=chance.random() < 0.5,
        summary=FileSummary(*(chance.randrange(10**4) for _ in range(9)), health_score=chance.randrange(-1, 101)),
        last_optimized_at=minutes(chance.randrange(10**5)),
        next_due_at=minutes(chance.randrange(10**5)) if chance.random() < 0.5 else None,
        properties={f"some.property.{place}": "x" * 30 for place in range(12)},
        location=f"s3://bucket/warehouse/db{number % 50}/{name}",
        metadata_location=f"s3://bucket/warehouse/db{number % 50}/{name}/metadata/00012-{number:032}.metadata.json",
    )


def _measure(store: Store, pages: int) -> None:
    service = OverviewService(store)
    took = {
        (key, name): [seconds for order in Order for seconds in _paged(service, wanted, TableOrder(key, order), pages)]
        for key in TableKey
        for name, wanted in FILTERS.items()
    }
    _print("a page of 50, every order and filter", [one for some in took.values() for one in some])
    _print("  without a filter", [one for (_, name), some in took.items() if name == "none" for one in some])
    worst = sorted(took, key=lambda pair: max(spent for _, spent in took[pair]))[-3:]
    for key, name in reversed(worst):
        _print(f"  slowest: by {key}, filter {name}", took[key, name])
    queue = QueueService(store, lambda: NOW + timedelta(days=1), dict, monotonic=iter(range(10**6)).__next__)
    _print("counts of the overview", [_timed(queue.figures) for _ in range(10)])
    _print("the queue", [_timed(queue.list_queue) for _ in range(10)])
    print(f"  {queue.list_queue().pending_total:,} tables wait", flush=True)


def _paged(service: OverviewService, wanted: WantedTables, order: TableOrder, pages: int) -> Iterator[Cost]:
    after = ""
    for _ in range(pages):
        pages_found: list[Page[TableRuntime]] = []
        yield _timed(
            lambda after=after, found=pages_found: found.append(service.tables(wanted, order, Window(50, after)))
        )
        (page,) = pages_found
        if not page.next:
            return
        after = page.next


def _timed(work: Callable[[], object]) -> Cost:
    began, spent = time.perf_counter(), time.thread_time()
    work()
    return time.perf_counter() - began, time.thread_time() - spent


def _print(name: str, costs: list[Cost]) -> None:
    for what, place in (("by the clock", 0), ("of a core", 1)):
        in_ms = sorted(1000 * one[place] for one in costs)
        p95 = in_ms[min(len(in_ms) - 1, int(len(in_ms) * 0.95))]
        told = f"median {statistics.median(in_ms):.1f} ms, p95 {p95:.1f} ms, most {in_ms[-1]:.1f} ms"
        print(f"{name}, {what}: {told}", flush=True)


def _served(home: Path, known: int) -> int:
    """Resident bytes of a coordinator there once it has listed all its tables to the command line."""
    home.mkdir(mode=0o700, exist_ok=True)
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdin is not None
    address = server.stdout.readline().strip()
    command = [Path(sys.executable).with_name("amoro"), "--address", address, "--home", home, "table", "list"]
    began = time.monotonic()
    listed = subprocess.run([*command, "-o", "name"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(set(listed)) == known, f"{len(listed)} of {known} were listed"
    if known:
        print(f"amoro table list -o name: {known:,} names in {time.monotonic() - began:.1f} s")
    resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
    assert resident is not None
    server.stdin.close()
    server.wait()
    return int(resident[1]) * 1024


if __name__ == "__main__":
    main()
